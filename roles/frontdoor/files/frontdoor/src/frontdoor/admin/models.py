# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles of the host as rows of `GET /v1/admin/models`, in the words of llm-pool's API."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from frontdoor.errors import Refusal
from frontdoor.slot import regular
from frontdoor.slot.state import SlotState

LOADED, LOADING, UNLOADED, UNLOADING, MODEL_FAILED = "loaded", "loading", "unloaded", "unloading", "failed"
# what llm-pool calls an engine that runs as a process of its own
_BACKENDS = {"vllm": "vllm_serve"}
# statuses that a switch refuses where the slot's own file says nothing
_REFUSED = ("rejected", "blocked")
# of a row, what stands beside the cards' memory
_MEMORY_FIELDS = (
    *("name", "runtime_state", "is_loaded", "configured_target_inflight", "effective_target_inflight"),
    *("vram_estimate_mib", "vram_estimate_replica_count", "vram_estimate_source"),
)


@dataclasses.dataclass(frozen=True)
class Running:
    """A load or unload that was begun here and has not ended."""

    verb: str
    name: str


class Profiles:
    """The resolved profiles as a load takes them, read again when a directory of theirs changed.

    One that is in use and was rendered anew waits beside the others until a load starts it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # beside the profiles stands what is decided for the whole slot
        self._slot_file = os.path.join(os.path.dirname(path), "slot.json")
        self._pending = os.path.join(os.path.dirname(path), "pending")
        self._seen: tuple[int, ...] | None = None
        # by the name of their file
        self._files: dict[str, dict[str, Any]] = {}
        self._profiles: dict[str, dict[str, Any]] = {}
        self._before = self.all()

    def all(self) -> dict[str, dict[str, Any]]:
        """Profiles by name; one that cannot be read is what it was, or left out."""
        try:
            seen = (*_stamp(self._path), *(_stamp(self._pending) if os.path.isdir(self._pending) else ()))
            if seen != self._seen:
                self._read_all()
                self._seen = seen
        except OSError:
            self._seen, self._files, self._profiles = None, {}, {}
        return self._profiles

    def reload(self, served: str | None, fingerprint: str) -> dict[str, list[str]] | Refusal:
        """Read everything now, and tell by name what has become of the profiles since the last reload, or the start.

        `served` runs, and is the one with that fingerprint.
        """
        try:
            faults = self._read_all()
        except OSError as exc:
            return Refusal(400, "invalid_settings", f"{self._path} cannot be read: {exc.strerror}")
        if faults:
            return Refusal(400, "invalid_settings", f"{'; '.join(faults)}; those are kept as they were")
        before, now = self._before, self._profiles
        if served is not None and str((now.get(served) or {}).get("fingerprint") or "") != fingerprint:
            what = "was changed" if served in now else "is no profile of this host any more"
            words = f"{served} is loaded and {what}: it runs as it was before; unload it, and load it again"
            details = {"conflicts": [f"engine.models.{served}"]}
            return Refusal(409, "settings_reload_conflict", words, details=details)
        self._before = now
        both = sorted(set(before) & set(now))
        return {
            "added_models": sorted(set(now) - set(before)),
            "removed_models": sorted(set(before) - set(now)),
            "updated_models": [name for name in both if before[name] != now[name]],
            "unchanged_models": [name for name in both if before[name] == now[name]],
        }

    def refused_statuses(self) -> tuple[str, ...]:
        """Statuses that a switch refuses, unless they are accepted by name."""
        try:
            found = orjson.loads(regular.read(self._slot_file))
            return tuple(str(status) for status in found["refused_statuses"])
        except (OSError, orjson.JSONDecodeError, LookupError, TypeError):
            return _REFUSED

    def _read_all(self) -> list[str]:
        """Read all files; return what is wrong with them. Raises OSError where there is no directory."""
        files, faults = {}, []
        waiting = os.listdir(self._pending) if os.path.isdir(self._pending) else []
        for name in sorted(name for name in os.listdir(self._path) if name.endswith(".json")):
            try:
                files[name] = self._read(os.path.join(self._pending if name in waiting else self._path, name))
            except (OSError, ValueError) as exc:
                faults.append(f"{name} is no profile: {exc}")
                if name in self._files:
                    files[name] = self._files[name]
        self._files = files
        self._profiles = {str(profile["name"]): profile for profile in files.values()}
        return faults

    @staticmethod
    def _read(path: str) -> dict[str, Any]:
        profile = orjson.loads(regular.read(path))
        if isinstance(profile, dict) and isinstance(profile.get("profile"), str):
            # a rendering that waits: the texts of its files
            profile = orjson.loads(profile["profile"])
        if not isinstance(profile, dict) or not isinstance(profile.get("name"), str):
            raise ValueError("it has no name")
        for part in ("engine", "frontdoor", "model"):
            if not isinstance(profile.get(part) or {}, dict):
                raise ValueError(f"{part} is not an object")
        return profile


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino


def runtime_state(name: str, state: SlotState, running: Running | None, failed: bool) -> str:
    """State of one profile; `failed` tells that its last load failed and nothing has been tried since."""
    if running is not None and running.name == name:
        return LOADING if running.verb == "load" else UNLOADING
    move = state.switch or {}
    if state.phase in ("switching", "verifying"):
        if move.get("to") == name:
            return LOADING
        if state.phase == "switching" and move.get("from") == name and not move.get("loading"):
            return UNLOADING
    elif (state.profile or {}).get("name") == name:
        return LOADED if state.phase == "serving" else MODEL_FAILED
    return MODEL_FAILED if failed else UNLOADED


def at_work(state: SlotState, running: Running | None) -> tuple[str, str] | None:
    """Which profile is being loaded or unloaded now, and which of the two; None when the slot rests."""
    if running is not None:
        return running.name, LOADING if running.verb == "load" else UNLOADING
    if state.phase not in ("switching", "verifying"):
        return None
    move = state.switch or {}
    if move.get("to"):
        return str(move["to"]), LOADING
    return str(move.get("from") or ""), UNLOADING


def fairness(shares: Mapping[str, tuple[int, int]], refused: int) -> dict[str, Any]:
    """How slots are shared now. The next one goes to the key with the lowest score, which is what it holds."""
    return {
        # there is none: a key may fill the queue, but waits behind those that hold fewer slots
        "rejected_per_key_limit": 0,
        "rejected_executor_limit": refused,
        "keys": [
            {"fairness_key": key.removeprefix("key "), "pending": pending, "active": held, "weight": 1.0, "score": held}
            for key, (pending, held) in shares.items()
        ],
    }


def _mib(size: Any) -> int | None:
    """Whole MiB; None for what is no number of bytes."""
    return size >> 20 if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def gpu_memory(cards: Any, error: str | None, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer about the cards' memory; what a driver does not tell is null."""
    gpus = []
    for index, card in enumerate(cards if isinstance(cards, list) else ()):
        told = card if isinstance(card, dict) else {}
        used, total = _mib(told.get("used_bytes")), _mib(told.get("total_bytes"))
        gpus.append(
            {
                "index": index,
                "name": str(told.get("node") or ""),
                "used_mib": used,
                "total_mib": total,
                "used_over_total": None if used is None or total is None else f"{used}MiB / {total}MiB",
            }
        )
    if error is None and not gpus:
        error = "this host shows no cards"
    models = [{name: one[name] for name in _MEMORY_FIELDS} for one in rows]
    return {"gpus": gpus, "models": models, "error": error}


