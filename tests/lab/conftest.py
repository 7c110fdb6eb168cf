# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the lab itself. Those marked `lab` make real hosts and need what `lab.py prerequisites` checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lab: makes real hosts on this machine (root, seconds to minutes)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the real ones where they cannot work, and say what is missing."""
    wanted = [item for item in items if item.get_closest_marker("lab")]
    if not wanted:
        return
    from labkit import machine

    missing = [f"{check.name}: {check.detail}" for check in machine.checks() if not check.passed]
    for item in wanted if missing else []:
        item.add_marker(pytest.mark.skip(reason="no lab here; " + "; ".join(missing)))
