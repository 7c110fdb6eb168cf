# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold before anything is touched, and that nothing is touched when it does not."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Holder
from unit.plugins.module_utils._slot.calls import check, host, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def world():
    return host("abc")


def guard_rejected(world):
    world.render("b", status="rejected", status_reason="wrong answers under load")
    return "wrong answers under load"


def guard_weights(world):
    del world.texts[next(path for path in world.texts if path.match("/models/b/model.safetensors"))]
    return "no weight file"


def guard_no_model(world):
    for path in [path for path in world.texts if path.is_relative_to("/models/b")]:
        del world.texts[path]
    return "/models/b"


def guard_stack(world):
    del world.texts[next(path for path in world.texts if path.name == "fingerprint.json")]
    return "cpu-1a2b3c4d5e is not installed"


def guard_other_stack(world):
    record = next(path for path in world.texts if path.name == "fingerprint.json")
    world.render("b", stack__dir="/opt/b70/stacks/other")
    world.put(record.parents[1] / "other" / "fingerprint.json", json.dumps({"stack_id": "cpu-0000000000"}))
    return "expected cpu-1a2b3c4d5e; got cpu-0000000000"


def guard_torn_stack(world):
    world.put(next(path for path in world.texts if path.name == "fingerprint.json"), "{")
    return "is not JSON"


def guard_disk(world):
    world.free = 1000
    return "MiB free"


def guard_readonly(world):
    world.readonly.add(LAYOUT.unit_dir)
    return "read-only"


def guard_port(world):
    world.foreign = (Holder(4711, "nc -l 18080", "root", "", "port 18080"),)
    return "4711"


def guard_cards(world):
    world.render("b", cards=4)
    return "4 cards"


def guard_no_unit(world):
    world.unit("b").exists = False
    return B


def guard_unknown(world):
    del world.texts[LAYOUT.profile_json("b")]
    return "closest"


def guard_broken_profile(world):
    world.render("b", engine__argv="vllm serve")
    return "engine.argv"


def guard_journal(world):
    world.full.add(LAYOUT.state_dir)
    return "No space left"


GUARDS = [value for name, value in sorted(globals().items()) if name.startswith("guard_")]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_failed_guard_touches_nothing(world, guard):
    switch(world, "a")
    words = guard(world)
    before = (world.texts[LAYOUT.state_file], list(world.running), list(world.enabled), world.starts)
    result = switch(world, "b")
    assert (result["failed"], result["changed"], result["outcome"]) == (True, False, "untouched")
    assert words in result["msg"]
    assert "a is still served, verified" in result["msg"]
    assert before == (world.texts[LAYOUT.state_file], list(world.running), list(world.enabled), world.starts)
    world.promise()


@pytest.mark.parametrize("guard", [guard for guard in GUARDS if guard is not guard_journal])
def test_check_mode_finds_the_same_guard(world, guard):
    switch(world, "a")
    words = guard(world)
    result = check(world, "b")
    assert result["failed"]
    assert words in result["msg"]


def test_which_statuses_are_refused_is_the_site_s_choice(world):
    settings = {"schema": 1, "slot": "main", "legacy_units": [], "refused_statuses": ["experiment"]}
    world.render("b", status="experiment")
    world.render("c", status="rejected")
    world.put(LAYOUT.slot_file, json.dumps(settings))
    assert "b is experiment" in switch(world, "b")["msg"]
    assert not switch(world, "c")["failed"]
    assert not switch(world, "b", accept_status=("experiment",))["failed"]


def test_a_slot_file_that_cannot_be_used_is_named(world):
    for text, words in (("{", "is not JSON"), ('{"schema": 9}', "schema is 9"), ('{"schema": 1}', "refused_statuses")):
        world.put(LAYOUT.slot_file, text)
        result = switch(world, "a")
        assert (result["outcome"], str(LAYOUT.slot_file) in result["msg"]) == ("untouched", True)
        assert words in result["msg"]
    settings = {"schema": 1, "slot": "main", "legacy_units": [], "refused_statuses": ["bad"]}
    world.put(LAYOUT.slot_file, json.dumps(settings))
    assert "names 'bad'" in switch(world, "a")["msg"]


def test_a_refused_status_can_be_accepted_by_name(world):
    guard_rejected(world)
    assert switch(world, "b", accept_status=("rejected",))["failed"] is False


def test_a_rule_that_is_broken_on_purpose_is_said_at_every_switch(world):
    world.render("b", accepted_rules=["tp2-hangs: both cards hang"])
    result = switch(world, "b")
    assert result["outcome"] == "committed"
    assert "profile b breaks a rule of its stack on purpose: tp2-hangs: both cards hang" in result["warnings"]
