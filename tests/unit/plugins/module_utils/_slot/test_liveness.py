# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Busy or wedged: the decisions of the watchdog over series of looks."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.kernel import card_faults
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.journal import WATCHDOG, Attempt
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.liveness import (
    Climb,
    EngineSample,
    LivenessVerdict,
    Rung,
    due,
    judge,
    kept,
    may_ask,
    may_restart,
    moved,
    next_rung,
    sampled,
    since_before,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.moment import Moment

PATIENCE = 180.0
NOW = datetime(2026, 6, 7, 9, 0, 0, tzinfo=UTC)
AT = Moment("2026-06-07T09:00:00Z")
CAPTURED = Path(__file__).parents[1] / "_doctor/captured"


def series(*counts, asked=1, step=10.0, name="tokens"):
    """Looks every 10 s; None of a count: it did not answer."""
    return [
        EngineSample(index * step, asked, marks={} if count is None else {name: float(count)})
        for index, count in enumerate(counts)
    ]


def test_nobody_asks():
    assert judge(series(*[5] * 100, asked=0), PATIENCE).verdict is LivenessVerdict.IDLE


def test_without_a_look_or_a_count_nothing_is_known():
    assert judge([], PATIENCE).verdict is LivenessVerdict.UNKNOWN
    assert judge(series(*[5] * 100, asked=None), PATIENCE).verdict is LivenessVerdict.UNKNOWN


def test_silence_is_a_wedge_only_at_the_limit():
    at_limit = int(PATIENCE / 10)
    assert judge(series(*[5] * at_limit), PATIENCE).verdict is LivenessVerdict.BUSY
    found = judge(series(*[5] * (at_limit + 1)), PATIENCE)
    assert (found.verdict, found.flat_s) == (LivenessVerdict.WEDGED, PATIENCE)


def test_one_step_just_before_the_limit_begins_the_wait_anew():
    counts = [5] * 18 + [6] + [6] * 17
    assert judge(series(*counts), PATIENCE).verdict is LivenessVerdict.BUSY
    assert judge(series(*counts, 6), PATIENCE).verdict is LivenessVerdict.WEDGED


def test_a_cache_that_shrinks_is_work():
    assert judge(series(*[0.5] * 18, 0.4, name="cache"), PATIENCE).verdict is LivenessVerdict.BUSY


def test_any_of_several_marks_is_work():
    looks = [EngineSample(index * 10.0, 1, marks={"tokens": 5.0, "cache": index / 100}) for index in range(60)]
    assert judge(looks, PATIENCE).verdict is LivenessVerdict.BUSY


def test_an_engine_that_tells_nothing_is_never_wedged():
    assert judge(series(*[None] * 100), PATIENCE).verdict is LivenessVerdict.UNKNOWN


def test_silence_while_it_does_not_answer_counts():
    assert judge(series(5, *[None] * 30, 5), PATIENCE).verdict is LivenessVerdict.WEDGED
    assert judge(series(5, *[None] * 30, 6), PATIENCE).verdict is LivenessVerdict.BUSY


def test_the_wait_begins_when_somebody_asks():
    idle, asked = series(*[5] * 100, asked=0), series(*[5] * 10)
    looks = [*idle, *(EngineSample(look.at + 1000.0, 1, marks=look.marks) for look in asked)]
    assert judge(looks, PATIENCE).verdict is LivenessVerdict.BUSY


def test_what_was_not_looked_at_is_not_counted():
    looks = [EngineSample(0.0, 1, marks={"tokens": 5.0}), EngineSample(1000.0, 1, marks={"tokens": 5.0})]
    assert judge(looks, PATIENCE).verdict is LivenessVerdict.BUSY


def test_no_more_is_kept_than_a_judgement_needs():
    looks = kept(series(*[5] * 1000), PATIENCE)
    assert len(looks) < 30
    assert judge(looks, PATIENCE).verdict is LivenessVerdict.WEDGED


def test_moved_goes_by_what_both_tell():
    assert not moved(EngineSample(0, 1, marks={"a": 1.0}), EngineSample(1, 1, marks={"b": 2.0}))
    assert moved(EngineSample(0, 1, marks={"a": 1.0}), EngineSample(1, 1, marks={"a": 2.0}))


@pytest.mark.parametrize(
    ("engine", "front", "quiet_s", "wanted"),
    [
        (0, 0, 299.0, False),
        (0, 0, 300.0, True),
        (0, None, 300.0, True),  # no frontdoor, and nobody asks
        (1, 1, 1e9, False),  # somebody is served: users are not queued behind a question
        (1, None, 1e9, False),
        (None, None, 1e9, False),
        (0, 1, 59.0, False),
        (0, 1, 60.0, True),  # a core that hangs has counted nobody, or a client is slow
        (1, 0, 60.0, True),  # a stale gauge, or a client that gave up
        (None, 1, 1e9, False),  # it tells nothing, and somebody is served
        (None, 0, 300.0, True),
    ],
)
def test_a_question_is_asked_only_while_nobody_is_served(engine, front, quiet_s, wanted):
    assert may_ask(EngineSample(0.0, engine, front), quiet_s, 300.0) is wanted


def test_idle_engines_are_left_alone_where_the_profile_says_so():
    assert not may_ask(EngineSample(0.0, 0, 0), 1e9, 0.0)


def test_who_asks_the_question_waits_for_the_engine_too():
    assert EngineSample(0.0, 0, 0, question=True).asked == 1
    assert EngineSample(0.0, 0, 3).asked == 0


def test_the_metrics_of_vllm():
    rows = 'vllm:num_requests_running{engine="0"} 1.0\nvllm:num_requests_running{engine="1"} 2.0\n'
    rows += 'vllm:num_requests_waiting{engine="0"} 1.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    found = sampled(7.0, KINDS["vllm"].metrics, rows, 2)
    assert (found.at, found.engine, found.front) == (7.0, 4, 2)
    assert found.marks == {"vllm:kv_cache_usage_perc": 0.25}


def test_the_metrics_of_llama_server():
    text = json.loads((Path(__file__).parent / "llama_server/metrics.json").read_text())["said"][1]
    found = sampled(7.0, KINDS["llama-server"].metrics, text, None)
    assert found.engine == 0
    assert set(found.marks) == set(KINDS["llama-server"].metrics.progress)


def test_an_engine_without_an_answer_tells_nothing():
    found = sampled(7.0, KINDS["vllm"].metrics, "", 3)
    assert (found.engine, found.asked, found.marks) == (None, 3, {})


def attempt(minutes, who=WATCHDOG, kind="switch"):
    at = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Attempt("id", at, kind, "a", "a", who=who)


def test_three_restarts_within_an_hour_are_enough():
    assert may_restart([attempt(1), attempt(2)], AT)
    assert not may_restart([attempt(1), attempt(2), attempt(59)], AT)
    assert may_restart([attempt(1), attempt(2), attempt(61)], AT)
    assert may_restart([attempt(1), attempt(2), attempt(3, who="anna")], AT)
    assert may_restart([attempt(1), attempt(2), attempt(3, kind="recheck")], AT)


def test_what_is_due():
    hour = Moment("2026-06-07T08:00:00Z")
    assert due(3600, hour, AT)
    assert not due(3601, hour, AT)
    assert not due(0, hour, AT)
    assert due(3600, None, AT)
    assert due(3600, Moment(""), AT)


def test_a_date_that_jumps_makes_no_moment_older_or_younger():
    then = Moment("2026-06-07T08:00:00Z", "boot", 100.0)
    for date in ("2026-06-06T08:00:00Z", "2026-06-07T08:00:10Z", "2027-01-01T00:00:00Z"):
        assert then.age_s(Moment(date, "boot", 110.0)) == 10.0
    assert then.age_s(Moment("2026-06-07T08:01:00Z", "another", 5.0)) == 60.0
    assert then.age_s(Moment("2026-06-06T08:00:00Z", "another", 5.0)) == 0.0


def test_the_kernels_words_for_faults_and_losses():
    faults = card_faults((CAPTURED / "kernel-fault.txt").read_text().splitlines())
    assert {(fault.card, fault.lost) for fault in faults} == {("0000:03:00.0", False)}
    assert len(faults) == 3  # where to find the dump is not a fault of its own
    lost = card_faults((CAPTURED / "kernel-wedged.txt").read_text().splitlines())
    assert [(fault.card, fault.lost) for fault in lost] == [("0000:43:00.0", False)] * 2 + [("0000:43:00.0", True)]
    assert card_faults((CAPTURED / "kernel-good.txt").read_text().splitlines()) == ()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("[drm] ccs reset", 1),
        ("[drm] GT0: bcs0 reset", 1),
        ("[drm] exec queue reset detected", 1),
        ("[drm] GT0: trying reset from guc_exec_queue_timedout_job [xe]", 1),
        ("[drm] Small BAR device", 0),
        ("[drm] Tile0: GT0: Fault response: Unsuccessful -EINVAL", 1),
        ("[drm] GT0: ccs0 preset", 0),
    ],
)
def test_owners_words_for_resets_are_understood(words, found):
    assert len(card_faults([f"host1 kernel: xe 0000:03:00.0: {words}"])) == found


