# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of models: the engine's answer, with what the slot knows about it."""

from __future__ import annotations

from typing import Any

import orjson

from frontdoor.slot.state import SlotState

KEY = "b70"


def enriched(body: bytes, state: SlotState) -> dict[str, Any] | None:
    """The engine's list with profile, modalities and limits under one key of each model, and the aliases.

    None where the engine's answer is no list.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        return None
    about = _about(state)
    served = about["served_model_name"]
    known = {model.get("id") for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)}
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
    return dict(answer)


def find(answer: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The model of that name in an enriched list."""
    return next((model for model in answer["data"] if isinstance(model, dict) and model.get("id") == name), None)


def names(answer: dict[str, Any]) -> list[str]:
    """The names in an enriched list."""
    return [model["id"] for model in answer["data"] if isinstance(model, dict) and isinstance(model.get("id"), str)]


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
