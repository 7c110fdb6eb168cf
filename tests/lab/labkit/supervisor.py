# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps one host running: starts systemd-nspawn and starts it again when the host reboots.

systemd-nspawn leaves a reboot to whoever started it (exit code 133), so somebody has to stay. Started by `lab.py up` as
`python3 -m labkit.supervisor CGROUP PID_FILE LOG -- ARGV…`, in a session of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from .cgroup import Cgroup
from .layout import write_pid

REBOOT = 133
_LOG_LIMIT = 5_000_000


def _controllers(group: Cgroup) -> None:
    """Pass the resource controllers on to the host where the unified hierarchy has them (best effort)."""
    for directory in group.directories:
        try:
            available = (directory / "cgroup.controllers").read_text(encoding="ascii").split()
            wanted = " ".join(f"+{name}" for name in available)
            (directory / "cgroup.subtree_control").write_text(wanted, encoding="ascii")
        except OSError:
            continue


def supervise(name: str, pid_file: Path, log: Path, argv: list[str]) -> int:
    """Run `argv` until it ends for another reason than a reboot; returns its exit code.

    SIGTERM and SIGINT are passed on: systemd-nspawn shuts the host down in order.
    """
    outer = Cgroup(name)
    own, machine = Cgroup(name), Cgroup(name)
    own.directories = [directory / "runner" for directory in outer.directories]
    machine.directories = [directory / "machine" for directory in outer.directories]
    own.make().enter()
    machine.make()
    _controllers(outer)
    stopping = False
    child: subprocess.Popen[bytes] | None = None

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    write_pid(pid_file, os.getpid())
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        # /tmp of a host is on its disk, as on Debian and Ubuntu, not a tenth of the memory.
        "SYSTEMD_NSPAWN_TMPFS_TMP": "0",
    }
    while True:
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            os.replace(log, log.with_suffix(".old"))
        with open(log, "ab") as output:
            output.write(f"--- start {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
            output.flush()
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                preexec_fn=machine.enter,
            )
            code = child.wait()
        if code != REBOOT or stopping:
            return code


if __name__ == "__main__":
    split = sys.argv.index("--")
    group_name, pid_path, log_path = sys.argv[1:split]
    raise SystemExit(supervise(group_name, Path(pid_path), Path(log_path), sys.argv[split + 1 :]))
