# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_pin: it compares with the file of pins on the controller and reaches no host."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.arcpro.b70.plugins.plugin_utils import _pins, _pins_file
from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction

OPTIONS: dict[str, dict[str, Any]] = {
    "file": {"type": "path", "required": True},
    "section": {"type": "str", "required": True, "choices": sorted(_pins.SECTIONS)},
    "name": {"type": "str", "required": True},
    "value": {"type": "str", "required": True},
    "origin": {"type": "str", "required": True},
}


class ActionModule(ControllerAction):
    """Records the value of the first host, and fails for another one."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        file, section, name, value = (given[key] for key in ("file", "section", "name", "value"))
        host = str(variables.get("inventory_hostname", "host"))
        try:
            pins = _pins_file.read(file)
            new = not pins.value(section, name)
            if new and not self._task.check_mode:
                entry = _pins_file.seen(section, value, host, given["origin"])
                pins = _pins_file.add(file, section, {name: entry})
        except _pins.PinsError as error:
            raise AnsibleActionFail(f"{host}: {error}") from error
        problem = _pins.conflict(pins, section, name, value, host, file)
        first = f"{name} is {value} at first sight; it is recorded in {file}, and every later host takes the same"
        return {
            "changed": new,
            "failed": bool(problem),
            "msg": f"{host}: {problem}" if problem else first if new else f"{name} is {value}, as {file} pins it",
        }
