# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models that sleep while another one serves, and are woken by a switch."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons import daemon
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import occupied
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.standby import room
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate
from unit.plugins.module_utils._slot.calls import b70ctl, check, killed_anywhere, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, RELOAD_FAULTS, SLEEP_FAULTS, FakeHost, request
from unit.plugins.module_utils._slot.test_model import SlotModel
from unit.plugins.module_utils._slot.two_slots import AUX, TwoSlots

A, B, C = map(LAYOUT.unit, "abc")


def served(most=2, asleep="b", **changes):
    """A host that serves a, and on which these models sleep."""
    host = FakeHost()
    host.cards = 1
    host.render_standby(*"abc", most=most, cards=1, **changes)
    for unit in host.units.values():
        unit.load_s = 20.0
    for name in (*asleep, "a"):
        result = switch(host, name)
        assert result["outcome"] == "committed", result["msg"]
    return host


def short_of_memory(host, *names):
    """Switch to these profiles on a host that has no room for the weights of sleepers."""
    host.run_short_of_memory()
    for name in names:
        result = switch(host, name)
        assert result["outcome"] == "committed", result["msg"]
    return host


def last_end(host):
    lines = map(json.loads, host.texts[LAYOUT.journal_file][0].splitlines())
    return [line for line in lines if line["event"] == "end"][-1]


def test_a_switch_wakes_the_target_and_puts_the_old_engine_to_sleep():
    host = served()
    assert (host.served().keys(), host.sleeping) == ({host.unit("a").invocation}, [B])
    process, predicted = host.unit("b").invocation, check(host, "b")
    begun = host.mono
    result = switch(host, "b")
    assert (result["outcome"], result["way"], result["verified"]) == ("committed", "standby", True), result["msg"]
    assert host.mono - begun < 10
    assert (host.served(), host.sleeping, host.enabled) == ({process: True}, [A], [B])
    assert names(result)[2:] == [
        *("guard", "journal", "close", "drain", "stop", "release", "start", "alive", "health", "identity"),
        *("first_token", "canary", "open", "enable", "commit"),
    ]
    assert (predicted["way"], predicted["actions"]) == ("standby", last_end(host)["actions"])
    assert f"put {A} to sleep" in predicted["actions"]
    assert f"wake {B}" in predicted["actions"]
    host.assert_invariants()


def test_the_status_shows_who_sleeps_with_what_it_keeps():
    host = served()
    code, text = b70ctl(host, "status")
    assert code == 0
    since = json.loads(host.texts[LAYOUT.standby_file(B)][0])["since"]
    assert f"standby: b sleeps at level 1 since {since} and keeps 0.0 GiB" in text
    assert "standby" in b70ctl(switched(host, "b"), "history")[1]


def switched(host, name):
    assert switch(host, name)["outcome"] == "committed"
    return host


def test_it_goes_to_and_fro_without_a_load():
    host = served()
    starts = host.starts
    for name in "bababa":
        assert switch(host, name)["way"] == "standby"
        host.assert_invariants()
    assert host.starts == starts
    # Clients are told how long a wake takes, which is another time than that of a load.
    assert last_end(host)["key"].endswith(", from standby")


def test_the_controller_leaves_a_sleeper_alone_and_one_that_died():
    host = served()
    watching = daemon.Controller(host.effects(), LAYOUT, print)
    watching.look()
    told = json.loads(host.texts[LAYOUT.liveness_file][0])["standby"]
    assert [(row["profile"], row["bytes"], row["level"]) for row in told] == [("b", 1, 1)]
    for end in (lambda: None, lambda: host._loop(host.unit("b"))):
        end()
        served_before, starts = host.served(), host.starts
        for _number in range(4):
            watching.look()
            host.mono += 20
            host.tick()
        assert (host.served(), host.starts, host.running[:1]) == (served_before, starts, [A])


@pytest.mark.parametrize("fault", SLEEP_FAULTS)
def test_what_goes_wrong_with_a_sleeper_costs_time_and_no_answer(fault):
    host = served(asleep="")
    for name in "ab":
        host.unit(name).sleep_fault = fault
    for name in "babab":
        result = switch(host, name)
        assert (result["outcome"], result["profile"], result["verified"]) == ("committed", name, True), result["msg"]
        host.assert_invariants()
    # None of them was served from its sleep.
    assert result["way"] == "plain"
    assert result["warnings"]


