# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode predicts what the real run then does, and touches nothing."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.driver import Driver
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import FakeUnit, World, profile_data, request

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


@pytest.mark.parametrize("start", ["nothing", "a", "b", "rebooted", "crashed", "disabled", "legacy"])
@pytest.mark.parametrize("want", ["a", "b", None])
def test_check_mode_predicts_what_then_happens(world, start, want):
    if start not in ("nothing", "legacy"):
        switch(world, "b" if start == "b" else "a")
    if start == "rebooted":
        world.reboot()
    elif start == "crashed":
        world.crash("a")
    elif start == "disabled":
        world.unit("a").enabled = False
    elif start == "legacy":
        world.units["minimax-vllm.service"] = FakeUnit("minimax-vllm.service", enabled=True)
        world.launch(world.units["minimax-vllm.service"])
    world.mutations.clear()
    before = dict(world.texts)
    predicted = check(world, want)
    assert world.mutations == []
    assert before == world.texts
    outcome = Driver(world.effects(), LAYOUT, request(want)).run()
    assert not outcome.failures
    assert predicted["actions"] == list(outcome.actions)
    assert predicted["changed"] == outcome.changed


def test_check_mode_on_a_pristine_host():
    world = World()
    refused = check(world, "a")
    assert refused["failed"]
    assert "not rendered" in refused["msg"]
    planned = check(world, "a", planned=json.dumps(profile_data("a")))
    assert not planned["failed"]
    assert planned["changed"]
    assert f"start {A}" in planned["actions"]
    assert world.texts == {}
    assert world.mutations == []


def test_check_mode_sees_a_planned_rendering(world):
    switch(world, "a")
    assert check(world, "a", planned=json.dumps(profile_data("a")))["changed"] is False
    for changes in ({"fingerprint": "sha256:a-2"}, {"engine__argv": ["vllm", "serve", "--max-log-len", "9"]}):
        planned = json.dumps(profile_data("a", **changes))
        assert f"start {A}" in check(world, "a", planned=planned)["actions"]
    refused = check(world, "b", planned=json.dumps(profile_data("b", status="blocked")))
    assert refused["failed"]
