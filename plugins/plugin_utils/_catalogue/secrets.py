# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise secrets among the variables of an engine, which a profile, a play and the host's files show."""

from __future__ import annotations

import re

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.redact import clean, is_secret_name

_HUB = "the role variable model_weights_hub_token"
_CLIENTS = "the role variable frontdoor_api_keys: the engine listens on loopback only"
_BELONGS = {
    "HF_TOKEN": _HUB,
    "HF_HUB_TOKEN": _HUB,
    "HUGGING_FACE_HUB_TOKEN": _HUB,
    "HUGGINGFACE_HUB_TOKEN": _HUB,
    "HUGGINGFACE_TOKEN": _HUB,
    "VLLM_API_KEY": _CLIENTS,
    "LLAMA_API_KEY": _CLIENTS,
    "OPENAI_API_KEY": _CLIENTS,
}
_SWITCH = re.compile(r"(?:[01]|true|false|yes|no|on|off)?", re.IGNORECASE)


def place_of(name: str, value: object) -> str:
    """Return where the secret in this variable belongs; empty if the variable has none."""
    if name in _BELONGS:
        return _BELONGS[name]
    text = str(value)
    named = is_secret_name(name) and not _SWITCH.fullmatch(text) and not text.startswith("/")
    return "no variable of an engine: none of the engines here needs it" if named or clean(text) != text else ""
