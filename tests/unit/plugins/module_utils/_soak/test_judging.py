# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When cycles begin, what a wrong answer is, and which figures fail a soak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._soak import judging
from ansible_collections.arcpro.b70.plugins.module_utils._soak.judging import (
    SoakPlan,
    SoakStep,
    classify,
    judge,
    next_step,
)

PLAN = SoakPlan(
    duration_s=28800,
    interval_s=900,
    reruns=3,
    stress=25,
    concurrency=8,
    prompt_words=100,
    output_tokens=512,
    request_timeout_s=600,
    baseline_cycles=3,
    min_speed_share=0.9,
    max_isolated=1,
    max_repeated=0,
    max_persistent=0,
)
# Of a clean night on four cards.
USUAL = (781.04, 784.37, 765.44)


@pytest.mark.parametrize(
    ("text", "seconds"), [("8h", 28800), ("90m", 5400), ("1h30m", 5400), ("120", 120), ("0.5h", 1800), ("2d", 172800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert judging.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "8 h", "h", "8x", "-1h", "0", "0s", "1h30", "8h!"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        judging.seconds_of(text)


@pytest.mark.parametrize(
    ("now", "last", "interval", "step"),
    [
        (100, None, 100, SoakStep(100)),  # the first begins at once
        (130, 100, 100, SoakStep(200)),
        (200, 100, 100, SoakStep(200)),
        (250, 100, 100, SoakStep(250)),  # one that took longer is followed at once, and its delay is kept
        (930, 900, 200, SoakStep(1050, ends=True)),  # the next would begin behind the deadline: sleep exactly to it
        (960, 950, 100, SoakStep(1050, ends=True)),  # nor does one begin at it
        (1100, 900, 100, SoakStep(1100, ends=True)),  # a cycle that ran over the deadline ends the soak
    ],
)
def test_when_cycles_begin(now: float, last: float | None, interval: float, step: SoakStep) -> None:
    assert next_step(now, last, interval, 1050) == step


@pytest.mark.parametrize(
    ("reruns", "stress", "earlier", "kind"),
    [
        # one wrong answer in cycle 17 of a night, three reruns and twenty-five more were right
        ([True] * 3, [True] * 25, 0, "isolated"),
        ([True] * 3, [True] * 25, 1, "repeated"),
        ([True, False, True], [True] * 25, 0, "repeated"),
        ([True] * 3, [True] * 24 + [False], 0, "repeated"),
        ([False] * 3, [True] * 25, 0, "repeated"),
        ([False] * 3, [False] * 25, 0, "persistent"),
        ([False] * 3, [False] * 25, 4, "persistent"),
        ([True] * 3, [], 0, "isolated"),
        ([], [], 0, "unclassified"),
    ],
)
def test_what_a_wrong_answer_is(reruns: list[bool], stress: list[bool], earlier: int, kind: str) -> None:
    assert classify(reruns, stress, earlier) == kind


def cycle(number: int, rate: float | None = 780.0, error: str = "") -> dict[str, Any]:
    load = {"tok_s": rate, "failed": 1 if error else 0, "error": error, "mean_ttft_s": 2.551}
    return {"number": number, "load": None if rate is None else load}


def seen(rates: Any = USUAL, anomalies: tuple[str, ...] = (), how: str = "deadline") -> dict[str, Any]:
    rows = [
        {"cycle": 17, "case": "copy_phrase", "class": kind, "expected": "satin cobalt orbit", "got": "slh cobalt orbit"}
        for kind in anomalies
    ]
    cycles = [cycle(number, rate) for number, rate in enumerate(rates, 1)]
    return {"cycles": cycles, "anomalies": rows, "ended": {"how": how, "why": "why it ended"}}


def test_a_clean_night_passes() -> None:
    assert judge(PLAN, seen([*USUAL, 768.0, 783.2])) == ("passed", ["5 cycles, no anomaly"])


def test_an_isolated_anomaly_is_accepted_as_often_as_the_plan_says() -> None:
    assert judge(PLAN, seen(anomalies=("isolated",))) == ("passed", ["3 cycles, anomalies: 1 isolated"])
    verdict, reasons = judge(PLAN, seen(anomalies=("isolated", "isolated")))
    assert verdict == "failed"
    words = "the first in cycle 17: copy_phrase, expected 'satin cobalt orbit', got 'slh cobalt orbit'"
    assert reasons == [f"2 isolated anomalies, at most 1 are accepted; {words}"]


@pytest.mark.parametrize("kind", ["repeated", "persistent"])
def test_other_anomalies_fail_it(kind: str) -> None:
    assert judge(PLAN, seen(anomalies=(kind,)))[0] == "failed"
    most: dict[str, Any] = {f"max_{kind}": 1}
    assert judge(replace(PLAN, **most), seen(anomalies=(kind,)))[0] == "passed"


def test_an_anomaly_that_nobody_classified_fails_it_at_the_deadline() -> None:
    verdict, reasons = judge(PLAN, seen(anomalies=("unclassified",) * 2))
    assert verdict == "failed"
    assert reasons[0].startswith("2 unclassified anomalies, at most 0 are accepted; the first in cycle 17: copy_phrase")
    # Where the engine was replaced while it was asked again, its answers say nothing.
    assert judge(PLAN, seen(anomalies=("unclassified",), how="replaced"))[0] == "unfinished"


def test_a_slow_cycle_fails_it() -> None:
    verdict, reasons = judge(PLAN, seen([*USUAL, 768.0, 690.0, 640.5]))
    assert (verdict, reasons) == (
        "failed",
        ["2 cycles are slower than 0.9 of the first 3 (781.04 tok/s); the first is cycle 5 with 690 tok/s"],
    )
    assert judge(replace(PLAN, min_speed_share=0), seen([*USUAL, 1.0]))[0] == "passed"


def test_without_enough_first_cycles_no_speed_is_compared() -> None:
    assert judge(PLAN, seen([780.0, 10.0]))[0] == "passed"
    assert judge(PLAN, seen([None, None, None, None]))[0] == "passed"


def test_failed_requests_fail_it_and_their_rate_counts_for_nothing() -> None:
    found = seen(USUAL)
    found["cycles"] += [cycle(4, 5.0, error="timeout")]
    assert judge(PLAN, found) == ("failed", ["requests of the load failed in 1 cycles, first in cycle 4: timeout"])


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("lost", "failed"),
        ("crashed", "failed"),
        ("replaced", "unfinished"),
        ("told", "unfinished"),
        ("vanished", "unfinished"),
    ],
)
def test_an_early_end(how: str, verdict: str) -> None:
    assert judge(PLAN, seen(how=how)) == (verdict, ["why it ended"])


def test_an_early_end_excuses_no_anomaly() -> None:
    assert judge(PLAN, seen(anomalies=("repeated",), how="replaced"))[0] == "failed"


def test_the_summary_is_one_line() -> None:
    found = seen([*USUAL, 768.0], anomalies=("isolated",))
    assert judging.summary(PLAN, found) == (
        "4 cycles, anomalies: 1 isolated, 765.44 to 784.37 tok/s (first cycles 781.04), "
        "first token after 2.551 to 2.551 s"
    )
    assert judging.summary(PLAN, seen([])) == "0 cycles, no anomaly"
