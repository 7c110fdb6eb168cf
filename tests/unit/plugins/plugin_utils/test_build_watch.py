# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a build is slow or stuck, in figures and in words."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build.log import BuildProgress
from ansible_collections.arcpro.b70.plugins.module_utils._build.sample import BuildSample
from ansible_collections.arcpro.b70.plugins.plugin_utils._build_watch import idle_seconds, say


def sample(at: float, cpu_s: float) -> BuildSample:
    return BuildSample(at, cpu_s, rss_gib=84.2, processes=3, largest="icpx paged_decode_xe2.cpp")


@pytest.mark.parametrize(
    ("used", "idle_before", "idle_after"),
    [(9.7, 50.0, 0.0), (0.0, 50.0, 60.0), (0.1, 0.0, 10.0), (-400.0, 50.0, 0.0)],
    ids=["computes", "does nothing", "housekeeping", "a finished process took its time along"],
)
def test_only_a_build_that_computes_nothing_is_idle(used: float, idle_before: float, idle_after: float) -> None:
    assert idle_seconds(sample(100, 500), sample(110, 500 + used), idle_before) == idle_after


def test_slow_and_stuck_are_told_apart() -> None:
    assert (
        say(BuildProgress(104, 312), None, 1800, quiet_s=0, idle_s=0)
        == "104 of 312 objects, 30 min, about 1 h 00 min left"
    )
    slow = say(BuildProgress(2, 312, "paged_decode_xe2.cpp"), sample(0, 0), 2460, quiet_s=1320, idle_s=0)
    assert slow == (
        "2 of 312 objects, 41 min, 84.2 GiB in 3 processes, slow but healthy: computing, no line for 22 min, "
        "paged_decode_xe2.cpp"
    )
    stuck = say(BuildProgress(2, 312), sample(0, 0), 2460, quiet_s=1320, idle_s=300)
    assert "nothing computed for 300 s" in stuck
    assert "healthy" not in stuck
