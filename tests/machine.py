# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests ask this machine for: ports that stay theirs, and whether a process has ended."""

from __future__ import annotations

import socket
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
