# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole rollouts without hosts: which waves are taken, when a rollout stops, and who goes back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet import HostSeen
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import (
    HostCheck,
    RolloutSettings,
    plan,
    refusals,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import after_rollback, decide, looked
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import (
    FAILURES,
    HostResult,
    HostVerdict,
    RolloutOnFailure,
    Status,
    as_dict,
    from_dict,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.waves import SettingError, allowed, sizes, waves_of

from .fleet import GOOD, NEW, NOW, OLD, answered, began, carried_out, failed, names, waiting

FLEETS = st.integers(1, 500)
SIZES = st.one_of(st.integers(1, 600).map(str), st.integers(1, 100).map("{}%".format))
WAVES = st.lists(SIZES, min_size=1, max_size=6).map(",".join)
BAD = st.sampled_from([HostVerdict.ROLLED_BACK, HostVerdict.UNTOUCHED, HostVerdict.FAILED, HostVerdict.UNREACHABLE])
BAD_HOSTS = st.dictionaries(st.integers(1, 500), BAD, max_size=12)


def result(verdict: HostVerdict) -> HostResult:
    return GOOD if verdict is HostVerdict.VERIFIED else failed(verdict)


@given(FLEETS, WAVES)
def test_waves_hold_every_host_once_in_order_with_the_canary_alone_first(count, text):
    hosts = names(count)
    waves = waves_of(hosts, text)
    assert [host for wave in waves for host in wave] == hosts
    assert waves[0] == (hosts[0],)
    assert all(waves)


@given(FLEETS, WAVES, st.integers(0, 499))
def test_any_host_can_be_the_canary_host(count, text, index):
    hosts = names(count)
    canary = hosts[index % count]
    waves = waves_of(hosts, text, canary)
    assert waves[0] == (canary,)
    assert sorted(host for wave in waves for host in wave) == sorted(hosts)


@pytest.mark.parametrize(
    ("text", "hosts", "wanted"),
    [
        ("1,25%,100%", 4, [1, 1, 2]),
        ("1,25%,100%", 1, [1]),
        ("1,25%,100%", 100, [1, 25, 74]),
        ("1", 3, [1, 1, 1]),
        ("10%", 500, [50] * 10),
        ("1%", 3, [1, 1, 1]),
    ],
)
def test_sizes_are_those_of_serial(text, hosts, wanted):
    assert sizes(text, hosts) == wanted


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "-1", "many", "1,,x"])
def test_waves_that_make_no_sense_are_refused(text):
    with pytest.raises(SettingError, match="1,25%,100%"):
        sizes(text, 4)


@pytest.mark.parametrize(("text", "hosts", "wanted"), [("0", 9, 0), ("2", 9, 2), ("10%", 9, 0), ("25%", 9, 2)])
def test_max_fail_is_a_number_or_a_share(text, hosts, wanted):
    assert allowed(text, hosts) == wanted


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_fail", "-1"), ("max_fail", "few"), ("on_failure", "undo"), ("canary", "h9"), ("gate", "speed")],
)
def test_a_setting_that_makes_no_sense_is_named(setting, value):
    with pytest.raises(SettingError, match=f"{setting} is .?{value}"):
        began(names(3), **{setting: value})


@settings(max_examples=20)
@given(FLEETS, WAVES)
def test_a_sound_fleet_is_finished_wave_by_wave(count, text):
    decision, taken = carried_out(began(names(count), waves=text), lambda _host: GOOD)
    assert [host for wave in taken for host in wave] == names(count)
    assert taken == list(began(names(count), waves=text).batches)
    assert (decision.rollout.status, decision.rollout.back, decision.quarantine) == (Status.FINISHED, (), {})


