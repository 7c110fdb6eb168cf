# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a build fit into this host, and how many jobs may it run at once? Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .recipe import BuildError, Recipe


@dataclass(frozen=True)
class Room:
    """What a host has: cpus, memory that is free or can be freed, free swap, free space where it builds; all GiB."""

    cpus: int
    memory_gib: float
    swap_gib: float
    disk_gib: float


@dataclass(frozen=True)
class Budget:
    """jobs: compilers at once. swapping: the largest process does not fit into memory, so the build will be slow."""

    jobs: int
    swapping: bool

    def describe(self, recipe: Recipe, room: Room) -> str:
        slow = "; it will swap, which is slow but healthy" if self.swapping else ""
        return (
            f"{self.jobs} jobs, up to {recipe.peak_gib:g} GiB in one process, "
            f"{room.memory_gib:.1f} GiB of memory and {room.swap_gib:.1f} GiB of swap free{slow}"
        )


def parse_meminfo(text: str) -> tuple[float, float]:
    """(available memory, free swap) in GiB from /proc/meminfo."""
    kib = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            kib[name] = int(words[0])
    return kib.get("MemAvailable", 0) / 2**20, kib.get("SwapFree", 0) / 2**20


def budget(recipe: Recipe, room: Room) -> Budget:
    """The jobs that fit beside the largest process. Raises BuildError with the figures when even that one doesn't."""
    total = room.memory_gib + room.swap_gib
    lacking = []
    if total < recipe.peak_gib:
        lacking.append(
            f"one compiler process needs {recipe.peak_gib:g} GiB, {room.memory_gib:.1f} GiB of memory and "
            f"{room.swap_gib:.1f} GiB of swap are free: add {recipe.peak_gib - total:.0f} GiB of swap for the build, "
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
    jobs = max(1, min(recipe.max_jobs, room.cpus, 1 + beside))
    return Budget(jobs, swapping=recipe.peak_gib > room.memory_gib)
