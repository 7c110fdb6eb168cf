# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the state file says of each of several engines. Pure.

Whoever knows only one engine reads the first that is open, so the top level of the state follows from the entries.
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
    """One engine. single: of `Profile.singles`. reason: why it is not open, for everybody to read."""
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
    """What the state says of each engine of the profile; None of one that it does not know.

    any_rendering: also of those that were started from another rendering of it.
    """
    same = state is not None and (any_rendering or state.fingerprint == profile.fingerprint)
    rows = state.replicas or () if state is not None and same else ()
    said = {row.get("index"): row for row in rows if state is not None and state.profile_name == profile.name}
    return [said.get(single.replica) for single in profile.singles]


def still_open(row: Entry | None, live: Collection[str]) -> bool:
    """Is the engine open, and its process still the one that was verified? live: invocation ids of what runs."""
    return row is not None and bool(row["open"]) and (row["engine"] or {}).get("invocation_id") in live


def as_rendered(rows: Sequence[Entry], profile: Profile) -> list[dict[str, Any]]:
    """The same with the address, the cards and the limits that the profile gives each."""
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
    """The fields of an open state that don't hold any more because processes that were verified are gone.

    Empty while all holds. reason: why the slot is closed where none is left. why_gone: of each of several, why it is.
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
    """The fields of the state while what the old engine generates runs out, and all that is new goes to the new one.

    The old one keeps its place, by which the frontdoor knows what it has under way there.
    """
    rows = [
        entry(replace(old, replica=0), old.numbers, old_engine, reason=MOVED),
        entry(replace(new, replica=1), new.numbers, new_engine, is_open=True, verified=True),
    ]
    return together(rows)


def closed(rows: Sequence[Entry] | None) -> list[Entry] | None:
    """The same, all closed."""
    return None if rows is None else [{**row, "open": False} for row in rows]


def together(rows: Sequence[Entry]) -> dict[str, Any]:
    """The fields of the state that follow from the entries."""
    opened = [row for row in rows if row["open"]]
    first = (opened or rows)[0]
    return {
        "replicas": list(rows),
        "open": bool(opened),
        "verified": bool(opened) and all(row["verified"] for row in opened),
        "backend_url": first["backend_url"],
        "engine": first["engine"],
    }
