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
    "balancers": {"type": "str", "default": ""},
    "fail_if_missing": {"type": "bool", "default": False},
    "width": {"type": "int"},
}
NOT_SERVING = 3  # as of `b70ctl status`
# Characters that Ansible puts before each line that it prints.
INDENT = 8


class ActionModule(ControllerAction):
    """Compares the hosts; changes nothing."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts = [str(host) for host in variables["ansible_play_hosts_all"]]
        known = variables["hostvars"]
        told = {host: (known[host].get(given["balancers"]) or {}).get("results") or () for host in hosts}
        document = fleet({host: known[host].get(given["slots"]) for host in hosts}, told)
        width = given["width"] or shutil.get_terminal_size((MAX_WIDTH + INDENT, 24)).columns - INDENT
        not_read = [host["host"] for host in document["hosts"] if host["problem"]]
        result = {"fleet": document, "not_read": not_read, "summary": table(document, width)}
        missing = [f"{host['host']} {host['missing']}" for host in document["hosts"] if host["missing"]]
        if given["fail_if_missing"] and missing:
            # The callback arcpro.b70.exit_code ends the run with this.
            return {**result, "failed": True, "msg": "; ".join(missing), "b70_exit_code": NOT_SERVING}
        return result
