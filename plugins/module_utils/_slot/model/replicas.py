# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of the state file for each of several engines. Pure.

The top level of the state follows from the entries: readers that know only one engine find the first open one there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .profile import Profile
from .state_file import SlotState

GONE = "its process is gone"
WAITS = "it is not verified yet"
MOVED = "clients were moved to another engine"

Entry = Mapping[str, Any]


def entry(
    single: Profile,
    cards: Sequence[int],
    engine: Mapping[str, Any] | None,
    *,
    is_open: bool = False,
    verified: bool = False,
    reason: str = "",
) -> dict[str, Any]:
    """Return one engine's entry. single: one of `Profile.singles`. reason: why it is closed, for everybody to read."""
    return {
        "index": single.replica,
        "backend_url": single.engine.backend_url,
        "cards": list(cards),
        "open": is_open,
        "verified": verified,
        "reason": "" if is_open else reason,
        "limits": {
            "max_active_generations": single.frontdoor.max_active_generations,
            "max_model_len": single.engine.max_model_len,
        },
        "engine": engine,
    }


def known(state: SlotState | None, profile: Profile, *, any_rendering: bool = False) -> Sequence[Entry | None]:
    """Return the state's entry for each engine of the profile; None for one that the state does not know.

    any_rendering: also for engines that were started from another rendering of the profile.
    """
    same = state is not None and (any_rendering or state.fingerprint == profile.fingerprint)
    rows = state.replicas or () if state is not None and same else ()
    said = {row.get("index"): row for row in rows if state is not None and state.profile_name == profile.name}
    return [said.get(single.replica) for single in profile.singles]


def still_open(row: Entry | None, live: Collection[str]) -> bool:
    """Return whether the engine is open and still the process that was verified. live: invocation ids of what runs."""
    return row is not None and bool(row["open"]) and (row["engine"] or {}).get("invocation_id") in live


def as_rendered(rows: Sequence[Entry], profile: Profile) -> list[dict[str, Any]]:
    """Return the entries with the address, the cards and the limits that the profile gives each engine."""
    fresh = (
        {
            single.replica: entry(single, own.cards, None)
            for single, own in zip(profile.singles, profile.replicas, strict=True)
        }
        if profile.replicas
        else {}
    )
    return [
        {**row, **{key: fresh[row["index"]][key] for key in ("backend_url", "cards", "limits")}}
        if row["index"] in fresh
        else dict(row)
        for row in rows
    ]


def without_the_dead(state: SlotState, live: Collection[str], reason: str, why_gone: str = GONE) -> dict[str, Any]:
    """Return the fields of an open state that change because verified processes are gone; empty if none is gone.

    reason: why the slot is closed, if no engine is left. why_gone: why each of several engines is closed.
    """
    shut = {"open": False, "verified": False, "phase": "failed", "reason": reason}
    if not state.open:
        return {}
    if state.replicas is None:
        return {} if state.invocation_id in live else shut
    rows = [
        row
        if not row["open"] or still_open(row, live)
        else {**row, "open": False, "verified": False, "reason": why_gone}
        for row in state.replicas
    ]
    if rows == list(state.replicas):
        return {}
    found = together(rows)
    return found if found["open"] else {**found, **shut}


def moved(
    old: Profile, old_engine: Mapping[str, Any] | None, new: Profile, new_engine: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the state's fields while the old engine finishes its generations and the new one gets all new ones.

    The old engine keeps its place, by which the frontdoor knows the generations that run there.
    """
    rows = [
        entry(replace(old, replica=0), old.numbers, old_engine, reason=MOVED),
        entry(replace(new, replica=1), new.numbers, new_engine, is_open=True, verified=True),
    ]
    return together(rows)


def closed(rows: Sequence[Entry] | None) -> list[Entry] | None:
    """Return the entries, all closed."""
    return None if rows is None else [{**row, "open": False} for row in rows]


def together(rows: Sequence[Entry]) -> dict[str, Any]:
    """Return the fields of the state that follow from the entries."""
    opened = [row for row in rows if row["open"]]
    first = (opened or rows)[0]
    return {
        "replicas": list(rows),
        "open": bool(opened),
        "verified": bool(opened) and all(row["verified"] for row in opened),
        "backend_url": first["backend_url"],
        "engine": first["engine"],
    }
