# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A quarantine that somebody sets: nobody is served by the host until a person clears it."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode, SlotFault
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_quarantine
from unit.plugins.module_utils._slot.calls import b70ctl, check, host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

WHY = "its answers differ from those of its peers"


@pytest.fixture
def fake_host():
    held = host("ab", load_s=1.0)
    switch(held, "a")
    return held


def isolate(fake_host, *, check=False):
    return api.isolate(fake_host.effects(), LAYOUT, "a rollout", WHY, check=check)


def test_it_closes_the_frontdoor_and_leaves_the_engine(fake_host):
    running = list(fake_host.running)
    held = isolate(fake_host)
    assert (held["changed"], fake_host.open, fake_host.running) == (True, False, running)
    assert (held["quarantine"]["reason"], held["quarantine"]["who"]) == (WHY, "a rollout")
    assert not isolate(fake_host)["changed"]


def test_a_frontdoor_that_does_not_close_is_a_failure(fake_host):
    fake_host.frontdoor_stuck = True
    with pytest.raises(SlotFault, match=r"written to .*quarantine\.json, but the frontdoor at .* did not apply"):
        isolate(fake_host)
    assert quarantine.read(fake_host.effects(), LAYOUT) is not None


@pytest.mark.parametrize("check_mode", [False, True])
def test_where_the_slot_has_no_state_file_the_module_fails_and_writes_nothing(tmp_path, check_mode):
    given = {name: str(tmp_path / name) for name in ("config_dir", "run_dir", "state_dir", "unit_dir")}
    given |= {"slot": "main", "frontdoor_url": "http://127.0.0.1:1", "state": "present", "reason": WHY}
    result = run_quarantine({**given, "requested_by": "a rollout"}, check_mode=check_mode)
    assert result["failed"]
    assert f"slot main has no state file {tmp_path}/run_dir/main/state.json" in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_prediction_touches_nothing(fake_host):
    assert isolate(fake_host, check=True)["changed"]
    assert fake_host.open
    assert fake_host.texts.get(LAYOUT.quarantine_file) is None


@pytest.mark.parametrize("profile", ["a", "b"])
def test_it_takes_no_profile_not_even_what_was_verified(fake_host, profile):
    isolate(fake_host)
    assert check(fake_host, profile)["failed"]
    refused = switch(fake_host, profile)
    assert (refused["outcome"], refused["failure"]["phase"], fake_host.open) == ("untouched", "guard", False)
    assert WHY in refused["msg"]
    assert "b70ctl clear-quarantine" in refused["msg"]


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_neither_a_reboot_nor_a_restart_opens_it(fake_host, mode):
    isolate(fake_host)
    assert not recover(fake_host, mode)["changed"]
    assert not fake_host.open
    fake_host.reboot()
    recover(fake_host, mode)
    assert not fake_host.open
    assert quarantine.read(fake_host.effects(), LAYOUT) is not None


def test_the_way_out_is_to_clear_it_and_to_verify(fake_host):
    isolate(fake_host)
    assert b70ctl(fake_host, "verify")[0] == command.QUARANTINED
    code, said = b70ctl(fake_host, "clear-quarantine", "--why", "replaced")
    assert (code, "`b70ctl verify` opens the frontdoor" in said, fake_host.open) == (command.DONE, True, False)
    assert b70ctl(fake_host, "verify")[0] == command.DONE
    assert fake_host.open
    fake_host.assert_invariants()


def test_the_slot_can_be_stopped(fake_host):
    isolate(fake_host)
    assert b70ctl(fake_host, "stop")[0] == command.DONE
    assert fake_host.running == []


def test_the_command_sets_and_shows_it(fake_host):
    code, said = b70ctl(fake_host, "quarantine", "--why", WHY)
    assert (code, WHY in said, fake_host.open) == (command.DONE, True, False)
    assert WHY in b70ctl(fake_host, "status")[1]


def test_a_lost_card_keeps_its_record_and_no_reboot_ends_the_stricter_quarantine(fake_host):
    fake_host.lose_card("a")
    recover(fake_host)
    lost = quarantine.read(fake_host.effects(), LAYOUT)
    isolate(fake_host)
    fake_host.reboot()
    held = quarantine.read(fake_host.effects(), LAYOUT)
    assert lost is not None
    assert held is not None
    assert (held.symptom, held.line, held.reason) == (lost.symptom, lost.line, WHY)
