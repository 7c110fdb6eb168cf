# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch to one engine over two hosts, and what may happen to either host meanwhile and afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons import daemon
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import LOOK_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.node_link import read_part
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.network import LinkMeasurement, links_text
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder
from unit.plugins.module_utils._slot.calls import b70ctl, check, recover, switch
from unit.plugins.module_utils._slot.fake_group import BIG, KEY, FakeGroup
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed

A = LAYOUT.unit("a")


@pytest.fixture
def group():
    return FakeGroup()


def serve_big(group):
    result = switch(group.alpha, "big")
    assert not result["failed"], result["msg"]
    group.assert_invariants()
    return result


def part(group):
    return read_part(group.beta.effects(), LAYOUT)


def in_phase(group, phase):
    """Has the leader's run begun this phase?"""
    lines = group.alpha.texts.get(LAYOUT.progress_file, ("", None))[0].splitlines()
    return any(row.get("phase") == phase for row in map(json.loads, lines))


def settle(group):
    """What the host does by itself after a start of its engine: it is verified."""
    group.wait(30)
    result = recover(group.alpha)
    group.wait(5)
    return result


def test_a_switch_starts_both_parts_and_opens_the_leader(group):
    serve_big(group)
    assert group.alpha.state.profile_name == "big"
    assert (group.alpha.enabled, group.beta.enabled) == ([BIG], [])
    assert not group.beta.open
    assert group.beta.state.reason == "part of big, led by alpha (node 1 of 2)"


def test_another_profile_ends_both_parts(group):
    serve_big(group)
    assert not switch(group.alpha, "a")["failed"]
    group.wait(5)
    assert (group.alpha.running, group.beta.running) == ([A], [])


def test_a_follower_stops_what_it_serves_and_serves_it_again_afterwards(group):
    assert not switch(group.beta, "b")["failed"]
    serve_big(group)
    assert group.beta.running == [BIG]
    assert not switch(group.alpha, profile=None)["failed"]
    group.wait(60)
    assert group.beta.state.profile_name == "b"
    group.beta.assert_invariants()
    assert group.beta.open


def test_a_follower_takes_no_profile_beside_its_part(group):
    serve_big(group)
    result = switch(group.beta, "b")
    assert result["failed"]
    assert "runs a part of big, which node alpha leads" in result["msg"]
    result = switch(group.beta, "big")
    assert "led by node alpha" in result["msg"]
    group.assert_invariants()


def test_a_follower_that_lacks_something_fails_the_guard():
    group = FakeGroup()
    for path in [path for path in group.beta.texts if path.is_relative_to("/models/big")]:
        del group.beta.texts[path]
    assert not switch(group.alpha, "a")["failed"]
    group.wait(10)
    before = group.alpha.state
    result = switch(group.alpha, "big")
    assert (result["failed"], result["outcome"]) == (True, "untouched")
    assert "node beta" in result["msg"]
    assert "/models/big" in result["msg"]
    assert group.alpha.state == before


def test_another_fingerprint_fails_the_guard():
    group = FakeGroup(fingerprint="sha256:big-2")
    result = switch(group.alpha, "big")
    assert result["outcome"] == "untouched"
    assert "node beta (10.0.0.2) has another big" in result["msg"]


def test_a_node_that_is_off_fails_the_guard(group):
    group.cut(off=["beta"])
    result = switch(group.alpha, "big")
    assert result["outcome"] == "untouched"
    assert "node beta (10.0.0.2) of big does not answer" in result["msg"]