def test_an_engine_that_cannot_be_loaded_either_leads_back_to_the_old_one_by_its_wake():
    host = served()
    host.unit("b").sleep_fault, host.unit("b").fault = "wrong_awake", "exit_at_start"
    process = host.unit("a").invocation
    result = switch(host, "b")
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a"), result["msg"]
    assert host.served() == {process: True}
    assert result["failure"]["phase"] in ("alive", "health")
    assert "woken in vain" in " ".join(result["warnings"])
    host.assert_invariants()


def test_the_way_back_wakes_and_loads_where_that_fails():
    host = served(asleep="")
    host.unit("b").fault, host.unit("a").sleep_fault = "wrong_answer", "wrong_awake"
    result = switch(host, "b")
    assert (result["outcome"], result["profile"], result["verified"]) == ("rolled_back", "a", True), result["msg"]
    assert "woken in vain" in " ".join(result["warnings"])
    host.assert_invariants()


def test_without_memory_the_oldest_sleeper_ends_and_then_nothing_sleeps():
    host = served(asleep="bc")
    assert host.sleeping == [B, C]
    for path in [path for path in host.texts if path.name == "model.safetensors"]:
        host.put(path, "x" * 2**20)
    host = served(asleep="", most=2)
    host.available = 3 * 2**30
    result = switch(host, "b")
    assert (result["outcome"], host.sleeping) == ("committed", [])
    assert "nothing is put to sleep" in " ".join(result["warnings"])


def test_only_so_many_sleep_and_the_oldest_ends():
    host = served(most=1, asleep="")
    for name, left in (("b", [A]), ("c", [B]), ("a", [C])):
        switch(host, name)
        assert host.sleeping == left
        host.assert_invariants()


def test_of_named_profiles_alone_engines_sleep():
    host = served(most=1, asleep="b")
    host.slot_settings["sleepers"] = ["b"]
    host.render_standby("c", cards=1)
    for name, left in (("c", [B]), ("b", []), ("a", [B])):
        switch(host, name)
        assert host.sleeping == left
        host.assert_invariants()
    switch(host, "b")
    assert (idle(host), host.sleeping) == (0, [B])


@pytest.mark.parametrize(
    ("free", "needed", "kept", "most", "found"),
    [
        (10, [8], [], 1, ([], 1)),
        (10, [12], [3, 3], 3, ([0], 1)),
        (10, [12], [1, 1], 3, ([0, 1], 1)),
        (10, [13], [1, 1], 3, ([], 0)),
        (10, [8], [1], 1, ([0], 1)),
        (10, [8], [1, 1], 1, ([0, 1], 1)),
        (0, [8], [9], 2, ([], 0)),
        (10, [8], [1], 0, ([0], 0)),
        (10, [8, 4], [3, 3], 3, ([], 1)),
        (10, [12, 4], [3, 3], 3, ([], 2)),
        (10, [14, 12], [3, 3], 3, ([0], 2)),
        (10, [13, 12], [3, 3], 3, ([0], 1)),
        (10, [12, 11], [0, 0], 3, ([], 0)),
        (0, [8, 4], [], 1, ([], 0)),
        (10, [12], [0, 3, 3], 4, ([1], 1)),
        (10, [12], [0, 3, 3], 3, ([0, 1], 1)),
    ],
)
def test_who_ends_for_whom_and_how_deep_it_sleeps(free, needed, kept, most, found):
    ends, level = room(free, dict(enumerate(needed, 1)), kept, most)
    assert ([*ends], level) == found


def test_without_memory_for_its_weights_one_sleeps_without_them_and_reads_them_again():
    host = short_of_memory(served(most=1, asleep=""))
    process, predicted = host.unit("a").invocation, check(host, "b")["actions"]
    assert switch(host, "b")["outcome"] == "committed"
    assert predicted == last_end(host)["actions"]
    starts = host.starts
    assert (host.sleeping, host.unit("a").empty) == ([A], True)
    assert f"put {A} to sleep without its weights" in last_end(host)["actions"]
    kept = json.loads(host.texts[LAYOUT.standby_file(A)][0])
    assert (kept["level"], kept["bytes"]) == (2, 0)
    assert "standby: a sleeps at level 2 since" in b70ctl(host, "status")[1]
    predicted = check(host, "a")["actions"]
    result = switch(host, "a")
    assert (result["outcome"], result["way"], result["verified"]) == ("committed", "standby", True), result["msg"]
    assert (host.served(), host.starts, host.unit("a").empty) == ({process: True}, starts, False)
    assert f"wake {A} and read its weights" in predicted
    assert predicted == last_end(host)["actions"]
    # It takes as long as reading them, which begins while clients are still served.
    assert last_end(host)["key"].endswith(", from standby, level 2")
    assert "prepare" in names(result)
    host.assert_invariants()


