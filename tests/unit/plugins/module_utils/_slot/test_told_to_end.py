# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGTERM at any moment of a run: what is reported is what is served, and the way back is not broken off."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from unit.plugins.module_utils._slot.calls import host, names, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import request

STATUS = f"{LAYOUT.frontdoor_url}/status"


def served_a(fault=""):
    world = host("ab", load_s=1.0)
    switch(world, "a")
    world.unit("b").fault = fault
    return world


def moments(run, fault=""):
    world = served_a(fault)
    before = world.effects_done
    run(world)
    return world.effects_done - before


def to_b(world):
    return switch(world, "b")


def ask_again(world):
    return switch(world, "a", recheck=True)


def settle(world):
    world.crash("a")
    return recover(world)


def stop(world):
    return switch(world, None)


@pytest.mark.parametrize(
    ("run", "fault", "ends"),
    [
        (to_b, "", {"committed": "b", "rolled_back": "a", "untouched": "a"}),
        # The way back has begun, or begins: it is the end in any case.
        (to_b, "wrong_answer", {"rolled_back": "a", "untouched": "a"}),
        # Nothing was found to be wrong with what is served.
        (ask_again, "", {"committed": "a", "untouched": "a"}),
        (stop, "", {"committed": None, "untouched": "a", "stopped": None}),
    ],
)
def test_what_is_reported_is_what_is_served(run, fault, ends):
    seen = set()
    # Every third moment: an exchange with the frontdoor alone takes more of them.
    for number in range(1, moments(run, fault) + 1, 3):
        world = served_a(fault)
        world.told_at = world.effects_done + number
        result = run(world)
        world.promise()
        outcome, engine = result["outcome"], world.engine()
        seen.add(outcome)
        assert outcome in ends, (number, result["msg"])
        assert result["profile"] == ends[outcome], (number, result["msg"])
        running = None if engine is None else LAYOUT.profile_of(engine.name)
        assert (running, world.open) == (ends[outcome], ends[outcome] is not None), (number, result["msg"])
        assert bool(result["failed"]) == (outcome != "committed" or bool(result["failure"])), (number, result["msg"])
    assert seen - {"stopped"} == ends.keys() - {"stopped"}


def test_a_settling_that_is_told_to_end_leaves_nothing_unproven_open():
    for number in range(1, moments(settle) + 1, 2):
        world = served_a()
        world.told_at = world.effects_done + number
        settle(world)
        world.check()
        engine = world.engine()
        if world.open:
            assert engine is not None
            assert world.state.invocation_id == engine.invocation


@pytest.mark.parametrize("number", range(1, 20))
def test_at_every_publish(number):
    """The signal comes as the frontdoor is asked what it has applied, the Nth time of this run."""
    world = served_a()
    effects = world.effects()
    get, asked = effects.http.get, []

    def ask(url, timeout_s):
        if url == STATUS:
            asked.append(world.state.phase)
            world.told = len(asked) == number
        return get(url, timeout_s)

    effects.http.get = ask
    result = api.switch(effects, LAYOUT, request("b"))
    world.promise()
    if len(asked) < number:
        assert result["outcome"] == "committed"
        return
    assert result["failed"], (number, asked)
    assert "told to end" in result["failure"]["message"]
    assert result["outcome"] in ("untouched", "rolled_back")
    assert (result["profile"], world.open) == ("a", True)


def test_who_got_in_before_the_way_back_is_drained():
    world = served_a()
    effects = world.effects()
    get = effects.http.get

    def ask(url, timeout_s):
        if url == STATUS and world.state.phase == "serving" and world.state.profile_name == "b":
            world.told = not world.generations
            world.generations = world.generations or [world.mono + 5.0]
        return get(url, timeout_s)

    effects.http.get = ask
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "open")
    assert "drain" in names(result, "back")
    assert world.generations[0] <= world.mono


def test_a_host_that_goes_down_is_not_held_up_by_the_way_back():
    world = served_a("wrong_answer")
    effects = world.effects()
    start = effects.units.start

    def go_down(name):
        start(name)
        if name == LAYOUT.unit("a"):
            world.going_down = world.told = True

    effects.units.start = go_down
    result = api.switch(effects, LAYOUT, request("b"))
    assert result["outcome"] == "interrupted"
