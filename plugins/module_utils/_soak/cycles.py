# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The soak itself: cycles until the deadline. After each step, everything seen so far is saved."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._evidence.watched import WatchedWork, WatchEffects
from .judging import PERSISTENT, SoakPlan, classify, next_step

LOOK_S = 15.0  # how often, between two cycles, the soak checks that the engine is still there


@dataclass(frozen=True)
class CaseAnswer:
    """The answer to one case of the canary."""

    case: str
    right: bool
    expected: str = ""
    got: str = ""
    sha256: str = ""
    problem: str = ""


class SoakEffects(WatchEffects, Protocol):
    """The effects of a soak on its host."""

    def ask(self, only: Collection[str] = (), repeats: int | None = None) -> Sequence[CaseAnswer]:
        """Return the canary's answers. If it could not be asked, the case that stands for it has a wrong answer."""

    def load(self, number: int) -> Mapping[str, Any] | None:
        """Put the load of a cycle on the engine; return its figures, or None if there is no load."""


def nothing_seen() -> dict[str, Any]:
    """Return what a soak has seen before its first cycle. first, last: the canary's first and last answers."""
    return {"cycles": [], "anomalies": [], "now": "", "first": None, "last": None, "ended": None}


@dataclass
class Soak(WatchedWork):
    """A soak. It sees cycles and anomalies."""

    noun = "soak"
    host: SoakEffects
    plan: SoakPlan
    seen: dict[str, Any] = field(default_factory=nothing_seen)

    def run(self) -> None:
        """Soak until the deadline, or until there is nothing left to soak."""
        host, plan = self.host, self.plan
        deadline = host.monotonic() + plan.duration_s
        began: float | None = None
        while self.seen["ended"] is None:
            step = next_step(host.monotonic(), began, plan.interval_s, deadline)
            self._wait(step.at, "the deadline" if step.ends else f"cycle {len(self.seen['cycles']) + 1}")
            if step.ends:
                self._end("deadline", "the deadline was reached")
            elif self.seen["ended"] is None:
                began = host.monotonic()
                self._cycle()
        self._say("")

    def _still_there(self) -> bool:
        found = self.host.gone()
        if found is not None:
            self._end(*found)
        return found is None

    def _wait(self, until: float, what: str) -> None:
        """Sleep exactly until then, or until the engine is gone."""
        if until > self.host.monotonic():
            self._say(f"waiting for {what}")
        while (left := until - self.host.monotonic()) > 0 and self._still_there():
            self.host.sleep(min(left, LOOK_S))

    def _cycle(self) -> None:
        number, begun = len(self.seen["cycles"]) + 1, self.host.monotonic()
        row: dict[str, Any] = {
            "number": number,
            "began_at": self.host.now(),
            "seconds": None,
            "canary": None,
            "anomalies": 0,
            "load": None,
        }
        self.seen["cycles"].append(row)
        self._say(f"cycle {number}: canary")
        answers = self.host.ask()
        if self._still_there():
            wrong = [answer for answer in answers if not answer.right]
            row["canary"] = {"ok": not wrong, "cases": len(answers), "seconds": self._since(begun)}
            asked = {"ok": not wrong, "hashes": {answer.case: answer.sha256 for answer in answers if answer.sha256}}
            self.seen["first"] = self.seen["first"] or asked
            self.seen["last"] = asked
            for answer in wrong:
                row["anomalies"] += 1
                self._look_into(answer, number)
        if self.seen["ended"] is None:
            self._say(f"cycle {number}: load")
            load = self.host.load(number)
            if self._still_there():
                row["load"] = load
        row["seconds"] = self._since(begun)
        self._say(f"cycle {number} is done")

    def _since(self, begun: float) -> float:
        return round(self.host.monotonic() - begun, 3)

    def _look_into(self, answer: CaseAnswer, number: int) -> None:
        """Ask the case again, first at once and then under stress, and classify its wrong answer."""
        anomalies, case = self.seen["anomalies"], answer.case
        row: dict[str, Any] = {
            "cycle": number,
            "at": self.host.now(),
            "case": case,
            "expected": answer.expected,
            "got": answer.got,
            "problem": answer.problem,
        }
        reruns = self._again(case, self.plan.reruns, f"cycle {number}: {case} was wrong, asking again")
        stress = self._again(case, self.plan.stress, f"cycle {number}: {case} under stress")
        earlier = sum(other["case"] == case for other in anomalies)
        # Answers of an engine that was ending prove nothing.
        kind = classify(reruns, stress, earlier) if self.seen["ended"] is None else classify((), (), 0)
        asked = {"reruns": len(reruns), "reruns_ok": sum(reruns), "stress": len(stress), "stress_ok": sum(stress)}
        anomalies.append({**row, **asked, "class": kind})
        if kind == PERSISTENT:
            text = f"{case} is never answered rightly any more; `b70ctl verify` replaces the engine"
            self._end("persistent", text)

    def _again(self, case: str, times: int, what: str) -> list[bool]:
        answers: list[bool] = []
        for number in range(1, times + 1):
            if self.seen["ended"] is not None:
                break
            self._say(f"{what}, {number} of {times}")
            found = {answer.case: answer.right for answer in self.host.ask((case,), 1)}
            # A case without an answer of its own stands for the whole canary, or could not be asked.
            answers.append(found.get(case, all(found.values())))
            if not answers[-1]:
                self._still_there()
        return answers
