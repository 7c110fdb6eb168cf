# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log: what it says of cards, and of processes that it ended. Pure.

The words are those of the driver xe and of the DRM core in Linux 6.14 to 7.2. A line counts by its beginning: further
on it may quote what somebody chose, such as the name of a program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

# As `journalctl --output=short-iso`, `journalctl` and `dmesg` print it.
_HEAD = (
    r"(?:(?:(?P<at>\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d))|\w{3} [ \d]\d [\d:]{8})? ?(?:\S+ )?kernel: )?"
    r"(?:\[ *\d+\.\d+\] )?"
)
_LINE = re.compile(_HEAD + r"(?P<text>.*)")
_XE = re.compile(r"xe (?P<card>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?P<text>.*)")

# DRM reports a card as wedged also where a reset has brought it back at once.
LOST = re.compile(
    r"wedged(?!, but| mode|_mode)|Failed to initialize uC|[Ff]ailed to probe|probe with driver xe failed"
    r"|survivability mode|device inaccessible"
)
FAULT = re.compile(
    r"Fault response|CAT error|engine reset|gt reset|GPU reset|exec queue reset|trying reset"
    r"|coredump has been created|Timedout job|severity=Uncorrect|timed out|fence timeout"
    r"|VM worker error|\bbann(?:ed|ing)\b|\bhung\b|device lost|device wedged"
    r"|reset (?:started|failed)|\b(?:[bcrv]|ve)cs\d* reset\b|\*ERROR\*",
    re.IGNORECASE,
)
SMALL_BAR = re.compile(r"Small BAR device|Failed to resize BAR")
# The driver takes the card anew, after a boot or a rebind.
_TAKEN = re.compile(r"Found \S+ \(device ID|Using GuC firmware from|Initialized xe ")
# The kernel ended a process, for want of memory or because it broke a rule of the processor.
ENDED = re.compile(
    r"(?:Memory cgroup out|Out) of memory: Killed process|oom-kill:|INFO: task \S+:\d+ blocked"
    r"|watchdog: BUG: soft lockup"
    r"|(?:traps: )?[^\[\]]{1,40}\[\d+\]:? (?:segfault at|trap \w|general protection)"
)


@dataclass(frozen=True)
class CardFault:
    """card: its PCI address. lost: it does not recover by itself."""

    card: str
    line: str
    lost: bool


def message_of(line: str) -> str:
    """Return what a line of the kernel's log says, without host and times."""
    found = _LINE.match(line)
    return found["text"] if found else line


def card_fault(line: str) -> CardFault | None:
    """Return the fault of a card that the line reports; None if it reports none."""
    said = _XE.match(message_of(line))
    if said is None:
        return None
    lost = LOST.search(said["text"]) is not None
    return CardFault(said["card"], line.strip(), lost) if lost or FAULT.search(said["text"]) else None


def card_faults(lines: Iterable[str]) -> tuple[CardFault, ...]:
    """Return the resets, faults and losses of cards in the kernel's log."""
    return tuple(fault for line in lines if (fault := card_fault(line)) is not None)


def lost_cards(lines: Iterable[str]) -> Mapping[str, CardFault]:
    """Return the first line of each loss, by PCI address, of the cards that are lost at the end of the log."""
    lost: dict[str, CardFault] = {}
    for line in lines:
        fault, said = card_fault(line), _XE.match(message_of(line))
        if fault is not None and fault.lost:
            lost.setdefault(fault.card, fault)
        elif said is not None and _TAKEN.search(said["text"]):
            lost.pop(said["card"], None)
    return lost


def recent(lines: Iterable[str], since: str) -> tuple[str, ...]:
    """Return the lines that were written from that moment on (ISO 8601), and those without a date."""
    begun = _moment(since)
    if begun is None:
        return tuple(lines)
    dated = ((line, _moment(found["at"] if (found := _LINE.match(line)) else None)) for line in lines)
    return tuple(line for line, at in dated if at is None or at >= begun)


def about(lines: Sequence[str], cards: Collection[str], since: str = "") -> tuple[str, ...]:
    """Return the lines that may explain the end of a process, oldest first.

    A loss of one of the cards counts until its driver takes it anew, and a window that is too small for this whole
    boot. Everything else counts from the start of the process on.

    :param cards: PCI addresses of the cards that the process uses; an empty one stands for a card that is not known.
    :param since: when the process started (ISO 8601); empty if that is not known.
    """
    lost = {fault.line for card, fault in lost_cards(lines).items() if card in cards or "" in cards}
    late = set(recent(lines, since))
    found = []
    for line in lines:
        text = message_of(line)
        said = _XE.match(text)
        if said is not None and said["card"] not in cards and "" not in cards:
            continue
        fault = card_fault(line)
        if fault is not None and fault.lost:
            counts = line.strip() in lost
        elif said is not None and SMALL_BAR.search(said["text"]):
            counts = True
        else:
            counts = line in late and (fault is not None or ENDED.match(text) is not None)
        if counts:
            found.append(line.strip())
    return tuple(found)


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
