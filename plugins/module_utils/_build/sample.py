# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resources that the processes of a unit use."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_GIB = os.sysconf("SC_PAGE_SIZE") / 2**30
_SHOWN = 160


@dataclass(frozen=True)
class BuildSample:
    """The processes of a build at a moment. at: monotonic seconds. cpu_s: processor seconds so far, children included.

    rss_gib: memory of all processes. largest: command line of the one with the most memory.
    """

    at: float
    cpu_s: float
    rss_gib: float
    processes: int
    largest: str = ""


def parse_stat(text: str) -> tuple[float, float]:
    """Return processor seconds, ended children included, and resident GiB from the text of /proc/PID/stat."""
    fields = text.rpartition(")")[2].split()
    ticks = sum(int(fields[index]) for index in (11, 12, 13, 14))
    return ticks / _TICKS, int(fields[21]) * _PAGE_GIB


def sample(unit: str, proc: Path = Path("/proc")) -> BuildSample:
    """Return what the processes of a unit use now."""
    cpu_s, rss, largest, largest_gib, count = 0.0, 0.0, "", 0.0, 0
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"/{unit}" not in (entry / "cgroup").read_text():
                continue
            used, gib = parse_stat((entry / "stat").read_text())
            if gib > largest_gib:
                largest_gib = gib
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                largest = words.strip()[:_SHOWN]
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
        cpu_s, rss, count = cpu_s + used, rss + gib, count + 1
    return BuildSample(time.monotonic(), cpu_s, rss, count, largest)
