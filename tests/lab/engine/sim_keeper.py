# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that a leaked worker would be: it holds what an engine leaves behind. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def keep(sim_dir: Path) -> None:
    """The keeper: holds what it is given until its time is over, or SIGURG comes, which ends none that just began."""
    path = sim_dir / "keeper.sock"
    path.unlink(missing_ok=True)
    held: dict[int, float] = {}

    def release(_number: int, _frame: object) -> None:
        for descriptor in held:
            held[descriptor] = 0.0

    signal.signal(signal.SIGURG, release)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        listener.settimeout(0.05)
        log("keeper: ready")
        while True:
            with contextlib.suppress(TimeoutError):
                channel, _address = listener.accept()
                with channel:
                    order, descriptors, _flags, _from = socket.recv_fds(channel, 4096, 4)
                    told = json.loads(order)
                    held |= dict.fromkeys(descriptors, time.monotonic() + told["hold_s"])
                    log(f"keeper: holds {len(descriptors)} of {told['of']} for {told['hold_s']} s")
                    channel.send(b"1")
            for descriptor in [number for number, until in held.items() if until <= time.monotonic()]:
                os.close(descriptor)
                del held[descriptor]
