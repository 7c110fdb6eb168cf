# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep other work on the machine, and the sleep of its cores, out of what is measured."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

#: of the proxies and the load generator; whoever reads the clocks comes before them
PRIORITY = 2
_LATENCY = Path("/dev/cpu_dma_latency")


def can_have_priority() -> bool:
    """Whether processes may be given real-time priority."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        os.sched_setscheduler(0, *before)
    except OSError:
        return False
    return True


def prefix(core: int | None, priority: bool) -> list[str]:
    """What is put before a command that is measured."""
    pin = [] if core is None else ["taskset", "-c", str(core)]
    return [*pin, "chrt", "-f", str(PRIORITY)] if priority else pin


@contextlib.contextmanager
def quiet(core: int | None) -> Iterator[dict[str, str]]:
    """Read the clocks in time, on a core, and hold idle cores awake; yields what could be had, in words."""
    found = {"priority": "normal: this user may not ask for a real-time one", "idle cores": "sleep"}
    priority = can_have_priority()
    where, how = os.sched_getaffinity(0), (os.sched_getscheduler(0), os.sched_getparam(0))
    latency = -1
    try:
        if priority:
            found["priority"] = "real-time (SCHED_FIFO) for proxies, engine and generator alike"
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY + 1))
            if core is not None:
                os.sched_setaffinity(0, {core})
        with contextlib.suppress(OSError):
            # holds while it is open (PM QoS)
            latency = os.open(_LATENCY, os.O_WRONLY)
            os.write(latency, struct.pack("i", 0))
            found["idle cores"] = "held awake"
        yield found
    finally:
        if latency >= 0:
            os.close(latency)
        os.sched_setscheduler(0, *how)
        os.sched_setaffinity(0, where)
