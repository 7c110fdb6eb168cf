# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A systemd of tests that knows the units which were started, and those of others."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._transient import Task, TransientState
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError


class Systemd:
    """started: the tasks in their order. running: the names of units. ended: how a unit that ended is remembered.
    refuses: what it answers to a start; with `slow`, the unit runs nevertheless."""

    def __init__(self) -> None:
        self.started: list[Task] = []
        self.running: set[str] = set()
        self.ended = TransientState("inactive", "success", "0")
        self.refuses, self.slow = "", False

    def start(self, task: Task, **_limits: Any) -> None:
        if not self.refuses or self.slow:
            self.started.append(task)
            self.running.add(task.unit)
        if self.refuses:
            raise WorkError(self.refuses)

    def stop(self, unit: str) -> None:
        if unit not in self.running:
            raise WorkError(f"`systemctl stop` failed: Failed to stop {unit}: Unit {unit} not loaded.")
        self.running.remove(unit)

    def forget(self, unit: str) -> None:
        pass

    def state(self, unit: str) -> TransientState:
        return TransientState("active", "success", "0") if unit in self.running else self.ended

    def end(self, result: str = "success") -> None:
        self.running.clear()
        self.ended = TransientState("inactive" if result == "success" else "failed", result, "0")


def program(folder: Path) -> Path:
    """The archive that Ansible makes of a module."""
    path = folder / "module.zip"
    path.write_bytes(b"program")
    return path


def packed(archive: Path, *names: str) -> None:
    """Make an archive as Ansible does, of the files of module_utils that these patterns name."""
    utils = Path(__file__).resolve().parents[5] / "plugins/module_utils"
    with zipfile.ZipFile(archive, "w") as file:
        for path in [found for name in names for found in utils.glob(name)]:
            file.write(path, f"ansible_collections/arcpro/b70/plugins/module_utils/{path.relative_to(utils)}")
        for parent in ("", "/arcpro", "/arcpro/b70", "/arcpro/b70/plugins", "/arcpro/b70/plugins/module_utils"):
            file.writestr(f"ansible_collections{parent}/__init__.py", "")
