# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch to one engine over two hosts, and what may happen to either host meanwhile and afterwards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.network import Link, links_text
from ansible_collections.arcpro.b70.plugins.module_utils._slot.node_link import read_part
from unit.plugins.module_utils._slot.calls import b70ctl, check, recover, switch
from unit.plugins.module_utils._slot.fake_group import BIG, FakeGroup
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
    assert "node 1 of 2 of Model big, which alpha serves" in group.beta.state.reason


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
    group.cut(beta_is_off=True)
    result = switch(group.alpha, "big")
    assert result["outcome"] == "untouched"
    assert "node beta (10.0.0.2) of big does not answer" in result["msg"]


def test_a_network_below_the_floor_fails_the_guard_and_one_that_was_not_measured_is_said(group):
    slot = json.loads(group.alpha.texts[LAYOUT.slot_file][0])
    floor = {"bandwidth_min_gb_s": 1.0, "latency_max_us": 500.0}
    group.alpha.put(LAYOUT.slot_file, json.dumps({**slot, "nodes": {**slot["nodes"], **floor}}))
    slow = Link(("10.0.0.1", "10.0.0.2"), 0.117, 0.117, 300.0, "2026-11-25")
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


@pytest.mark.parametrize("phase", ["alive", "health", "identity", "first_token", "canary", "open", "enable", "commit"])
def test_a_part_that_is_killed_in_any_phase_is_never_served(phase):
    group = FakeGroup()
    assert not switch(group.alpha, "a")["failed"]
    group.alpha.units[BIG].load_s = 8.0

    def kill():
        if BIG in group.beta.running and in_phase(group, phase) and not killed:
            killed.append(phase)
            group.beta._down(group.beta.units[BIG], "failed")
        group.pass_time()

    killed: list[str] = []
    group.alpha.meanwhile = kill
    switch(group.alpha, "big")
    group.alpha.meanwhile = group.pass_time
    settle(group)
    settle(group)
    group.assert_invariants()
    assert killed
    assert group.alpha.open


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
    group.cut(beta_is_off=True)
    group.wait(15)
    assert not group.alpha.open
    assert "node beta has not answered for" in group.alpha.state.reason
    # However long that takes, the leader's engine waits and nothing else is served.
    group.wait(400)
    assert group.alpha.running == []
    group.beta.reboot()
    group.start_services()
    group.cut()
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
    group.cut(beta_is_off=True)
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
    group.beta.reboot()
    group.start_services()
    group.cut()
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
    group.cut(beta_is_off=True)
    group.wait(3000)
    assert (group.alpha.enabled, group.alpha.open) == ([BIG], False)
    group.beta.reboot()
    group.start_services()
    group.cut()
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
    assert text.startswith("slot main runs a part of big, which node alpha leads; clients use that one\n")
    assert "/health" not in text
    assert "node 1 of a group that alpha leads" in text
    assert "node beta: its part of big runs" in text
