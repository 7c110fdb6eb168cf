# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a build fits into a host. Figures of the XPU kernels: 120 GiB in one compiler process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._build.memory import Budget, Room, budget, parse_meminfo
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Recipe

Make = Callable[..., Recipe]
LARGE = {"peak_gib": 120.0, "job_gib": 4.0, "disk_gib": 80.0, "max_jobs": 8}

# From a host with 24 GiB and no swap.
MEMINFO = """\
MemTotal:       24653440 kB
MemFree:        17825792 kB
MemAvailable:   23068672 kB
SwapTotal:             0 kB
SwapFree:              0 kB
HugePages_Total:       0
"""


def test_memory_and_swap_are_read_in_gib() -> None:
    assert parse_meminfo(MEMINFO) == (22.0, 0.0)


def test_a_small_host_is_refused_with_the_figures_and_the_swap_it_lacks(recipe: Make) -> None:
    with pytest.raises(BuildError) as caught:
        budget(recipe(**LARGE), Room(cpus=16, memory_gib=14.0, swap_gib=0.0, disk_gib=500.0))
    text = str(caught.value)
    assert "needs 120 GiB, 14.0 GiB of memory and 0.0 GiB of swap are free: add 106 GiB of swap" in text


def test_with_swap_it_fits_and_is_said_to_be_slow(recipe: Make) -> None:
    room = Room(cpus=16, memory_gib=14.0, swap_gib=160.0, disk_gib=500.0)
    made = budget(recipe(**LARGE), room)
    assert made == Budget(jobs=4, swapping=True)
    assert "slow but healthy" in made.describe(recipe(**LARGE), room)


def test_swap_that_can_be_made_for_the_build_counts_only_where_it_is_needed(recipe: Make) -> None:
    room = Room(cpus=16, memory_gib=14.0, swap_gib=0.0, disk_gib=500.0, addable_gib=160.0)
    made = budget(recipe(**LARGE), room)
    assert made == Budget(jobs=4, swapping=True, adding=True)
    assert "160 GiB of swap more for the time of the build" in made.describe(recipe(**LARGE), room)
    assert not budget(recipe(peak_gib=8.0), room).adding


def test_why_no_swap_can_be_made_is_said(recipe: Make) -> None:
    room = Room(cpus=16, memory_gib=14.0, swap_gib=0.0, disk_gib=500.0, why_not="/mnt has 20.0 GiB free")
    with pytest.raises(BuildError, match=r"no swap can be made for the build: /mnt has 20\.0 GiB free: add 106 GiB"):
        budget(recipe(**LARGE), room)


def test_jobs_are_what_fits_beside_the_largest(recipe: Make) -> None:
    room = Room(cpus=16, memory_gib=130.0, swap_gib=0.0, disk_gib=500.0)
    assert budget(recipe(**LARGE), room) == Budget(jobs=3, swapping=False)


def test_every_lack_is_told_at_once(recipe: Make) -> None:
    with pytest.raises(BuildError, match=r"swap for the build.*; sources and objects need 80 GiB, 3\.0 GiB are free"):
        budget(recipe(**LARGE), Room(cpus=1, memory_gib=1.0, swap_gib=0.0, disk_gib=3.0))


rooms = st.builds(
    Room,
    cpus=st.integers(1, 256),
    memory_gib=st.floats(0, 1024),
    swap_gib=st.floats(0, 512),
    disk_gib=st.floats(0, 4096),
)


@given(room=rooms, jobs=st.integers(1, 64), peak=st.floats(0.5, 200), job=st.floats(0.5, 16))
def test_no_budget_is_larger_than_the_host(room: Room, jobs: int, peak: float, job: float) -> None:
    made = Recipe("x", "r", "1" * 40, "/p", max_jobs=jobs, peak_gib=peak, job_gib=job, disk_gib=1.0)
    try:
        found = budget(made, room)
    except BuildError:
        assert peak > room.memory_gib + room.swap_gib or room.disk_gib < 1.0
        return
    assert 1 <= found.jobs <= min(jobs, room.cpus)
    assert peak + (found.jobs - 1) * job <= room.memory_gib + room.swap_gib + 1e-6
