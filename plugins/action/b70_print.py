# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_print: it writes lines for people to the screen and reaches no host."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction


class ActionModule(ControllerAction):
    """Prints a host's lines in one go, so that those of hosts that answer at once do not mix."""

    OPTIONS: ClassVar[dict[str, dict[str, Any]]] = {"lines": {"type": "list", "elements": "str", "required": True}}

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        lines = given["lines"]
        alone = len(variables["ansible_play_hosts_all"]) == 1 or self._task.run_once
        self._display.display("\n".join(lines if alone else [f"{variables['inventory_hostname']}:", *lines]))
        return {"lines": lines}