def row(
    profile: Mapping[str, Any],
    runtime: str,
    last_error: str | None,
    active: int,
    queued: int,
    shared: dict[str, Any],
    *,
    enabled: bool = True,
) -> dict[str, Any]:
    """One entry; `enabled` tells that a switch takes it without being told to.

    `active`, `queued` and `shared` are of the slot now, which are those of a loaded model.
    """
    loaded = runtime == LOADED
    engine, limits, model = (profile.get(part) or {} for part in ("engine", "frontdoor", "model"))
    modalities = profile.get("modalities") or []
    backend = str(engine.get("kind") or "")
    target = limits.get("max_active_generations") or 1
    return {
        "name": profile["name"],
        "resolved_backend": _BACKENDS.get(backend, backend),
        "configured_enabled": enabled,
        "runtime_state": runtime,
        "is_loaded": loaded,
        "replicas": 1,
        "replica_max": 1,
        "loaded_replicas": int(loaded),
        "inflight_requests": active if loaded else 0,
        "queue_depth": queued if loaded else 0,
        "runtime_inflight": active if loaded else 0,
        "configured_target_inflight": target,
        "effective_target_inflight": target,
        "last_error": last_error,
        # what a card holds is not told by model, see `gpu_memory`
        "vram_estimate_mib": None,
        "vram_estimate_replica_count": None,
        "vram_estimate_source": "unavailable",
        # a profile is changed in the catalogue, never on load
        "load_constraints": {},
        "load_recommendations": {},
        "load_override": None,
        "capabilities": {
            "modalities": modalities,
            "file_inputs": [],
            "multi_turn": True,
            "thinking_modes": ["default"],
            "response_formats": ["json_schema"],
        },
        "definition": {
            "title": profile.get("title") or "",
            "status": profile.get("status") or "",
            "status_reason": profile.get("status_reason") or "",
            "hf_id": model.get("hf_repo") or "",
            "served_model_name": engine.get("served_model_name") or "",
            "max_model_len": engine.get("max_model_len"),
            "cards": profile.get("cards"),
            "fingerprint": profile.get("fingerprint") or "",
        },
        "fairness": shared if loaded else fairness({}, 0),
    }