@settings(max_examples=20)
@given(FLEETS, WAVES, st.integers(0, 5), st.sampled_from(RolloutOnFailure), BAD_HOSTS)
def test_a_rollout_stops_at_the_first_wave_that_fails_too_much(count, text, limit, on_failure, bad_hosts):
    def of(host):
        return result(bad_hosts.get(int(host[1:]), HostVerdict.VERIFIED))

    def not_stopped(decision):
        bad = [member for member in decision.rollout.members if member.failed]
        assert len(bad) <= limit
        assert not decision.rollout.canary.failed

    begun = began(names(count), waves=text, max_fail=str(limit), on_failure=on_failure)
    decision, taken = carried_out(begun, of, not_stopped)
    rollout = decision.rollout
    touched = {host for wave in taken for host in wave}
    bad = [member for member in rollout.members if member.failed]
    assert {member.host for member in rollout.members if member.verdict is not HostVerdict.WAITING} == touched
    if rollout.status is Status.FINISHED:
        assert len(touched) == count
        assert len(bad) <= limit
        assert decision.rollout.back == ()
        return
    assert rollout.status is Status.STOPPED
    assert rollout.canary.failed or len(bad) > limit
    may = (HostVerdict.VERIFIED, HostVerdict.UNREACHABLE)
    scope = {"stop": set(), "rollback_wave": set(taken[-1]), "rollback_all": touched}[on_failure]
    wanted = [member.host for member in rollout.members if member.host in scope and member.verdict in may]
    assert list(decision.rollout.back) == wanted


@settings(max_examples=20)
@given(FLEETS, WAVES, st.integers(0, 4))
def test_a_rerun_after_a_kill_takes_what_is_left_and_nothing_twice(count, text, waves_done):
    first = began(names(count), waves=text)
    decision, begun = decide(first), list[str]()
    for _wave in range(waves_done):
        if decision.next:
            begun += decision.next
            decision = decide(decision.rollout.with_results(dict.fromkeys(decision.next, GOOD)))
    # The next wave was switched, but its controller was killed before it wrote anything down.
    begun += decision.next
    earlier = from_dict(json.loads(json.dumps(as_dict(decision.rollout))))
    assume(earlier.status is Status.RUNNING)
    served = answered("a", verdict=HostVerdict.ALREADY)
    looks = {host: HostCheck(served) if host in begun else waiting() for host in names(count)}
    again = plan("r2", NOW, RolloutSettings(NEW, text), looks, earlier)
    ended, taken = carried_out(again, lambda _host: GOOD)
    assert ended.rollout.status is Status.FINISHED
    switched = [host for wave in taken for host in wave]
    assert sorted([*begun, *switched]) == sorted(names(count))
    assert all(member.before == OLD for member in ended.rollout.members)


def test_a_finished_rollout_is_not_resumed():
    over, _taken = carried_out(began(names(2)), lambda _host: GOOD)
    served = HostCheck(answered("a", verdict=HostVerdict.ALREADY))
    again = plan("r2", NOW, RolloutSettings(NEW), {"h1": served, "h2": served}, over.rollout)
    assert again.id == "r2"
    assert [member.verdict for member in again.members] == [HostVerdict.ALREADY] * 2
    assert again.batches == ()


def test_a_resumed_rollout_takes_back_what_an_earlier_run_switched():
    first = decide(began(names(3), on_failure="rollback_all")).rollout.with_results({"h1": GOOD, "h2": GOOD})
    looks = {host: HostCheck(answered("a", verdict=HostVerdict.ALREADY)) for host in ("h1", "h2")}
    again = plan("r2", NOW, RolloutSettings(NEW, on_failure="rollback_all"), {**looks, "h3": waiting()}, first)
    assert again.id == "r1"
    assert decide(again.with_results({"h3": failed()})).rollout.back == ("h1", "h2")


def limited(hosts, earlier, **given):
    """An earlier rollout, resumed over these hosts only, none of which serves the profile yet."""
    return plan(
        "r2", NOW, RolloutSettings(NEW, **given), {host: waiting() for host in hosts}, from_dict(as_dict(earlier))
    )


