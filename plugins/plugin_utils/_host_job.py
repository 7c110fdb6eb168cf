# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that continues on a host while the controller watches it over a connection that may be lost."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.utils.path import makedirs_safe, unfrackpath

T = TypeVar("T")

# A dead connection ends within 20 s, and one that can't be made within 10 s.
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ConnectTimeout=10"
RECONNECT_LIMIT_S = 600.0
PAUSE_S = 2.0


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
        """Wait as long as the play lives; raises AnsibleError as `check_play` does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check_play()
            time.sleep(min(left, PAUSE_S))

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
