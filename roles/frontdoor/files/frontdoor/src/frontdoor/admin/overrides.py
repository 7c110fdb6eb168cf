# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client of llm-pool's API may send along with a load: known by name and kind, and refused with the reason.

A profile is what was verified, so nothing of it can be changed on load. A field that is there counts, also with null.
"""

from __future__ import annotations

from typing import Any

import orjson

from frontdoor.errors import Refusal

_COUNT, _SHARE, _TEXT = "a whole number above 0", "a number from 0 to 1", "a text"
_KINDS = {
    "replicas": _COUNT,
    "vllm_max_model_len": _COUNT,
    "vllm_kv_cache_dtype": _TEXT,
    "vllm_kv_cache_memory_bytes": _COUNT,
    "vllm_max_pixels": _COUNT,
    "vllm_speculative_method": _TEXT,
    "vllm_speculative_model": _TEXT,
    "vllm_speculative_moe_backend": _TEXT,
    "vllm_speculative_attention_backend": _TEXT,
    "vllm_num_speculative_tokens": _COUNT,
    "gguf_n_ctx": _COUNT,
    "gguf_flash_attn": _TEXT,
    "gguf_type_k": _TEXT,
    "gguf_type_v": _TEXT,
    "exllama_cache_size": _COUNT,
    "exllama_max_rq_tokens": _COUNT,
    "exllama_cache_k_bits": _COUNT,
    "exllama_cache_v_bits": _COUNT,
    "exllama_cache_quant": _TEXT,
    "llama_server_n_ctx": _COUNT,
    "llama_server_image_max_tokens": _COUNT,
    "llama_server_spec_type": _TEXT,
    "llama_server_spec_draft_n_max": _COUNT,
    "llama_server_spec_draft_p_min": _SHARE,
}


def _fits(kind: str, value: Any) -> bool:
    # a boolean is an int in Python, and never meant as one
    if value is None:
        return True
    if kind is _TEXT:
        return isinstance(value, str)
    if kind is _COUNT:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def read(verb: str, body: bytes) -> dict[str, Any] | Refusal:
    """What a body asks for, or why it cannot be meant. An unload takes nothing along."""
    if not body.strip():
        return {}
    try:
        wanted = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        return Refusal(422, "invalid_body", f"the body is not JSON: {exc}")
    if not isinstance(wanted, dict):
        return Refusal(422, "invalid_body", "the body is not a JSON object")
    strange = sorted(field for field in wanted if verb == "unload" or field not in _KINDS)
    if strange:
        return Refusal(422, "invalid_body", f"unknown field: {', '.join(strange)}")
    wrong = sorted(field for field, value in wanted.items() if not _fits(_KINDS[field], value))
    if wrong:
        words = "; ".join(f"{field} is not {_KINDS[field]}" for field in wrong)
        return Refusal(422, "invalid_body", words)
    return wanted


def refused(name: str, wanted: dict[str, Any], *, settled: bool) -> Refusal | None:
    """Why a load cannot be done as it is asked for; `settled` tells that the model is loaded or being loaded."""
    # one replica is what there is
    changed = sorted(field for field, value in wanted.items() if settled or (field, value) != ("replicas", 1))
    if not changed:
        return None
    words = f"{', '.join(changed)} cannot be set on load: a profile is served as it was verified; write another profile"
    if settled:
        words = f"{name} is loaded already, and {', '.join(changed)} cannot be set on it; send an empty body"
    return Refusal(400, "invalid_load_request", words, details={"model": name})
