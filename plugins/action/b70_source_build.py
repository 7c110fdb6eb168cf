# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_source_build: starts the build on the host, watches it, says how far it is."""

from __future__ import annotations

import time
from typing import Any

from ansible import constants as C
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._build.log import Progress
from ansible_collections.arcpro.b70.plugins.module_utils._build.sample import Sample
from ansible_collections.arcpro.b70.plugins.plugin_utils._build_watch import idle_seconds, say
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import HostJob

display = Display()

MODULE = "arcpro.b70.b70_source_build"
PAUSES_S = (2.0, 10.0)


class ActionModule(ActionBase):
    """Looks first: a finished wheel is not built, a running build is joined, a failed one begins where it was."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._label = f"{self._vars.get('inventory_hostname', 'host')} | {self._task.args.get('name', '')}"
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
        budget = ""
        if found["state"] != "running":
            found = self._ask("start")
            if found.get("failed"):
                return {**result, **found}
            budget = found["budget"]
            self._say(f"{'going on' if found['resumed'] else 'building'} with {budget}")
        else:
            self._say("a build is under way, joining it")
        result.update(self._watch())
        return {**result, "changed": True, "budget": budget}

    def _watch(self) -> dict[str, Any]:
        limit = float(self._task.args.get("stall_timeout", 900))
        begun = time.monotonic()
        before: Sample | None = None
        idle = 0.0
        job = HostJob(self._connection, "the build", self._say, PAUSES_S)
        while True:
            found = job.look(lambda: self._ask("look"))
            if found.get("failed") or found["state"] == "built":
                return found
            if found["state"] == "failed":
                return {**found, "failed": True, "msg": found["message"]}
            if found["state"] == "absent":
                return {"failed": True, "msg": f"{self._label}: the build vanished, as after a reboot; run again"}
            sample = Sample(**found["sample"])
            idle = idle_seconds(before, sample, idle) if before is not None else 0.0
            before = sample
            self._say(say(Progress(**found["progress"]), sample, time.monotonic() - begun, found["quiet_s"], idle))
            if idle >= limit:
                self._ask("stop")
                return {
                    "failed": True,
                    "msg": f"the build computed nothing for {idle:.0f} s and was ended; its largest process was "
                    f"{sample.largest or 'none'}. Run again to go on where it was",
                }

    def _say(self, text: str) -> None:
        display.display(f"{self._label}: {text}", color=C.COLOR_VERBOSE)

    def _ask(self, step: str) -> dict[str, Any]:
        arguments = {**self._task.args, "step": step}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))
