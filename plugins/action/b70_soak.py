# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_soak: has the host soak, shows how far it is, and puts the result into words."""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.plugin_utils._host_job import RECONNECT_LIMIT_S, HostJob

display = Display()

MODULE = "arcpro.b70.b70_soak"
# A soak takes hours; its first cycle is of interest at once.
PAUSES_S = (1.0, 15.0)


class ActionModule(ActionBase):
    """Outside check mode: a unit on the host that outlives this, and a line whenever it has got further."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        try:
            found = self._found()
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **found, "summary": [] if found.get("failed") else self._words(found)}

    def _found(self) -> dict[str, Any]:
        if self._task.check_mode or self._task.args.get("state", "soaked") != "soaked":
            return self._ask("look")
        limit = float(self._task.args.get("reconnect_timeout") or RECONNECT_LIMIT_S)
        job = HostJob(self._connection, "the soak", self._warn, PAUSES_S, limit)
        found = job.ask(lambda: self._ask("start"))
        if found.get("failed"):
            return found
        joined = found["joined"]
        if found["state"] == "running":
            what = "joins the soak" if joined else "soaks"
            self._say(f"{what}: {found['line']}; it goes on without this play, which may be run again to join it")
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
        arguments = {"host_name": self._host, **self._task.args, "step": step}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))

    def _words(self, found: dict[str, Any]) -> list[str]:
        if found["state"] == "none" and self._task.check_mode:
            return [f"{self._host}: would soak the engine that is served, if it is verified"]
        if found["verdict"] is None:
            return [f"{self._host}: {found['line']}"]
        before = ", which began before this play" if found["joined"] else ""
        return [
            f"{self._host}: the soak{before} {found['verdict']}: {found['line']}",
            *found["reasons"],
            f"record: {found['file']}",
        ]

    def _say(self, text: str) -> None:
        display.display(f"{self._host} | {text}", color=C.COLOR_VERBOSE)

    def _warn(self, text: str) -> None:
        display.display(f"{self._host} | {text}", color=C.COLOR_WARN)
