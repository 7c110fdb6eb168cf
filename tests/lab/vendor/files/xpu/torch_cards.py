# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixture of the lab, installed as torch/xpu/lab_cards.py: the cards that sysfs shows and this process may open."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

DEVICES = Path("/sys/bus/pci/devices")
SERVING = "B70_LAB_SERVES_ON_THE_PROCESSOR"


def nodes() -> list[str]:
    """Render nodes of the Arc Pro B70 cards that xe drives, as ZE_AFFINITY_MASK numbers them; those it leaves."""
    found = []
    for device in sorted(DEVICES.glob("*:*:*.*")):
        if (device / "vendor").read_text().strip() != "0x8086" or (device / "device").read_text().strip() != "0xe223":
            continue
        if not (device / "driver").exists() or os.path.basename(os.path.realpath(device / "driver")) != "xe":
            continue
        found += [f"/dev/dri/{path.name}" for path in (device / "drm").glob("renderD*")]
    mask = os.environ.get("ZE_AFFINITY_MASK", "")
    if mask:
        wanted = [int(word.partition(".")[0]) for word in mask.split(",")]
        found = [found[number] for number in wanted if number < len(found)]
    return [node for node in found if os.access(node, os.R_OK | os.W_OK)]


def device_count() -> int:
    """In an engine of the lab none, because it computes on the processor."""
    return 0 if os.environ.get(SERVING) else len(nodes())


def is_available() -> bool:
    return device_count() > 0


def get_device_name(device: object = None) -> str:
    return "Intel(R) Arc(TM) Pro B70 Graphics"


def get_device_properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(name=get_device_name(device), total_memory=32 * 2**30, platform_name="the lab")
