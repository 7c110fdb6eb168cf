# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trouble around a switch: full disks, held cards, a long journal."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.observe import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Holder
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import World, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def world():
    world = World()
    for name in "abc":
        world.render(name)
    return world


def switch(world, profile="a", **changes):
    return api.switch(world.effects(), LAYOUT, request(profile, **changes))


def check(world, profile="a", **changes):
    return api.check(world.effects(), LAYOUT, request(profile, **changes))


def names(result, direction="forward"):
    return [phase["name"] for phase in result["phases"] if phase["direction"] == direction]


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_a_disk_that_fills_up_during_the_switch_stops_nothing(world, fault):
    switch(world, "a")
    world.unit("b").fault = fault
    effects = world.effects()
    post = effects.http.post

    def fill_up(url, body, timeout_s):
        world.full = {LAYOUT.state_dir, LAYOUT.config_dir}
        return post(url, body, timeout_s)

    effects.http.post = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    world.promise()
    assert result["profile"] == ("a" if fault else "b")
    assert any("could not be recorded" in warning for warning in result["warnings"])
    world.full = set()
    again = switch(world, result["profile"])
    assert again["changed"]
    assert "canary" not in names(again)
    world.promise()
    assert switch(world, result["profile"])["changed"] is False


def test_a_card_that_is_still_held_is_named_and_nobody_is_killed(world):
    world.cards = 2
    world.render("b", cards=2)
    switch(world, "a")
    world.device_users = (Holder(77, "clinfo", "ann", "", "/dev/dri/renderD128"),)
    result = switch(world, "b")
    world.promise()
    assert result["failure"]["phase"] == "release"
    assert "/dev/dri/renderD128: pid 77 (clinfo, user ann)" in result["msg"]
    # The profile before needs no card, so the way back is free.
    assert result["profile"] == "a"
    world.device_users = ()
    assert not switch(world, "b")["failed"]


def test_the_memory_of_the_cards_is_waited_for(world):
    world.cards = 2
    world.render("b", cards=2)
    switch(world, "a")
    world.memory_until = world.mono + 5
    result = switch(world, "b")
    assert not result["failed"]
    release = next(phase for phase in result["phases"] if phase["name"] == "release")
    assert 4 < release["seconds"] < 6
    # Memory that nobody holds and nobody frees is said; whether it is enough is the engine's to say.
    switch(world, "a")
    world.memory_until = world.mono + 100
    result = switch(world, "b")
    assert not result["failed"]
    assert any("/dev/dri/renderD128: 30.0 of 32.0 GiB in use" in text for text in result["warnings"])


def test_the_journal_is_rotated_and_still_remembered(world):
    switch(world, "a")
    text, _when = world.texts[LAYOUT.journal_file]
    world.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b")
    assert result["rolled_back"]
    assert len(world.texts[LAYOUT.journal_file][0]) < 100_000
    info = api.info(world.effects(), LAYOUT)
    assert (info["last_verified"], [item["to"] for item in info["switches"]]) == ("a", ["a", "b"])
    # The new file needs none of the files before it.
    del world.texts[LAYOUT.older_journal(1)]
    assert api.info(world.effects(), LAYOUT) == info


def test_old_journals_are_given_up_in_their_turn(world):
    for number in range(8):
        switch(world, "ab"[number % 2])
        text, _when = world.texts[LAYOUT.journal_file]
        world.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    switch(world, "c")
    kept = [number for number in range(1, 20) if LAYOUT.older_journal(number) in world.texts]
    assert kept == [1, 2, 3, 4, 5]
    assert len(read_memory(world.effects(), LAYOUT).attempts) == 9


def test_a_disk_that_is_full_when_a_new_journal_begins_forgets_nothing(world):
    switch(world, "a")
    text, _when = world.texts[LAYOUT.journal_file]
    world.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    world.full = {LAYOUT.state_dir}
    assert switch(world, "b")["outcome"] == "untouched"
    world.full = set()
    world.unit("b").fault = "wrong_answer"
    assert switch(world, "b")["profile"] == "a"
    world.promise()
