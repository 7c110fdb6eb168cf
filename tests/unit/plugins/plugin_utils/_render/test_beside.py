# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second side of a profile with one engine: which profiles have one, and what is rendered of it."""

from __future__ import annotations

import hashlib
import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from unit import contracts
from unit.plugins.plugin_utils._render.test_replicas import profile, rendered

FIRST, SECOND = "b70-slot-main-one.service", "b70-slot-main-one@beside.service"
SLOTS = {"main": {"cards": [2, 3]}, "aux": {"cards": [0], "port": 18081}}


def sides(files):
    return parse_profile(files["one.json"], "one.json").sides


def test_the_second_side_has_a_unit_a_port_and_cards_of_its_own():
    files, before = rendered(profile(), cards=2), rendered(profile(), cards=1)
    contracts.check("resolved-profile", files["one.json"])
    data = json.loads(files["one.json"])
    beside = data["engine"].pop("beside")
    assert (beside["unit"], beside["backend_url"], beside["cards"]) == (SECOND, "http://127.0.0.1:18081", [1])
    assert beside["argv"][beside["argv"].index("--port") + 1] == "18081"
    assert (beside["env"]["ZE_AFFINITY_MASK"], beside["env"]["ONEAPI_DEVICE_SELECTOR"]) == ("1", "level_zero:0")
    assert hashlib.sha256(files[SECOND].encode()).hexdigest() == beside["unit_sha256"]
    assert "EnvironmentFile=/etc/b70-vllm-slot/profiles/one@beside.env" in files[SECOND]
    assert f"Environment of {SECOND};" in files["one@beside.env"]
    # What is rendered without it is as it was.
    assert data == json.loads(before["one.json"])
    assert {name: files[name] for name in (FIRST, "one.env")} == {name: before[name] for name in (FIRST, "one.env")}
    first, second = sides(files)
    assert (first.unit, first.numbers, first.engine.port) == (FIRST, (0,), 18080)
    assert (second.unit, second.numbers, second.engine.port) == (SECOND, (1,), 18081)
    assert not first.meets(second)
    assert (first.fingerprint, first.name) == (second.fingerprint, second.name)


@pytest.mark.parametrize(
    ("changes", "settings", "numbers"),
    [
        ({"engine": {"devices": [1]}}, {"cards": 2}, [(1,), (0,)]),
        ({"engine": {"devices": [3]}}, {"cards": 4}, [(3,), (0,)]),
        ({"cards": 2}, {"cards": 4}, [(0, 1), (2, 3)]),
        ({}, {"slots": {"main": {"cards": [3, 1]}}}, [(3,), (1,)]),
        # A host with a card of another model as card 0.
        ({}, {"cards": 2, "mixed": [1, 2]}, [(1,), (2,)]),
        ({"engine": {"devices": [2]}}, {"cards": 2, "mixed": [1, 2]}, [(2,), (1,)]),
        ({}, {"slots": {"main": {"cards": [3, 1]}}, "mixed": [1, 2, 3]}, [(3,), (1,)]),
    ],
)
def test_its_cards_are_the_next_ones_of_the_slot(changes, settings, numbers):
    assert [side.numbers for side in sides(rendered(profile(**changes), **settings))] == numbers


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {"cards": 1}),
        ({}, {"cards": 1, "mixed": [1]}),
        ({}, {}),
        ({"cards": 2}, {"cards": 3}),
        ({"cards": 0}, {"cards": 2}),
        ({"replicas": 2}, {"cards": 4}),
        ({"replicas": "per_card"}, {"cards": 1}),
        # Its port belongs to another slot.
        ({}, {"slots": SLOTS}),
        # A site's own mask holds for both.
        ({}, {"cards": 2, "env": {"ZE_AFFINITY_MASK": "1"}}),
    ],
)
def test_without_cards_or_a_port_for_it_there_is_none(changes, settings):
    files = rendered(profile(**changes), **settings)
    assert "beside" not in json.loads(files["one.json"])["engine"]
    assert not [name for name in files if "@beside" in name]


def test_two_sides_with_a_card_or_a_port_in_common_are_in_each_others_way():
    first, second = sides(rendered(profile(), cards=4))
    wide, far = sides(rendered(profile(cards=2), cards=4))
    alone = sides(rendered(profile(cards=0)))[0]
    assert [first.meets(side) for side in (second, wide, far, alone)] == [False, True, False, True]
    assert [second.meets(side) for side in (first, wide, far, alone)] == [False, True, True, True]
