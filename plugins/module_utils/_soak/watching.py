# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to a served engine, for work that watches it for hours. Whatever the answer, they change nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._evidence.job import Commission
from .._slot.ask.canary import CanaryResult
from .._slot.decide import machine
from .._slot.decide.machine import RunKind
from .._slot.do import asking, phases
from .._slot.do.progress import ProgressFile
from .._slot.do.run import Run
from .._slot.look.frontdoor import FrontdoorLink, read_state
from .._slot.look.observe import load_profile, observe, slot_units
from .._slot.model import quarantine
from .._slot.model.profile import BURST, Profile
from .._slot.model.state_file import stamp
from .._slot.words.effects import Effects
from .._slot.words.types import Layout, Request, SlotFault, UnitState


@dataclass(frozen=True)
class Served:
    """The engine processes that are served and verified. invocation_id: that of each, one word each.

    restarts: how often systemd had restarted them.
    """

    profile: Profile
    invocation_id: str
    restarts: int
    user: str


@dataclass(frozen=True)
class Gone:
    """The reason why the watched engine is no longer served. how: lost (a card), crashed or replaced."""

    how: str
    why: str


def served(fx: Effects, layout: Layout) -> Served:
    """Return the engine that is served and verified; raise SlotFault if there is none."""
    state, (units, _legacy) = read_state(fx, layout), slot_units(fx, layout)
    found = [unit for unit in units if state and unit.settled and unit.invocation_id in state.passed]
    if state is None or not found or not (state.open and state.verified):
        raise SlotFault(f"slot {layout.slot} serves no verified engine; `b70ctl switch PROFILE` starts one")
    profile = load_profile(fx, layout, layout.profile_of(found[0].name)).on([found[0].name])
    if len(found) < len(profile.units):
        words = f"{len(found)} of {len(profile.units)} replicas"
        raise SlotFault(f"slot {layout.slot} serves {words} of {profile.name}; `b70ctl recover` starts the others")
    return Served(profile, _invocations(found), sum(unit.restarts for unit in found), found[0].user)


def _invocations(units: Sequence[UnitState]) -> str:
    return " ".join(unit.invocation_id for unit in units)


def gone(fx: Effects, layout: Layout, watched: Served) -> Gone | None:
    """Return why the engine is another process or the host can't be trusted; None if all is as it was."""
    held = quarantine.read(fx, layout)
    if held is not None:
        return Gone("lost", held.published())
    state, (units, _legacy) = read_state(fx, layout), slot_units(fx, layout)
    match = quarantine.lost_while_serving(fx, state, units)
    if match is not None:
        return Gone("lost", f"the engine is gone with {match.symptom.id}: {match.line[:200]}")
    engines = [unit for unit in units if unit.name in watched.profile.units]
    if all(unit.settled for unit in engines) and _invocations(engines) == watched.invocation_id:
        return None
    failed = [unit for unit in engines if unit.result != "success"]
    if failed or sum(unit.restarts for unit in engines) > watched.restarts:
        unit = next(
            (unit for unit in (*failed, *engines) if unit.invocation_id not in watched.invocation_id), engines[0]
        )
        return Gone("crashed", f"{unit.name} ended by itself and is {unit.describe()}")
    now = "nothing" if state is None else state.profile_name if state.phase == "serving" else state.phase
    return Gone("replaced", f"the engine of {watched.profile.name} was stopped or replaced; the slot: {now}")


class WatchingHost:
    """The effects on this host of work that watches an engine; see watched.WatchEffects."""

    def __init__(self, told: Commission, watched: Served) -> None:
        self._told, self._fx, self._layout, self._watched = told, told.fx, told.layout, watched

    def monotonic(self) -> float:
        return self._fx.clock.monotonic()

    def now(self) -> str:
        return stamp(self._fx.clock.now())

    def sleep(self, seconds: float) -> None:
        self._fx.clock.sleep(seconds)

    def gone(self) -> tuple[str, str] | None:
        try:
            found = gone(self._fx, self._layout, self._watched)
        except SlotFault:
            return None  # systemd gave no answer; the next look will tell
        return None if found is None else (found.how, found.why)

    def save(self, seen: Mapping[str, Any]) -> None:
        self._told.work.save_seen(seen)


def ask(
    fx: Effects, layout: Layout, watched: Served, *, only: Collection[str] = (), repeats: int | None = None
) -> tuple[tuple[CanaryResult, ...], str]:
    """Ask the canary. Return its results, and why it was not asked to its end or did not pass (empty: it passed).

    :param only: names of the cases to ask; all of them if it is empty.
    """
    request = Request(layout.slot, watched.profile.name, recheck=True, canary_repeats=repeats)
    run = Run(fx, layout, request, FrontdoorLink(fx, layout), ProgressFile(fx, layout, "", os.getpid()))
    try:
        run.know(seen=observe(fx, layout, request))
        run.know(plan=machine.plan(request, run.seen))
        if run.plan.kind is not RunKind.RECHECK:
            raise SlotFault(f"the engine of {watched.profile.name} is not served, verified")
        if only and run.seen.target is not None:
            run.know(seen=replace(run.seen, target=_with_cases(run.seen.target, only)))
        phases.alive(run)
        if {engine.invocation_id for engine in run.engines} != {*watched.invocation_id.split()}:
            raise SlotFault(f"the engine of {watched.profile.name} is another process by now")
        phases.health(run)
        asking.canary(run)
    except SlotFault as fault:
        return tuple(run.evidence.canary), fault.message
    return tuple(run.evidence.canary), ""


def _with_cases(profile: Profile, only: Collection[str]) -> Profile:
    """Return the profile with these cases only. The burst is made of the other cases, so with it all are asked."""
    if BURST in only:
        return profile
    cases = tuple(case for case in profile.canary.cases if case.name in only)
    return replace(profile, canary=replace(profile.canary, cases=cases, burst=0))
