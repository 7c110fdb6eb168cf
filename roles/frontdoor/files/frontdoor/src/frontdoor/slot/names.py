# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names by which clients know a slot: those of what it serves, or served last before it was stopped."""

from __future__ import annotations

from pathlib import Path

import orjson

from frontdoor.slot import regular
from frontdoor.slot.journal import History
from frontdoor.slot.state import SlotState


def names_of(state: SlotState) -> tuple[str, ...]:
    """The served name and its aliases; none where the slot serves nothing."""
    name = str((state.profile or {}).get("served_model_name") or "")
    return (name, *state.rules.model_aliases) if name else ()


def names_before(state: SlotState, history: History, profiles_dir: str) -> tuple[str, ...]:
    """The names of the profile that the journal names last, for a process that began when the slot was stopped."""
    for switch in history.switches():
        profile = switch["served"] or switch["from"]
        if profile:
            try:
                told = orjson.loads(regular.read(Path(profiles_dir) / f"{profile}.json"))
                aliases = told["frontdoor"]["model_aliases"]
                return (
                    told["engine"]["served_model_name"],
                    *(state.rules.model_aliases if aliases is None else aliases),
                )
            except (OSError, ValueError, LookupError, TypeError):
                return ()
    return ()
