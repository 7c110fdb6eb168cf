# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of this run of a playbook, and whether another one on this controller still runs."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
from pathlib import Path

PROC = Path("/proc")


def controller() -> str:
    """Return an id of this controller: the machine and, for containers, what separates the processes of one."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii") + os.readlink(PROC / "self/ns/pid")
    except OSError:
        machine = ""
    return hashlib.sha256(f"{machine} {socket.gethostname()}".encode()).hexdigest()[:12]


def owner() -> str:
    """Return the user and the controller, for people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def run_of(process: int) -> str:
    """Return the id of the run that is this process of this controller."""
    return f"{controller()}:{process}:{_started(process)}"


def has_ended(run: str) -> bool:
    """Return whether a run was on this controller and is no longer there."""
    where, _colon, process = run.partition(":")
    number, _colon, started = process.partition(":")
    return where == controller() and number.isdigit() and _started(int(number)) != started


def _started(process: int) -> str:
    """Return when a process began, in the kernel's ticks; empty where there is none, `alive` where nobody tells."""
    try:
        # The name of the program may have spaces and parentheses. After it come the state and, later, the start.
        words = (PROC / str(process) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return "" if words[0] in "ZX" else words[19]
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"
