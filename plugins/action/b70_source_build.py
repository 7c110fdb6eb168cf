# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_source_build: starts the build on the host, watches it, says how far it is."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from ansible import constants as C
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._build.log import BuildProgress
from ansible_collections.arcpro.b70.plugins.module_utils._build.sample import BuildSample
from ansible_collections.arcpro.b70.plugins.plugin_utils._build_watch import idle_seconds, say
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob

display = Display()

MODULE = "arcpro.b70.b70_source_build"
PAUSES_S = (2.0, 10.0)


class Stalled(Exception):
    """A build computes nothing any more."""


class _Watch:
    """Says how far a build is, until it computed nothing for so long that it is to be ended. limit: in seconds."""

    def __init__(self, tell: Callable[[str], None], limit: float) -> None:
        self._tell, self._limit = tell, limit
        self._begun, self._idle = time.monotonic(), 0.0
        self._before: BuildSample | None = None
        self.budget = ""

    def show(self, found: dict[str, Any]) -> None:
        sample = BuildSample(**found["sample"])
        if self._before is None:
            self.budget = "" if found["joined"] else found["budget"]
            how = f"{'going on' if found['resumed'] else 'building'} with {self.budget}"
            self._tell("a build is under way, joining it" if found["joined"] else how)
        else:
            self._idle = idle_seconds(self._before, sample, self._idle)
            seconds = time.monotonic() - self._begun
            self._tell(say(BuildProgress(**found["progress"]), sample, seconds, found["quiet_s"], self._idle))
        self._before = sample
        if self._idle >= self._limit:
            raise Stalled(
                f"the build computed nothing for {self._idle:.0f} s and was ended; its largest process was "
                f"{sample.largest or 'none'}. Run again to go on where it was"
            )


class ActionModule(ActionBase):
    """Looks first: a finished wheel is not built, a running build is joined, a failed one begins where it was."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._label = f"{self._vars.get('inventory_hostname', 'host')} | {self._task.args.get('name', '')}"
        self._token = secrets.token_hex(8)
        found = self._ask("look")
        if found.get("failed") or found["state"] == "built":
            return {**result, **found}
        name = self._task.args.get("name")
        if not boolean(self._task.args.get("build", True)):
            if self._task.check_mode:
                return {**result, **found, "msg": f"{name} would be brought from elsewhere"}
            why = found.get("damage") or "nothing was brought"
            return {**result, **found, "failed": True, "msg": f"there is no whole wheel of {name}: {why}"}
        if self._task.check_mode:
            said = found.get("estimate") or " ".join(found.get("problems", [])) or "a build is under way"
            return {**result, **found, "changed": True, "msg": f"would build {name}: {said}"}
        watch = _Watch(self._say, float(self._task.args.get("stall_timeout", 900)))
        try:
            done = HostJob(self._connection, "the build", self._say, PAUSES_S).finish(self._ask, watch.show)
        except Stalled as stalled:
            self._ask("stop")
            done = {"failed": True, "msg": str(stalled)}
        if done.get("state") != "built" and not done.get("failed"):
            why = done.get("message") or f"{self._label}: the build vanished, as after a reboot; run again"
            done.update(failed=True, msg=why)
        return {**result, **done, "changed": True, "budget": watch.budget}

    def _say(self, text: str) -> None:
        display.display(f"{self._label}: {text}", color=C.COLOR_VERBOSE)

    def _ask(self, step: str) -> dict[str, Any]:
        arguments = {**self._task.args, "step": step, "token": self._token}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))