_COUNT, _SHARE, _TEXT = "a whole number above 0", "a number from 0 to 1", "a text"
# what may be sent along with a load, by kind; a profile is what was verified, so that nothing of it can be changed
_KINDS = dict.fromkeys(
    (
        *("replicas", "vllm_max_model_len", "vllm_kv_cache_memory_bytes", "vllm_max_pixels"),
        *("vllm_num_speculative_tokens", "gguf_n_ctx", "exllama_cache_size", "exllama_max_rq_tokens"),
        *("exllama_cache_k_bits", "exllama_cache_v_bits", "llama_server_n_ctx", "llama_server_image_max_tokens"),
        "llama_server_spec_draft_n_max",
    ),
    _COUNT,
)
_KINDS |= dict.fromkeys(
    (
        *("vllm_kv_cache_dtype", "vllm_speculative_method", "vllm_speculative_model", "vllm_speculative_moe_backend"),
        *("vllm_speculative_attention_backend", "gguf_flash_attn", "gguf_type_k", "gguf_type_v"),
        *("exllama_cache_quant", "llama_server_spec_type"),
    ),
    _TEXT,
)
_KINDS["llama_server_spec_draft_p_min"] = _SHARE


def _fits(kind: str, value: Any) -> bool:
    # a boolean is an int in Python, and never meant as one
    if value is None:
        return True
    if kind is _TEXT:
        return isinstance(value, str)
    if kind is _COUNT:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def overrides(verb: str, body: bytes) -> dict[str, Any] | Refusal:
    """What a client of the API sends along with a load, or why it cannot be meant; an unload takes nothing along.

    Fields are known by name and kind. A field that is there counts, also with null.
    """
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


def refused_overrides(name: str, wanted: dict[str, Any], *, settled: bool) -> Refusal | None:
    """Why a load cannot be done as it is asked for; `settled` tells that the model is loaded or being loaded."""
    # one replica is what there is
    changed = sorted(field for field, value in wanted.items() if settled or (field, value) != ("replicas", 1))
    if not changed:
        return None
    words = f"{', '.join(changed)} cannot be set on load: a profile is served as it was verified; write another profile"
    if settled:
        words = f"{name} is loaded already, and {', '.join(changed)} cannot be set on it; send an empty body"
    return Refusal(400, "invalid_load_request", words, details={"model": name})
