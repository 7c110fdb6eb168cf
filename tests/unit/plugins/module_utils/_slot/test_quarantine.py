# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that lost a card: what it still does, what it refuses, and how that ends."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command, quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Mode
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import LOST, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def world():
    return host("abc", load_s=1.0)


def lose_in_a_switch(world):
    switch(world, "a")
    world.unit("b").fault = "device_lost"
    result = switch(world, "b", switch_id="bad")
    world.unit("b").fault = ""
    return result


def test_a_lost_card_in_a_switch_goes_back_and_then_takes_no_profile(world):
    result = lose_in_a_switch(world)
    world.promise()
    assert (result["outcome"], result["profile"], result["failure"]["symptom"]) == ("rolled_back", "a", "device_lost")
    assert (result["quarantine"]["profile"], result["quarantine"]["line"]) == ("b", LOST)
    starts = world.starts
    refused = switch(world, "c")
    assert (refused["outcome"], refused["failure"]["phase"]) == ("untouched", "guard")
    assert "in quarantine since 2026-06-07T09:00:" in refused["msg"]
    assert "b70ctl clear-quarantine" in refused["msg"]
    assert f"{LAYOUT.evidence_dir}/bad" in refused["msg"]
    assert "a is still served, verified" in refused["msg"]
    assert world.starts == starts
    assert switch(world, "a")["outcome"] == "unchanged"
    world.promise()


def test_the_evidence_is_kept(world):
    lose_in_a_switch(world)
    folder = LAYOUT.evidence_dir / "bad"
    assert LOST in world.texts[folder / "unit.log"][0]
    assert "Engine reset" in world.texts[folder / "kernel.log"][0]
    failure = json.loads(world.texts[folder / "failure.json"][0])
    assert (failure["profile"], failure["failure"]["phase"]) == ("b", "health")


def test_the_way_back_that_loses_the_card_too_keeps_the_first_record(world):
    switch(world, "a")
    world.unit("a").fault = world.unit("b").fault = "device_lost"
    result = switch(world, "b", switch_id="bad")
    world.promise()
    assert result["outcome"] == "stopped"
    assert result["quarantine"]["profile"] == "b"
    assert json.loads(world.texts[LAYOUT.evidence_dir / "bad" / "back-failure.json"][0])["profile"] == "a"


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_an_engine_that_loses_its_card_while_it_serves(world, mode):
    switch(world, "a")
    world.lose_card("a")
    result = recover(world, mode)
    world.promise()
    # Restarted and verified again it is served again; another profile is not taken.
    assert (result["outcome"], result["profile"], world.open) == ("committed", "a", True)
    assert (result["quarantine"]["switch_id"], result["quarantine"]["line"]) == ("settle", LOST)
    assert switch(world, "b")["outcome"] == "untouched"
    assert not recover(world, mode)["changed"]


def test_a_switch_finds_the_lost_card_before_it_begins(world):
    switch(world, "a")
    world.lose_card("a")
    predicted = api.check(world.effects(), LAYOUT, request("b"))
    assert predicted["failed"]
    assert world.texts.get(LAYOUT.quarantine_file) is None
    result = switch(world, "b")
    assert (result["outcome"], result["quarantine"]["profile"]) == ("untouched", "a")
    assert "in quarantine" in result["msg"]
    assert not world.open
    # Cleared is cleared: the log of that process isn't judged again.
    assert b70ctl(world, "clear-quarantine")[0] == command.DONE
    assert not switch(world, "b")["failed"]
    world.promise()


def test_a_reboot_ends_it(world):
    lose_in_a_switch(world)
    world.reboot()
    recover(world)
    assert api.info(world.effects(), LAYOUT)["quarantine"] is None
    assert not switch(world, "b")["failed"]


def test_clearing_it_by_hand_keeps_the_record_with_the_evidence(world):
    lose_in_a_switch(world)
    code, text = b70ctl(world, "clear-quarantine", "--why", "new driver")
    assert (code, "is cleared" in text) == (command.DONE, True)
    record = json.loads(world.texts[LAYOUT.evidence_dir / "bad" / "quarantine.json"][0])
    assert (record["symptom"], record["why"]) == ("device_lost", "new driver")
    assert b70ctl(world, "clear-quarantine") == (command.DONE, "this host is not in quarantine\n")
    assert not switch(world, "b")["failed"]


def test_stopping_is_allowed(world):
    lose_in_a_switch(world)
    assert switch(world, None)["outcome"] == "committed"
    world.promise()
    assert switch(world, "a")["outcome"] == "untouched"


def test_what_b70ctl_says_of_it(world):
    lose_in_a_switch(world)
    code, text = b70ctl(world, "switch", "c")
    assert (code, "in quarantine" in text) == (command.QUARANTINED, True)
    code, text = b70ctl(world, "status")
    assert code == command.DONE
    assert "QUARANTINE since 2026-06-07T09:00:" in text
    assert f"device_lost in the log of b: {LOST}\n" in text
    assert "QUARANTINE" in b70ctl(world, "list")[1]
    assert json.loads(b70ctl(world, "status", "--json")[1])["quarantine"]["symptom"] == "device_lost"


def test_a_record_that_cannot_be_read_holds_until_it_is_cleared(world):
    switch(world, "a")
    world.put(LAYOUT.quarantine_file, '{"schema"')
    world.reboot()
    recover(world)
    assert switch(world, "b")["outcome"] == "untouched"
    assert b70ctl(world, "clear-quarantine")[0] == command.DONE
    assert not switch(world, "b")["failed"]


def test_a_full_disk_does_not_stop_the_way_back(world):
    switch(world, "a")
    world.unit("b").fault = "device_lost"
    effects = world.effects()
    start = effects.units.start

    def fill_up(name):
        world.full = {LAYOUT.state_dir}
        start(name)

    effects.units.start = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")
    assert any("the quarantine could not be written" in text for text in result["warnings"])


def test_a_kernel_without_a_boot_id_holds_it_until_it_is_cleared():
    record = quarantine.parse(json.dumps({"schema": 1, "boot_id": "", "symptom": "device_lost", "since": "then"}))
    assert record.boot_id == ""
    assert "since then" in record.describe()
