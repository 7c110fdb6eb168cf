# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The maintenance of a host: a person begins and ends it, and nothing else does."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import maintenance
from ansible_collections.arcpro.b70.plugins.module_utils._slot_module import run_maintenance
from unit.plugins.module_utils._slot.calls import b70ctl, host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

WHY = "a fan is replaced"


@pytest.fixture
def fake_host():
    held = host("ab", load_s=1.0)
    switch(held, "a")
    return held


def test_it_is_begun_once_shown_and_ended_and_what_is_served_stays(fake_host):
    code, said = b70ctl(fake_host, "maintenance", "--why", WHY)
    assert code == 0
    assert f": {WHY}; load balancers send it no requests." in said
    first = maintenance.read(fake_host.effects(), LAYOUT)
    assert first is not None
    assert not api.maintain(fake_host.effects(), LAYOUT, "bob", WHY)["changed"]
    other = api.maintain(fake_host.effects(), LAYOUT, "bob", "two fans")["maintenance"]
    assert (other["since"], other["who"], other["reason"]) == (first.since, "bob", "two fans")
    code, said = b70ctl(fake_host, "status")
    assert (code, fake_host.open) == (0, True)
    assert f"MAINTENANCE since {first.since}, set by bob: two fans" in said
    code, said = b70ctl(fake_host, "maintenance", "--end")
    assert (code, said.strip()) == (0, "this host is not in maintenance.")
    assert api.info(fake_host.effects(), LAYOUT)["maintenance"] is None


def test_a_switch_and_a_reboot_do_not_end_it(fake_host):
    api.maintain(fake_host.effects(), LAYOUT, "ann", WHY)
    switch(fake_host, "b")
    fake_host.reboot()
    assert api.info(fake_host.effects(), LAYOUT)["maintenance"]["reason"] == WHY


def test_a_record_that_cannot_be_read_holds(fake_host):
    fake_host.texts[LAYOUT.maintenance_file] = "{torn"
    assert api.info(fake_host.effects(), LAYOUT)["maintenance"]["reason"] == "its record cannot be read"


def test_the_module_predicts_sets_and_ends_it(tmp_path):
    given = {name: str(tmp_path / name) for name in ("config_dir", "run_dir", "state_dir", "unit_dir")}
    given |= {"slot": "main", "frontdoor_url": "", "state": "present", "reason": WHY, "requested_by": "ann"}
    assert run_maintenance(given, check_mode=True)["changed"]
    assert not (tmp_path / "state_dir").exists()
    begun = run_maintenance(given, check_mode=False)
    assert (begun["maintenance"]["who"], run_maintenance(given, check_mode=False)["changed"]) == ("ann", False)
    ended = run_maintenance({**given, "state": "absent"}, check_mode=False)
    assert (ended["changed"], ended["maintenance"], ended["diff"]["before"]) == (True, None, begun["maintenance"])
