# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trouble around a switch: full disks, held cards, a long journal."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder, Mode
from unit.plugins.module_utils._slot.calls import host, names, noting, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def fake_host():
    return host("abc")


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_a_disk_that_fills_up_during_the_switch_stops_nothing(fake_host, fault):
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    effects = fake_host.effects()
    post = effects.http.post

    def fill_up(url, body, timeout_s):
        fake_host.full = {LAYOUT.state_dir, LAYOUT.config_dir}
        return post(url, body, timeout_s)

    effects.http.post = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert result["profile"] == ("a" if fault else "b")
    assert any("could not be recorded" in warning for warning in result["warnings"])
    fake_host.full = set()
    again = switch(fake_host, result["profile"])
    assert again["changed"]
    assert "canary" not in names(again)
    fake_host.assert_invariants()
    assert switch(fake_host, result["profile"])["changed"] is False


def test_a_card_that_is_still_held_is_named_and_nobody_is_killed(fake_host):
    fake_host.cards = 2
    fake_host.render("b", cards=2)
    switch(fake_host, "a")
    effects = fake_host.effects()
    stop = effects.units.stop

    def then(name):
        stop(name)
        fake_host.device_users = (Holder(77, "clinfo", "ann", "", "/dev/dri/renderD128"),)

    effects.units.stop = then
    result = api.switch(effects, LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert result["failure"]["phase"] == "release"
    assert "/dev/dri/renderD128: pid 77 (clinfo, user ann)" in result["msg"]
    # The profile before needs no card, so the way back is free.
    assert result["profile"] == "a"
    fake_host.device_users = ()
    assert not switch(fake_host, "b")["failed"]


def test_the_memory_of_the_cards_is_waited_for(fake_host):
    fake_host.cards = 2
    fake_host.render("b", cards=2)
    switch(fake_host, "a")
    fake_host.memory_until = fake_host.mono + 5
    result = switch(fake_host, "b")
    assert not result["failed"]
    release = next(phase for phase in result["phases"] if phase["name"] == "release")
    assert 4 < release["seconds"] < 6
    # Memory that nobody holds and nobody frees is said; whether it is enough is the engine's to say.
    switch(fake_host, "a")
    fake_host.memory_until = fake_host.mono + 100
    result = switch(fake_host, "b")
    assert not result["failed"]
    assert any("/dev/dri/renderD128: 30.0 of 32.0 GiB in use" in text for text in result["warnings"])


def test_memory_that_is_not_told_is_not_taken_for_free(fake_host):
    fake_host.cards, fake_host.memory_told = 1, False
    fake_host.render("b", cards=1)
    switch(fake_host, "a")
    result = switch(fake_host, "b")
    assert not result["failed"]
    assert any("whether the memory of the cards is free is not known" in text for text in result["warnings"])
    assert any("CAP_PERFMON" in text for text in result["warnings"])


def test_the_journal_is_rotated_and_still_remembered(fake_host):
    switch(fake_host, "a")
    text, _when = fake_host.texts[LAYOUT.journal_file]
    fake_host.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    assert result["rolled_back"]
    assert len(fake_host.texts[LAYOUT.journal_file][0]) < 100_000
    info = api.info(fake_host.effects(), LAYOUT)
    assert (info["last_verified"], [item["to"] for item in info["switches"]]) == ("a", ["a", "b"])
    # The new file needs none of the files before it.
    del fake_host.texts[LAYOUT.older_journal(1)]
    assert api.info(fake_host.effects(), LAYOUT) == info


def test_a_profile_that_is_started_anew_has_no_way_back_and_that_is_said(fake_host):
    assert not switch(fake_host, "a")["warnings"]
    fake_host.unit("a").live_fault = "never_ready"
    fake_host.unit("a").fault = "wrong_answer"
    result = switch(fake_host, "a")
    assert result["outcome"] == "stopped"
    assert "there is no way back: it is a itself that is started anew" in result["warnings"]


def read_only_from(fake_host, phase):
    """Effects of a host whose /etc becomes read-only as the frontdoor is told of this phase."""

    def note(state):
        if state["phase"] == phase:
            fake_host.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir}

    return noting(fake_host, note)