def test_a_network_below_the_floor_fails_the_guard_and_one_that_was_not_measured_is_said(group):
    slot = json.loads(group.alpha.texts[LAYOUT.slot_file][0])
    floor = {"bandwidth_gb_s": 1.0, "latency_us": 500.0}
    group.alpha.put(LAYOUT.slot_file, json.dumps({**slot, "nodes": {**slot["nodes"], "floor": floor}}))
    slow = LinkMeasurement(("10.0.0.1", "10.0.0.2"), 0.117, 0.117, 300.0, "2026-11-25")
    group.alpha.put(LAYOUT.network_file, links_text({"beta": slow}))
    for refused in (switch(group.alpha, "big"), check(group.alpha, "big")):
        assert (refused["failed"], refused["outcome"]) == (True, "untouched")
        assert "the network to node beta (10.0.0.2) is too slow for big" in refused["msg"]
    group.alpha.put(LAYOUT.network_file, links_text({"beta": replace(slow, sent_gb_s=1.1, received_gb_s=1.1)}))
    assert not any("network" in warning for warning in check(group.alpha, "big")["warnings"])
    group.alpha.put(LAYOUT.network_file, "")
    result = serve_big(group)
    assert any("the network to node beta (10.0.0.2) was not measured" in warning for warning in result["warnings"])


@pytest.mark.parametrize("fault", ["exit_at_start", "crash_loop"])
def test_a_part_that_fails_at_its_start_leads_both_back(group, fault):
    assert not switch(group.alpha, "a")["failed"]
    group.beta.units[BIG].fault = fault
    result = switch(group.alpha, "big")
    assert result["outcome"] == "rolled_back", result["msg"]
    group.wait(40)
    group.assert_invariants()
    assert group.alpha.state.profile_name == "a"
    assert (group.alpha.running, group.beta.running) == ([A], [])


FORWARD = ("close", "drain", "stop", "release", "start", "alive", "health", "identity", "first_token", "warm_up",
           "canary", "open", "enable", "commit")  # fmt: skip
BACK = tuple(phase for phase in FORWARD if phase not in ("drain", "warm_up"))


def killed(group):
    """Whatever the follower runs is killed."""
    for name in group.beta.running:
        group.beta._down(group.beta.units[name], "failed")
    return lambda: None


def off(group):
    """The follower's host is off for a while, and boots."""
    group.cut(off=["beta"])
    return lambda: group.come_back("beta")


def parted(group):
    """No node reaches another for a while."""
    group.cut(parted=True)
    return group.cut


def lose_in(group, phase, direction, lose, seconds=45):
    """Has the follower lost as the phase begins, for so long. Returns what was done."""
    done: list[float] = []
    mend: list[Any] = []

    def look():
        lines = "" if done else group.alpha.texts.get(LAYOUT.progress_file, ("", None))[0]
        last = json.loads(lines.splitlines()[-1]) if lines else {}
        if (last.get("phase"), last.get("direction")) == (phase, direction):
            done.append(group.alpha.mono)
            mend.append(lose(group))
        if mend and group.alpha.mono >= done[0] + seconds:
            mend.pop()()
        group.pass_time()

    group.alpha.meanwhile = look
    return done


LOSSES = [
    *((phase, "forward", killed) for phase in FORWARD),
    *((phase, "back", killed) for phase in BACK),
    *((phase, "forward", lose) for phase in ("close", "start", "health", "canary") for lose in (off, parted)),
    *(("start", "back", lose) for lose in (off, parted)),
]


@pytest.mark.parametrize(("phase", "direction", "lose"), LOSSES)
def test_whatever_is_lost_in_any_phase_is_never_served(phase, direction, lose):
    group = FakeGroup()
    serve_on_beta(group)
    assert not switch(group.alpha, "big2")["failed"]
    group.alpha.units[BIG].load_s = group.alpha.units[LAYOUT.unit("big2")].load_s = 8.0
    if direction == "back":
        group.alpha.units[BIG].fault = "wrong_answer"
    done = lose_in(group, phase, direction, lose)
    switch(group.alpha, "big")
    assert done
    for _settles in range(3):
        settle(group)
        if group.alpha.open or not group.alpha.enabled:
            break
    # Either engine is served with all its parts, or nothing is, and the follower serves its own model.
    group.wait(50)
    group.assert_invariants()
    served = group.alpha.open and group.alpha.state.profile_name
    assert served in ((False, "big", "big2") if direction == "back" else ("big", "big2"))
    assert (group.beta.open, group.parts(LAYOUT.unit(served or "b"))) == (
        (False, ["alpha", "beta"]) if served else (True, ["beta"])
    )