def test_a_host_outside_the_limit_stays_in_the_record_and_keeps_the_rollout_open():
    first = began(names(4)).with_results({"h1": GOOD, "h2": failed()})
    again = limited(["h2", "h4"], first)
    assert (again.id, again.batches) == ("r1", (("h2",), ("h4",)))
    assert [(member.host, member.outside) for member in again.members] == [
        ("h2", False),
        ("h4", False),
        ("h1", True),
        ("h3", True),
    ]
    assert [(member.result, member.before) for member in again.outside] == [(GOOD, OLD), (first.members[2].result, OLD)]
    ended, taken = carried_out(again, lambda _host: GOOD)
    assert taken == [("h2",), ("h4",)]
    assert (ended.rollout.status, ended.rollout.reason) == (Status.RUNNING, "h3 is outside the limit of this run")
    served = dict.fromkeys(("h1", "h2", "h4"), HostCheck(answered("a", verdict=HostVerdict.ALREADY)))
    everywhere = {**served, "h3": waiting()}
    full = plan(
        "r3", NOW, RolloutSettings(NEW, on_failure="rollback_all"), everywhere, from_dict(as_dict(ended.rollout))
    )
    assert (full.id, full.batches, full.outside) == ("r1", (("h3",),), ())
    assert decide(full.with_results({"h3": failed()})).rollout.back == ("h1", "h2", "h4")
    assert decide(full.with_results({"h3": GOOD})).rollout.status is Status.FINISHED


def test_a_rollout_is_finished_when_those_outside_the_limit_serve_the_profile():
    ended, _taken = carried_out(limited(["h2"], began(names(2)).with_results({"h1": GOOD})), lambda _host: GOOD)
    assert (ended.rollout.status, ended.rollout.reason) == (Status.FINISHED, "")


def test_a_failure_outside_the_limit_does_not_stop_the_run_but_keeps_the_rollout_open():
    first = decide(began(names(3)).with_results({"h1": failed()})).rollout
    assert first.status is Status.STOPPED
    ended, taken = carried_out(limited(["h2", "h3"], first), lambda _host: GOOD)
    assert (taken, ended.rollout.status) == ([("h2",), ("h3",)], Status.RUNNING)


def test_a_stop_takes_back_no_host_outside_the_limit():
    first = began(names(3)).with_results({"h1": GOOD})
    again = limited(["h2", "h3"], first, on_failure="rollback_all")
    stopped = decide(again.with_results({"h2": GOOD, "h3": failed()})).rollout
    assert (stopped.status, stopped.back) == (Status.STOPPED, ("h2",))
    assert after_rollback(stopped.with_results({"h2": HostResult(HostVerdict.RETURNED, OLD)})).status is Status.STOPPED


def test_hosts_outside_the_limit_count_in_the_comparison_but_are_not_judged():
    first = began(names(4)).with_results({"h1": GOOD, "h2": GOOD})
    odd = decide(limited(["h3"], first).with_results({"h3": answered("b")}))
    assert list(odd.quarantine) == ["h3"]
    first = began(names(6)).with_results({"h1": answered("b"), "h5": GOOD, "h6": GOOD})
    ended, _taken = carried_out(limited(["h2", "h3", "h4"], first), lambda _host: GOOD)
    assert (ended.quarantine, ended.rollout.status) == ({}, Status.RUNNING)
    assert ended.rollout.outside[0].verdict is HostVerdict.VERIFIED


AT_REST = HostCheck(HostResult(HostVerdict.MAINTENANCE, OLD, why="in maintenance since 09:00 (ann): a fan"))


def test_a_host_in_maintenance_is_no_canary_host_is_in_no_wave_and_does_not_keep_the_rollout_open():
    rollout = plan("r1", NOW, RolloutSettings(NEW, "1"), {"h1": AT_REST, "h2": waiting(), "h3": waiting()})
    assert (rollout.batches, rollout.canary.host) == ((("h2",), ("h3",)), "h2")
    ended, _taken = carried_out(rollout, lambda _host: GOOD)
    assert ended.rollout.status is Status.FINISHED
    assert [member.host for member in ended.rollout.members if member.verdict is HostVerdict.MAINTENANCE] == ["h1"]
    later = plan("r2", NOW, RolloutSettings(NEW, "1"), {host: waiting() for host in names(3)}, ended.rollout)
    assert later.batches[0] == ("h1",)


