# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slot that was stopped because a card was lost: the reboot that ends the quarantine brings the model back."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, request

A = LAYOUT.unit("a")


@pytest.fixture
def world():
    return host("abc", load_s=1.0)


def lose_both(world, **changes):
    """The switch loses a card, and so does the way back: the slot is stopped."""
    world.unit("a").fault = world.unit("b").fault = "device_lost"
    result = switch(world, "b", switch_id="bad", **changes)
    assert result["outcome"] == "stopped"
    world.promise()
    for name in "ab":
        world.unit(name).fault = ""
    return result


def boot(world):
    world.mono += 60
    world.reboot()
    return recover(world)


def test_after_the_reboot_what_was_verified_last_is_verified_and_served(world):
    switch(world, "a")
    lose_both(world)
    result = boot(world)
    world.promise()
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", True)
    assert (world.open, world.enabled) == (True, [A])
    assert result["quarantine"] is None


def test_one_that_lost_its_card_while_it_served_comes_back_too(world):
    switch(world, "a")
    world.unit("a").fault = "device_lost"
    world.lose_card("a")
    assert recover(world)["outcome"] == "stopped"
    world.unit("a").fault = ""
    assert boot(world)["profile"] == "a"
    world.promise()


def test_not_before_the_reboot(world):
    switch(world, "a")
    lose_both(world)
    starts = world.starts
    assert not recover(world)["changed"]
    assert not recover(world, Mode.RECOVER)["changed"]
    assert (world.starts, world.open) == (starts, False)


def test_each_boot_tries_it_once(world):
    """The card stays lost: a boot that finds so leaves the slot stopped, and the next one tries again."""
    switch(world, "a")
    lose_both(world)
    world.unit("a").fault = "device_lost"
    assert boot(world)["outcome"] == "stopped"
    world.promise()
    starts = world.starts
    assert not recover(world)["changed"]
    assert world.starts == starts
    world.unit("a").fault = ""
    assert boot(world)["profile"] == "a"
    world.promise()


def test_a_boot_that_is_killed_as_it_brings_it_back_is_settled(world):
    switch(world, "a")
    lose_both(world)
    world.reboot()
    effects = world.effects()
    start = effects.units.start

    def kill(name):
        start(name)
        raise Killed

    effects.units.start = kill
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("x", mode=Mode.BOOT, switch_id="settle"))
    assert recover(world)["profile"] == "a"
    world.promise()


def test_with_the_gate_that_it_was_served_behind(world):
    switch(world, "a", gate=Gate.HEALTHY)
    lose_both(world)
    world.gate_verified = False
    world.unit("a").fault = "wrong_answer"
    result = boot(world)
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", False)


@pytest.mark.parametrize("case", ["stop", "on_failure", "first", "another failure", "cleared"])
def test_what_somebody_wanted_stopped_stays_so(world, case):
    if case != "first":
        switch(world, "a")
    if case == "another failure":
        world.unit("a").fault = world.unit("b").fault = "wrong_answer"
        assert switch(world, "b")["outcome"] == "stopped"
        world.unit("a").fault = ""
    else:
        lose_both(world, **({"on_failure": OnFailure.STOP} if case == "on_failure" else {}))
    if case == "stop":
        assert switch(world, None)["outcome"] in ("committed", "unchanged")
    if case == "cleared":
        b70ctl(world, "clear-quarantine")
        # The person who cleared it had a look, and another switch that failed for another reason.
        world.unit("c").fault = "exit_at_start"
        assert switch(world, "c")["outcome"] == "stopped"
    result = boot(world)
    world.promise()
    assert (result["changed"], world.running, world.open) == (False, [], False)
