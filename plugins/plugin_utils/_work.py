# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part in work that belongs to a host: begin or join it, watch it over a connection that may be lost,
and take what became of it."""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.path import makedirs_safe, unfrackpath

T = TypeVar("T")

# A dead connection ends within 20 s, and one that can't be made within 10 s.
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ConnectTimeout=10"
RECONNECT_LIMIT_S = 600.0
PAUSE_S = 2.0
MARK = "==b70-look=="
_ALIVE = ("active", "activating", "deactivating", "reloading")  # systemd's words for a unit that has not ended

display = Display()


class HostJob:
    """The controller's view of one job. The job belongs to the host: a lost connection does not end it.

    :param connection: the connection of the task, which is told to notice soon that nobody answers.
    :param work: names the job in messages, such as ``the build``.
    :param say: shows one line of text.
    :param reconnect_s: how long to wait for a host that does not answer.
    :param pauses_s: seconds before the first look, and the longest pause; each pause is twice as long as the one
        before.
    """

    def __init__(
        self,
        connection: Any,
        work: str,
        say: Callable[[str], None],
        pauses_s: tuple[float, float] = (1.0, 1.0),
        reconnect_s: float = RECONNECT_LIMIT_S,
    ) -> None:
        keep_alive(connection)
        self._parent = os.getppid()
        self._reconnect_s = reconnect_s
        self._connection, self._work, self._say = connection, work, say
        self._pause_s, self._longest_s = pauses_s

    def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question that may be asked more than once.

        :raises AnsibleConnectionFailure: if the host cannot be reached for `reconnect_s`.
        :raises AnsibleError: as `check_play` does.
        """
        lost: float | None = None
        while True:
            self.check_play()
            try:
                answer = question()
            except AnsibleConnectionFailure as error:
                now = time.monotonic()
                if lost is None:
                    lost = now
                    limit = f"connecting again for up to {self._reconnect_s:g} s"
                    self._say(f"connection lost; {self._work} goes on there, {limit}")
                if now - lost >= self._reconnect_s:
                    raise AnsibleConnectionFailure(
                        f"the connection was lost for {self._reconnect_s:g} s while {self._work} went on; "
                        "run the same play again when the host answers"
                    ) from error
                self._reset()
                time.sleep(PAUSE_S)
                continue
            if lost is not None:
                self._say("connected again")
            return answer

    def check_play(self) -> None:
        """Raise AnsibleError if the play was killed. Its workers have sessions of their own, so they outlive it."""
        if os.getppid() != self._parent:
            raise AnsibleError(f"the play that watched has ended; {self._work} goes on there")

    def look(self, question: Callable[[], T]) -> T:
        """Pause, then return the answer to a question, as `ask` does."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._longest_s)
        return self.ask(question)

    def wait(self, seconds: float) -> None:
        """Wait as long as the play lives; raise AnsibleError as `check_play` does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check_play()
            time.sleep(min(left, PAUSE_S))

    def finish(
        self,
        ask: Callable[[str], dict[str, Any]],
        show: Callable[[dict[str, Any]], None],
        glance: Callable[[dict[str, Any]], bool] = lambda found: False,
    ) -> dict[str, Any]:
        """Return what became of the work, with `joined`, as the module on the host says it.

        :param ask: asks the module for one step: start, look or acknowledge.
        :param show: is called with each answer while the work goes on.
        :param glance: looks at the host without the module, and returns whether that is enough for now.
        """
        found = self.ask(lambda: ask("start"))
        joined = found.get("joined")
        while found.get("state") == "running":
            show(found)
            while self.look(partial(glance, found)):
                pass
            found = self.ask(lambda: ask("look"))
        return self.taken({**found, "joined": joined}, ask)

    def taken(self, found: dict[str, Any], ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Return an answer, after the host was told that this play has the result in it."""
        if found.get("state") == "ended" and not found.get("failed"):
            self.check_play()
            with suppress(AnsibleConnectionFailure):  # the next play is told the same again
                noted = ask("acknowledge")
                if noted.get("failed"):
                    self._say(f"the next play gets this result again: {noted.get('msg')}")
        return found

    def _reset(self) -> None:
        try:
            self._connection.reset()
        except (AttributeError, NotImplementedError, AnsibleConnectionFailure):
            # Not every connection can be reset; the next command then connects by itself.
            return


def keep_alive(connection: Any) -> None:
    """Make a connection notice that nobody answers, whatever ansible.cfg says. Only SSH can do this.

    If an option is given twice, ssh takes the first value. A control socket keeps the options that it was made with, so
    the connection gets a socket of its own.
    """
    if connection.transport != "ssh":
        return
    given = connection.get_option("ssh_args") or ""
    if given.startswith(KEEP_ALIVE):
        return
    folder = unfrackpath(connection.get_option("control_path_dir"))
    makedirs_safe(folder, 0o700)
    whose = [
        connection.get_option(name) for name in ("host", "port", "remote_user", "ssh_common_args", "ssh_extra_args")
    ]
    name = hashlib.sha256(repr([given, *whose]).encode()).hexdigest()[:10]
    socket = shlex.quote(f'ControlPath="{folder}/b70-{name}"'.replace("%", "%%"))
    connection.set_option("ssh_args", f"{KEEP_ALIVE} -o {socket} {given}")
    connection.set_option("reconnection_retries", 0)


def glance_script(progress: str, offset: int, unit: str) -> str:
    """Return a shell script that shows the unit and new bytes of its progress file. It costs the host next to nothing;
    a module would cost most of a second."""
    return (
        f"alive=$(systemctl is-active {shlex.quote(unit)}); "
        f"tail -c +{offset + 1} {shlex.quote(progress)} 2>/dev/null; printf '\\n{MARK}\\n'; echo \"$alive\"; true"
    )


def read_glance(text: str) -> tuple[str, bool]:
    """Return the new text and whether the unit lives. A truncated answer says that it does not; the module knows."""
    said, whole, alive = text.replace("\r\n", "\n").rpartition(f"\n{MARK}\n")
    return said, bool(whole) and alive.strip() in _ALIVE


class RecordedWork(ActionBase):
    """An action whose module answers `start`, `look` and `acknowledge` with state, line, verdict, reasons and more.

    Outside check mode, a unit of the host does the work and outlives the action. A line is shown whenever it
    progresses.
    """

    MODULE = ""
    WORK = ""  # such as "the soak"
    PAUSES_S = (1.0, 15.0)  # the work takes minutes or hours, but its beginning is of interest at once

    _supports_check_mode = True
    _supports_async = False
    _said = ""
    _arguments: dict[str, Any] | None = None  # of the module, where they are not those of the task

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
        job = HostJob(self._connection, self.WORK, lambda text: self._say(text, C.COLOR_WARN), self.PAUSES_S, limit)
        state = "shown" if self._task.check_mode else self._task.args.get("state")
        if state in ("shown", "foreseen"):
            return self._ask("look")
        if state == "stopped":
            return job.taken(self._ask("look"), self._ask)
        # A host that can't be reached at all is said to be so at once; from here on nobody knows what it was told.
        self._low_level_execute_command("true", sudoable=False)
        return job.finish(self._ask, self._show, self._glance)

    def _glance(self, found: dict[str, Any]) -> bool:
        """Look without the module, and return whether that is enough for now."""
        return False

    def _show(self, found: dict[str, Any]) -> None:
        line = found["line"]
        if not self._said:
            how = "joins" if found["joined"] else "begins"
            self._say(f"{how} {self.WORK} of {line}; it goes on without this play, which may be run again to join it")
        elif line != self._said:
            self._say(line)
        self._said = line

    def _ask(self, step: str) -> dict[str, Any]:
        given = self._task.args if self._arguments is None else self._arguments
        arguments = {"host_name": self._host, **given, "step": step, "token": self._token}
        return dict(self._execute_module(module_name=self.MODULE, module_args=arguments, task_vars=self._vars))

    def _words(self, found: dict[str, Any]) -> list[str]:
        if found["verdict"] is None:
            would = f", so {self.WORK} would begin" if self._task.check_mode and found["state"] != "running" else ""
            return [f"{self._host}: {found['line']}{would}", *(found.get("foreseen") or ())]
        before = ", which began before this play," if found["joined"] else ""
        return [
            f"{self._host}: {self.WORK}{before} {found['verdict']}: {found['line']}",
            *self.details(found),
            *found["reasons"],
            f"record: {found['file']}",
        ]

    def _say(self, text: str, color: str | None = None) -> None:
        display.display(f"{self._host} | {text}", color=color or C.COLOR_VERBOSE)
