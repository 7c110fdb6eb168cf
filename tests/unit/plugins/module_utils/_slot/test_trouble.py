# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trouble around a switch: full disks, held cards, a long journal."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.observe import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Holder, Mode
from unit.plugins.module_utils._slot.calls import host, names, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def world():
    return host("abc")


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
    effects = world.effects()
    stop = effects.units.stop

    def then(name):
        stop(name)
        world.device_users = (Holder(77, "clinfo", "ann", "", "/dev/dri/renderD128"),)

    effects.units.stop = then
    result = api.switch(effects, LAYOUT, request("b"))
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


def test_memory_that_is_not_told_is_not_taken_for_free(world):
    world.cards, world.memory_told = 1, False
    world.render("b", cards=1)
    switch(world, "a")
    result = switch(world, "b")
    assert not result["failed"]
    assert any("whether the memory of the cards is free is not known" in text for text in result["warnings"])
    assert any("CAP_PERFMON" in text for text in result["warnings"])


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


def test_a_profile_that_is_started_anew_has_no_way_back_and_that_is_said(world):
    assert not switch(world, "a")["warnings"]
    world.unit("a").live_fault = "never_ready"
    world.unit("a").fault = "wrong_answer"
    result = switch(world, "a")
    assert result["outcome"] == "stopped"
    assert "there is no way back: it is a itself that is started anew" in result["warnings"]


def read_only_from(world, phase):
    """Effects of a host whose /etc becomes read-only as the frontdoor is told of this phase."""
    effects = world.effects()
    write = effects.files.write

    def note(path, text):
        write(path, text)
        if path == LAYOUT.state_file and world.state.phase == phase:
            world.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir}

    effects.files.write = note
    return effects


def test_an_etc_that_becomes_read_only_before_the_stop_changes_nothing(world):
    switch(world, "a")
    result = api.switch(read_only_from(world, "switching"), LAYOUT, request("b"))
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("untouched", "drain", "a")
    assert "systemctl disable" in result["msg"]
    assert world.open
    assert world.starts == 1
    world.promise()


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_an_etc_that_becomes_read_only_after_it_loses_no_model(world, fault):
    switch(world, "a")
    world.unit("b").fault = fault
    result = api.switch(read_only_from(world, "verifying"), LAYOUT, request("b"))
    served = "a" if fault else "b"
    assert (result["profile"], result["verified"], world.open) == (served, True, True)
    assert any("what starts at boot could not be changed" in text for text in result["warnings"])
    world.promise()
    world.readonly = set()
    assert switch(world, served)["changed"]
    assert world.enabled == [LAYOUT.unit(served)]
    world.promise()


@pytest.mark.parametrize("trouble", ["full", "readonly"])
def test_a_host_with_a_sick_disk_still_serves_after_a_reboot(world, trouble):
    switch(world, "a")
    world.mono += 60
    world.reboot()
    world.full = {LAYOUT.state_dir} if trouble == "full" else set()
    world.free = 2**21 if trouble == "full" else world.free
    world.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir} if trouble == "readonly" else set()
    result = api.switch(world.effects(), LAYOUT, request("ignored", mode=Mode.BOOT))
    world.promise()
    assert (result["failed"], world.open) == (False, True)
    # A person who asks for another one is told.
    refused = switch(world, "b")
    assert (refused["outcome"], world.running) == ("untouched", [A])


def test_a_full_run_directory_is_found_before_anything_is_touched(world):
    switch(world, "a")
    world.free = 1000
    result = switch(world, "b")
    assert (result["outcome"], world.open) == ("untouched", True)
    assert f"too little space for {LAYOUT.slot_run_dir}" in result["msg"]


def test_a_run_directory_that_fills_up_later_ends_closed(world):
    switch(world, "a")
    effects = world.effects()
    stop = effects.units.stop

    def fill_up(name):
        world.full = {LAYOUT.run_dir}
        stop(name)

    effects.units.stop = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], world.running, world.open) == ("stopped", [], False)
    assert "No space left on device" in result["msg"]
    world.full = set()
    assert not switch(world, "a")["failed"]
    world.promise()


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
