# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the switch in the background on the host and shows its phases as they happen.

A lost connection ends neither the switch nor the task: it is made again and the watching goes on.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import time
from datetime import UTC, datetime
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils._slot.watch import Look, Watcher, poll_script, read_look

display = Display()

MODULE = "arcpro.b70.b70_model_slot"
POLL_S = 1.0
JOB_LIMIT_S = 24 * 3600  # the switch has limits of its own; this one only bounds a job that hangs
RECONNECT_LIMIT_S = 600.0
GONE_LOOKS = 4  # the result is written a moment after the switch's process ended
_JOB_KEYS = (
    "ansible_job_id",
    "results_file",
    "started",
    "finished",
    "stdout",
    "stdout_lines",
    "stderr",
    "stderr_lines",
)


def _who() -> str:
    """The user and the host that run Ansible: on the other side only the login that is used there is known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user} on {socket.gethostname()} by Ansible"


class ActionModule(ActionBase):
    """Outside check mode: background job, progress on the screen, the module's result unchanged."""

    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        wrap = bool(self._task.async_val) and not self._connection.has_native_async
        if self._task.check_mode or self._task.async_val:
            result.update(self._execute_module(module_name=MODULE, task_vars=task_vars, wrap_async=wrap))
            if not wrap:
                self._remove_tmp_path(self._connection._shell.tmpdir)
            return result
        result.update(self._run_watched(task_vars or {}))
        return result

    def _run_watched(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(self._task.args)
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        switch_id = arguments.setdefault("switch_id", f"{moment}-{secrets.token_hex(3)}")
        arguments.setdefault("requested_by", _who())
        # The background runner takes its limit from the task.
        before = self._task.async_val
        self._task.async_val = JOB_LIMIT_S
        try:
            job = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = before
        if job.get("failed") or not job.get("ansible_job_id"):
            return dict(job)
        watcher = Watcher(switch_id, str(task_vars.get("inventory_hostname", "host")))
        run_dir = f"{arguments.get('run_dir') or '/run/b70'}/{arguments.get('slot') or 'main'}"
        result = (
            {}
            if self._watch(watcher, f"{run_dir}/progress.jsonl", job["results_file"])
            else self._collect(job, task_vars)
        )
        if "slot" in result or (result and watcher.pid is None):
            return result
        # The background runner had no result of the module to hand on: its process was ended from outside.
        return {"failed": True, "changed": True, "msg": watcher.gone(), "switch_id": switch_id}

    def _watch(self, watcher: Watcher, progress: str, job_file: str) -> bool:
        """Shows progress until the job has its result. Returns whether there will never be one."""
        missing = 0
        while True:
            time.sleep(POLL_S)
            look = self._look(watcher, progress, job_file)
            for line in watcher.lines(look, time.monotonic()):
                display.display(line.text, color=C.COLOR_ERROR if line.failed else C.COLOR_VERBOSE)
            if look.finished:
                return False
            missing = 0 if look.alive else missing + 1
            if missing >= GONE_LOOKS:
                return True

    def _look(self, watcher: Watcher, progress: str, job_file: str) -> Look:
        """One look at the host; a lost connection is made again within its limit."""
        script = poll_script(progress, job_file, watcher.offset, watcher.pid)
        lost: float | None = None
        while True:
            try:
                answer = self._low_level_execute_command(script)
            except AnsibleConnectionFailure as error:
                now = time.monotonic()
                if lost is None:
                    lost = now
                    display.display(
                        f"{watcher.host} | connection lost; the switch goes on there, connecting again for up to "
                        f"{RECONNECT_LIMIT_S:g} s",
                        color=C.COLOR_WARN,
                    )
                if now - lost >= RECONNECT_LIMIT_S:
                    raise AnsibleConnectionFailure(
                        f"the connection to {watcher.host} was lost for {RECONNECT_LIMIT_S:g} s while its switch "
                        f"{watcher.switch_id} went on in phase {watcher.phase or 'start'}; read its end with "
                        "status.yml when the host is back"
                    ) from error
                self._reset()
                time.sleep(2.0)
                continue
            if lost is not None:
                display.display(f"{watcher.host} | connected again", color=C.COLOR_OK)
            return read_look(answer.get("stdout", ""))

    def _reset(self) -> None:
        try:
            self._connection.reset()
        except (AttributeError, NotImplementedError, AnsibleConnectionFailure):
            # Not every connection can be reset; the next command then connects by itself.
            return

    def _collect(self, job: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """The module's result from the job file, which is removed then."""
        folder, _slash, name = job["results_file"].rpartition("/")
        arguments = {"jid": name, "_async_dir": folder}
        status = "ansible.legacy.async_status"
        result = self._execute_module(module_name=status, module_args=arguments, task_vars=task_vars)
        self._execute_module(module_name=status, module_args=arguments | {"mode": "cleanup"}, task_vars=task_vars)
        return {key: value for key, value in result.items() if key not in _JOB_KEYS}
