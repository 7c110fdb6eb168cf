# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that lost a card: what it still does, what it refuses, and how that ends."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, LOST, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def fake_host():
    return host("abc", load_s=1.0)


def lose_in_a_switch(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "device_lost"
    result = switch(fake_host, "b", switch_id="bad")
    fake_host.unit("b").fault = ""
    return result


def test_a_lost_card_in_a_switch_goes_back_and_then_takes_no_profile(fake_host):
    result = lose_in_a_switch(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"], result["failure"]["symptom"]) == ("rolled_back", "a", "device_lost")
    assert (result["quarantine"]["profile"], result["quarantine"]["line"]) == ("b", LOST)
    starts = fake_host.starts
    refused = switch(fake_host, "c")
    assert (refused["outcome"], refused["failure"]["phase"]) == ("untouched", "guard")
    assert "in quarantine since 2026-06-07T09:00:" in refused["msg"]
    assert "b70ctl clear-quarantine" in refused["msg"]
    assert f"{LAYOUT.evidence_dir}/bad" in refused["msg"]
    assert "a is still served, verified" in refused["msg"]
    assert fake_host.starts == starts
    assert switch(fake_host, "a")["outcome"] == "unchanged"
    fake_host.assert_invariants()


def test_the_evidence_is_kept(fake_host):
    lose_in_a_switch(fake_host)
    folder = LAYOUT.evidence_dir / "bad"
    assert LOST in fake_host.texts[folder / "unit.log"][0]
    assert "Engine reset" in fake_host.texts[folder / "kernel.log"][0]
    failure = json.loads(fake_host.texts[folder / "failure.json"][0])
    assert (failure["profile"], failure["failure"]["phase"]) == ("b", "health")


def test_the_way_back_that_loses_the_card_too_keeps_the_first_record(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").fault = fake_host.unit("b").fault = "device_lost"
    result = switch(fake_host, "b", switch_id="bad")
    fake_host.assert_invariants()
    assert result["outcome"] == "stopped"
    assert result["quarantine"]["profile"] == "b"
    assert json.loads(fake_host.texts[LAYOUT.evidence_dir / "bad" / "back-failure.json"][0])["profile"] == "a"


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_an_engine_that_loses_its_card_while_it_serves(fake_host, mode):
    switch(fake_host, "a")
    fake_host.lose_card("a")
    result = recover(fake_host, mode)
    fake_host.assert_invariants()
    # Restarted and verified again it is served again; another profile is not taken.
    assert (result["outcome"], result["profile"], fake_host.open) == ("committed", "a", True)
    assert (result["quarantine"]["switch_id"], result["quarantine"]["line"]) == ("settle", LOST)
    assert switch(fake_host, "b")["outcome"] == "untouched"
    assert not recover(fake_host, mode)["changed"]


def test_a_switch_finds_the_lost_card_before_it_begins(fake_host):
    switch(fake_host, "a")
    fake_host.lose_card("a")
    predicted = api.check(fake_host.effects(), LAYOUT, request("b"))
    assert predicted["failed"]
    assert fake_host.texts.get(LAYOUT.quarantine_file) is None
    result = switch(fake_host, "b")
    assert (result["outcome"], result["quarantine"]["profile"]) == ("untouched", "a")
    assert "in quarantine" in result["msg"]
    assert not fake_host.open
    # Cleared is cleared: the log of that process isn't judged again.
    assert b70ctl(fake_host, "clear-quarantine")[0] == command.DONE
    assert not switch(fake_host, "b")["failed"]
    fake_host.assert_invariants()


def test_a_reboot_ends_it(fake_host):
    lose_in_a_switch(fake_host)
    fake_host.reboot()
    recover(fake_host)
    assert api.info(fake_host.effects(), LAYOUT)["quarantine"] is None
    assert not switch(fake_host, "b")["failed"]


def test_clearing_it_by_hand_keeps_the_record_with_the_evidence(fake_host):
    lose_in_a_switch(fake_host)
    code, text = b70ctl(fake_host, "clear-quarantine", "--why", "new driver")
    assert (code, "is cleared" in text) == (command.DONE, True)
    record = json.loads(fake_host.texts[LAYOUT.evidence_dir / "bad" / "quarantine.json"][0])
    assert (record["symptom"], record["why"]) == ("device_lost", "new driver")
    assert b70ctl(fake_host, "clear-quarantine") == (command.DONE, "this host is not in quarantine\n")
    assert not switch(fake_host, "b")["failed"]


def test_stopping_is_allowed(fake_host):
    lose_in_a_switch(fake_host)
    assert switch(fake_host, None)["outcome"] == "committed"
    fake_host.assert_invariants()
    assert switch(fake_host, "a")["outcome"] == "untouched"


def test_what_b70ctl_says_of_it(fake_host):
    lose_in_a_switch(fake_host)
    code, text = b70ctl(fake_host, "switch", "c")
    assert (code, "in quarantine" in text) == (command.QUARANTINED, True)
    code, text = b70ctl(fake_host, "status")
    assert code == command.DONE
    assert "QUARANTINE since 2026-06-07T09:00:" in text
    assert f"device_lost with b: {LOST}\n" in text
    assert "QUARANTINE" in b70ctl(fake_host, "list")[1]
    assert json.loads(b70ctl(fake_host, "status", "--json")[1])["quarantine"]["symptom"] == "device_lost"


def test_a_record_that_cannot_be_read_holds_until_it_is_cleared(fake_host):
    switch(fake_host, "a")
    fake_host.put(LAYOUT.quarantine_file, '{"schema"')
    fake_host.reboot()
    recover(fake_host)
    assert switch(fake_host, "b")["outcome"] == "untouched"
    assert b70ctl(fake_host, "clear-quarantine")[0] == command.DONE
    assert not switch(fake_host, "b")["failed"]


def test_a_full_disk_does_not_stop_the_way_back(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "device_lost"
    effects = fake_host.effects()
    start = effects.units.start

    def fill_up(name):
        fake_host.full = {LAYOUT.state_dir}
        start(name)

    effects.units.start = fill_up
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")
    assert any("the quarantine could not be written" in text for text in result["warnings"])


def test_a_kernel_without_a_boot_id_holds_it_until_it_is_cleared():
    record = quarantine.parse(json.dumps({"schema": 1, "boot_id": "", "symptom": "device_lost", "since": "then"}))
    assert record.boot_id == ""
    assert "since then" in record.describe()