def test_a_part_that_ends_while_it_is_served_closes_and_the_group_comes_back(group):
    serve_big(group)
    group.beta._down(group.beta.units[BIG], "failed")
    group.wait(3)
    assert not group.alpha.open
    assert "node beta is gone from the engine" in group.alpha.state.reason
    assert group.beta.state.reason == "its part of big, which alpha leads, has ended"
    assert settle(group)["verified"]
    group.assert_invariants()


def test_a_node_that_is_lost_closes_the_leader_until_it_is_back(group):
    serve_big(group)
    group.cut(off=["beta"])
    group.wait(15)
    assert not group.alpha.open
    assert "node beta has not answered for" in group.alpha.state.reason
    # However long that takes, the leader's engine waits and nothing else is served.
    group.wait(400)
    assert group.alpha.running == []
    group.come_back("beta")
    assert settle(group)["verified"]
    group.assert_invariants()


def test_nodes_that_are_parted_for_long_end_their_parts(group):
    serve_big(group)
    group.cut(parted=True)
    group.wait(45)
    assert (group.alpha.running, group.beta.running) == ([], [])
    group.cut()
    assert settle(group)["verified"]
    group.assert_invariants()


def test_a_moment_of_silence_costs_nothing(group):
    serve_big(group)
    invocation = group.alpha.units[BIG].invocation
    group.cut(parted=True)
    group.wait(6)
    group.cut()
    group.wait(60)
    assert group.alpha.units[BIG].invocation == invocation
    group.assert_invariants()


def test_services_that_are_started_anew_leave_the_engine_alone(group):
    serve_big(group)
    invocation = group.alpha.units[BIG].invocation
    group.start_services()
    group.wait(60)
    assert group.alpha.units[BIG].invocation == invocation
    group.assert_invariants()


def test_after_a_reboot_of_the_leader_the_group_is_verified_again(group):
    serve_big(group)
    earlier = part(group).epoch
    group.alpha.reboot()
    group.start_services()
    assert settle(group)["verified"]
    group.assert_invariants()
    assert part(group).epoch != earlier


def test_a_leader_that_boots_without_the_other_node_waits_as_long_as_it_takes(group):
    serve_big(group)
    group.cut(off=["beta"])
    group.alpha.reboot()
    group.start_services()
    group.wait(5)
    assert group.alpha.state.reason == "big waits for node beta; it is served when all nodes are there"
    # In the first round of its unit, and between two rounds.
    for seconds in (60, 550):
        group.wait(seconds)
        result = recover(group.alpha)
        assert (result["failed"], result["outcome"]) == (False, "unchanged")
        assert "waits for the other nodes" in result["msg"]
    assert (group.alpha.units[BIG].sub, group.alpha.enabled, group.alpha.open) == ("auto-restart", [BIG], False)
    group.come_back("beta")
    assert settle(group)["verified"]
    group.assert_invariants()


@pytest.mark.parametrize("phase", ["health", "identity", "first_token", "canary"])
def test_a_node_that_is_lost_while_the_engine_is_settled_is_waited_for(group, phase):
    serve_big(group)
    group.alpha.units[BIG].load_s = 8.0
    group.alpha.reboot()
    group.start_services()
    group.wait(4)

    def lose():
        if not lost and in_phase(group, phase):
            lost.append(phase)
            group.beta._down(group.beta.units[BIG], "failed")
            # Such an engine answers nobody.
            group.alpha.mono += 1
            group.pass_time()
            group.alpha.mono += 1
        group.pass_time()

    lost: list[str] = []
    group.alpha.meanwhile = lose
    result = recover(group.alpha)
    group.alpha.meanwhile = group.pass_time
    assert lost
    assert (result["failed"], result["outcome"]) == (True, "interrupted"), result["msg"]
    assert "node beta is gone from the engine" in result["msg"]
    assert "node beta is gone from the engine" in group.alpha.state.reason
    group.cut(off=["beta"])
    group.wait(3000)
    assert (group.alpha.enabled, group.alpha.open) == ([BIG], False)
    group.come_back("beta")
    assert settle(group)["verified"]
    group.assert_invariants()


