# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards that lab hosts show, read with the real effects and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _host
from ansible_collections.arcpro.b70.plugins.module_utils._doctor import examine, host
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Command, Look, Output, Read
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS
from labkit import cards
from unit.plugins.module_utils._doctor.hosts import site

Look_at = Callable[..., dict[str, dict[str, Any]]]


class Tree(host.DoctorHost):
    """The real effects over a tree in the place of /sys; no program is there, and device files open."""

    root: Path

    def read(self, read: Read) -> dict[str, str]:
        moved = Read(tuple(pattern.replace("/sys/", f"{self.root}/", 1) for pattern in read.patterns), read.max_bytes)
        return {path.replace(f"{self.root}/", "/sys/", 1): text for path, text in super().read(moved).items()}

    def run(self, command: Command) -> Output:
        return Output(problem=f"{command.argv[0]} is not installed")

    def look(self, look: Look) -> Any:
        if look.name == "device-nodes":
            return [{"path": "/dev/dri/renderD128", "mode": "0660", "group": "render", "usable": True}]
        return super().look(look)


@pytest.fixture
def look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look_at:
    """Give a host so many cards and judge them: id of the check -> finding."""

    def judged(count: int, change: Callable[[Path], None] | None = None, **more: Any) -> dict[str, dict[str, Any]]:
        root = tmp_path / "sys"
        cards.tree(root, count, **more)
        policy = root / "module/pcie_aspm/parameters/policy"
        policy.parent.mkdir(parents=True)
        policy.write_text("[default] performance powersave powersupersave \n")
        if change:
            change(root)
        monkeypatch.setattr(host, "SYSFS", str(root))
        where = site(cards=_host.cards(root), wanted=[])
        effects = Tree(where)
        effects.root = root
        checks = examine.chosen(CHECKS, ["cards"], [])
        return {item["id"]: item for item in examine.examine(where, effects, checks, 20)}

    return judged


def card_folder(root: Path, number: int) -> Path:
    return (root / "bus/pci/devices" / cards.address(number)).resolve()


def test_good_cards_pass_and_everything_of_them_can_be_read(look_at: Look_at) -> None:
    found = look_at(4, guc="70.65.0")
    assert {item["level"] for item in found.values()} == {"PASS"}, found
    assert found["guc-firmware"]["evidence"][3] == "0000:e3:00.0: GuC 70.65.0"
    assert found["power-cap"]["summary"] == "every card is capped at 275 W"
    assert found["card-ecc"]["evidence"][0] == "0000:03:00.0: the driver manages 32656 MiB"
    assert found["card-link"]["evidence"][1] == "0000:83:00.0: 32 GT/s x16 at 0000:81:00.0"


def test_each_trouble_of_a_card_is_found_where_the_kernel_shows_it(look_at: Look_at) -> None:
    def spoil(root: Path) -> None:
        (card_folder(root, 0) / "power/control").write_text("auto\n")
        bridge = card_folder(root, 1).parents[1]
        (bridge / "current_link_width").write_text("4\n")
        (root / "kernel/debug/dri" / cards.address(1) / "tile0/vram_mm").write_text("  size: 29962010624\n")
        (card_folder(root, 1) / "hwmon/hwmon8/power1_cap").write_text("180000000\n")

    found = look_at(2, spoil, guc="70.58.0")
    levels = {name: item["level"] for name, item in found.items() if item["level"] != "PASS"}
    assert levels == {
        "guc-firmware": "FAIL",
        "card-power": "FAIL",
        "card-ecc": "WARN",
        "power-cap": "WARN",
        "card-link": "WARN",
    }
    assert "0000:83:00.0: 32 GT/s x4 at 0000:81:00.0" in found["card-link"]["evidence"]


def test_cards_without_a_driver_fail_and_nothing_else_is_made_up(look_at: Look_at) -> None:
    found = look_at(2, driver="")
    assert {name for name, item in found.items() if item["level"] == "FAIL"} == {"kernel-driver", "device-nodes"}
    assert {name for name, item in found.items() if item["level"] == "SKIP"} == {
        "guc-firmware",
        "card-ecc",
        "power-cap",
    }
