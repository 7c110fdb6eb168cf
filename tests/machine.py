# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests ask this machine for: ports that stay theirs, and processes that end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

LIMIT_S = 120.0


def free_port() -> int:
    """Return a port that nobody else is given while this process runs.

    A bound socket that does not listen keeps it: servers that reuse addresses, as all do here, can listen on it, and
    the kernel gives it to nobody who asks for any port.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    port = int(keeper.getsockname()[1])
    keeper.detach()
    return port


def kill_tree(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a process with all that it started: the workers of a play have sessions of their own and would go on."""
    pids = [process.pid]
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_ends(pid_file: Path) -> None:
    """Assert that the process ends whose number is in a file; one that never began wrote none."""
    until = time.monotonic() + LIMIT_S
    while pid_file.exists() and _lives(pid_file.read_text().strip()):
        assert time.monotonic() < until, f"process {pid_file.read_text()} lives on"
        time.sleep(0.05)


def _lives(pid: str) -> bool:
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
