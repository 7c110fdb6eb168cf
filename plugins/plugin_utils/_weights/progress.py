# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a download in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Bytes per second. Below this, a rate says nothing about the time that is left.
_MIN_RATE = 1000.0


def rate(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> float:
    """Return the bytes per second between two looks, or since the start."""
    begun = before if before is not None else {"done": now["at_start"], "time": now["start"]}
    seconds = now["time"] - begun["time"]
    return max(0.0, (now["done"] - begun["done"]) / seconds) if seconds > 0 else 0.0


def duration(seconds: float) -> str:
    """Return seconds in words, such as ``2 min 20 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def say(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return a line such as ``file 3 of 12, 4.20 of 16.10 GB, 85.1 MB/s, 2 min 20 s left``."""
    speed = rate(before, now)
    unit, factor = ("GB", 1e9) if now["total"] >= 1e9 else ("MB", 1e6)
    sizes = f"{now['done'] / factor:.2f} of {now['total'] / factor:.2f} {unit}"
    line = f"file {min(now['files_done'] + 1, now['files'])} of {now['files']}, {sizes}, {speed / 1e6:.1f} MB/s"
    if now["waiting"]:
        return f"{line}; {now['waiting']}"
    left = now["total"] - now["done"]
    if left <= 0:
        return f"{line}, reading back what came"
    return f"{line}, {duration(left / speed)} left" if speed >= _MIN_RATE else f"{line}, nothing comes"