def test_only_the_cards_driver_is_believed():
    assert card_faults(["host1 kernel: usb 1-1: device lost", "host1 vllm: GPU reset"]) == ()


def test_only_new_lines_of_the_log_are_read():
    assert since_before(["a", "b"], ()) == ()
    assert since_before(["a", "b", "c", "d"], ["a", "b"]) == ["c", "d"]
    assert since_before(["a", "b"], ["a", "b"]) == []
    assert since_before(["x", "y"], ["a", "b"]) == ["x", "y"]  # it has run over


def test_the_ladder_is_off_unless_the_profile_asks_for_it():
    assert next_rung(Rung.QUARANTINE, None, AT) is None


@pytest.mark.parametrize(
    ("policy", "rungs"),
    [
        (Rung.REBIND, [Rung.REBIND, Rung.QUARANTINE, None]),
        (Rung.REBOOT, [Rung.REBIND, Rung.REBOOT, Rung.QUARANTINE, None]),
    ],
)
def test_each_rung_is_taken_once_a_day(policy, rungs):
    last = None
    for wanted in rungs:
        rung = next_rung(policy, last, AT)
        assert rung is wanted
        last = Climb(rung, Moment("2026-06-07T08:59:00Z")) if rung else last
    assert next_rung(policy, last, Moment("2026-06-09T09:00:00Z")) is Rung.REBIND