def test_with_memory_it_keeps_them_again():
    host = short_of_memory(served(most=1, asleep=""), "b")
    host.available = 2**36
    for name, level in (("a", 1), ("b", 1), ("a", 1)):
        assert switch(host, name)["way"] == "standby"
        (known,) = (json.loads(host.texts[LAYOUT.standby_file(unit)][0]) for unit in host.sleeping)
        assert known["level"] == level
        host.assert_invariants()


@pytest.mark.parametrize(
    "settings",
    [
        {"speculative_config": {"method": "mtp"}},
        {"cpu_offload_gb": 2},
        {"enable_lora": True},
        {"load_format": "tensorizer"},
    ],
)
def test_one_that_cannot_read_its_weights_again_ends_without_memory_for_them(settings):
    host = short_of_memory(served(most=1, asleep="", engine__settings=settings), "b")
    assert host.sleeping == []
    assert "nothing is put to sleep" in " ".join(last_end(host)["warnings"])


@pytest.mark.parametrize("fault", [*SLEEP_FAULTS, *RELOAD_FAULTS])
def test_what_goes_wrong_with_one_without_weights_costs_time_and_no_answer(fault):
    host = short_of_memory(served(asleep=""))
    for name in "ab":
        host.unit(name).sleep_fault = fault
    for name in "babab":
        result = switch(host, name)
        assert (result["outcome"], result["profile"], result["verified"]) == ("committed", name, True), result["msg"]
        assert not host.unit(name).empty
        host.assert_invariants()
    assert result["way"] == "plain"
    assert result["warnings"]


def test_the_way_back_reads_the_weights_again():
    host = short_of_memory(served(asleep=""))
    process = host.unit("a").invocation
    host.unit("b").fault = "wrong_answer"
    result = switch(host, "b")
    assert (result["outcome"], result["profile"], result["verified"]) == ("rolled_back", "a", True), result["msg"]
    assert (host.served(), host.unit("a").empty) == ({process: True}, False)
    host.assert_invariants()


def test_a_slot_that_is_stopped_and_a_profile_without_standby_leave_no_sleeper():
    host = served()
    assert switch(host, None)["outcome"] == "committed"
    assert (host.running, host.sleeping) == ([], [])
    host = served()
    host.render("d", cards=1)
    host.unit("d").load_s = 1.0
    assert switch(host, "d")["outcome"] == "committed"
    assert host.running == [LAYOUT.unit("d")]
    host.assert_invariants()


def test_one_that_was_rendered_anew_or_is_to_start_anew_is_loaded():
    host = served()
    host.mono += 5
    host.render_standby("b", cards=1, fingerprint="sha256:b-2")
    result = switch(host, "b")
    assert (result["outcome"], result["way"]) == ("committed", "plain"), result["msg"]
    host = served()
    assert switch(host, "b", gate=Gate.HEALTHY)["way"] == "plain"


def test_what_is_off_is_as_ever():
    host = served(most=0)
    assert host.sleeping == []
    assert switch(host, "b")["way"] == "plain"
    assert host.running == [B]


@pytest.mark.parametrize("fault", ["", "wrong_awake", "deep", "forgets_reload"])
def test_a_kill_at_any_moment_is_settled(fault):
    host = short_of_memory(served(asleep=""), *"ba") if fault in ("deep", "forgets_reload") else served()
    host.unit("b").sleep_fault = fault
    # Two cases share the moments of a way to sleep.
    first = 1 + (fault in ("wrong_awake", "deep"))
    for number, left in killed_anywhere(host, lambda one: switch(one, "b"), first, 2):
        left.mono += 30
        for _turn in range(2):
            result = recover(left)
            left.mono += 700
        assert result["outcome"] in ("unchanged", "committed"), (number, result["msg"])
        assert left.open, number
        left.assert_invariants()
        assert switch(left, "c")["outcome"] == "committed", number
        left.assert_invariants()


