# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_fleet_status: it reads what b70_model_slot_info returned for the hosts of the play."""

from __future__ import annotations

import shutil
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_status import MAX_WIDTH, fleet, table

OPTIONS: dict[str, dict[str, Any]] = {
    "slots": {"type": "str", "required": True},
    "width": {"type": "int"},
}
# What Ansible puts in front of each line that it prints.
INDENT = 8


class ActionModule(ControllerAction):
    """Compares the hosts; changes nothing."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts = [str(host) for host in variables["ansible_play_hosts_all"]]
        document = fleet({host: variables["hostvars"][host].get(given["slots"]) for host in hosts})
        width = given["width"] or shutil.get_terminal_size((MAX_WIDTH + INDENT, 24)).columns - INDENT
        not_read = [host["host"] for host in document["hosts"] if host["problem"]]
        return {"fleet": document, "not_read": not_read, "summary": table(document, width)}
