# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a slot does by itself after a boot, a restart of its engine, or an interrupted switch. The choice is pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import quarantine, replicas
from .journal import INTERRUPTED, Memory
from .observe import slot_units
from .profile import STATUSES
from .quarantine import Quarantine
from .run import Run
from .state_file import SlotState
from .types import End, Fault, Gate, Layout, Mode, OnFailure, Request, UnitState

# A profile that was committed once was accepted then, whatever its status says.
_ANY_STATUS = STATUSES


@dataclass(frozen=True)
class Choice:
    """profile: what the slot is to serve, behind which gate. act False: leave everything as it is, and say why."""

    profile: str | None
    why: str
    gate: Gate = Gate.VERIFIED
    act: bool = True


def _live(state: SlotState | None, units: Sequence[UnitState]) -> bool:
    """Does a process run that the state file was written for?"""
    return state is not None and any(unit.invocation_id in state.passed and unit.settled for unit in units)


def gate_of(memory: Memory, profile: str) -> Gate:
    """The gate behind which the profile was served last."""
    for attempt in reversed(memory.attempts):
        if attempt.profile == profile and attempt.outcome in (End.COMMITTED, End.ROLLED_BACK) and attempt.gate:
            # The way back always verifies, whatever was asked of the way there.
            return Gate(attempt.gate) if attempt.outcome == End.COMMITTED else Gate.VERIFIED
    return Gate.VERIFIED


def brought_back(memory: Memory, ended: Quarantine | None) -> str | None:
    """What a reboot brings back: what was committed last, where the slot was stopped since because a card was lost.

    ended: the quarantine that the reboot ended. A slot that somebody wanted stopped stays so.
    """
    finished = [attempt for attempt in memory.attempts if attempt.outcome not in (None, INTERRUPTED, End.UNTOUCHED)]
    if ended is None or not finished:
        return None
    last = finished[-1]
    if last.outcome != End.STOPPED or last.on_failure != OnFailure.ROLLBACK or last.boot != ended.boot_id:
        return None
    served = (known for known in reversed(finished) if known.outcome in (End.COMMITTED, End.ROLLED_BACK))
    return next((known.profile for known in served), None)


def choose(
    layout: Layout,
    state: SlotState | None,
    units: Sequence[UnitState],
    memory: Memory,
    mode: Mode,
    ended: Quarantine | None = None,
) -> Choice:
    """What the slot is to serve now. ended: see `brought_back`.

    Only a switch enables a unit, at its commit, and disables it before it stops it: so the enabled unit is what shall
    run. Between those two the journal knows, in the entry that has no end. An engine that somebody started by hand is
    left alone by Mode.BOOT, and never served.
    """
    lost = memory.interrupted
    enabled = next((layout.profile_of(unit.name) for unit in units if unit.enabled), None)
    up = [layout.profile_of(unit.name) for unit in units if unit.running]
    running = next(iter(up), None)
    back = brought_back(memory, ended)
    if lost is not None and lost.target is None:
        return Choice(None, f"the stop {lost.id} was interrupted")
    if lost is not None:
        served = state.profile_name if state is not None and state.phase == "serving" and _live(state, units) else None
        verified = memory.verified.profile if memory.verified is not None else None
        name = served or enabled or verified or back
        why = f"the switch {lost.id} to {lost.target} was interrupted in phase {lost.phase or 'journal'}"
        if name is None:
            return Choice(None, f"{why}, and no profile was verified before it")
        return Choice(name, why, gate_of(memory, name))
    if enabled is None:
        if running is not None:
            return Choice(
                None, f"{running} runs without having been committed by a switch; it is not served", act=False
            )
        if back is not None:
            return Choice(back, f"{back} was served until a card was lost before this boot", gate_of(memory, back))
        return Choice(None, "no profile was committed, so nothing is to run", act=False)
    if mode is Mode.BOOT and up and enabled not in up:
        return Choice(None, f"{running} was started by hand while {enabled} is the committed one", act=False)
    return Choice(enabled, f"{enabled} is the committed profile", gate_of(memory, enabled))


def settled_request(request: Request, choice: Choice) -> Request:
    """The request that does what was chosen."""
    return replace(
        request,
        profile=choice.profile,
        active=choice.profile is not None,
        gate=choice.gate,
        accept_status=_ANY_STATUS,
        why=request.why or choice.why,
    )


def close_unproven(run: Run, why: str) -> None:
    """Closes what is open for a process that is gone: nobody verified what runs now."""
    try:
        state = run.front.current()
        units = slot_units(run.fx, run.layout)[0]
        for text in quarantine.look_back(run.fx, run.layout, state, units, run.request.switch_id):
            run.warn(text)
        live = {unit.invocation_id for unit in units if unit.settled}
        gone = {} if state is None else replicas.without_the_dead(state, live, why)
        if state is None or not gone:
            return
        if not gone["open"]:
            close(run, why)
        else:
            run.front.publish(state.fields | gone)
    except (Fault, OSError) as fault:
        # The frontdoor asks systemd as well which process runs, and lets nobody in to another one.
        run.warn(f"whether what is served is still what was verified could not be looked at: {fault}")


def close(run: Run, why: str) -> None:
    """Closes the frontdoor, as far as it can be told to."""
    try:
        run.front.publish({"phase": "failed", "reason": why})
    except (Fault, OSError) as fault:
        # It may be written; being told to end now only ends the wait for the frontdoor.
        run.warn(f"the frontdoor could not be closed: {fault}")
