# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_model_slot: has systemd run the switch on the host and shows its phases as they happen.

A lost connection ends neither the switch nor the task: it is noticed soon, made again, and the watching goes on.
"""

from __future__ import annotations

import secrets
import socket
import time
from datetime import UTC, datetime
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._switch_job import unit_name
from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_run import user
from ansible_collections.arcpro.b70.plugins.plugin_utils._slot_words import switch_report
from ansible_collections.arcpro.b70.plugins.plugin_utils._switch_watch import Watcher
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import (
    RECONNECT_LIMIT_S,
    HostJob,
    glance_script,
    read_glance,
)

display = Display()

MODULE = "arcpro.b70.b70_model_slot"
CHECK = "arcpro.b70.b70_profile_check"
LAYOUT = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")


class ActionModule(ActionBase):
    """Outside check mode: a unit on the host, progress on the screen, the module's result unchanged."""

    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        wrap = bool(self._task.async_val) and not self._connection.has_native_async
        self._vars = task_vars or {}
        self._host = str(self._vars.get("inventory_hostname", "host"))
        if self._task.async_val:
            result.update(self._execute_module(module_name=MODULE, task_vars=task_vars, wrap_async=wrap))
            if not wrap:
                self._remove_tmp_path(self._connection._shell.tmpdir)
            return result
        result.update(self._predicted_or_switched())
        result["layout"] = {key: self._task.args[key] for key in LAYOUT if key in self._task.args}
        active = self._task.args.get("state", "active") != "stopped"
        url = str(self._task.args.get("public_url") or "")
        result["summary"] = switch_report(result, self._host, url, active=active)
        return result

    def _predicted_or_switched(self) -> dict[str, Any]:
        """Return the prediction in check mode; otherwise switch, unless a prediction says that nothing is to do."""
        check = self._task.args.get("engine_check")
        if not self._task.check_mode and not check:
            return self._run_watched()
        try:
            foreseen = self._foresee()
            refused = self._check(foreseen, check) if check and foreseen.get("outcome") != "unchanged" else {}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        if refused:
            return refused
        if self._task.check_mode or foreseen.get("outcome") == "unchanged":
            return foreseen
        return self._run_watched()

    def _foresee(self) -> dict[str, Any]:
        """Return the prediction of a switch.

        Outside check mode it leaves out what is planned, and the switch itself shows differences.
        """
        task = self._task
        check_mode, diff, arguments = task.check_mode, task.diff, dict(task.args)
        if not check_mode:
            arguments = {key: value for key, value in arguments.items() if not key.startswith("planned_")}
        try:
            task.check_mode, task.diff = True, diff and check_mode
            return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))
        finally:
            task.check_mode, task.diff = check_mode, diff

    def _check(self, foreseen: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Return a failed result when the installed engine refuses the profile, else an empty one.

        In check mode the profile may not be on the host yet: that it cannot be read is no refusal.
        """
        named = self._task.args.get("profile")
        wanted = named or foreseen.get("wanted")
        if not wanted:
            return {}
        arguments = {**options, "profiles": [wanted], "fit": [named] if named else []}
        if "config_dir" in self._task.args:
            arguments["config_dir"] = self._task.args["config_dir"]
        found = self._execute_module(module_name=CHECK, module_args=arguments, task_vars=self._vars)
        if any(found.get(key) for key in ("complaints", "unanswered")):
            return {**found, "failed": True, "changed": False}
        fit = (found.get("fit") or {}).get(named) or {}
        verdict = fit.get("verdict", "unknown")
        if verdict != "unknown":
            color = C.COLOR_WARN if verdict in ("tight", "no") else C.COLOR_VERBOSE
            display.display(f"{self._host} | {fit['text']}", color=color)
        return {}

    def _run_watched(self) -> dict[str, Any]:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self._arguments = {
            "switch_id": f"{moment}-{secrets.token_hex(3)}",
            "requested_by": f"{user()} on {socket.gethostname()} by Ansible",
            **self._task.args,
        }
        watcher = Watcher(self._arguments["switch_id"], self._host)
        job = HostJob(
            self._connection,
            f"the switch {watcher.switch_id}",
            lambda text: display.display(f"{watcher.host} | {text}", color=C.COLOR_WARN),
            reconnect_s=float(self._task.args.get("reconnect_timeout") or RECONNECT_LIMIT_S),
        )
        # A host that can't be reached at all is said to be so at once; from here on nobody knows what it was told.
        self._low_level_execute_command("true", sudoable=False)
        found = job.finish(self._ask, lambda found: None, lambda found: self._glance(watcher))
        if found.get("vanished") or found.get("state") == "none":
            return {"failed": True, "changed": True, "msg": watcher.gone(), "switch_id": watcher.switch_id}
        return {key: value for key, value in found.items() if key not in ("state", "joined", "vanished")}

    def _glance(self, watcher: Watcher) -> bool:
        """Show progress, and return whether the unit lives."""
        run_dir, slot = self._arguments.get("run_dir") or _paths.RUN_DIR, self._arguments.get("slot") or "main"
        unit = unit_name(slot, watcher.switch_id)
        script = glance_script(f"{run_dir}/{slot}/progress.jsonl", watcher.offset, unit)
        text, alive = read_glance(self._low_level_execute_command(script).get("stdout", ""))
        for line in watcher.lines(text, time.monotonic()):
            display.display(line.text, color=C.COLOR_ERROR if line.failed else C.COLOR_VERBOSE)
        return alive

    def _ask(self, step: str) -> dict[str, Any]:
        if step == "acknowledge":
            return {}  # no other play asks for this id
        arguments = {**self._arguments, "step": step}
        return dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars))
