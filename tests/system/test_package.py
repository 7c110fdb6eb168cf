# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built and installed tarball works by name, far from the checkout."""

from __future__ import annotations

from pathlib import Path

from shipped import elsewhere
from system.product import ROOT, play


def test_a_playbook_of_the_installed_collection_runs_by_name(installed: Path, tmp_path: Path) -> None:
    plugins = {"ANSIBLE_INVENTORY_PLUGINS": str(ROOT / "tests" / "lab" / "inventory_plugins")}
    told = play("arcpro.b70.status", cwd=tmp_path, environment={**elsewhere(tmp_path, installed), **plugins})
    assert told.code == 0, told.output
    assert "tiny-a" in told.output
