# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several slots on a host: what b70_slots may say, and what becomes of it in the files of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._slots import SlotPlace, other_config_dirs, slot_places
from unit.plugins.plugin_utils._render.test_replicas import profile, rendered

TWO = {"main": {"cards": [0, 1, 2]}, "aux": {"cards": [3], "port": 18090, "profile": "embedder"}}
AUX = {"slot": "aux", "slots": TWO, "config_dir": "/etc/b70-vllm-slot-aux", "command": "b70ctl-aux"}


def test_without_the_variable_the_slot_has_all_cards() -> None:
    assert slot_places({}, 18080) == {"main": SlotPlace(18080, 65536 - 18080)}
    assert slot_places({}, 18080, "gpu") == {"gpu": SlotPlace(18080, 65536 - 18080)}


def test_each_slot_has_ports_up_to_those_of_the_next() -> None:
    found = slot_places(TWO, 18080)
    assert found == {
        "main": SlotPlace(18080, 10, (0, 1, 2)),
        "aux": SlotPlace(18090, 65536 - 18090, (3,), "embedder"),
    }


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"aux": {"cards": [1], "port": 1}}, "b70_slots has no slot main"),
        ({"main": {"cards": [0]}, "a-b": {"cards": [1], "port": 9}}, "not 'a-b'"),
        ({"main": [0]}, r"b70_slots\.main is a mapping of cards, port, profile"),
        ({"main": {"card": [0]}}, r'b70_slots\.main: unknown key "card"; did you mean'),
        ({"main": {"cards": 3}}, r"b70_slots\.main\.cards is a list of different card numbers"),
        ({"main": {"cards": [0, 0]}}, "list of different card numbers"),
        ({"main": {"cards": [-1]}}, "list of different card numbers"),
        ({"main": {"cards": [True]}}, "list of different card numbers"),
        ({"main": {}}, "list of different card numbers"),
        ({"main": {"cards": [0]}, "aux": {"cards": [1]}}, r"b70_slots\.aux\.port is the first port of its engines"),
        ({"main": {"cards": [0], "port": 0}}, "from 1 to 65535"),
        ({"main": {"cards": [0]}, "aux": {"cards": [1], "port": 18080}}, "port 18080 belongs to main and to aux"),
        ({"main": {"cards": [0], "profile": 3}}, r"b70_slots\.main\.profile is the name of a profile"),
        ([1], "b70_slots is a mapping"),
    ],
)
def test_what_cannot_be_is_refused_by_name(slots: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        slot_places(slots, 18080)


def test_each_slot_knows_the_others_by_their_folders() -> None:
    slots = {"main": {"cards": [0, 1]}, "aux": {"cards": [1], "port": 18090}, "rank": {"cards": [], "port": 18095}}
    found = json.loads(rendered(profile(), slots=slots)["slot.json"])
    base = found["others"]["aux"].removesuffix("-aux")
    assert found["others"] == {"aux": f"{base}-aux", "rank": f"{base}-rank"}
    assert other_config_dirs(f"{base}-aux", "aux", slots) == {"main": base, "rank": f"{base}-rank"}
    assert "others" not in json.loads(rendered(profile())["slot.json"])


def test_the_engines_of_a_slot_get_its_cards_and_ports() -> None:
    files = rendered(profile(), **AUX)
    data = json.loads(files["one.json"])
    assert (data["slot"], data["unit"]) == ("aux", "b70-slot-aux-one.service")
    assert data["engine"]["backend_url"] == "http://127.0.0.1:18090"
    assert data["engine"]["env"]["ZE_AFFINITY_MASK"] == "3"
    assert json.loads(files["slot.json"])["cards"] == [3]
    assert "ExecStart=/opt/b70/bin/b70ctl-aux run" in files["b70-controller-aux.service"]


def test_which_cards_they_are_changes_no_fingerprint() -> None:
    here, there = (json.loads(rendered(profile(), **more)["one.json"]) for more in ({}, AUX))
    assert here["fingerprint"] == there["fingerprint"]


def test_replicas_are_dealt_the_cards_of_the_slot() -> None:
    slots = {"main": {"cards": [3, 1]}, "aux": {"cards": [0], "port": 18090}}
    rows = json.loads(rendered(profile(replicas="per_card"), slots=slots)["one.json"])["engine"]["replicas"]
    assert [row["cards"] for row in rows] == [[3], [1]]


def test_the_slot_decides_which_cards_not_the_profile() -> None:
    data = json.loads(rendered(profile(engine={"devices": [0]}), **AUX)["one.json"])
    assert data["engine"]["env"]["ZE_AFFINITY_MASK"] == "3"


@pytest.mark.parametrize("cards", [[], [3]])
def test_a_profile_that_needs_more_than_the_slot_has_is_rendered_nevertheless(cards: list[int]) -> None:
    slots = {"main": {"cards": cards}}
    data = json.loads(rendered(profile(cards=2), slots=slots)["one.json"])
    assert data["cards"] == 2, "the switch refuses it, and names both numbers"


def test_replicas_that_would_take_the_ports_of_the_next_slot_are_refused() -> None:
    slots = {"main": {"cards": [0, 1, 2]}, "aux": {"cards": [3], "port": 18082}}
    with pytest.raises(ValueError, match="3 replicas need the ports from 18080 on, and the last one is 18081"):
        rendered(profile(replicas=3), slots=slots)
