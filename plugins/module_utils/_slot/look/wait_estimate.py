# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait of clients for a profile that was never started so: as long as for one of like size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import log
from pathlib import PurePosixPath
from statistics import median
from typing import Any

from ..kinds.kind import WEIGHTS
from ..model.load_times import LoadTimes, parts_of
from ..words.effects import Effects
from ..words.types import Layout

# up to so many times as large, or as small, is alike
ALIKE = 2.0


def wait_s(fx: Effects, layout: Layout, load_times: LoadTimes, key: str) -> float | None:
    """Return how long clients will probably wait for what is remembered by this key, or None."""
    known = load_times.eta_s(key)
    if known is not None:
        return known
    names = {parts_of(other)[0] for other in (key, *load_times.loads, *load_times.closed)}
    return like_s(load_times, key, {name: size_of(fx, layout, name) for name in names})


def like_s(load_times: LoadTimes, key: str, sizes: Mapping[str, float]) -> float | None:
    """Return how long a start will take, from the profiles nearest in size; None without any. Pure.

    Starts without a compile cache, and those from standby, are compared among themselves. sizes: by profile, in any
    unit, 0 where unknown.
    """
    name, way = parts_of(key)
    near: dict[str, float] = {}
    for other in {**load_times.loads, **load_times.closed}:
        its_name, its_way = parts_of(other)
        if its_way == way and sizes.get(its_name) and sizes.get(name):
            near[other] = abs(log(sizes[its_name] / sizes[name]))
    least = min(near.values(), default=ALIKE)
    if least > log(ALIKE):
        return None
    times = (load_times.eta_s(other) for other, far in near.items() if far == least)
    return median(seconds for seconds in times if seconds is not None)


def size_of(fx: Effects, layout: Layout, name: str) -> float:
    """Return the size of a profile's weights in GB: that of the files, else the profile's own figure; 0 if unknown."""
    try:
        model: Any = json.loads(fx.files.read(layout.profile_json(name)) or "{}").get("model") or {}
        path = PurePosixPath(model.get("path") or "/nowhere")
        there = sum(fx.files.size(path / file) or 0 for file in fx.files.names(path) if file.endswith(WEIGHTS))
        return there / 1e9 or float(model.get("size_gb") or 0)
    except (OSError, ValueError, TypeError, AttributeError):
        # it is an estimate: no reason to fail a switch
        return 0.0
