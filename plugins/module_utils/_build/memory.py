# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a build fit into this host, and how many jobs may it run at once? Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .recipe import BuildError, Recipe


@dataclass(frozen=True)
class Room:
    """The room of a host: cpus, memory that is free or can be freed, free swap, free space where it builds; all GiB.

    addable_gib: swap that can be made for the time of the build; why_not: why that is not more.
    """

    cpus: int
    memory_gib: float
    swap_gib: float
    disk_gib: float
    addable_gib: float = 0.0
    why_not: str = ""


@dataclass(frozen=True)
class Budget:
    """jobs: compilers at once. swapping: the largest process does not fit into memory, so the build will be slow.

    adding: swap is made for it and removed after it.
    """

    jobs: int
    swapping: bool
    adding: bool = False

    def describe(self, recipe: Recipe, room: Room) -> str:
        slow = "; it will swap, which is slow but healthy" if self.swapping else ""
        more = f", {room.addable_gib:.0f} GiB of swap more for the time of the build" if self.adding else ""
        return (
            f"{self.jobs} jobs, up to {recipe.peak_gib:g} GiB in one process, "
            f"{room.memory_gib:.1f} GiB of memory and {room.swap_gib:.1f} GiB of swap free{more}{slow}, "
            f"{recipe.disk_gib:g} of {room.disk_gib:.0f} GiB of free disk"
        )


def parse_meminfo(text: str) -> tuple[float, float]:
    """Return the available memory and free swap of /proc/meminfo, in GiB."""
    kib = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            kib[name] = int(words[0])
    return kib.get("MemAvailable", 0) / 2**20, kib.get("SwapFree", 0) / 2**20


def budget(recipe: Recipe, room: Room) -> Budget:
    """Return the jobs that fit beside the largest process.

    Raise BuildError with the figures when not even that one fits.
    """
    total = room.memory_gib + room.swap_gib
    adding = total < recipe.peak_gib
    if adding:
        total += room.addable_gib
    lacking = []
    if total < recipe.peak_gib:
        lacking.append(
            f"one compiler process needs {recipe.peak_gib:g} GiB, {room.memory_gib:.1f} GiB of memory and "
            f"{room.swap_gib:.1f} GiB of swap are free{_more(room)}: "
            f"add {max(1, math.ceil(recipe.peak_gib - total))} GiB of swap for the build, "
            "or bring the wheel from a host that has built it"
        )
    if room.disk_gib < recipe.disk_gib:
        lacking.append(
            f"sources and objects need {recipe.disk_gib:g} GiB, {room.disk_gib:.1f} GiB are free: free some or choose "
            "another directory"
        )
    if lacking:
        raise BuildError(f"{recipe.name} cannot be built here: {'; '.join(lacking)}")
    beside = int((total - recipe.peak_gib) // recipe.job_gib)
    swapping = recipe.peak_gib > room.memory_gib
    # Where the largest process swaps already, every further one makes it slower.
    most = max(1, recipe.max_jobs // 2) if swapping else recipe.max_jobs
    return Budget(max(1, min(most, room.cpus, 1 + beside)), swapping, adding)


def _more(room: Room) -> str:
    if room.addable_gib:
        return f" and {room.addable_gib:.0f} GiB of swap can be made for the build"
    return f", and no swap can be made for the build: {room.why_not}" if room.why_not else ""
