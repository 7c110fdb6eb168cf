# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of this run of a playbook, whether another one on this controller still runs, and what steps found."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def controller() -> str:
    """Return an id of this controller: the machine and, for containers, what separates the processes of one."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii") + os.readlink(PROC / "self/ns/pid")
    except OSError:
        machine = ""
    return hashlib.sha256(f"{machine} {socket.gethostname()}".encode()).hexdigest()[:12]


def user() -> str:
    """Return the user that runs Ansible; the managed host knows only the login that is used there."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())


def owner() -> str:
    """Return the user and the controller, for people."""
    return f"{user()}@{socket.gethostname()}"


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


def found_on(variables: Mapping[str, Any], name: str, hosts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what a step found on these hosts, in their order, without those where it failed."""
    found = {str(host): variables["hostvars"][host].get(name) for host in hosts}
    return {
        host: dict(result)
        for host, result in found.items()
        if isinstance(result, Mapping) and not any(result.get(word) for word in ("failed", "unreachable", "skipped"))
    }
