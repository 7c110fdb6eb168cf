# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles on a host, and copies of them, are for root and one group."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


def test_directories_with_the_texts_of_profiles_are_closed() -> None:
    made = yaml.safe_load((ROLES / "slot/vars/main.yml").read_text())["__slot_directories"]
    closed = {item["path"].rpartition("/")[2]: item for item in made if item.get("mode") == "0750"}
    assert set(closed) == {"profiles", "pending", "committed"}
    assert {item["group"] for item in closed.values()} == {"{{ slot_group }}"}
    assert not [item for item in closed.values() if "owner" in item], "the engine's user may not write them"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"frontdoor_api_keys": {"one": "x"}}, "SupplementaryGroups=b70-frontdoor"),
        ({"frontdoor_admin_keys": {"one": "x"}}, "SupplementaryGroups=b70-frontdoor b70"),
        ({"frontdoor_on_demand": {"main": ["*"]}}, "SupplementaryGroups=b70-frontdoor b70"),
        ({"frontdoor_tls_certificate": "/c"}, "SupplementaryGroups=b70-frontdoor"),
        ({}, None),
    ],
)
def test_the_frontdoor_may_read_profiles_only_where_it_lists_them(keys: dict[str, object], line: str | None) -> None:
    surroundings = jinja2.Environment(autoescape=False)
    surroundings.filters |= dict.fromkeys(("bool", "dirname", "basename", "difference"), lambda value, *_others: value)
    template = (ROLES.parent / "templates/b70-openai-frontdoor.service.j2").read_text()
    text = surroundings.from_string(template).render(
        **{"frontdoor_api_keys": {}, "frontdoor_admin_keys": {}, **keys},
        frontdoor_group="b70-frontdoor",
        frontdoor_slot_group="b70",
        frontdoor_port=8000,
    )
    assert [row for row in text.splitlines() if row.startswith("SupplementaryGroups")] == ([line] if line else [])
