# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance: a person takes a host out of the fleet, and ends that. The slot goes on as it is; only balancers and
plays over a fleet leave the host alone, and no boot ends it."""

from __future__ import annotations

from dataclasses import dataclass

from ..words.decode import decode_written, document
from ..words.effects import Effects
from ..words.types import Layout
from .state_file import stamp

SCHEMA = 1


@dataclass(frozen=True)
class Maintenance:
    """Since when, by whom and why."""

    since: str = "an unknown time"
    who: str = "somebody"
    reason: str = "its record cannot be read"

    def describe(self) -> str:
        """Return one sentence without its full stop."""
        return f"this host is in maintenance since {self.since}, set by {self.who}: {self.reason}"


def read(fx: Effects, layout: Layout) -> Maintenance | None:
    """Return the record; one that cannot be read holds as well."""
    try:
        text = fx.files.read(layout.maintenance_file)
    except OSError:
        return Maintenance()
    return None if text is None else decode_written(Maintenance, text, SCHEMA) or Maintenance()


def begun(fx: Effects, held: Maintenance | None, who: str, reason: str) -> Maintenance:
    """Return the record of a maintenance that begins, or that goes on with another reason."""
    if held is not None and held.reason == reason:
        return held
    return Maintenance(stamp(fx.clock.now()) if held is None else held.since, who, reason)


def write(fx: Effects, layout: Layout, record: Maintenance | None) -> None:
    """Write the record, or remove it."""
    if record is None:
        fx.files.remove(layout.maintenance_file)
    else:
        fx.files.write(layout.maintenance_file, document(record, SCHEMA))
