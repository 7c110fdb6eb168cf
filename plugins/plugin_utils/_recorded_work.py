# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of work on a host that ends with a record: begin or join it, and show its progress."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.plugin_utils._host_job import RECONNECT_LIMIT_S, HostJob

display = Display()

# The work takes minutes or hours, but its beginning is of interest at once.
PAUSES_S = (1.0, 15.0)


class RecordedWork(ActionBase):
    """An action whose module answers `start`, `look` and `acknowledge` with state, line, verdict, reasons and more.

    Outside check mode, a unit of the host does the work and outlives the action. A line is shown whenever it
    progresses.
    """

    MODULE = ""
    WORK = ""  # such as "the soak"

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        # A question is asked again if its answer was lost. This tells the host that it is the same question.
        self._token = secrets.token_hex(8)
        self._host = str(self._vars.get("inventory_hostname", "host"))
        try:
            found = self._answer()
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **found, "summary": [] if found.get("failed") else self._words(found)}

    def details(self, found: dict[str, Any]) -> list[str]:
        """Return further lines about work that has ended."""
        return []

    def _answer(self) -> dict[str, Any]:
        limit = float(self._task.args.get("reconnect_timeout") or RECONNECT_LIMIT_S)
        job = HostJob(self._connection, self.WORK, lambda text: self._say(text, C.COLOR_WARN), PAUSES_S, limit)
        state = "shown" if self._task.check_mode else self._task.args.get("state")
        found = self._ask("look") if state in ("shown", "stopped") else self._watch(job)
        if state != "shown" and not found.get("failed") and found["state"] == "ended":
            job.check_play()
            with suppress(AnsibleConnectionFailure):  # the next play is told the same again
                noted = self._ask("acknowledge")
                if noted.get("failed"):
                    self._say(f"the next play gets this result again: {noted.get('msg')}", C.COLOR_WARN)
        return found

    def _watch(self, job: HostJob) -> dict[str, Any]:
        found = job.ask(lambda: self._ask("start"))
        if found.get("failed"):
            return found
        joined = found["joined"]
        if found["state"] == "running":
            how = "joins" if joined else "begins"
            self._say(
                f"{how} {self.WORK} of {found['line']}; it goes on without this play, which may be run again to join it"
            )
        said = found["line"]
        while found["state"] == "running":
            found = job.look(lambda: self._ask("look"))
            if found.get("failed"):
                return found
            if found["state"] == "running" and found["line"] != said:
                said = found["line"]
                self._say(said)
        return {**found, "joined": joined}

    def _ask(self, step: str) -> dict[str, Any]:
        arguments = {"host_name": self._host, **self._task.args, "step": step, "token": self._token}
        return dict(self._execute_module(module_name=self.MODULE, module_args=arguments, task_vars=self._vars))

    def _words(self, found: dict[str, Any]) -> list[str]:
        if found["verdict"] is None:
            would = f", so {self.WORK} would begin" if self._task.check_mode and found["state"] != "running" else ""
            return [f"{self._host}: {found['line']}{would}"]
        before = ", which began before this play," if found["joined"] else ""
        return [
            f"{self._host}: {self.WORK}{before} {found['verdict']}: {found['line']}",
            *self.details(found),
            *found["reasons"],
            f"record: {found['file']}",
        ]

    def _say(self, text: str, color: str | None = None) -> None:
        display.display(f"{self._host} | {text}", color=color or C.COLOR_VERBOSE)
