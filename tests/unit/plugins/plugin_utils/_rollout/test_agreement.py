# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.agreement import Agreement, agreement
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import HostCheck, RolloutSettings, plan
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import decide
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import (
    CanaryAnswer,
    HostVerdict,
    RolloutHost,
    Status,
)

from .fleet import GOOD, NEW, NOW, answered, began, names, waiting


def members(*results):
    return [RolloutHost(f"h{number}", 1, "old", result) for number, result in enumerate(results, 1)]


@given(st.integers(1, 500), st.integers(0, 249))
def test_the_majority_decides(count, others):
    others = min(others, (count - 1) // 2)
    odd = answered("b")
    fleet = members(*[odd] * others, *[GOOD] * (count - others))
    assert (list(agreement(fleet).outvoted), agreement(fleet).tied) == (names(others), {})


@given(st.integers(1, 250))
def test_on_a_tie_nobody_is_trusted(half):
    found = agreement(members(*[GOOD, answered("b")] * half))
    assert (found.outvoted, sorted(found.tied)) == ({}, sorted(names(2 * half)))


def test_answers_to_questions_that_are_not_known_are_not_compared():
    # a burst keeps the answer that came last, whichever it was
    burst = CanaryAnswer("burst", "", "a")
    one, other = (replace(GOOD, answers=(*GOOD.answers, replace(burst, sha256=sha256))) for sha256 in "ab")
    assert agreement(members(one, other)) == Agreement({}, {})


def test_a_tie_names_both_answers_and_holds_the_rollout_whatever_may_fail():
    rollout = began(names(4), waves="1,1,2", max_fail="4", on_failure="rollback_wave")
    decision = decide(rollout.with_results({"h1": GOOD, "h2": answered("b" * 64)}))
    both = "canary case c0: h1 answered a, h2 answered bbbbbbbbbbbb (a tie)"
    assert decision.rollout.reason == f"the hosts contradict each other and no answer has a majority: {both}"
    assert (decision.rollout.status, decision.quarantine, decision.next) == (Status.STOPPED, {}, ())
    assert [member.verdict for member in decision.rollout.members[:2]] == [HostVerdict.DISPUTED] * 2
    assert decision.rollout.back == ("h2",)


def test_a_third_host_that_is_verified_settles_a_dispute():
    """The next run finds h3 verified by hand."""
    held = decide(began(names(3), waves="1").with_results({"h1": GOOD, "h2": answered("b")})).rollout
    looks = {
        f"h{number}": HostCheck(answered(said, verdict=HostVerdict.ALREADY)) for number, said in enumerate("aba", 1)
    }
    decision = decide(plan("r2", NOW, RolloutSettings(NEW, max_fail="1"), looks, held))
    assert (list(decision.quarantine), decision.rollout.status) == (["h2"], Status.FINISHED)


def test_a_host_in_dispute_that_is_left_out_has_no_vote():
    held = decide(began(names(3), waves="1").with_results({"h1": GOOD, "h2": answered("b")})).rollout
    looks = {"h1": HostCheck(answered("a", verdict=HostVerdict.ALREADY)), "h3": waiting()}
    decision = decide(plan("r2", NOW, RolloutSettings(NEW), looks, held))
    assert (decision.next, decision.quarantine) == (("h3",), {})


def test_a_majority_can_name_the_canary_host():
    assert list(agreement(members(answered("b"), GOOD, GOOD)).outvoted) == ["h1"]


def test_only_the_same_thing_is_compared():
    other_build = answered("b", fingerprint="g")
    unknown_build = answered("b", fingerprint="")
    unsteady = replace(GOOD, answers=tuple(replace(answer, sha256="b", steady=False) for answer in GOOD.answers))
    other_question = replace(
        GOOD, answers=tuple(replace(answer, sha256="b", request="other") for answer in GOOD.answers)
    )
    without_hash = answered("")
    fleet = members(GOOD, other_build, unknown_build, unsteady, other_question, without_hash, GOOD)
    assert agreement(fleet) == Agreement({}, {})


def test_each_case_is_compared_on_its_own():
    fleet = members(answered("a", "x"), answered("b", "x"), answered("a", "y"), answered("a", "x"))
    found = agreement(fleet).outvoted
    assert list(found) == ["h2", "h3"]
    assert "case c0" in found["h2"]
    assert "case c1" in found["h3"]


def test_a_host_that_disagrees_is_quarantined_once_and_counts_as_failed():
    rollout = began(names(5), waves="1,2,1", max_fail="1")
    decision = decide(rollout.with_results({"h1": GOOD, "h2": answered("b"), "h3": GOOD}))
    assert list(decision.quarantine) == ["h2"]
    assert decision.rollout.members[1].verdict is HostVerdict.DISAGREES
    assert decision.next == ("h4",)
    again = decide(decision.rollout.with_results({"h4": GOOD}))
    assert (again.quarantine, again.next) == ({}, ("h5",))
    strict = began(names(5), waves="1,2,1").with_results({"h1": GOOD, "h2": answered("b"), "h3": GOOD})
    assert decide(strict).rollout.status is Status.STOPPED


def test_a_canary_host_that_the_majority_contradicts_later_stops_the_rollout():
    rollout = began(names(4), waves="1,2,1", max_fail="2")
    decision = decide(rollout.with_results({"h1": answered("b"), "h2": GOOD, "h3": GOOD}))
    assert list(decision.quarantine) == ["h1"]
    assert decision.rollout.status is Status.STOPPED


def test_hosts_that_served_the_profile_before_vote():
    rollout = began(names(3))
    served = answered("a", verdict=HostVerdict.ALREADY)
    decision = decide(rollout.with_results({"h1": answered("b"), "h2": served, "h3": served}))
    assert list(decision.quarantine) == ["h1"]
