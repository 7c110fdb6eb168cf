# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run another action for an action that runs on the same host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def run_other(
    action: Any, name: str, arguments: Mapping[str, Any], variables: dict[str, Any], *, check: bool | None = None
) -> dict[str, Any]:
    """Run another action, or the module if there is no such action; return its result.

    action: the running plugin, whose connection is used. check: the other's check mode; None for that of the task.
    """
    task = action._task.copy()
    task.args = dict(arguments)
    if check is not None:
        task.check_mode = check
    known = {
        "task": task,
        "connection": action._connection,
        "play_context": action._play_context,
        "loader": action._loader,
        "templar": action._templar,
        "shared_loader_obj": action._shared_loader_obj,
    }
    other = action._shared_loader_obj.action_loader.get(name, **known)
    if other is None:
        task.action = name
        other = action._shared_loader_obj.action_loader.get("ansible.legacy.normal", **known)
    return dict(other.run(task_vars=variables))
