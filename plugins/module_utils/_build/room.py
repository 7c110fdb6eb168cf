# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room of this host for a build: processors, memory, swap that is there or can be made, disk. Only reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ansible_collections.arcpro.b70.plugins.module_utils import _swap

from .memory import Room, parse_meminfo

MEMINFO = Path("/proc/meminfo")


def here(work_dir: Path, swap_file: str, swap_gib: int, swap_reserve_gib: int) -> Room:
    """Return the room of this host for a build.

    `swap_file`: where swap for the time of a build would be made, so that RAM and swap are `swap_gib` together and
    `swap_reserve_gib` stay free on that disk; empty where none is made.
    """
    available, swap = parse_meminfo(MEMINFO.read_text())
    parent = next(path for path in (work_dir, *work_dir.parents) if path.exists())
    cpus = len(os.sched_getaffinity(0))
    addable, why_not = addable_gib(swap_file, swap_gib, swap_reserve_gib)
    return Room(cpus, available, swap, shutil.disk_usage(parent).free / 2**30, addable, why_not)


def addable_gib(swap_file: str, swap_gib: int, reserve_gib: int) -> tuple[float, str]:
    """Return the GiB of swap that can be made for a build, or 0 and why not."""
    if not swap_file or not swap_gib:
        return 0.0, ""
    try:
        size = _swap.size_for(_swap.parse_memory(MEMINFO.read_text()), swap_gib * _swap.GIB)
        folder = next(path for path in Path(swap_file).parents if path.exists())
        kind = _swap.file_system_of(str(folder.resolve()), Path("/proc/self/mountinfo").read_text())
        _swap.method(kind)
        _swap.check_space(size, shutil.disk_usage(folder).free, reserve_gib * _swap.GIB, str(folder))
    except _swap.SwapProblem as problem:
        return 0.0, str(problem)
    return size / _swap.GIB, ""
