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

# A committed profile was accepted when it was committed, whatever its status says.
_ANY_STATUS = STATUSES


@dataclass(frozen=True)
class Choice:
    """What the slot is to serve, behind which gate, and why. act: False to leave everything as it is."""

    profile: str | None
    why: str
    gate: Gate = Gate.VERIFIED
    act: bool = True


def _live(state: SlotState | None, units: Sequence[UnitState]) -> bool:
    """Return whether a process runs that the state file was written for."""
    return state is not None and any(unit.invocation_id in state.passed and unit.settled for unit in units)


def gate_of(memory: Memory, profile: str) -> Gate:
    """Return the gate behind which the profile was served last."""
    for attempt in reversed(memory.attempts):
        if attempt.profile == profile and attempt.outcome in (End.COMMITTED, End.ROLLED_BACK) and attempt.gate:
            # The way back always verifies, whatever gate the way forward had.
            return Gate(attempt.gate) if attempt.outcome == End.COMMITTED else Gate.VERIFIED
    return Gate.VERIFIED


def brought_back(memory: Memory, ended: Quarantine | None) -> str | None:
    """Return what a reboot brings back: the last committed profile, if the loss of a card has stopped the slot since.

    ended: the quarantine that the reboot ended. A slot that somebody stopped on purpose stays stopped.
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
    """Choose what the slot is to serve now. ended: see `brought_back`.

    Only a switch enables a unit, at its commit, and it disables a unit before it stops it: so the enabled unit is what
    is to run. Between the two, the journal shows the switch as an entry without an end. An engine that somebody started
    by hand is never served, and Mode.BOOT leaves it alone.
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
    """Return the request that does what was chosen."""
    return replace(
        request,
        profile=choice.profile,
        active=choice.profile is not None,
        gate=choice.gate,
        accept_status=_ANY_STATUS,
        why=request.why or choice.why,
    )


def close_unproven(run: Run, why: str) -> None:
    """Close what is open for a process that is gone: nobody verified what runs now."""
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
        # The frontdoor also asks systemd which process runs, and lets no client in to another one.
        run.warn(f"whether what is served is still what was verified could not be looked at: {fault}")


def close(run: Run, why: str) -> None:
    """Close the frontdoor, or warn that it could not be closed."""
    try:
        run.front.publish({"phase": "failed", "reason": why})
    except (Fault, OSError) as fault:
        # The state may be written: if this run is told to end now, that only ends the wait for the frontdoor.
        run.warn(f"the frontdoor could not be closed: {fault}")