@pytest.mark.parametrize(
    ("looks", "canary", "why"),
    [({"h1": AT_REST}, "", "no other host"), ({"h1": AT_REST, "h2": waiting()}, "h1", "canary is h1, which is in")],
)
def test_a_rollout_needs_a_host_that_is_not_in_maintenance(looks, canary, why):
    with pytest.raises(SettingError, match=why):
        plan("r1", NOW, RolloutSettings(NEW, canary=canary), looks)


def test_a_host_that_goes_into_maintenance_meanwhile_is_left_alone_and_one_that_was_switched_stays_verified():
    rollout = began(names(3), waves="1").with_results({"h1": GOOD})
    rest = HostSeen("h1", True, NEW, ready=True, maintenance="in maintenance since 09:00 (ann): a fan")
    found = looked(rollout, {"h1": rest, "h2": replace(rest, host="h2", profile=OLD)})
    assert [member.verdict for member in found.members] == [
        HostVerdict.VERIFIED,
        HostVerdict.MAINTENANCE,
        HostVerdict.WAITING,
    ]
    assert [member.now for member in found.members] == ["new, maintenance", "old, maintenance", ""]
    assert decide(found).next == ("h3",)


def test_a_record_of_an_earlier_version_has_nobody_outside_the_limit():
    data = as_dict(began(names(2)))
    del data["gate"]
    for member in data["members"]:
        del member["outside"], member["result"]["figures"]
    assert from_dict(data) == began(names(2))


def test_a_host_that_was_switched_by_somebody_else_meanwhile_goes_back_to_that():
    first = began(names(2)).with_results({"h1": failed()})
    again = plan("r2", NOW, RolloutSettings(NEW), {"h1": waiting("third"), "h2": waiting(None)}, first)
    assert [member.before for member in again.members] == ["third", OLD]


def test_hosts_that_served_the_profile_before_stay():
    served = HostCheck(answered("a", verdict=HostVerdict.ALREADY))
    rendered_anew = waiting(NEW)
    looks = {"h1": served, "h2": rendered_anew, "h3": waiting(), "h4": waiting()}
    rollout = plan("r1", NOW, RolloutSettings(NEW, "1,3", on_failure="rollback_all"), looks)
    assert rollout.batches == (("h2", "h3", "h4"),)
    decision = decide(rollout.with_results({"h2": GOOD, "h3": GOOD, "h4": failed()}))
    assert decision.rollout.back == ("h3",)


def test_a_failed_canary_host_stops_whatever_max_fail_allows():
    decision, taken = carried_out(began(names(4), max_fail="100%"), lambda _host: failed())
    assert taken == [("h1",)]
    assert decision.rollout.status is Status.STOPPED
    assert "canary host h1" in decision.rollout.reason


PASSED = replace(GOOD, figures=("gate: r", "short-128 c1 frontdoor cold: wall_tok_s 71, 1.00 of 71"))
HELD = replace(PASSED, verdict=HostVerdict.HELD, why="wall_tok_s is 40, 0.56 of 71 (limit 0.90)")


def gated(rollout, wave, figures=PASSED, of=lambda _host: GOOD):
    """What is decided when a wave was switched and its figures are known."""
    decision = decide(rollout.with_results({host: of(host) for host in wave}), wave)
    if not decision.measure:
        return decision
    assert (decision.next, decision.rollout.status) == ((), Status.RUNNING)
    return decide(decision.rollout.with_results({decision.measure: figures}))


@given(st.integers(1, 60), WAVES)
def test_the_first_host_of_each_wave_is_measured_before_the_next_wave_begins(count, text):
    decision, measured, firsts = decide(began(names(count), waves=text, gate="performance")), [], []
    while decision.next:
        wave = decision.next
        firsts.append(wave[0])
        decision = decide(decision.rollout.with_results(dict.fromkeys(wave, GOOD)), wave)
        measured.append(decision.measure)
        decision = decide(decision.rollout.with_results({decision.measure: PASSED}))
    assert measured == firsts
    assert decision.rollout.status is Status.FINISHED
    assert {member.verdict for member in decision.rollout.members} == {HostVerdict.VERIFIED}