# --- recorded of a real vLLM, a look a second, with a patience as short as the series


RECORDED = json.loads((Path(__file__).parent / "vllm/series.json").read_text())


def recorded(name, front=None):
    looks = []
    for at, *values in RECORDED["series"][name]:
        text = "\n".join(f"{metric} {value}" for metric, value in zip(RECORDED["metrics"], values, strict=True))
        looks.append(sampled(at, KINDS["vllm"].metrics, text, front))
    return looks


def verdicts(looks, patience_s):
    return [judge(looks[: count + 1], patience_s).verdict for count in range(len(looks))]


def test_a_long_chunked_prefill_is_busy():
    looks = recorded("prefill")
    assert looks[-2].at > 25.0
    assert set(verdicts(looks[:-1], 5.0)) == {LivenessVerdict.BUSY}
    # Nothing else than the cache moves in it.
    assert {name for look in looks[:-1] for name, value in look.marks.items() if value != looks[0].marks[name]} == {
        "vllm:kv_cache_usage_perc"
    }


def test_generating_is_busy_and_after_it_is_idle():
    assert verdicts(recorded("decode"), 2.0) == [LivenessVerdict.BUSY] * 4 + [LivenessVerdict.IDLE]
    assert set(verdicts(recorded("idle"), 1.0)) == {LivenessVerdict.IDLE}


def test_a_core_that_was_stopped_is_wedged_while_its_health_is_good():
    looks = recorded("stopped_while_generating")
    found = verdicts(looks, 10.0)
    assert (found[0], found[-1]) == (LivenessVerdict.BUSY, LivenessVerdict.WEDGED)
    assert verdicts([*looks, *recorded("continued")], 10.0)[-1] is LivenessVerdict.BUSY


def test_a_core_that_was_stopped_before_its_first_request_has_counted_nobody():
    looks = recorded("stopped_while_idle", front=1)
    assert set(verdicts(looks, 5.0)) == {LivenessVerdict.IDLE}
    assert may_ask(looks[-1], 60.0, 0.0)
    asking = [replace(look, question=True, marks={**look.marks, "answered": 0.0}) for look in looks]
    assert verdicts(asking, 5.0)[-1] is LivenessVerdict.WEDGED
