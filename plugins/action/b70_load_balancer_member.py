# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_load_balancer_member: a load balancer that cannot be reached is a result like others.

`ignore_unreachable` would not do: with `any_errors_fatal`, Ansible ends the play for every result that is unreachable.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

MODULE = "arcpro.b70.b70_load_balancer_member"


class ActionModule(ActionBase):
    """The module, or what is known without a connection."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            told = self._execute_module(module_name=MODULE, task_vars=task_vars)
            self._remove_tmp_path(self._connection._shell.tmpdir)
        except AnsibleConnectionFailure as error:
            told = {"unreachable": True, "msg": str(error)}
        return {**result, **(_not_reached(str(told.get("msg"))) if told.get("unreachable") else told)}


def _not_reached(why: str) -> dict[str, Any]:
    """Return the result of the module for an HAProxy that cannot be reached."""
    return {
        "changed": False,
        "answered": False,
        "known": False,
        "servers": [],
        "sessions": 0,
        "in_service": False,
        "refused": "",
        "summary": f"WARNING: this load balancer cannot be reached and was left as it is: {why.strip()}",
    }
