# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed: what the host does about it by itself, because the switch asked for it beforehand."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._render_unit import settle_name
from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import locks
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, Mode
from unit.plugins.module_utils._slot.calls import check, host, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, World, request

SETTLE = f"restart {settle_name('main')}"


@pytest.fixture
def world():
    return host("abc", load_s=1.0)


def queued(world, before=0):
    return [done for done in world.mutations[before:] if done.startswith("restart ")]


def ready(fault: str = "") -> World:
    world = host("ab", load_s=1.0)
    switch(world, "a")
    world.unit("b").fault = fault
    world.settle_queued = False
    return world


@pytest.mark.parametrize(
    ("first", "target", "fault", "changes"),
    [
        (1, "b", "", {}),
        (3, "b", "", {}),
        (2, "b", "wrong_answer", {}),
        (4, "b", "exit_at_start", {}),
        (1, "a", "", {"recheck": True}),
        (2, "a", "", {"mode": Mode.RECOVER}),
        (3, None, "", {}),
    ],
)
def test_a_switch_killed_anywhere_is_settled_by_what_it_left_queued(first, target, fault, changes):
    number = first  # and every fifth moment from there
    while True:
        world = ready(fault)
        if changes.get("mode"):
            world.crash("a")
        world.kill_at = world.effects_done + number
        try:
            switch(world, target, **changes)
        except Killed:
            pass
        else:
            break
        if world.settle_queued:
            recover(world)
            world.promise()
            assert world.open or target is None, number
        else:
            # Nothing was touched yet. What is open for a crashed engine is so for a process that is gone.
            assert world.open, number
            assert world.running == [LAYOUT.unit("a")], number
        number += 5
    assert number > 40


def test_the_killed_first_deploy_is_stopped(world):
    effects = world.effects()
    start = effects.units.start

    def kill(name):
        start(name)
        raise Killed

    effects.units.start = kill
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("a"))
    assert world.settle_queued
    recover(world)
    world.promise()
    assert world.running == []


def test_it_is_asked_for_before_the_journal_and_the_closing(world):
    switch(world, "a")
    order = [" ".join(word.split("/")[-1] for word in done.split()[:2]) for done in world.mutations]
    assert order[0] == SETTLE
    assert order.index(f"append {LAYOUT.journal_file.name}") < order.index(f"write {LAYOUT.state_file.name}")
    assert len(queued(world)) == 1


def test_the_host_s_own_run_never_asks_for_itself(world):
    switch(world, "a")
    before = len(world.mutations)
    world.crash("a")
    assert recover(world, Mode.BOOT)["changed"]
    assert queued(world, before) == []


def test_what_changes_nothing_asks_for_nothing(world):
    switch(world, "a")
    before = len(world.mutations)
    assert not switch(world, "a")["changed"]
    assert not check(world, "b")["failed"]
    assert not recover(world, Mode.RECOVER)["changed"]
    assert switch(world, "unknown")["outcome"] == "untouched"
    assert queued(world, before) == []


@pytest.mark.parametrize("target", ["b", None])
def test_after_a_switch_and_after_a_stop_it_finds_nothing_to_do(world, target):
    switch(world, "a", gate=Gate.VERIFIED)
    switch(world, target)
    before, texts = len(world.mutations), dict(world.texts)
    result = recover(world)
    assert (result["outcome"], result["changed"]) == ("unchanged", False)
    assert (world.mutations[before:], dict(world.texts)) == ([], texts)
    world.promise()


def test_a_host_without_the_unit_is_warned_and_switched(world):
    world.settle_installed = False
    result = switch(world, "a")
    world.promise()
    assert not result["failed"]
    assert any("would not be settled" in text and settle_name("main") in text for text in result["warnings"])


def test_who_waits_to_settle_has_more_patience_than_the_longest_switch(world):
    asked = []
    effects = world.effects()
    hold = effects.locks.hold

    def note(path, text, timeout_s):
        asked.append(timeout_s)
        return hold(path, text, timeout_s)

    effects.locks.hold = note
    command.execute(command.parser().parse_args(["recover", "--boot"]), effects, LAYOUT, lambda text: None)
    # Both ways with the longest load that a profile of the catalogue has, a drain, two stops and the canaries.
    assert asked == [locks.SWITCH_LIMIT_S]
    assert locks.SWITCH_LIMIT_S >= 24 * 3600