@pytest.mark.parametrize("effect", range(20, 400, 20))
def test_a_switch_that_is_killed_is_settled_for_both(effect):
    group = FakeGroup()
    assert not switch(group.alpha, "a")["failed"]
    group.alpha.kill_at = group.alpha.effects_done + effect
    try:
        switch(group.alpha, "big")
    except Killed:
        group.alpha.lock_holder = None
    group.alpha.kill_at = None
    settle(group)
    settle(group)
    group.assert_invariants()
    assert group.alpha.open


def test_the_status_of_both_names_the_group(group):
    serve_big(group)
    group.wait(2)
    _code, text = b70ctl(group.alpha, "status")
    assert "node 0 of a group that it leads, for an engine of big over 2 nodes" in text
    assert "node beta: its part of big runs" in text
    _code, text = b70ctl(group.beta, "status")
    assert "seen: slot main runs a part of big, which node alpha leads; clients use that one" in text.splitlines()
    assert "/health" not in text
    assert "node 1 of a group that alpha leads" in text
    assert "node beta: its part of big runs" in text


def serve_on_beta(group):
    """What the follower serves by itself, which it gets back when no part is wanted of it any more."""
    assert not switch(group.beta, "b")["failed"]
    group.wait(2)


def watch_beta(group):
    """What the follower is open for, as time passes."""
    seen: list[str] = []
    before = group.alpha.meanwhile

    def look():
        before()
        if group.beta.open:
            seen.append(group.beta.state.profile_name)

    group.alpha.meanwhile = look
    return seen


def test_a_follower_keeps_its_place_while_the_engine_begins_anew(group):
    serve_on_beta(group)
    serve_big(group)
    seen = watch_beta(group)
    group.beta._down(group.beta.units[BIG], "failed")
    # Between two processes of the leader's unit it wishes for nothing.
    assert settle(group)["verified"]
    group.assert_invariants()
    assert seen == []


def test_a_follower_keeps_its_place_while_the_leader_boots(group):
    serve_on_beta(group)
    serve_big(group)
    seen = watch_beta(group)
    group.alpha.reboot()
    group.alpha._down(group.alpha.units[BIG], "inactive")
    group.start_services("alpha")
    group.wait(40)
    group.alpha.launch(group.alpha.units[BIG])
    assert settle(group)["verified"]
    group.assert_invariants()
    assert seen == []


def test_a_follower_keeps_its_place_between_two_profiles_of_the_group(group):
    serve_on_beta(group)
    serve_big(group)
    seen = watch_beta(group)
    assert not switch(group.alpha, "big2")["failed"]
    group.wait(10)
    group.assert_invariants()
    assert (group.parts(LAYOUT.unit("big2")), seen) == (["alpha", "beta"], [])
    assert not switch(group.alpha, "a")["failed"]
    group.wait(60)
    assert group.beta.state.profile_name == "b"
    assert LAYOUT.before_file not in group.beta.texts


def test_a_follower_gets_back_what_served_and_not_what_slept(group):
    group.beta.render_standby(*"ab")
    assert not switch(group.beta, "a")["failed"]
    serve_on_beta(group)
    assert group.beta.sleeping == [LAYOUT.unit("a")]
    serve_big(group)
    assert group.beta.sleeping == []
    assert not switch(group.alpha, "a")["failed"]
    group.wait(60)
    assert group.beta.state.profile_name == "b"


def test_what_can_not_be_given_back_is_tried_again_until_somebody_decides(group):
    serve_on_beta(group)
    serve_big(group)
    group.beta.units[LAYOUT.unit("b")].fault = "exit_at_start"
    assert not switch(group.alpha, "a")["failed"]
    group.wait(100)
    assert not group.beta.open
    assert LAYOUT.before_file in group.beta.texts
    group.beta.units[LAYOUT.unit("b")].fault = ""
    group.wait(200)
    assert group.beta.open
    assert LAYOUT.before_file not in group.beta.texts


