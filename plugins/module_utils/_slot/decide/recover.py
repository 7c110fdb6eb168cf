# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose what a slot is to serve after a boot, a restart of its engine, or an interrupted switch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model import replicas
from ..model.journal import INTERRUPTED, Attempt, JournalMemory
from ..model.profile import STATUSES
from ..model.state_file import SlotState
from ..words.types import End, Gate, Layout, Mode, Request, UnitState

# A committed profile was accepted when it was committed, whatever its status says.
_ANY_STATUS = STATUSES


BY_HAND = "it was stopped by hand"


@dataclass(frozen=True)
class Choice:
    """The choice of what the slot is to serve, behind which gate, and why.

    act: False to leave everything as it is. tell: whether clients are told why, because somebody did that by hand.
    """

    profile: str | None
    why: str
    gate: Gate = Gate.VERIFIED
    act: bool = True
    tell: bool = False


def _live(state: SlotState | None, units: Sequence[UnitState]) -> bool:
    """Return whether a process runs that the state file was written for."""
    return state is not None and any(unit.invocation_id in state.passed and unit.settled for unit in units)


def stopped_by_hand(state: SlotState | None, units: Sequence[UnitState]) -> tuple[UnitState, ...]:
    """Return the units of engines that were served, and that somebody has stopped with systemctl.

    An engine that ends in any other way fails, or is started again. A switch closes an engine before it stops it. After
    a boot no unit has run, and no state is left.
    """
    if state is None:
        return ()
    if state.replicas is None:
        parts = [state.engine] if state.phase in ("serving", "stopped") else []
    else:
        parts = [row.get("engine") for row in state.replicas if row["open"] or row.get("reason") == BY_HAND]
    known = {part["unit"]: part["invocation_id"] for part in parts if part}
    down = (unit for unit in units if (unit.active, unit.result) == ("inactive", "success") and unit.invocation_id)
    return tuple(unit for unit in down if known.get(unit.name) == unit.invocation_id)


def _unsettled(memory: JournalMemory) -> Attempt | None:
    """Return the interrupted attempt that no run has settled since. One that touched nothing has settled nothing."""
    ended = (attempt for attempt in reversed(memory.attempts) if attempt.outcome not in (End.UNTOUCHED, End.DEFERRED))
    last = next(ended, None)
    return last if last is not None and last.outcome in (None, INTERRUPTED) else None


def choose(
    layout: Layout, state: SlotState | None, units: Sequence[UnitState], memory: JournalMemory, mode: Mode
) -> Choice:
    """Choose what the slot is to serve now: what the journal says, whatever has happened since.

    A switch that was interrupted has said nothing yet, so the slot goes back to what was wanted before it; one whose
    target is served already is brought to its end. An engine that somebody started by hand is never served, and
    Mode.BOOT leaves it alone, as it does an engine that somebody stopped by hand. A journal that says nothing leaves
    the word to the boot link.
    """
    lost, wanted = _unsettled(memory), memory.wanted
    last = memory.attempts[-1] if memory.attempts else None
    enabled = next((layout.profile_of(unit.name) for unit in units if unit.enabled), None)
    up = [layout.profile_of(unit.name) for unit in units if unit.running]
    running = next(iter(up), None)
    name = enabled if wanted is None else wanted.profile
    gate = Gate(wanted.gate) if wanted is not None and wanted.profile and wanted.gate else Gate.VERIFIED
    if lost is not None and lost.target is None:
        return Choice(None, f"the stop {lost.id} was interrupted")
    if lost is not None:
        served = state.profile_name if state is not None and state.phase == "serving" and _live(state, units) else None
        why = f"the switch {lost.id} to {lost.target} was interrupted in phase {lost.phase or 'journal'}"
        if served is None and name is None:
            return Choice(None, f"{why}, and no profile was committed before it")
        return Choice(served or name, why, gate if served in (None, name) else Gate(lost.gate or Gate.VERIFIED))
    # An engine that a run could not end was not started by hand.
    ours = running is not None and last is not None and last.outcome in (End.STUCK, End.DEFERRED)
    if wanted is not None and wanted.left:
        return Choice(None, wanted.published(), act=False)
    if name is None:
        if running is not None and enabled is None and not ours:
            words = f"{running} runs without having been committed by a switch; it is not served"
            return Choice(None, words, act=False, tell=True)
        if ours or enabled is not None:
            return Choice(None, f"nothing is to be served, and {running or enabled} is left")
        said = "no profile was committed, so nothing is to run" if wanted is None else wanted.published()
        return Choice(None, said, act=False)
    by_boot = any(unit.running and unit.enabled for unit in units)  # whatever the boot link says
    if mode is Mode.BOOT and up and name not in up and not ours and not by_boot:
        return Choice(None, f"{running} was started by hand while {name} is the committed one", act=False, tell=True)
    by_hand = stopped_by_hand(state, units) if mode is Mode.BOOT else ()
    if by_hand and not up:
        words = f"{by_hand[0].name} was stopped by hand; `b70ctl recover` serves {name} again"
        return Choice(None, words, act=False, tell=True)
    return Choice(name, f"{name} is the committed profile", gate)


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


def without_the_dead(state: SlotState | None, units: Sequence[UnitState], why: str) -> dict[str, Any]:
    """Return the fields of the state that change because served processes are gone; empty if none is gone."""
    live = {unit.invocation_id for unit in units if unit.settled}
    by_hand = bool(stopped_by_hand(state, units))
    gone = {} if state is None else replicas.without_the_dead(state, live, why, BY_HAND if by_hand else replicas.GONE)
    return {**gone, "phase": "stopped"} if gone and not gone["open"] and by_hand else gone
