# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_model_slot_info: puts into words what the module has read."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.plugin_utils._slot_words import slot_status

MODULE = "arcpro.b70.b70_model_slot_info"


class ActionModule(ActionBase):
    """The module, and a summary of its result."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module(module_name=MODULE, task_vars=task_vars))
        self._remove_tmp_path(self._connection._shell.tmpdir)
        if not result.get("failed"):
            host = str((task_vars or {}).get("inventory_hostname", "host"))
            result["summary"] = slot_status(result, host, str(self._task.args.get("public_url") or ""))
        return result
