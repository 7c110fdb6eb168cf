# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a slot does by itself: after a boot, a restart of its engine, or a switch that was killed."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import host, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, World

A, B = (LAYOUT.unit(name) for name in "ab")


@pytest.fixture
def world():
    return host("abc", load_s=1.0)


def test_after_a_reboot_the_committed_profile_is_verified_again(world):
    switch(world, "a")
    world.mono += 60
    world.reboot()
    assert not world.open
    result = recover(world)
    world.promise()
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", True)
    assert world.open
    # In place: the engine that systemd started is the one that is served.
    assert "start" not in [phase["name"] for phase in result["phases"]]


def test_after_a_restart_by_systemd_it_is_verified_again(world):
    switch(world, "a")
    world.crash("a")
    result = recover(world)
    world.promise()
    assert (result["failed"], result["profile"], result["verified"]) == (False, "a", True)
    assert world.state.invocation_id == world.unit("a").invocation


def test_a_verified_engine_is_left_alone_at_once(world):
    switch(world, "a")
    before, begun, mutations = dict(world.texts), world.mono, len(world.mutations)
    result = recover(world)
    assert (result["changed"], result["outcome"], result["verified"]) == (False, "unchanged", True)
    assert world.mutations[mutations:] == []
    # Not even the progress of the switch before, which somebody may still be reading.
    assert world.texts == before
    assert world.mono - begun < 1


def test_a_restarted_engine_that_answers_wrongly_is_stopped(world):
    switch(world, "a")
    world.unit("a").fault = "wrong_answer"
    world.mono += 60
    world.reboot()
    result = recover(world)
    world.promise()
    assert (result["failed"], result["outcome"]) == (True, "stopped")
    assert not world.open
    assert "canary" in world.state.reason


def test_the_gate_of_the_commit_is_the_gate_at_boot(world):
    world.gate_verified = False
    world.unit("a").fault = "wrong_answer"
    switch(world, "a", gate=Gate.HEALTHY)
    world.mono += 60
    world.reboot()
    result = recover(world)
    assert (result["failed"], result["verified"], world.open) == (False, False, True)


def test_a_profile_that_was_accepted_at_its_switch_boots(world):
    world.render("a", status="blocked", status_reason="for a reason")
    switch(world, "a", accept_status=("blocked",))
    world.mono += 60
    world.reboot()
    assert recover(world)["profile"] == "a"


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_nothing_committed_starts_nothing(world, mode):
    result = recover(world, mode)
    assert (result["failed"], result["changed"], world.running) == (False, False, [])
    assert "no profile was committed" in result["msg"]


def test_an_engine_started_by_hand_stays_closed(world):
    switch(world, "a")
    world.effects().units.start(B)
    result = recover(world)
    assert not result["changed"]
    assert world.running == [B]
    assert not world.open
    assert "by hand" in world.state.reason
    # A person who asks for it gets what was committed.
    assert recover(world, Mode.RECOVER)["profile"] == "a"
    world.promise()


def test_an_engine_left_for_a_look_is_left(world):
    switch(world, "a")
    world.unit("b").fault = "wrong_answer"
    switch(world, "b", on_failure=OnFailure.LEAVE)
    assert not recover(world)["changed"]
    assert world.running == [B]
    assert not world.open


def test_a_guard_that_fails_closes_what_is_open(world):
    switch(world, "a")
    world.crash("a")
    for path in [path for path in world.texts if path.name in ("model.safetensors", "config.json")]:
        del world.texts[path]
    result = recover(world)
    assert (result["failed"], result["outcome"]) == (True, "untouched")
    assert not world.open


@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
@pytest.mark.parametrize(("target", "fault"), [("b", ""), ("b", "wrong_answer"), (None, "")])
def test_a_switch_killed_anywhere_is_settled(then, mode, target, fault):
    number = 1 if mode is Mode.BOOT else 3
    while True:
        world = World()
        for name in "ab":
            world.render(name)
            world.unit(name).load_s = 1.0
        switch(world, "a")
        world.unit("b").fault = fault
        world.kill_at = world.effects_done + number
        try:
            switch(world, target)
        except Killed:
            pass
        else:
            return
        if then == "reboot":
            world.mono += 60
            world.reboot()
        result = recover(world, mode)
        world.promise()
        assert not result["failed"], (number, result["msg"])
        # With an entry in the journal the answer is clear; a stop is finished, a switch ends verified.
        assert world.open or target is None, (number, result["msg"])
        number += 5


def test_a_running_switch_is_waited_for(world):
    switch(world, "a")
    world.lock_holder = "pid 7 (somebody)"
    result = recover(world)
    assert (result["failed"], result["failure"]["phase"]) == (True, "lock")
    assert world.open