def test_without_the_gate_nobody_is_measured():
    decision = decide(began(names(3)).with_results({"h1": GOOD}), ("h1",))
    assert (decision.measure, decision.next) == ("", ("h2",))


def test_a_host_that_is_verified_stands_for_a_wave_whose_first_host_failed():
    rollout = began(names(3), waves="1,2", gate="performance", max_fail="1").with_results({"h1": PASSED})
    decision = decide(rollout.with_results({"h2": failed(), "h3": GOOD}), ("h2", "h3"))
    assert decision.measure == "h3"
    # A wave that fails too much is not worth the time.
    assert decide(began(names(2), gate="performance").with_results({"h1": failed()}), ("h1",)).measure == ""


@pytest.mark.parametrize(
    ("on_failure", "back"), [("stop", ()), ("rollback_wave", ("h2", "h3")), ("rollback_all", ("h1", "h2", "h3"))]
)
def test_a_host_that_is_too_slow_stops_the_rollout_whatever_max_fail_allows(on_failure, back):
    rollout = began(names(4), waves="1,2,1", gate="performance", max_fail="100%", on_failure=on_failure)
    rollout = gated(rollout, ("h1",)).rollout
    decision = gated(rollout, ("h2", "h3"), HELD)
    assert (decision.rollout.status, decision.next, decision.rollout.back) == (Status.STOPPED, (), back)
    assert decision.rollout.reason == "the gate holds it at h2: wall_tok_s is 40, 0.56 of 71 (limit 0.90)"
    gone = decision.rollout.with_results({host: HostResult(HostVerdict.RETURNED, OLD) for host in back})
    assert after_rollback(gone).status is (Status.ROLLED_BACK if on_failure == "rollback_all" else Status.STOPPED)


@pytest.mark.parametrize("verdict", [HostVerdict.HELD, HostVerdict.UNMEASURED])
def test_the_next_run_asks_the_gate_again_unless_it_is_left_out(verdict):
    first = gated(began(names(2), gate="performance"), ("h1",), HELD).rollout
    first = first.with_results({"h1": replace(HELD, verdict=verdict)})
    looks = {"h1": HostCheck(answered("a", verdict=HostVerdict.ALREADY)), "h2": waiting()}
    kept = from_dict(json.loads(json.dumps(as_dict(first))))
    again = plan("r2", NOW, RolloutSettings(NEW, gate="performance"), looks, kept)
    assert (again.id, again.batches, again.canary.before) == ("r1", (("h1",), ("h2",)), OLD)
    assert again.canary.verdict is HostVerdict.UNMEASURED
    assert decide(again).next == ("h1",)
    assert decide(again.with_results({"h1": GOOD}), ("h1",)).measure == "h1"
    without = plan("r2", NOW, RolloutSettings(NEW), looks, kept)
    assert (without.batches, without.canary.verdict) == ((("h2",),), HostVerdict.VERIFIED)


@settings(max_examples=20)
@given(FLEETS, WAVES, st.integers(0, 9))
def test_a_rerun_after_a_kill_measures_each_wave_that_the_gate_has_not_let_pass(count, text, steps_done):
    """Killed before a wave was judged, or before its figures were."""
    begun, measured = list[str](), list[str]()

    def carry_on(decision, steps):
        while steps and (decision.next or decision.measure):
            steps -= 1
            if decision.measure:
                measured.append(decision.measure)
                decision = decide(decision.rollout.with_results({decision.measure: PASSED}))
            else:
                wave = decision.next
                begun.extend(wave)
                decision = decide(decision.rollout.with_results(dict.fromkeys(wave, GOOD)), wave)
        return decision

    first = carry_on(decide(began(names(count), waves=text, gate="performance")), steps_done)
    assume(first.rollout.status is Status.RUNNING)
    served = {*begun, *first.next}
    already = HostCheck(answered("a", verdict=HostVerdict.ALREADY))
    looks = {host: already if host in served else waiting() for host in names(count)}
    kept = from_dict(json.loads(json.dumps(as_dict(first.rollout))))
    ended = carry_on(decide(plan("r2", NOW, RolloutSettings(NEW, text, gate="performance"), looks, kept)), -1)
    assert ended.rollout.status is Status.FINISHED
    assert measured == [wave[0] for wave in began(names(count), waves=text).batches]
    assert {member.verdict for member in ended.rollout.members} == {HostVerdict.VERIFIED}


