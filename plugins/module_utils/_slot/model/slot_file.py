# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the whole slot, as the role renders them to the host: one source for modules and b70ctl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words.decode import ShapeError, decode_document
from ..words.effects import Effects
from ..words.types import Layout
from .nodes import Group
from .profile import STATUSES

SCHEMA = 1


@dataclass(frozen=True)
class SlotFile:
    """legacy_units: other units that must never run beside an engine. refused_statuses: those that need to be accepted.

    cards: the slot's own by their numbers on the host; None where it has all of them. standby: how many engines may
    sleep; sleepers: only those of these profiles, unless it is empty. others: the configuration folder of each other
    slot of the host, by its name. nodes: those that serve together; None: the host is in no such group.
    """

    legacy_units: tuple[str, ...]
    refused_statuses: tuple[str, ...]
    cards: tuple[int, ...] | None = None
    standby: int = 0
    sleepers: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    nodes: Group | None = None

    def check(self) -> None:
        unknown = [status for status in self.refused_statuses if status not in STATUSES]
        if unknown:
            raise ShapeError("refused_statuses", f"names {unknown[0]!r}, wanted some of {', '.join(STATUSES)}")


def parse_slot_file(text: str, where: str) -> SlotFile:
    """Return the settings in the JSON text of the file `where`. Raise SlotFault naming the file and the key."""
    return decode_document(SlotFile, text, where, SCHEMA)


def read_slot_file(fx: Effects, layout: Layout) -> SlotFile:
    """Return the slot's settings; on a host where the role did not run yet, those of a slot without any."""
    text = fx.files.read(layout.slot_file)
    return SlotFile((), ("rejected", "blocked")) if text is None else parse_slot_file(text, str(layout.slot_file))
