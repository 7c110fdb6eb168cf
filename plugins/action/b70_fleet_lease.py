# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_fleet_lease: it names this run, and knows which other runs of this controller ended."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.plugin_utils import _fleet_run

MODULE = "arcpro.b70.b70_fleet_lease"


class ActionModule(ActionBase):
    """Asks the host once more where the holder of its lease has ended."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        # Ansible runs each task in a process of its own; their parent is the run.
        given = {**self._task.args, "run": _fleet_run.run_of(os.getppid()), "owner": _fleet_run.owner()}
        told = self._execute_module(module_name=MODULE, module_args=given, task_vars=task_vars)
        holder = (told.get("holder") or {}).get("run", "")
        if given.get("state", "taken") != "kept" and holder and _fleet_run.has_ended(holder):
            told = self._execute_module(MODULE, module_args={**given, "over": [holder]}, task_vars=task_vars)
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **told}
