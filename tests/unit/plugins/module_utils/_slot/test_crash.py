# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed at any moment: what holds meanwhile, and how the next run settles it."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, World, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


def make(fault=""):
    world = World()
    for name in "abc":
        world.render(name)
        world.unit(name).load_s = 1.0
    run(world, "a")
    world.unit("b").fault = fault
    return world


def run(world, profile, **changes):
    return api.switch(world.effects(), LAYOUT, request(profile, **changes))


def effects_of(fault):
    world = make(fault)
    before = world.effects_done
    run(world, "b")
    return world.effects_done - before


def killed(fault, number):
    """A host on which the switch from a to b was killed at its Nth effect."""
    world = make(fault)
    world.kill_at = world.effects_done + number
    with pytest.raises(Killed):
        run(world, "b")
    world.check()
    return world


@pytest.mark.parametrize("fault", ["", "wrong_answer", "exit_at_start"])
@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("want", ["a", "b", "c", None])
def test_killed_anywhere_then_settled(fault, then, want):
    # Every case takes another seventh of the moments; together they take all of them.
    first = ("abc" + "-").index(want or "-") + (4 if then == "reboot" else 0)
    for number in range(1 + first % 7, effects_of(fault) + 1, 7):
        world = killed(fault, number)
        if then == "reboot":
            world.mono += 30
            world.reboot()
            world.check()
            assert not world.open
        world.unit("b").fault = world.unit("b").live_fault = ""
        result = run(world, want)
        assert not result["failed"], (number, result["msg"])
        world.promise()
        assert world.running == ([LAYOUT.unit(want)] if want else [])
        assert run(world, want)["changed"] is False, number


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_killed_anywhere_the_way_back_is_still_known(fault):
    for number in range(1, effects_of(fault) + 1, 5):
        world = killed(fault, number)
        served = world.state.profile_name if world.open else "a"
        world.unit("c").fault = "wrong_answer"
        result = run(world, "c")
        world.promise()
        assert result["rolled_back"], (number, result["msg"])
        assert result["profile"] == served


def test_killed_twice():
    for number in range(5, effects_of(""), 7):
        world = killed("", number)
        world.kill_at = world.effects_done + 40
        with pytest.raises(Killed):
            run(world, "c")
        world.check()
        assert not run(world, "b")["failed"]
        world.promise()


def test_a_reboot_in_the_middle_boots_nothing_unverified():
    for number in range(1, effects_of("wrong_answer") + 1, 5):
        world = killed("wrong_answer", number)
        world.reboot()
        assert world.running in ([], [A])


def test_the_interrupted_switch_is_named():
    world = killed("", effects_of("") // 2)
    assert api.info(world.effects(), LAYOUT)["interrupted"]["to"] == "b"
    result = run(world, "b")
    assert any("was interrupted in phase" in warning for warning in result["warnings"])
    assert api.info(world.effects(), LAYOUT)["interrupted"] is None


def test_a_host_that_goes_down_is_left_for_the_next_run():
    world = make("exit_at_start")
    world.going_down = True
    result = run(world, "b")
    assert result["outcome"] == "interrupted"
    world.going_down = False
    world.reboot()
    assert world.running == []
    world.unit("c").fault = "wrong_answer"
    assert run(world, "c")["profile"] == "a"
    world.promise()
