# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs of a slow or stuck build, and one line that says so. Pure: figures in, words out.

One source file of the XPU kernels keeps a compiler busy for an hour without a line in the log. Processor time tells
this from a hang: a build that computes is alive.
"""

from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.module_utils._build.log import BuildProgress
from ansible_collections.arcpro.b70.plugins.module_utils._build.sample import BuildSample

from ._weights.progress import duration

TELLING_SHARE = 0.1  # of all objects: those before are no measure of the rest
BUSY_SHARE = 0.02  # of one core: less is housekeeping, not work


def idle_seconds(before: BuildSample, now: BuildSample, idle_s: float) -> float:
    """Return for how many seconds nothing was computed, given `idle_s` at the sample before."""
    wall = now.at - before.at
    used = now.cpu_s - before.cpu_s
    # A process that ends takes the time of its ended children along, so a smaller sum also means work.
    if wall <= 0 or used < 0 or used / wall >= BUSY_SHARE:
        return 0.0
    return idle_s + wall


def say(seen: BuildProgress, sample: BuildSample | None, seconds: float, quiet_s: float, idle_s: float) -> str:
    """Return one line for the person who waits.

    quiet_s: seconds since the last line of the log. idle_s: seconds without computing.
    """
    begun = "compiling" if seen.what else "preparing"
    done = f"{seen.done} of {seen.total} objects" if seen.total else begun
    parts = [done, f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"]
    if seen.total > seen.done >= seen.total * TELLING_SHARE:
        parts.append(f"about {duration(seconds * (seen.total - seen.done) / seen.done)} left")
    if sample is not None:
        parts.append(f"{sample.rss_gib:.1f} GiB in {sample.processes} processes")
    if idle_s >= 60:
        parts.append(f"nothing computed for {idle_s:.0f} s")
    elif quiet_s >= 60:
        parts.append(f"slow but healthy: computing, no line for {quiet_s / 60:.0f} min")
    if seen.what:
        parts.append(seen.what)
    return ", ".join(parts)
