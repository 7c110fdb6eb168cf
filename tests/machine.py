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
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

# For whatever a test waits for: no machine is so slow, and what hangs is found all the same.
LIMIT_S = 600.0
T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str, every_s: float = 0.03) -> T:
    """Return the first true result of ``look``; ``what`` is missing where none comes."""
    until = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < until, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(every_s)
    return found


def keep_port() -> socket.socket:
    """Return a bound socket that does not listen: while it is open, nobody else is given its port.

    Servers that reuse addresses, as all do here, can listen on it, and the kernel gives it to nobody who asks for any
    port and to no connection as its own end.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def free_port() -> int:
    """Return a port that nobody else is given while this process runs."""
    keeper = keep_port()
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
    wait_for(lambda: not (pid_file.exists() and _lives(pid_file.read_text().strip())), f"the end of {pid_file}")


def _lives(pid: str) -> bool:
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
