# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines of a slot that sleep: a file for each, which ends with the boot.

While the file is there, the unit starts nothing: an engine that ends asleep would load beside the one that serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..words.decode import decode_written, plain
from ..words.effects import Files
from ..words.types import Layout, UnitState

SCHEMA = 1


@dataclass(frozen=True)
class Sleeper:
    """An engine process that was put to sleep. since: UTC. bytes: what it keeps in the host's memory. level: 1 keeps
    its weights there, 2 none."""

    unit: str
    profile: str
    fingerprint: str
    invocation_id: str
    since: str
    bytes: int
    level: int

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **plain(self)}) + "\n"


def read_sleeper(files: Files, layout: Layout, unit: str) -> Sleeper | None:
    """Return what the file of a unit says; None if there is none, or none that can be read."""
    return decode_written(Sleeper, files.read(layout.standby_file(unit)), SCHEMA)


def asleep(files: Files, layout: Layout, units: Sequence[UnitState]) -> tuple[Sleeper, ...]:
    """Return those of these units whose engine sleeps, and runs."""
    known = (read_sleeper(files, layout, unit.name) for unit in units if unit.asleep and unit.settled)
    return tuple(one for one in known if one is not None)


def room(free: int, needed: Mapping[int, int], kept: Sequence[int], most: int) -> tuple[Sequence[int], int]:
    """Return (the places of the sleepers that have to end; at which level another one may sleep then, 0 for not at
    all).

    A sleeper ends only where no level has room, and for memory only one that keeps some. A host that does not tell its
    memory has room for none. None ends for nothing.

    :param free: bytes of the host's memory that are available now.
    :param needed: by level, the best first, bytes that the other one needs, with all that is spared.
    :param kept: bytes of each sleeper, the oldest first.
    :param most: how many may sleep.
    """
    surplus = max(0, len(kept) + 1 - most)
    order = [*range(min(surplus, len(kept))), *(place for place in range(surplus, len(kept)) if kept[place])]
    for ended in range(surplus, len(order) + 1):
        for level, size in needed.items():
            if most and free > 0 and free + sum(kept[place] for place in order[:ended]) >= size:
                return order[:ended], level
    return range(max(0, len(kept) - most)), 0
