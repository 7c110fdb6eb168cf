# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role decides for the whole slot, as it renders it to the host: one source for modules and b70ctl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..words.effects import Effects
from ..words.types import Layout
from .nodes import Group, parse_group
from .profile import STATUSES, read_document

SCHEMA = 1


@dataclass(frozen=True)
class SlotFile:
    """legacy_units: other units that must never run beside an engine. refused: statuses that need to be accepted.

    cards: the slot's own by their numbers on the host; None where it has all of them. others: the configuration folder
    of each other slot of the host, by its name.
    """

    legacy_units: tuple[str, ...] = ()
    refused: tuple[str, ...] = ("rejected", "blocked")
    cards: tuple[int, ...] | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    group: Group | None = None  # of nodes that serve together; None: the host is in no such group


def parse_slot_file(text: str, where: str) -> SlotFile:
    """The settings in the JSON text of the file `where`. Raises SlotFault naming the file and the key."""
    read = read_document(text, where, SCHEMA)
    refused = read.strings("refused_statuses")
    unknown = [status for status in refused if status not in STATUSES]
    if unknown:
        raise read.fault("refused_statuses", f"names {unknown[0]!r}, wanted some of {', '.join(STATUSES)}")
    cards = read.get("cards", list) if read.has("cards") else None
    if cards is not None and not all(isinstance(card, int) and not isinstance(card, bool) for card in cards):
        raise read.fault("cards", "holds something that is not a number")
    others = read.get("others", dict) if read.has("others") else {}
    if not all(isinstance(folder, str) for folder in others.values()):
        raise read.fault("others", "holds something that is not a path")
    try:
        group = parse_group(read.get("nodes", Mapping)) if read.has("nodes") else None
    except (ValueError, TypeError, KeyError) as error:
        raise read.fault("nodes", f"is no group of nodes ({error})") from error
    return SlotFile(read.strings("legacy_units"), refused, None if cards is None else tuple(cards), others, group)


def read_slot_file(fx: Effects, layout: Layout) -> SlotFile:
    """The slot's settings; on a host where the role did not run yet, those of a slot without any."""
    text = fx.files.read(layout.slot_file)
    return SlotFile() if text is None else parse_slot_file(text, str(layout.slot_file))
