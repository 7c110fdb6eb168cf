# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards of lab hosts, as the product's own readers see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _host
from labkit import cards
from labkit.common import LabError
from labkit.layout import Lab


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_as_many_cards_are_found_as_were_put_in(tmp_path: Path, count: int) -> None:
    cards.tree(tmp_path / "sys", count)
    found = _host.cards(tmp_path / "sys")
    assert [card["address"] for card in found] == [cards.address(number) for number in range(count)]
    assert {(card["driver"], card["guc"]) for card in found} <= {("xe", cards.GUC)}
    assert [card["render_node"] for card in found] == [f"/dev/dri/renderD{128 + number}" for number in range(count)]
    assert len(_host.render_nodes(tmp_path / "sys")) == count


def test_no_link_of_the_tree_leads_nowhere_or_out_of_it(tmp_path: Path) -> None:
    cards.tree(tmp_path / "sys", 4)
    links = [path for path in (tmp_path / "sys").rglob("*") if path.is_symlink()]
    assert len(links) > 20
    assert [path for path in links if not path.exists()] == []
    assert {path for path in links if tmp_path / "sys" not in path.resolve().parents} == set()
    device = tmp_path / "sys/class/drm/renderD129/device"
    assert os.path.basename(os.path.realpath(device)) == cards.address(1)
    assert f"found release version {cards.GUC}\n" in (tmp_path / "sys/kernel/debug/dri/129/gt0/uc/guc_info").read_text()


def test_without_a_driver_there_is_a_card_and_nothing_to_open(tmp_path: Path) -> None:
    cards.tree(tmp_path / "sys", 2, driver="")
    found = _host.cards(tmp_path / "sys")
    assert [(card["driver"], card["render_node"]) for card in found] == [("", None)] * 2


def test_there_is_no_room_for_a_fifth_card(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="room for 4"):
        cards.tree(tmp_path / "sys", 5)


def test_cards_belong_to_the_host_and_not_to_its_disk(tmp_path: Path) -> None:
    host = Lab("lab", tmp_path).host(1)
    assert host.directory not in host.hardware.parents
    assert cards.nspawn_words(host) == ["--boot"]
    cards.plug(host, 1)
    assert cards.nspawn_words(host)[-1] == f"{cards.INSIDE}/init"
    cards.plug(host, 0)
    assert cards.nspawn_words(host) == ["--boot"]
