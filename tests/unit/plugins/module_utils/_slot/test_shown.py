# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd says of a unit's boot is true after a run, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.calls import host, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, request


def shown(fake_host):
    return [name for name, unit in fake_host.units.items() if unit.shown]


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
@pytest.mark.parametrize("way_back", [True, False])
def test_an_enabled_unit_is_shown_as_enabled(fault, way_back):
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    assert shown(fake_host) == fake_host.enabled == [LAYOUT.unit("a")]
    fake_host.unit("b").fault = fault
    fake_host.unit("a").fault = "" if way_back else "exit_at_start"
    switch(fake_host, "b")
    assert shown(fake_host) == fake_host.enabled
    switch(fake_host, None)
    assert shown(fake_host) == fake_host.enabled == []


def test_it_is_read_again_when_clients_are_served_and_only_after_a_change():
    fake_host = host("ab", load_s=1.0)
    effects: Any = fake_host.effects()
    reload, seen = effects.units.reload, []

    def note():
        seen.append(fake_host.open)
        reload()

    effects.units.reload = note
    api.switch(effects, LAYOUT, request("a"))
    assert seen == [True]
    fake_host.crash("a")
    recover(fake_host)
    api.switch(effects, LAYOUT, request("a", recheck=True))
    assert seen == [True]


def test_what_a_killed_switch_left_is_shown_after_the_next_run():
    fake_host = host("ab", load_s=1.0)
    effects: Any = fake_host.effects()

    def die():
        raise Killed

    effects.units.reload = die
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("a"))
    assert (fake_host.enabled, shown(fake_host)) == ([LAYOUT.unit("a")], [])
    recover(fake_host)
    assert shown(fake_host) == fake_host.enabled == [LAYOUT.unit("a")]


def test_a_systemd_that_does_not_reload_costs_a_warning():
    fake_host = host("ab", load_s=1.0)
    fake_host.reload_fails = True
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert not result["failed"]
    assert any("until its next reload" in text for text in result["warnings"])