def test_what_somebody_chose_meanwhile_stays(group):
    serve_on_beta(group)
    serve_big(group)
    group.beta.units[LAYOUT.unit("b")].fault = "exit_at_start"
    assert not switch(group.alpha, "a")["failed"]
    group.wait(20)
    assert not switch(group.beta, profile=None, who="ann")["failed"]
    group.beta.units[LAYOUT.unit("b")].fault = ""
    group.wait(400)
    assert not group.beta.open
    assert LAYOUT.before_file not in group.beta.texts


def test_a_refusal_is_waited_for_however_long_it_takes(group):
    serve_big(group)
    weights = {path: group.beta.texts.pop(path) for path in [*group.beta.texts] if path.is_relative_to("/models/big")}
    group.alpha.reboot()
    group.start_services("alpha")
    group.wait(1900)
    assert "node beta" in group.alpha.state.reason
    assert (group.alpha.units[BIG].active, group.alpha.enabled) == ("activating", [BIG])
    group.beta.texts |= weights
    assert settle(group)["verified"]
    group.assert_invariants()


def test_a_refusal_ends_a_switch_at_once(group):
    assert not switch(group.alpha, "a")["failed"]
    # The guard finds nothing, and then the follower's unit can't be started.
    group.beta.units[BIG].fault = "exit_at_start"
    group.beta.cards = 0
    begun = group.alpha.mono
    result = switch(group.alpha, "big")
    assert result["outcome"] == "rolled_back", result["msg"]
    assert group.alpha.mono - begun < 120


def test_one_missed_answer_is_no_lost_node(group):
    serve_big(group)
    group.alpha.units[BIG].live_fault = "wrong_answer"
    group.alpha.gate_verified = False  # it is open for a moment yet
    missed: list[float] = []

    def miss():
        if in_phase(group, "canary") and not missed:
            missed.append(group.alpha.mono)
            group.cut(parted=True)
        elif missed and group.alpha.mono >= missed[0] + 4:
            group.cut()
        group.pass_time()

    group.alpha.meanwhile = miss
    result = switch(group.alpha, "big", recheck=True, on_failure="leave")
    group.alpha.meanwhile = group.pass_time
    assert missed
    assert "node beta" not in result["msg"], result["msg"]
    # The engine itself was wrong, so it was started anew, and nobody waits for a node.
    assert result["outcome"] == "rolled_back"
    group.assert_invariants()


def test_the_leaders_own_service_is_started_again_and_otherwise_its_engine_ended(group):
    serve_big(group)
    said: list[str] = []
    watching = daemon.Controller(group.alpha.effects(), LAYOUT, said.append)
    invocation = group.alpha.units[BIG].invocation
    group.alpha._down(group.alpha.units[LAYOUT.node_unit], "inactive")
    watching.look()
    assert group.alpha.node_runs
    group.wait(LOOK_S)
    watching.look()
    assert (group.alpha.units[BIG].invocation, group.alpha.open) == (invocation, True)
    # One that runs and does not look any more says nothing.
    group.frozen.add("alpha")
    for _look in range(4):
        group.wait(LOOK_S)
        watching.look()
    assert not group.alpha.open
    assert "b70-node-main.service of this host does not answer" in group.alpha.state.reason
    group.frozen.clear()
    group.start_services("alpha")
    assert settle(group)["verified"]
    group.assert_invariants()


def busy_card(group):
    group.beta.device_users = (Holder(7, "python train.py", "ann", "", "/dev/dri/renderD128"),)


def few_cards(group):
    group.beta.cards = 1


def no_interface(group):
    group.beta.interfaces = {}


def other_address(group):
    group.beta.interfaces = {"ens2": ("10.0.0.9",)}


def full_disk(group):
    group.beta.free = 2**10


def other_weights(group):
    for number, host in enumerate(group.hosts.values()):
        files = {"model.safetensors": {"size": 1, "sha256": f"{number}" * 64, "mtime_ns": number}}
        host.put(PurePosixPath("/models/big/.b70-weights.json"), json.dumps({"schema": 1, "files": files}))


