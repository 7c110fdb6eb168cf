# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of b70_report_page: it reads what b70_report returned for the hosts of the play and writes one file here."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.arcpro.b70.plugins.plugin_utils._controller_action import ControllerAction
from ansible_collections.arcpro.b70.plugins.plugin_utils._report_page import index_page, of_hosts

OPTIONS: dict[str, dict[str, Any]] = {
    "dest": {"type": "path", "required": True},
    "reports": {"type": "str", "required": True},
}


class ActionModule(ControllerAction):
    """Writes the page, for its owner alone; in check mode it writes nothing."""

    OPTIONS = OPTIONS

    def answer(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        hosts = variables["ansible_play_hosts_all"]
        rows = of_hosts({str(host): variables["hostvars"][host].get(given["reports"]) for host in hosts})
        text = index_page(rows, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
        if not self._task.check_mode:
            path = Path(given["dest"])
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    stream.write(text)
            except OSError as error:
                raise AnsibleActionFail(f"the page {path} cannot be written: {error.strerror}") from error
        did = "would write" if self._task.check_mode else "written"
        problems = [f"{row['host']}: no archive: {row['problem']}" for row in rows if row["problem"]]
        return {"changed": True, "summary": [*problems, f"{did}: {given['dest']}"]}
