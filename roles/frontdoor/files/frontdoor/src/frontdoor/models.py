# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of models: the engine's answer, with what the slot knows about it."""

from __future__ import annotations

from typing import Any

import orjson

from frontdoor.state import SlotState

KEY = "b70"


def enriched(body: bytes, state: SlotState) -> bytes:
    """Add profile, modalities and limits under one key of each model, and the aliases; no list stays as it came."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        return body
    about = _about(state)
    served = about["served_model_name"]
    known = {model.get("id") for model in data if isinstance(model, dict)}
    aliases = []
    for model in data:
        if isinstance(model, dict):
            model[KEY] = about
            if model.get("id") == served:
                aliases = [
                    {**model, "id": alias, "parent": served, KEY: {**about, "alias_of": served}}
                    for alias in state.rules.model_aliases
                    if alias not in known
                ]
    data += aliases
    return orjson.dumps(answer)


def _about(state: SlotState) -> dict[str, Any]:
    profile = state.profile or {}
    return {
        "profile": profile.get("name", ""),
        "title": profile.get("title", ""),
        "status": profile.get("status", ""),
        "served_model_name": profile.get("served_model_name", ""),
        "modalities": profile.get("modalities") or [],
        "fingerprint": profile.get("fingerprint", ""),
        "verified": state.verified,
        "verified_at": state.verified_at,
        "limits": {
            "max_model_len": profile.get("max_model_len"),
            "max_active_generations": state.max_active_generations,
            "queue_timeout_s": state.queue_timeout_s,
            "max_tokens_default": state.rules.max_tokens_default,
            "max_tokens_cap": state.rules.max_tokens_cap,
        },
    }