@pytest.mark.parametrize("verdict", sorted(set(HostVerdict) - {HostVerdict.VERIFIED, HostVerdict.ALREADY}))
def test_what_serves_the_profile_and_was_not_let_pass_is_measured_however_often_a_run_is_killed(verdict):
    kept = began(names(2), gate="performance").with_results({"h1": replace(GOOD, verdict=verdict)})
    looks = {"h1": HostCheck(answered("a", verdict=HostVerdict.ALREADY)), "h2": waiting()}
    for _run in range(3):
        again = plan("r2", NOW, RolloutSettings(NEW, gate="performance"), looks, from_dict(as_dict(kept)))
        decision = decide(again)
        assert (decision.next, again.batches, again.canary.verdict) == (
            ("h1",),
            (("h1",), ("h2",)),
            HostVerdict.UNMEASURED,
        )
        kept = decision.rollout
    assert decide(again.with_results({"h1": GOOD}), ("h1",)).measure == "h1"


@pytest.mark.parametrize(("on_failure", "back"), [("stop", ()), ("rollback_wave", ()), ("rollback_all", ("h2", "h3"))])
def test_what_was_never_judged_goes_back_with_all(on_failure, back):
    """h2 and h3 were switched when the controller was killed; now the canary host fails its switch."""
    served = HostCheck(answered("a", verdict=HostVerdict.ALREADY))
    looks = {"h1": waiting(), "h2": served, "h3": served}
    given = {"gate": "performance", "on_failure": on_failure}
    again = plan("r2", NOW, RolloutSettings(NEW, "1,2", **given), looks, began(names(3), waves="1,2", **given))
    decision = decide(again.with_results({"h1": failed()}), ("h1",))
    assert (decision.rollout.status, decision.rollout.back) == (Status.STOPPED, back)


def test_what_the_gate_let_pass_is_kept_with_its_figures():
    first = gated(began(names(2), gate="performance"), ("h1",)).rollout
    looks = {"h1": HostCheck(answered("a", verdict=HostVerdict.ALREADY)), "h2": waiting()}
    again = plan(
        "r2", NOW, RolloutSettings(NEW, gate="performance"), looks, from_dict(json.loads(json.dumps(as_dict(first))))
    )
    assert (again.batches, again.canary.result.figures) == ((("h2",),), PASSED.figures)


def test_nothing_starts_while_a_host_would_refuse():
    looks = {"h1": waiting(), "h2": HostCheck(problem="the weights are missing")}
    assert refusals(looks) == {"h2": "the weights are missing"}


def test_a_rollout_that_was_taken_back_is_over():
    rollout = began(names(3), on_failure="rollback_all")
    decision = decide(rollout.with_results({"h1": GOOD, "h2": failed()}))
    assert decision.rollout.back == ("h1",)
    back = decision.rollout.with_results({"h1": HostResult(HostVerdict.RETURNED, OLD)})
    assert after_rollback(back).status is Status.ROLLED_BACK
    stuck = decision.rollout.with_results({"h1": HostResult(HostVerdict.STRANDED, NEW)})
    assert after_rollback(stuck).status is Status.STOPPED


def test_every_failure_counts_and_nothing_else():
    good = {
        HostVerdict.WAITING,
        HostVerdict.MAINTENANCE,
        HostVerdict.ALREADY,
        HostVerdict.VERIFIED,
        HostVerdict.UNMEASURED,
        HostVerdict.RETURNED,
    }
    assert set(HostVerdict) - good == FAILURES


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": 2}', '{"schema": 1, "members": 3}'])
def test_a_record_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"record|schema"):
        from_dict(json.loads(text))
