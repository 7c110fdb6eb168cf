# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next step of a slot's controller. Pure: what is wanted and what is seen go in, one step comes out.

Trouble never changes what is wanted. It leads to tries with growing pauses, for ever: those of one engine delay no
other. A new word of a person, a quarantine that ends and a boot begin anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..model.liveness import Policy, Rung

FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 600.0
BUSY = "a switch is at work"
STARTS = "systemd starts the engine again"
LOOK_S = 10.0  # between two looks, unless something happens


class Do(StrEnum):
    """REST: look again later. SETTLE: bring what is seen to what is wanted. VERIFY: run the canary on what is served.
    ASK: ask idle engines a short question."""

    REST = "rest"
    SETTLE = "settle"
    VERIFY = "verify"
    ASK = "ask"


@dataclass(frozen=True)
class Tries:
    """The tries in a row that failed to serve one engine.

    reason: of the last one, in words that everybody may read. ended: when it ended, in monotonic seconds. invocation:
    the id of the process that it left, or judged. held: no other try begins until somebody verifies that process.
    """

    count: int
    reason: str
    ended: float
    invocation: str = ""
    held: bool = False

    @property
    def due(self) -> float:
        """The beginning of the next try, in monotonic seconds."""
        return math.inf if self.held else self.ended + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.count - 1))


@dataclass(frozen=True)
class Book:
    """The tries that failed, by unit, and for what: `about` names what was wanted. It is kept until the host boots."""

    about: str = ""
    tries: Mapping[str, Tries] = field(default_factory=dict)

    def of(self, about: str) -> Book:
        """Return the book of what is wanted now: another wish begins anew."""
        return self if about == self.about else Book(about)

    def failed(self, unit: str, reason: str, now: float, invocation: str = "", *, held: bool = False) -> Book:
        before = self.tries.get(unit)
        count = 1 if before is None else before.count + 1
        return Book(self.about, {**self.tries, unit: Tries(count, reason, now, invocation, held)})

    def passed(self, unit: str) -> Book:
        return Book(self.about, {name: tries for name, tries in self.tries.items() if name != unit})

    def paused(self, now: float) -> Mapping[str, Tries]:
        """Return the tries whose pause has not ended."""
        return {unit: tries for unit, tries in self.tries.items() if now < tries.due}


@dataclass(frozen=True)
class View:
    """Everything that the next step follows from.

    now: monotonic seconds. busy: who holds the slot's lock, empty if nobody does. lasting: why the host serves nothing
    until a person ends that, such as a quarantine; lost: the same of a quarantine that lets engines be verified which
    systemd starts again, and none be started. needs: whether something is to be done to serve what is wanted, apart
    from what is paused; anew: whether that starts an engine. starts: whether systemd starts an engine again by itself.
    tries: those that failed, by unit. rung: the next one after a lost card. wedged: whether an engine is, and was not
    dealt with; policy: what to do about that. verify, ask: whether that is due.
    """

    now: float
    busy: str = ""
    lasting: str = ""
    lost: str = ""
    needs: bool = False
    anew: bool = False
    starts: bool = False
    tries: Mapping[str, Tries] = field(default_factory=dict)
    rung: Rung | None = None
    wedged: bool = False
    policy: Policy = Policy.REPORT
    verify: bool = False
    ask: bool = False


@dataclass(frozen=True)
class ControllerStep:
    """The next step: also a rung of the ladder after a lost card, or what to do about a wedged engine.

    why: in words that everybody may read, empty if all is as wanted. at: when something is due, in monotonic seconds;
    None if only an event leads to another step.
    """

    do: Do | Policy | Rung
    why: str = ""
    at: float | None = None


def next_step(view: View) -> ControllerStep:
    """Return the step that leads from what is seen towards what is wanted."""
    if view.busy:
        return ControllerStep(Do.REST, BUSY)
    if view.lasting:
        return ControllerStep(Do.REST, view.lasting)
    if view.rung is not None:
        return ControllerStep(view.rung)
    if view.wedged:
        return ControllerStep(view.policy)
    if view.lost and (view.tries or (view.needs and view.anew)):
        return ControllerStep(Do.REST, view.lost)
    if view.needs:
        return ControllerStep(Do.SETTLE)
    do = Do.VERIFY if view.verify else Do.ASK if view.ask else Do.REST
    if not view.tries:
        return ControllerStep(do, STARTS if view.starts else "")
    first = min(view.tries.values(), key=lambda tries: tries.due)
    if first.held:
        return ControllerStep(do, first.reason)
    times = "once" if first.count == 1 else f"{first.count} times"
    # One whose pause has ended and that is not needed now waits for an event, such as another engine's end.
    return ControllerStep(do, f"{first.reason}; tried {times}", first.due if first.due > view.now else None)
