# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd says of a unit's boot is true after a run, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from unit.plugins.module_utils._slot.calls import host, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, request


def shown(world):
    return [name for name, unit in world.units.items() if unit.shown]


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
@pytest.mark.parametrize("way_back", [True, False])
def test_an_enabled_unit_is_shown_as_enabled(fault, way_back):
    world = host("ab", load_s=1.0)
    switch(world, "a")
    assert shown(world) == world.enabled == [LAYOUT.unit("a")]
    world.unit("b").fault = fault
    world.unit("a").fault = "" if way_back else "exit_at_start"
    switch(world, "b")
    assert shown(world) == world.enabled
    switch(world, None)
    assert shown(world) == world.enabled == []


def test_it_is_read_again_when_clients_are_served_and_only_after_a_change():
    world = host("ab", load_s=1.0)
    effects: Any = world.effects()
    reload, seen = effects.units.reload, []

    def note():
        seen.append(world.open)
        reload()

    effects.units.reload = note
    api.switch(effects, LAYOUT, request("a"))
    assert seen == [True]
    world.crash("a")
    recover(world)
    api.switch(effects, LAYOUT, request("a", recheck=True))
    assert seen == [True]


def test_what_a_killed_switch_left_is_shown_after_the_next_run():
    world = host("ab", load_s=1.0)
    effects: Any = world.effects()

    def die():
        raise Killed

    effects.units.reload = die
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("a"))
    assert (world.enabled, shown(world)) == ([LAYOUT.unit("a")], [])
    recover(world)
    assert shown(world) == world.enabled == [LAYOUT.unit("a")]


def test_a_systemd_that_does_not_reload_costs_a_warning():
    world = host("ab", load_s=1.0)
    world.reload_fails = True
    result = switch(world, "a")
    world.promise()
    assert not result["failed"]
    assert any("until its next reload" in text for text in result["warnings"])
