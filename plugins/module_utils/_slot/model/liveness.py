# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of an engine, and what to do if there is none. Pure.

The process that answers GET /health does not compute, so it stays healthy while the engine is wedged. Forward progress
decides: an engine is wedged if a request waits for an answer and none of its counters moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..kinds.kind import Metrics
from ..words.moment import Moment
from .journal import WATCHDOG, Attempt

DOUBT_S = 60.0  # of silence, where engine and frontdoor contradict each other
GAP_S = 60.0  # samples that are further apart say nothing about the time between them
RESTARTS = 3  # so many within RESTARTS_S are a fault that no restart cures
RESTARTS_S = 3600.0
CLIMBS_S = 86400.0  # a card that is lost again within a day is not cured by what was tried


class LivenessVerdict(StrEnum):
    """BUSY: it works, or has not been silent for long. IDLE: no request waits. WEDGED: requests wait and nothing moves.
    UNKNOWN: it does not report whether requests wait, or whether anything moves."""

    BUSY = "busy"
    IDLE = "idle"
    WEDGED = "wedged"
    UNKNOWN = "unknown"


class Policy(StrEnum):
    """The reaction to a wedged engine. One whose canary fails is closed with REPORT, too."""

    REPORT = "report"
    CLOSE = "close"
    RESTART = "restart"


class Rung(StrEnum):
    """The ladder after a lost card, and how far a profile lets the watchdog go. REBIND: rebind the card's driver while
    its engine is down. REBOOT: reboot the host. QUARANTINE: a person must examine the host."""

    REBIND = "rebind"
    REBOOT = "reboot"
    QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Liveness:
    """The profile's settings; times in seconds. ask_every_s, verify_every_s: 0 for never."""

    policy: Policy = Policy.REPORT
    patience_s: float = 300.0
    ask_every_s: float = 300.0
    verify_every_s: float = 0.0
    device_loss: Rung = Rung.QUARANTINE


@dataclass(frozen=True)
class EngineSample:
    """One look at one engine.

    at: seconds of a clock that never goes backwards. engine, front: how many requests wait for an answer, as the engine
    and as the frontdoor count them; None where it does not tell. question: the watchdog itself waits for one. marks:
    what moves as the engine works, by name; a name is missing where it is not told.
    """

    at: float
    engine: int | None
    front: int | None = None
    question: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)

    @property
    def asked(self) -> int | None:
        """Return how many wait for the engine. What the frontdoor has under way may wait for a slow client instead."""
        told = self.engine if self.engine is not None else self.front
        return max(told or 0, 1) if self.question else told


@dataclass(frozen=True)
class LivenessJudgement:
    """flat_s: how long requests have waited while nothing moved."""

    verdict: LivenessVerdict
    flat_s: float = 0.0


def moved(before: EngineSample, after: EngineSample) -> bool:
    """Tell whether the engine has done anything between the two samples."""
    return any(after.marks.get(name, value) != value for name, value in before.marks.items())


def judge(samples: Sequence[EngineSample], patience_s: float) -> LivenessJudgement:
    """Return the verdict on one engine process by its samples, oldest first.

    Only a mark that was reported twice can show that nothing has moved: an engine that reports nothing is never wedged.
    """
    if not samples or samples[-1].asked is None:
        return LivenessJudgement(LivenessVerdict.UNKNOWN)
    if samples[-1].asked == 0:
        return LivenessJudgement(LivenessVerdict.IDLE)
    known, since, told = dict(samples[-1].marks), samples[-1].at, len(samples) == 1
    for sample, later in zip(samples[-2::-1], samples[:0:-1], strict=True):
        if any(known.get(name, value) != value for name, value in sample.marks.items()):
            told = True
            break
        if sample.asked == 0 or later.at - sample.at > GAP_S:
            told = told or later is samples[-1]
            break
        if known.keys() & sample.marks.keys():
            since, told = sample.at, True
        known.update(sample.marks)
    flat_s = samples[-1].at - since
    if flat_s >= patience_s:
        return LivenessJudgement(LivenessVerdict.WEDGED, flat_s)
    return LivenessJudgement(LivenessVerdict.BUSY if told else LivenessVerdict.UNKNOWN, flat_s)


def kept(samples: Sequence[EngineSample], patience_s: float) -> tuple[EngineSample, ...]:
    """Return the samples that a later judgement may need."""
    since = samples[-1].at - patience_s - GAP_S if samples else 0.0
    return tuple(sample for sample in samples if sample.at >= since)


def may_ask(sample: EngineSample, quiet_s: float, ask_every_s: float) -> bool:
    """Return whether to request one token from the engine: it serves no client, and was not seen to work for a while.

    Where engine and frontdoor contradict each other, a core that hangs has counted nobody, or the other one waits for a
    slow client: the answer tells. quiet_s: since it last did anything.
    """
    if sample.question or sample.asked is None:
        return False
    if (sample.front and sample.engine != 0) or (sample.engine and sample.front is None):
        return False
    if sample.engine or sample.front:
        return quiet_s >= DOUBT_S
    return ask_every_s > 0 and quiet_s >= ask_every_s


def metric(name: str, text: str) -> float | None:
    """Return the sum of a metric over its labels in the text of GET /metrics; None where it is missing."""
    rows = re.findall(rf"^{re.escape(name)}(?:\{{[^}}\n]*\}})? ([0-9.eE+-]+)$", text, re.MULTILINE)
    try:
        return sum(map(float, rows)) if rows else None
    except ValueError:
        return None


def sampled(at: float, names: Metrics, text: str, front: int | None) -> EngineSample:
    """Return a sample. text: of the engine's GET /metrics, empty without an answer. front: see `EngineSample`."""
    counted = [value for name in names.asked if (value := metric(name, text)) is not None]
    marks = {name: value for name in names.progress if (value := metric(name, text)) is not None}
    return EngineSample(at, int(sum(counted)) if counted else None, front, marks=marks)


def may_restart(attempts: Iterable[Attempt], now: Moment) -> bool:
    """Return whether the watchdog may restart an engine again. attempts: those in the journal."""
    ours = (attempt for attempt in attempts if attempt.who == WATCHDOG and attempt.kind == "switch")
    recent = [attempt for attempt in ours if attempt.began.age_s(now) < RESTARTS_S]
    return len(recent) < RESTARTS


def due(every_s: float, last: Moment | None, now: Moment) -> bool:
    """Return whether a task with this interval in seconds (0: never) is due again."""
    return every_s > 0 and (last is None or last.age_s(now) >= every_s)


def since_before(lines: Sequence[str], before: Sequence[str]) -> Sequence[str]:
    """Return the lines added since an earlier look at the end of the same log; none at the first look."""
    if not before:
        return ()
    last = before[-1]
    for place in range(len(lines) - 1, -1, -1):
        if lines[place] == last:
            return lines[place + 1 :]
    return lines


# The ladder after a lost card


@dataclass(frozen=True)
class Climb:
    """The rung that was tried last, and when."""

    rung: Rung
    began: Moment


def next_rung(policy: Rung, last: Climb | None, now: Moment) -> Rung | None:
    """Return the next rung for a lost card; None if the policy stops here, or no rung is left."""
    if policy is Rung.QUARANTINE:
        return None
    if last is None or last.began.age_s(now) >= CLIMBS_S:
        return Rung.REBIND
    if last.rung is Rung.REBIND and policy is Rung.REBOOT:
        return Rung.REBOOT
    return None if last.rung is Rung.QUARANTINE else Rung.QUARANTINE
