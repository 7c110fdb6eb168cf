# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak over hours on a host in memory: its cycles, its anomalies, and what ends it early."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.state_file import stamp
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import ToldToEndFault
from ansible_collections.arcpro.b70.plugins.module_utils._soak.cycles import CaseAnswer, Soak
from ansible_collections.arcpro.b70.plugins.module_utils._soak.judging import judge
from unit.plugins.module_utils._soak.test_judging import PLAN

EPOCH = datetime(2026, 6, 7, 9, 0, 0, tzinfo=UTC)
CASES = ("exact_ok", "copy_phrase")
GOT = {True: "satin cobalt orbit", False: "slh cobalt orbit"}


class Engine:
    """Answers by its number of questions so far. wrong: which answers to copy_phrase are wrong, from 1 on."""

    def __init__(self, wrong: Callable[[int], bool] = lambda number: False) -> None:
        self.mono, self.wrong = 0.0, wrong
        self.asked = dict.fromkeys(CASES, 0)
        self.slept: list[float] = []
        self.gone_at: float | None = None
        self.told_at: float | None = None
        self.saved = 0
        self.loads: list[float] = []

    def monotonic(self) -> float:
        return self.mono

    def now(self) -> str:
        return stamp(EPOCH + timedelta(seconds=self.mono))

    def sleep(self, seconds: float) -> None:
        if self.told_at is not None and self.mono >= self.told_at:
            raise ToldToEndFault
        assert seconds > 0
        self.slept.append(seconds)
        self.mono += seconds

    def gone(self) -> tuple[str, str] | None:
        lost = self.gone_at is not None and self.mono >= self.gone_at
        return ("lost", "the card is lost") if lost else None

    def ask(self, only: Collection[str] = (), repeats: int | None = None) -> Sequence[CaseAnswer]:
        answers = []
        for case in only or CASES:
            self.mono += 0.5
            self.asked[case] += 1
            right = case != "copy_phrase" or not self.wrong(self.asked[case])
            answers.append(CaseAnswer(case, right, GOT[True], GOT[right], f"sha-{right}", ""))
        return answers

    def load(self, number: int) -> Mapping[str, Any] | None:
        self.loads.append(self.mono)
        self.mono += 5.0
        return {
            "requests": 8,
            "failed": 0,
            "error": "",
            "prompt_tokens": 904,
            "output_tokens": 4096,
            "mean_ttft_s": 2.5,
            "wall_s": 5.0,
            "tok_s": 819.2,
            "slowest_s": 4.9,
        }

    def save(self, seen: Mapping[str, Any]) -> None:
        self.saved += 1


def soak(engine: Engine, **changes: Any) -> dict[str, Any]:
    work = Soak(engine, replace(PLAN, **changes))
    work.run()
    return work.seen


def test_a_night_is_cycles_at_even_intervals_and_ends_at_its_deadline() -> None:
    engine = Engine()
    seen = soak(engine)
    begins = [row["began_at"] for row in seen["cycles"]]
    assert (len(begins), begins[:2], begins[-1]) == (
        32,
        ["2026-06-07T09:00:00Z", "2026-06-07T09:15:00Z"],
        "2026-06-07T16:45:00Z",
    )
    assert engine.mono == 28800
    assert seen["ended"] == {"how": "deadline", "why": "the deadline was reached", "at": "2026-06-07T17:00:00Z"}
    assert judge(PLAN, seen)[0] == "passed"
    assert seen["cycles"][0]["canary"] == {"ok": True, "cases": 2, "seconds": 1.0}
    assert seen["first"] == seen["last"] == {"ok": True, "hashes": dict.fromkeys(CASES, "sha-True")}


def test_behind_the_last_cycle_it_sleeps_and_looks_and_asks_nothing() -> None:
    engine = Engine()
    soak(engine, duration_s=1000, interval_s=900)
    assert len(engine.loads) == 2
    # The looks between are few: each sleep but the last is of full length.
    assert {seconds for seconds in engine.slept if seconds < 15} == {894 % 15, 94 % 15}


def test_a_cycle_longer_than_the_interval_is_followed_at_once() -> None:
    engine = Engine()
    soak(engine, duration_s=20, interval_s=2)
    assert (len(engine.loads), engine.slept) == (4, [])


def test_one_wrong_answer_is_asked_again_and_is_isolated() -> None:
    engine = Engine(lambda number: number == 17)
    seen = soak(engine)
    assert seen["anomalies"] == [
        {
            "cycle": 17,
            "at": "2026-06-07T13:00:01Z",
            "case": "copy_phrase",
            "expected": "satin cobalt orbit",
            "got": "slh cobalt orbit",
            "problem": "",
            "reruns": 3,
            "reruns_ok": 3,
            "stress": 25,
            "stress_ok": 25,
            "class": "isolated",
        }
    ]
    assert engine.asked == {"exact_ok": 32, "copy_phrase": 32 + 28}
    assert [row["anomalies"] for row in seen["cycles"]].count(1) == 1
    assert len(seen["cycles"]) == 32


def test_one_that_is_wrong_again_under_stress_is_repeated() -> None:
    seen = soak(Engine(lambda number: number in (3, 20)))
    (row,) = seen["anomalies"]
    assert (row["cycle"], row["reruns_ok"], row["stress_ok"], row["class"]) == (3, 3, 24, "repeated")


def test_one_that_comes_back_hours_later_is_repeated() -> None:
    seen = soak(Engine(lambda number: number in (2, 40)))
    assert [row["class"] for row in seen["anomalies"]] == ["isolated", "repeated"]


def test_an_engine_that_is_never_right_again_ends_it() -> None:
    engine = Engine(lambda number: number >= 2)
    seen = soak(engine)
    assert [row["class"] for row in seen["anomalies"]] == ["persistent"]
    assert seen["ended"]["how"] == "persistent"
    assert "`b70ctl verify`" in seen["ended"]["why"]
    assert len(engine.loads) == 1
    assert judge(PLAN, seen)[0] == "failed"


@pytest.mark.parametrize(("gone_at", "cycles"), [(0.5, 1), (3.0, 1), (400.0, 1), (906.0, 2)])
def test_a_lost_card_ends_it_within_a_look(gone_at: float, cycles: int) -> None:
    engine = Engine()
    engine.gone_at = gone_at
    seen = soak(engine)
    assert seen["ended"]["how"] == "lost"
    assert engine.mono <= gone_at + 15
    assert len(seen["cycles"]) == cycles
    assert judge(PLAN, seen)[0] == "failed"


def test_answers_of_an_engine_that_ends_are_not_classified() -> None:
    engine = Engine(lambda number: number >= 2)
    engine.gone_at = 902.5
    seen = soak(engine)
    assert [row["class"] for row in seen["anomalies"]] == ["unclassified"]
    assert seen["ended"]["how"] == "lost"


def test_what_was_seen_stays_when_somebody_ends_it() -> None:
    engine = Engine()
    engine.told_at = 1000
    work = Soak(engine, PLAN)
    with pytest.raises(ToldToEndFault):
        work.run()
    work.break_off("told", "somebody ended the soak")
    assert (len(work.seen["cycles"]), judge(PLAN, work.seen)) == (2, ("unfinished", ["somebody ended the soak"]))
