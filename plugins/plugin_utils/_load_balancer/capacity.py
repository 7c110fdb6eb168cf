# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of hosts that stay in service: a number or share for all models, or one for each model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._catalogue.problems import did_you_mean
from .fleet import FleetFault, ServerPool

_LEAST = re.compile(r"[0-9]+|(?:100|[0-9]{1,2})%")
ALL = ""


def least_of(min_ready: Any) -> dict[str, str]:
    """Return what b70_min_ready says, by model; that of "" is for all others, which keep one host."""
    given = min_ready if isinstance(min_ready, Mapping) else {ALL: min_ready}
    found = {str(model): str(least).strip() for model, least in given.items()}
    for model, least in found.items():
        if not _LEAST.fullmatch(least):
            whose = f"{least!r} for {model}" if model else repr(least)
            raise FleetFault(f"b70_min_ready is {whose}; write a number of hosts, or a share such as 50%")
    return {ALL: "1", **found}


def floors(min_ready: Any, pools: Iterable[ServerPool]) -> dict[str, str]:
    """Return how many hosts each backend keeps. A backend of several models keeps what the first one named wants."""
    least, known = least_of(min_ready), list(pools)
    models = [model for pool in known for model in pool.models]
    models = models or [model for pool in known for host in pool.hosts for model in host.models]
    unknown = [model for model in least if model and models and model not in models]
    if unknown:
        raise FleetFault(f"b70_min_ready names {unknown[0]}, which no host serves{did_you_mean(unknown[0], models, 3)}")
    return {
        ALL: least[ALL],
        **{
            pool.name: next(least[model] for model in least if model in _models(pool))
            for pool in known
            if any(model in _models(pool) for model in least)
        },
    }


def _models(pool: ServerPool) -> set[str]:
    return set(pool.models) or {model for host in pool.hosts for model in host.models}
