# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a slot does by itself: after a boot, a restart of its engine, or a switch that was killed."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import host, killed_anywhere, made_once, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

A, B = (LAYOUT.unit(name) for name in "ab")


@pytest.fixture
def fake_host():
    return host("abc", load_s=1.0)


def test_after_a_reboot_the_committed_profile_is_verified_again(fake_host):
    switch(fake_host, "a")
    fake_host.mono += 60
    fake_host.reboot()
    assert not fake_host.open
    result = recover(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", True)
    assert fake_host.open
    # In place: the engine that systemd started is the one that is served.
    assert "start" not in [phase["name"] for phase in result["phases"]]


def test_after_a_restart_by_systemd_it_is_verified_again(fake_host):
    switch(fake_host, "a")
    fake_host.crash("a")
    result = recover(fake_host)
    fake_host.assert_invariants()
    assert (result["failed"], result["profile"], result["verified"]) == (False, "a", True)
    assert fake_host.state.invocation_id == fake_host.unit("a").invocation


def test_a_verified_engine_is_left_alone_at_once(fake_host):
    switch(fake_host, "a")
    before, begun, mutations = dict(fake_host.texts), fake_host.mono, len(fake_host.mutations)
    result = recover(fake_host)
    assert (result["changed"], result["outcome"], result["verified"]) == (False, "unchanged", True)
    assert fake_host.mutations[mutations:] == []
    # Not even the progress of the switch before, which somebody may still be reading.
    assert fake_host.texts == before
    assert fake_host.mono - begun < 1


def test_a_restarted_engine_that_answers_wrongly_is_stopped(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").fault = "wrong_answer"
    fake_host.mono += 60
    fake_host.reboot()
    result = recover(fake_host)
    fake_host.assert_invariants()
    assert (result["failed"], result["outcome"]) == (True, "stopped")
    assert not fake_host.open
    assert "canary" in fake_host.state.reason


def test_the_gate_of_the_commit_is_the_gate_at_boot(fake_host):
    fake_host.gate_verified = False
    fake_host.unit("a").fault = "wrong_answer"
    switch(fake_host, "a", gate=Gate.HEALTHY)
    fake_host.mono += 60
    fake_host.reboot()
    result = recover(fake_host)
    assert (result["failed"], result["verified"], fake_host.open) == (False, False, True)


def test_a_profile_that_was_accepted_at_its_switch_boots(fake_host):
    fake_host.render("a", status="blocked", status_reason="for a reason")
    switch(fake_host, "a", accept_status=("blocked",))
    fake_host.mono += 60
    fake_host.reboot()
    assert recover(fake_host)["profile"] == "a"


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_nothing_committed_starts_nothing(fake_host, mode):
    result = recover(fake_host, mode)
    assert (result["failed"], result["changed"], fake_host.running) == (False, False, [])
    assert "no profile was committed" in result["msg"]


def test_an_engine_started_by_hand_stays_closed(fake_host):
    switch(fake_host, "a")
    fake_host.effects().units.start(B)
    result = recover(fake_host)
    assert not result["changed"]
    assert fake_host.running == [B]
    assert not fake_host.open
    assert "by hand" in fake_host.state.reason
    # A person who asks for it gets what was committed.
    assert recover(fake_host, Mode.RECOVER)["profile"] == "a"
    fake_host.assert_invariants()


def test_an_engine_left_for_a_look_is_left(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "wrong_answer"
    switch(fake_host, "b", on_failure=OnFailure.LEAVE)
    assert not recover(fake_host)["changed"]
    assert fake_host.running == [B]
    assert not fake_host.open


def test_a_guard_only_warns_of_what_was_committed(fake_host):
    switch(fake_host, "a")
    fake_host.crash("a")
    for path in [path for path in fake_host.texts if path.name in ("model.safetensors", "config.json")]:
        del fake_host.texts[path]
    result = recover(fake_host)
    assert (result["failed"], result["outcome"]) == (False, "committed"), "its canary decides"
    assert any("weights of a are missing" in text for text in result["warnings"])


@made_once
def served():
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    return fake_host


@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
@pytest.mark.parametrize(("target", "fault"), [("b", ""), ("b", "wrong_answer"), (None, "")])
def test_a_switch_killed_anywhere_is_settled(then, mode, target, fault):
    before = served()
    before.unit("b").fault = fault
    # The four cases of a switch take all of its moments.
    first = 1 + (mode is Mode.BOOT) + (then == "reboot")
    for number, fake_host in killed_anywhere(before, lambda host: switch(host, target), first, 3):
        if then == "reboot":
            fake_host.mono += 60
            fake_host.reboot()
        result = recover(fake_host, mode)
        fake_host.assert_invariants()
        assert not result["failed"], (number, result["msg"])
        # With an entry in the journal the answer is clear; a stop is finished, a switch ends verified.
        assert fake_host.open or target is None, (number, result["msg"])


def test_a_running_switch_is_waited_for(fake_host):
    switch(fake_host, "a")
    fake_host.lock_holder = "pid 7 (somebody)"
    result = recover(fake_host)
    assert (result["failed"], result["failure"]["phase"]) == (True, "lock")
    assert fake_host.open