def other_key(group):
    group.beta.put(LAYOUT.node_key_file, "another-key-" * 4)


def no_key(group):
    del group.alpha.texts[LAYOUT.node_key_file]


def deaf_followers(group):
    group.parted.add(frozenset(("beta", "gamma")))


def taken_port(group):
    group.alpha.foreign = (Holder(7, "nc -l 18201", "ann", "", "port 18201"),)


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        (busy_card, "a card of profile big is held by a process that is not ours to end"),
        (few_cards, "profile big needs more cards than this host shows"),
        (no_interface, "this host has no network device ens2"),
        (other_address, "ens2 does not have the address of this node"),
        (full_disk, "too little space for"),
        (other_weights, "has other weights of big"),
        (other_key, "it does not have the key of this host; set b70_nodes.key"),
        (no_key, "has no key of this group of nodes; set b70_nodes.key"),
        (deaf_followers, "does not hear node"),
        (taken_port, "port 18201, where the parts of big meet"),
    ],
)
def test_what_a_node_lacks_is_found_before_anything_is_touched(lack, words):
    group = FakeGroup(count=3, cards=2)
    for host in group.hosts.values():
        host.cards = 2
    assert not switch(group.alpha, "a")["failed"]
    lack(group)
    group.wait(12)
    before, invocation = group.alpha.state, group.alpha.unit("a").invocation
    result = switch(group.alpha, "big")
    assert (result["failed"], result["outcome"]) == (True, "untouched"), result["msg"]
    assert words in result["msg"]
    assert (group.alpha.state, group.alpha.unit("a").invocation, group.beta.running) == (before, invocation, [])


def test_nobody_without_the_key_starts_a_part(group):
    serve_big(group)
    epoch = part(group).epoch
    group.beta.put(LAYOUT.node_key_file, "another-key-" * 4)
    group.wait(60)
    # Neither believes the other: both end, as if they were parted.
    assert (group.alpha.open, group.beta.running) == (False, [])
    group.beta.put(LAYOUT.node_key_file, KEY)
    assert settle(group)["verified"]
    group.assert_invariants()
    assert part(group).epoch != epoch


def test_three_nodes_serve_and_begin_anew_together():
    group = FakeGroup(count=3)
    serve_big(group)
    assert group.parts() == ["alpha", "beta", "gamma"]
    group.hosts["gamma"]._down(group.hosts["gamma"].units[BIG], "failed")
    group.wait(3)
    assert "node gamma is gone from the engine" in group.alpha.state.reason
    assert settle(group)["verified"]
    group.assert_invariants()


def test_a_third_node_that_is_off_concerns_no_profile_of_two():
    group = FakeGroup(count=3, over=2)
    group.cut(off=["gamma"])
    serve_big(group)
    invocation = group.alpha.units[BIG].invocation
    group.asked.clear()
    group.wait(30)
    assert group.alpha.units[BIG].invocation == invocation
    assert group.asked.count(("alpha", "gamma")) < group.asked.count(("alpha", "beta")) / 3


def test_an_engine_that_lost_a_part_while_it_is_verified_is_ended(group):
    serve_big(group)
    group.alpha.units[BIG].load_s = 8.0
    group.alpha.reboot()
    group.start_services()
    group.wait(4)
    begun = group.alpha.units[BIG].invocation

    def lose():
        if in_phase(group, "health") and not group.frozen:
            # The leader's own service sees nothing of it.
            group.frozen.add("alpha")
            group.beta._down(group.beta.units[BIG], "failed")
            group.alpha.units[BIG].live_fault = "health_500"
            group.alpha.mono += 1
            group.pass_time()
        group.pass_time()

    group.alpha.meanwhile = lose
    result = recover(group.alpha)
    group.alpha.meanwhile = group.pass_time
    assert (result["failed"], result["outcome"]) == (True, "interrupted"), result["msg"]
    assert not group.alpha.units[BIG].up
    group.frozen.clear()
    assert settle(group)["verified"]
    group.assert_invariants()
    assert group.alpha.units[BIG].invocation != begun
