# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking a host how far its work is: a lost connection is noticed soon and made again; the work goes on there."""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.path import makedirs_safe, unfrackpath

T = TypeVar("T")

# A dead connection ends within 20 s, and one that can't be made within 10 s.
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ConnectTimeout=10"
RECONNECT_LIMIT_S = 600.0
PAUSE_S = 2.0


def keep_alive(connection: Any) -> None:
    """Has this connection notice that nobody answers, whatever ansible.cfg says. Only SSH can be told.

    Of two values of one option ssh takes the first. A control socket keeps the options it was made with, so this
    connection gets one of its own.
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


def ask_patiently(connection: Any, ask: Callable[[], T], say: Callable[[str], None], work: str) -> T:
    """The answer of `ask`, which may be asked again: a lost connection is made again within the limit."""
    lost: float | None = None
    while True:
        try:
            answer = ask()
        except AnsibleConnectionFailure as error:
            now = time.monotonic()
            if lost is None:
                lost = now
                say(f"connection lost; {work} goes on there, connecting again for up to {RECONNECT_LIMIT_S:g} s")
            if now - lost >= RECONNECT_LIMIT_S:
                raise AnsibleConnectionFailure(
                    f"the connection was lost for {RECONNECT_LIMIT_S:g} s while {work} went on; "
                    "run the same play again when the host answers"
                ) from error
            _reset(connection)
            time.sleep(PAUSE_S)
            continue
        if lost is not None:
            say("connected again")
        return answer


def _reset(connection: Any) -> None:
    try:
        connection.reset()
    except (AttributeError, NotImplementedError, AnsibleConnectionFailure):
        # Not every connection can be reset; the next command then connects by itself.
        return