def test_sleepers_stay_asleep_where_no_more_may_sleep():
    host = served()
    host.render_standby("c", most=0, cards=1)
    starts, watching = host.starts, daemon.Controller(host.effects(), LAYOUT, print)
    for _number in range(4):
        watching.look()
        host.mono += 20
        host.tick()
    assert (host.running, host.sleeping, host.starts) == ([A], [B], starts)
    assert switch(host, None)["outcome"] == "committed"
    host.assert_invariants()


def test_generations_that_are_left_do_not_sleep_with_their_engine():
    host = served()
    host.generations = [host.mono + 10000]
    result = switch(host, "b", drain_timeout_s=5.0)
    assert (result["outcome"], result["way"], host.sleeping) == ("committed", "standby", []), result["msg"]
    assert f"stop {A}" in last_end(host)["actions"]
    host.assert_invariants()


def test_a_card_lost_in_the_wake_leads_back_and_loads_nothing_new():
    host = served()
    host.unit("b").sleep_fault = "loses_card"
    starts = host.starts
    result = switch(host, "b")
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a"), result["msg"]
    assert (result["failure"]["symptom"], host.starts) == ("device_lost", starts)
    host.assert_invariants()


def test_what_stands_in_the_slot_is_what_serves_and_sleepers_are_in_use():
    host = served(asleep="")
    switch(host, "b")
    assert host.sleeping == [A]
    found = occupied(host.effects(), LAYOUT)
    assert (found["profile"], [item["name"] for item in found["profiles"]]) == ("b", ["b", "a"])


def test_check_mode_names_the_sleepers_that_end():
    host = served(asleep="bc")
    host.render("d", cards=1)
    for name in (None, "d"):
        predicted = check(host, name)["actions"]
        left = copy.deepcopy(host)
        switch(left, name)
        assert predicted == last_end(left)["actions"]
        assert {f"stop {B}", f"stop {C}"} <= {*predicted}
    host.mono += 5
    host.render_standby("b", most=2, cards=1, fingerprint="sha256:b-2")
    predicted = check(host, "b")["actions"]
    switch(host, "b")
    assert predicted == last_end(host)["actions"]
    assert f"stop {B}" in predicted


@pytest.mark.parametrize(
    ("most", "asleep", "available", "name"),
    [(1, "b", 0, "c"), (2, "bc", 0, "b"), (2, "bc", 0, None), (2, "b", 3 * 2**30, "c"), (2, "", 3 * 2**30, "b")],
)
def test_check_mode_names_what_ends_for_memory(most, asleep, available, name):
    host = served(most, asleep)
    host.available = available or host.available
    predicted = check(host, name)
    result = switch(host, name)
    assert (predicted["actions"], predicted["warnings"]) == (last_end(host)["actions"], result["warnings"])


def test_a_slot_whose_card_a_sleeper_of_another_one_has_makes_it_clear():
    host = TwoSlots()
    host.main.render("large", cards=2, engine__env={"ZE_AFFINITY_MASK": "0,1"})
    host.aux.render_standby("x", "y", cards=1, engine__env={"ZE_AFFINITY_MASK": "1"})
    for slot in host.slots:
        for unit in slot.units.values():
            unit.load_s = 1.0
    for name in "xy":
        assert api.switch(host.effects(), AUX, request(name, slot="aux"))["outcome"] == "committed"
    assert host.aux.sleeping == [AUX.unit("x")]
    result = api.switch(host.effects(), LAYOUT, request("large"))
    assert (result["outcome"], host.served()) == ("committed", ("large", None)), result["msg"]
    assert host.aux.sleeping == []
    host.assert_invariants()


def test_a_reboot_leaves_no_sleeper():
    host = served()
    host.reboot()
    host.mono += 300
    assert recover(host)["outcome"] == "committed"
    assert host.running == [A]
    host.assert_invariants()


def idle(host):
    return b70ctl(host, "stop", "--idle", "--why", "nobody asked for a for 60 s")[0]


