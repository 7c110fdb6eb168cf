# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_report: brings the archive and leaves none on the host."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.plugin_utils._nested_action import run_other

MODULE = "arcpro.b70.b70_report"


class ActionModule(ActionBase):
    """Gathers on the host, and with `folder` outside check mode brings the archive."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        folder = "" if self._task.check_mode else str(arguments.get("folder") or "")
        try:
            if not folder:
                return {**result, **self._execute_module(module_name=MODULE, task_vars=variables)}
            place = {"state": "directory", "prefix": "b70-report-"}
            made = run_other(self, "ansible.legacy.tempfile", place, variables)
            if made.get("failed"):
                return {**result, **made}
            try:
                return {**result, **self._bring(made["path"], folder, arguments, variables)}
            finally:
                run_other(self, "ansible.legacy.file", {"path": made["path"], "state": "absent"}, variables)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _bring(self, place: str, folder: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        archive = f"{place}/report.tar.gz"
        arguments["dest"] = archive
        made: dict[str, Any] = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=variables)
        if made.get("failed"):
            return made
        dest = f"{folder.rstrip('/')}/{arguments.get('name', 'host')}.tar.gz"
        brought = run_other(self, "ansible.legacy.fetch", {"src": archive, "dest": dest, "flat": True}, variables)
        return {**made, **brought} if brought.get("failed") else {**made, "changed": False}
