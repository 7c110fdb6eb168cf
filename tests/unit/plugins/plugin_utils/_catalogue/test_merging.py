# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inheritance."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.merging import Library, ProfileSource, merge_chain


def library(*profiles: dict[str, Any], layer: int = 0) -> Library:
    return Library(
        [ProfileSource(item["name"], f"{item['name']}.yml", item.get("layer", layer), item) for item in profiles]
    )


def merged(*profiles: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Merge the chain of the last profile given."""
    found = library(*profiles)
    problems: list[Any] = []
    chain = found.chain(next(item for item in found.top() if item.name == profiles[-1]["name"]), problems)
    assert chain is not None, problems
    return merge_chain(chain)


def faults(*profiles: dict[str, Any]) -> list[str]:
    found = library(*profiles)
    problems: list[Any] = []
    for source in found.top():
        found.chain(source, problems)
    return [str(problem) for problem in problems]


def test_the_child_wins_deeply():
    result, origins = merged(
        {"name": "a", "engine": {"settings": {"x": 1, "y": {"p": 1, "q": 2}}}},
        {"name": "b", "extends": "a", "engine": {"settings": {"y": {"q": 3}}}},
    )
    assert result["engine"]["settings"] == {"x": 1, "y": {"p": 1, "q": 3}}
    assert origins["engine.settings.x"] == origins["engine.settings.y.p"] == "a"
    assert origins["engine.settings.y.q"] == "b"


def test_null_deletes_and_lists_replace():
    result, origins = merged(
        {"name": "a", "m": {"x": 1, "y": {"z": 2}}, "l": [1, 2]},
        {"name": "b", "extends": "a", "m": {"y": None}, "l": [3]},
    )
    assert (result["m"], result["l"]) == ({"x": 1}, [3])
    assert not [path for path in origins if path.startswith("m.y")]


def test_null_in_a_new_mapping_sets_nothing():
    assert merged({"name": "a", "m": {"x": None, "y": 1}})[0]["m"] == {"y": 1}


def test_a_scalar_replaces_a_mapping_and_back():
    result, origins = merged({"name": "a", "m": {"x": 1}}, {"name": "b", "extends": "a", "m": 5})
    assert (result["m"], origins["m"]) == (5, "b")
    assert "m.x" not in origins
    result, origins = merged({"name": "a", "m": 5}, {"name": "b", "extends": "a", "m": {"x": 1}})
    assert (result["m"], origins["m.x"]) == ({"x": 1}, "b")
    assert "m" not in origins


def test_what_was_found_out_about_the_parent_is_not_inherited():
    parent = {"name": "a", "title": "A", "status": "production", "evidence": {"x": 1}, "notes": ["n"], "keep": 1}
    result, _origins = merged(parent, {"name": "b", "extends": "a", "status": "experiment"})
    assert result == {"name": "b", "extends": "a", "status": "experiment", "keep": 1}


def test_without_extends_a_profile_stands_on_the_defaults():
    assert merged({"name": "_defaults", "cards": 4}, {"name": "a", "extends": None})[0]["cards"] == 4


def test_a_later_layer_replaces_and_may_extend_its_own_name():
    old = {"name": "a", "m": {"x": 1, "y": 1}, "layer": 0}
    assert merged(old, {"name": "a", "m": {"y": 2}, "layer": 1})[0]["m"] == {"y": 2}
    assert merged(old, {"name": "a", "extends": "a", "m": {"y": 2}, "layer": 1})[0]["m"] == {"x": 1, "y": 2}


def test_parents_are_the_ones_that_win():
    chain = [
        {"name": "a", "m": 1, "layer": 0},
        {"name": "b", "extends": "a", "layer": 0},
        {"name": "a", "m": 2, "layer": 1},
    ]
    found = library(*chain)
    problems: list[Any] = []
    result, _origins = merge_chain(found.chain(found.top()[1], problems) or [])
    assert result["m"] == 2


def test_a_missing_parent_names_the_nearest():
    assert faults({"name": "tiny-a"}, {"name": "b", "extends": "tiny-aa"}) == [
        'b.yml: extends: there is no profile "tiny-aa" to extend; did you mean "tiny-a"?'
    ]


def test_extending_its_own_name_needs_an_earlier_layer():
    assert "there is no profile" in faults({"name": "a", "extends": "a"})[0]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_circle_is_named(length):
    names = [f"p{index}" for index in range(length)]
    found = faults(*({"name": name, "extends": names[(index + 1) % length]} for index, name in enumerate(names)))
    assert len(found) == length
    assert f"circle: {' -> '.join([*names, 'p0'])}" in found[0]


def test_merging_changes_no_source():
    parent = {"name": "a", "m": {"x": [1]}}
    result, _origins = merged(parent, {"name": "b", "extends": "a", "m": {"y": 1}})
    result["m"]["x"].append(2)
    assert parent == {"name": "a", "m": {"x": [1]}}
