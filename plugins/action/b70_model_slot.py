# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_model_slot: has systemd run the switch on the host and shows its phases as they happen.

A lost connection ends neither the switch nor the task: it is noticed soon, made again, and the watching goes on.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._switch_job import result_file, unit_name
from ansible_collections.arcpro.b70.plugins.plugin_utils._reconnect import ask_patiently, keep_alive
from ansible_collections.arcpro.b70.plugins.plugin_utils._switch_watch import Look, Watcher, poll_script, read_look

display = Display()
T = TypeVar("T")

MODULE = "arcpro.b70.b70_model_slot"
POLL_S = 1.0
GONE_LOOKS = 4


def _who() -> str:
    """The user and the host that run Ansible: on the other side only the login that is used there is known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user} on {socket.gethostname()} by Ansible"


class ActionModule(ActionBase):
    """Outside check mode: a unit on the host, progress on the screen, the module's result unchanged."""

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
        self._vars = task_vars
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self._arguments = {
            "switch_id": f"{moment}-{secrets.token_hex(3)}",
            "requested_by": _who(),
            **self._task.args,
        }
        watcher = Watcher(self._arguments["switch_id"], str(task_vars.get("inventory_hostname", "host")))
        keep_alive(self._connection)
        # A host that can't be reached at all is said to be so at once; from here on nobody knows what it was told.
        self._low_level_execute_command("true", sudoable=False)
        started = self._ask("start", watcher)
        if started.get("failed"):
            return started
        if self._watch(watcher):
            return {"failed": True, "changed": True, "msg": watcher.gone(), "switch_id": watcher.switch_id}
        return self._ask("collect", watcher)

    def _watch(self, watcher: Watcher) -> bool:
        """Shows progress until the switch has its result. Returns whether there will never be one."""
        missing = 0
        while True:
            time.sleep(POLL_S)
            look = self._look(watcher)
            for line in watcher.lines(look, time.monotonic()):
                display.display(line.text, color=C.COLOR_ERROR if line.failed else C.COLOR_VERBOSE)
            if look.finished:
                return False
            missing = 0 if look.alive else missing + 1
            if missing >= GONE_LOOKS:
                return True

    def _look(self, watcher: Watcher) -> Look:
        run_dir, slot = self._arguments.get("run_dir") or _paths.RUN_DIR, self._arguments.get("slot") or "main"
        script = poll_script(
            f"{run_dir}/{slot}/progress.jsonl",
            result_file(run_dir, slot, watcher.switch_id),
            watcher.offset,
            unit_name(slot, watcher.switch_id),
        )
        return self._patiently(watcher, lambda: read_look(self._low_level_execute_command(script).get("stdout", "")))

    def _ask(self, step: str, watcher: Watcher) -> dict[str, Any]:
        arguments = {**self._arguments, "step": step}
        return self._patiently(
            watcher,
            lambda: dict(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars)),
        )

    def _patiently(self, watcher: Watcher, ask: Callable[[], T]) -> T:
        return ask_patiently(
            self._connection,
            ask,
            lambda text: display.display(f"{watcher.host} | {text}", color=C.COLOR_WARN),
            f"the switch {watcher.switch_id}",
        )