def test_a_model_that_nobody_asks_for_sleeps_and_the_next_request_wakes_it():
    host = served(most=1, asleep="")
    process, starts = host.unit("a").invocation, host.starts
    assert idle(host) == 0
    assert (host.served(), host.running, host.sleeping, host.enabled) == ({}, [], [A], [])
    assert (host.state.phase, host.state.idle["profile"]) == ("stopped", "a")
    assert last_end(host)["actions"][-2:] == [f"put {A} to sleep", "record the slot as stopped"]
    host.assert_invariants()
    watching = daemon.Controller(host.effects(), LAYOUT, print)
    for _number in range(4):
        watching.look()
        host.mono += 20
        host.tick()
    assert (host.sleeping, host.starts, host.state.phase) == ([A], starts, "stopped")
    result = switch(host, "a")
    assert (result["outcome"], result["way"], result["verified"]) == ("committed", "standby", True), result["msg"]
    assert (host.served(), host.starts) == ({process: True}, starts)
    host.assert_invariants()


def test_no_answers_are_recorded_from_an_engine_that_was_woken():
    host = served()
    starts = host.starts
    assert switch(host, "b", record_baseline=True)["outcome"] == "committed"
    assert host.starts == starts + 1
    host.assert_invariants()


def test_other_sleepers_stay_as_far_as_there_is_room():
    for most, left in ((2, [A, B]), (1, [A])):
        host = served(most=most)
        assert idle(host) == 0
        assert host.sleeping == left
    assert switch(host, "b")["way"] == "plain"
    assert host.sleeping == [A]
    host.assert_invariants()


@pytest.mark.parametrize("why", ["never_sleeps", "answers", "memory", "unverified"])
def test_one_that_cannot_sleep_is_stopped_for_idleness(why):
    host = served(asleep="")
    if why == "never_sleeps":
        host.unit("a").sleep_fault = why
    elif why == "answers":
        host.generations = [host.mono + 10000]
    elif why == "memory":
        host.available = 3 * 2**30
    else:
        host.gate_verified = False
        assert switch(host, "c", gate=Gate.HEALTHY)["outcome"] == "committed"
    assert idle(host) == 0
    assert (host.running, host.sleeping, host.state.phase) == ([], [], "stopped")


@pytest.mark.parametrize("fault", ["hang_wake", "never_wakes", "wrong_awake", "dies_asleep"])
def test_one_that_does_not_come_back_from_idleness_is_loaded(fault):
    host = served(asleep="")
    host.unit("a").sleep_fault = fault
    idle(host)
    result = switch(host, "a")
    assert (result["outcome"], result["way"], result["verified"]) == ("committed", "plain", True), result["msg"]
    host.assert_invariants()


def test_a_person_who_stops_an_idle_slot_ends_its_sleepers_and_a_boot_leaves_none():
    for end in (lambda host: switch(host, None), FakeHost.reboot):
        host = served()
        idle(host)
        end(host)
        assert (host.running, host.sleeping) == ([], [])


def test_a_kill_while_it_falls_asleep_for_idleness_is_settled():
    for number, left in killed_anywhere(served(), idle):
        left.mono += 30
        recover(left)
        assert left.open or left.state.phase in ("stopped", "switching"), number
        left.check()
        assert switch(left, "a")["outcome"] in ("committed", "unchanged"), number
        left.assert_invariants()


class StandbyModel(SlotModel):
    """The same schedules, where engines may sleep, and what can go wrong with that.

    Nobody starts units by hand: of these systemd keeps none from running beside another.
    """

    def someone_starts_a_unit(self, name):
        """This is no rule here."""

    def render_anew(self, name, fault, seen):
        """Nor is this, which knows one port."""

    @initialize()
    def make(self):
        super().make()
        self.fake_host.cards = 1
        self.fake_host.render_standby(*"abc", most=2, cards=1)

    @rule()
    def nobody_asks(self):
        self.run(None, who="idle")

    @rule()
    def memory_gets_short(self):
        self.fake_host.run_short_of_memory()

    @rule()
    def memory_gets_free(self):
        self.fake_host.available = 2**36

    @rule(name=st.sampled_from("abc"), fault=st.sampled_from(("", "", *SLEEP_FAULTS, *RELOAD_FAULTS)))
    def sleep_is_broken_or_mended(self, name, fault):
        self.fake_host.unit(name).sleep_fault = fault


StandbyModel.TestCase.settings = SlotModel.TestCase.settings
TestStandbyModel = StandbyModel.TestCase
