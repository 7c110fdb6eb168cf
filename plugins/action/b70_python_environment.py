# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_python_environment: looks, leaves the work to the host, and says how far it is."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob

display = Display()

MODULE = "arcpro.b70.b70_python_environment"
# The first pause is short because what the cache has takes seconds.
PAUSES_S = (0.5, 4.0)
SAY_S = 10.0
OF_THE_WORK = ("state", "joined", "progress", "told_to")


class ActionModule(ActionBase):
    """A converged environment takes one look; the work goes on when the connection is lost."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._label = f"{self._vars.get('inventory_hostname', 'host')} | {self._task.args.get('path', '')}"
        if self._task.check_mode or self._task.async_val:
            wrap = bool(self._task.async_val) and not self._connection.has_native_async
            found = dict(self._execute_module(module_name=MODULE, task_vars=self._vars, wrap_async=wrap))
            if self._task.check_mode and found.get("changed"):
                labels = ", ".join(str(step["label"]) for step in self._task.args["steps"])
                self._say(f"would install {labels}, because {found['reason']}")
            return {**result, **found}
        self._token = secrets.token_hex(8)
        found = self._ask("predict")
        if found.get("failed") or not found["changed"]:
            return {**result, **found}
        self._begun, self._said = time.monotonic(), 0.0
        done = HostJob(self._connection, "the installation", self._say, PAUSES_S).finish(self._ask, self._show)
        if done.get("state") == "none":
            done.update(failed=True, msg="the installation vanished, as after a reboot; run again to go on")
        return {**result, **{key: value for key, value in done.items() if key not in OF_THE_WORK}}

    def _show(self, found: dict[str, Any]) -> None:
        seconds = time.monotonic() - self._begun
        if seconds - self._said < SAY_S:
            return
        self._said = seconds
        now = found["progress"] or {"text": "waiting for another installation, or between two steps", "written_mib": 0}
        written = f", {now['written_mib']} MiB written" if now["written_mib"] else ""
        self._say(f"{now['text']}{written}, {seconds:.0f} s so far")

    def _ask(self, part: str) -> dict[str, Any]:
        arguments = {**self._task.args, "part": part, "token": self._token}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))

    def _say(self, text: str) -> None:
        display.display(f"{self._label}: {text}", color=C.COLOR_VERBOSE)
