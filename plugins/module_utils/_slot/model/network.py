# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the nodes of a group: its last measures, and whether they reach the floor. Pure.

The leader has measured it to each follower (playbooks/evaluate.yml) and keeps that beside its journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..words.decode import decode_written, document

SCHEMA = 1


@dataclass(frozen=True)
class Floor:
    """The least that the network to each follower must reach. 0 demands nothing."""

    bandwidth_gb_s: float = 0.0
    latency_us: float = 0.0

    def __bool__(self) -> bool:
        return self.bandwidth_gb_s > 0 or self.latency_us > 0

    def bandwidth_fault(self, gb_s: float) -> str:
        """Return why a bandwidth is too low; empty if it is not."""
        if gb_s >= self.bandwidth_gb_s:
            return ""
        return f"{gb_s:.3g} GB/s is below the floor of {self.bandwidth_gb_s:g} GB/s (b70_nodes.bandwidth_min_gb_s)"

    def latency_fault(self, us: float) -> str:
        """Return why a latency is too high; empty if it is not."""
        if not self.latency_us or us <= self.latency_us:
            return ""
        return f"{us:.0f} us is above the limit of {self.latency_us:g} us (b70_nodes.latency_max_us)"


@dataclass(frozen=True)
class LinkMeasurement:
    """The last measurement from the leader to one follower.

    between: both addresses, the leader's first. sent_gb_s, received_gb_s: by the leader, both at once; a GB is 10^9
    bytes. latency_us: of a round trip, in microseconds. at: when, as text.
    """

    between: tuple[str, str]
    sent_gb_s: float
    received_gb_s: float
    latency_us: float
    at: str

    def faults(self, floor: Floor) -> list[str]:
        """Return which figures miss the floor, and why."""
        found = {
            "bandwidth sent": floor.bandwidth_fault(self.sent_gb_s),
            "bandwidth received": floor.bandwidth_fault(self.received_gb_s),
            "latency": floor.latency_fault(self.latency_us),
        }
        return [f"{name}: {fault}" for name, fault in found.items() if fault]


@dataclass(frozen=True)
class _Links:
    links: Mapping[str, LinkMeasurement]


def parse_links(text: str | None) -> dict[str, LinkMeasurement]:
    """Return the links in the text of their file, by follower; an unreadable file counts as not measured."""
    found = decode_written(_Links, text, SCHEMA)
    return {} if found is None else dict(found.links)


def links_text(links: Mapping[str, LinkMeasurement]) -> str:
    """Return the text of their file."""
    return document(_Links(links), SCHEMA)