def test_an_etc_that_becomes_read_only_before_the_stop_changes_nothing(fake_host):
    switch(fake_host, "a")
    result = api.switch(read_only_from(fake_host, "switching"), LAYOUT, request("b"))
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("untouched", "drain", "a")
    assert "systemctl disable" in result["msg"]
    assert fake_host.open
    assert fake_host.starts == 1
    fake_host.assert_invariants()


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_an_etc_that_becomes_read_only_after_it_loses_no_model(fake_host, fault):
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    result = api.switch(read_only_from(fake_host, "verifying"), LAYOUT, request("b"))
    served = "a" if fault else "b"
    assert (result["profile"], result["verified"], fake_host.open) == (served, True, True)
    assert any("what starts at boot could not be changed" in text for text in result["warnings"])
    fake_host.assert_invariants()
    fake_host.readonly = set()
    assert switch(fake_host, served)["changed"]
    assert fake_host.enabled == [LAYOUT.unit(served)]
    fake_host.assert_invariants()


@pytest.mark.parametrize("trouble", ["full", "readonly"])
def test_a_host_with_a_sick_disk_still_serves_after_a_reboot(fake_host, trouble):
    switch(fake_host, "a")
    fake_host.mono += 60
    fake_host.reboot()
    fake_host.full = {LAYOUT.state_dir} if trouble == "full" else set()
    fake_host.free = 2**21 if trouble == "full" else fake_host.free
    fake_host.readonly = {LAYOUT.unit_dir, LAYOUT.config_dir} if trouble == "readonly" else set()
    result = api.switch(fake_host.effects(), LAYOUT, request("ignored", mode=Mode.BOOT))
    fake_host.assert_invariants()
    assert (result["failed"], fake_host.open) == (False, True)
    # A person who asks for another one is told.
    refused = switch(fake_host, "b")
    assert (refused["outcome"], fake_host.running) == ("untouched", [A])


def test_a_full_run_directory_is_found_before_anything_is_touched(fake_host):
    switch(fake_host, "a")
    fake_host.free = 1000
    result = switch(fake_host, "b")
    assert (result["outcome"], fake_host.open) == ("untouched", True)
    assert f"too little space for {LAYOUT.slot_run_dir}" in result["msg"]


def test_a_run_directory_that_fills_up_later_ends_closed(fake_host):
    switch(fake_host, "a")
    effects = fake_host.effects()
    stop = effects.units.stop

    def fill_up(name):
        fake_host.full = {LAYOUT.run_dir}
        stop(name)

    effects.units.stop = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], fake_host.open) == ("deferred", False)
    assert "No space left on device" in result["msg"]
    fake_host.full = set()
    assert recover(fake_host)["profile"] == "a"
    fake_host.assert_invariants()
    fake_host.assert_invariants()


def test_old_journals_are_given_up_in_their_turn(fake_host):
    for number in range(8):
        switch(fake_host, "ab"[number % 2])
        text, _when = fake_host.texts[LAYOUT.journal_file]
        fake_host.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    switch(fake_host, "c")
    kept = [number for number in range(1, 20) if LAYOUT.older_journal(number) in fake_host.texts]
    assert kept == [1, 2, 3, 4, 5]
    assert len(read_memory(fake_host.effects(), LAYOUT).attempts) == 9


def test_a_disk_that_is_full_when_a_new_journal_begins_forgets_nothing(fake_host):
    switch(fake_host, "a")
    text, _when = fake_host.texts[LAYOUT.journal_file]
    fake_host.put(LAYOUT.journal_file, text + json.dumps({"event": "note", "text": "x" * 2_000_000}) + "\n")
    fake_host.full = {LAYOUT.state_dir}
    assert switch(fake_host, "b")["outcome"] == "untouched"
    fake_host.full = set()
    fake_host.unit("b").fault = "wrong_answer"
    assert switch(fake_host, "b")["profile"] == "a"
    fake_host.assert_invariants()
