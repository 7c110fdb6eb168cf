# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lessons of earlier starts for the next one: how long it may take, and how long clients will wait. Pure.

Starts are compared with starts of the same profile on the same stack, driver and compiler: caches of others are there
and of no use. Those that found no compile cache are a kind of their own: they take many times as long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ..caches import driver_packages

KEPT = 5
KEPT_KEYS = 200  # several times what a catalogue has: each driver makes new ones
FACTOR = 4.0
SLACK_S = 120.0


def driver_of(kernel: str | None, dpkg_status: str | None) -> str:
    """Return driver and compiler in a few words, from the kernel's release and dpkg's status file; None is unknown."""
    packages, found = "driver packages unknown", driver_packages(dpkg_status)
    if found is not None:
        digest = hashlib.sha256("\n".join(found).encode()).hexdigest()[:8]
        packages = f"driver packages {digest}" if found else "no driver packages"
    return f"linux {(kernel or '').strip() or 'unknown'} and {packages}"


def key_of(profile: str, stack_id: str, driver: str, *, cached: bool, asleep: int = 0) -> str:
    """Return the name under which starts are remembered. driver: see `driver_of`, empty for a profile without cards.
    asleep: the level at which the engine sleeps, 0 for not."""
    way = ", from standby" if asleep else "" if cached else ", nothing cached"
    way += ", level 2" if asleep == 2 else ""
    return f"{profile} on {stack_id}" + (f" with {driver}" if driver else "") + way


def parts_of(key: str) -> tuple[str, str]:
    """Return the profile in such a name, and what the start had: nothing cached, an engine that slept, or the rest."""
    return key.partition(" on ")[0], key.partition(", ")[2]


@dataclass(frozen=True)
class LoadTimes:
    """Seconds of the last starts, newest last, by `key_of`.

    loads: from the start of the unit to its health. closed: how long clients waited in switches that went well.
    """

    loads: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    closed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def with_load(self, key: str, seconds: float) -> LoadTimes:
        return LoadTimes(_appended(self.loads, key, seconds), self.closed)

    def with_closed(self, key: str, seconds: float) -> LoadTimes:
        return LoadTimes(self.loads, _appended(self.closed, key, seconds))

    def eta_s(self, key: str) -> float | None:
        """Return how long clients will probably wait, or None."""
        known = self.closed.get(key) or self.loads.get(key)
        return median(known) if known else None


def _appended(table: Mapping[str, tuple[float, ...]], key: str, seconds: float) -> dict[str, tuple[float, ...]]:
    others = [item for item in table.items() if item[0] != key][1 - KEPT_KEYS :]
    return {**dict(others), key: (*table.get(key, ()), seconds)[-KEPT:]}


def load_limit_s(loads: Sequence[float], start_timeout_s: float) -> float:
    """Return how long a start may take: several times of what such starts took, but never more than the profile
    allows."""
    if not loads:
        return start_timeout_s
    typical = median(loads)
    return min(start_timeout_s, max(FACTOR * typical, typical + SLACK_S))


def compared(loads: Sequence[float], waited_s: float) -> str:
    """Return how a wait compares with earlier starts, as the end of a sentence; empty where there were none."""
    if not loads:
        return ""
    typical = max(0.1, median(loads))
    times = "the last start took" if len(loads) == 1 else f"the last {len(loads)} starts took"
    return f", {waited_s / typical:.0f} times of what {times} ({typical:.1f} s)"
