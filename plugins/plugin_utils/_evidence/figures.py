# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of records, for comparing one benchmark with the one before. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._evidence.record import KINDS

Record = Mapping[str, Any]
# Prompts that the engine has never seen: no cache helps.
COLD = "cold"


@dataclass(frozen=True)
class StreamFigures:
    """The figures of one shape at one number of streams, cold unless `shape` says otherwise.

    ttft_s: p50, p95. None: not measured.
    """

    shape: str
    streams: int
    tok_s: float | None
    ttft_s: tuple[float | None, float | None]
    failed: int


@dataclass(frozen=True)
class ProfileRecords:
    """The records of one profile in one slot of one host, newest first."""

    profile: str
    host: str
    slot: str
    records: Sequence[Record]

    @property
    def name(self) -> str:
        return self.host if self.slot == "main" else f"{self.host}, slot {self.slot}"

    def of(self, kind: str) -> list[Record]:
        """Return the records of a kind, newest first."""
        return [record for record in self.records if record["kind"] == kind]

    def newest(self) -> list[Record]:
        """Return the newest record of each kind."""
        return [found[0] for kind in KINDS if (found := self.of(kind))]

    def measured(self) -> list[Record]:
        """Return the benchmarks that have figures, newest first."""
        return [record for record in self.of("benchmark") if any(level.tok_s for level in levels(record))]


def places(hosts: Mapping[str, Iterable[Record]]) -> list[ProfileRecords]:
    """Return all records by profile, host and slot, in this order."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for host, records in hosts.items():
        for record in records:
            found.setdefault((record["profile"], host, record["slot"]), []).append(record)
    number = itemgetter("number")
    return [ProfileRecords(*key, sorted(found[key], key=number, reverse=True)) for key in sorted(found)]


def levels(record: Record) -> list[StreamFigures]:
    """Return the figures of a benchmark as clients get them: through the frontdoor, if that was measured."""
    found = []
    for shape, entry in (record["data"].get("shapes") or {}).items():
        for row in entry["scenarios"].values():
            for prefix, one in (row.get("frontdoor") or row.get("engine") or {}).items():
                ttft = one["ttft_s"] or {}
                name = shape if prefix == COLD else f"{shape}, {prefix}"
                figures = (one["wall_tok_s"], (ttft.get("p50"), ttft.get("p95")), one["failed"])
                found.append(StreamFigures(name, row["streams"], *figures))
    return found


def best(record: Record) -> StreamFigures | None:
    """Return the level with the highest rate."""
    return max((level for level in levels(record) if level.tok_s), key=lambda level: level.tok_s or 0, default=None)


def same(record: Record | None, level: StreamFigures) -> StreamFigures | None:
    """Return the level of this shape and number of streams in another record."""
    there = levels(record) if record else []
    return next((one for one in there if (one.shape, one.streams) == (level.shape, level.streams)), None)


def change(new: float | None, old: float | None) -> float | None:
    """Return the change of a figure as a share of the old one."""
    return new / old - 1 if new is not None and old else None


def comparable(new: Record, old: Record) -> bool:
    """Return whether figures may be shown side by side: of the same machines, whatever driver and kernel they had."""
    return _machine(new["host"]) == _machine(old["host"])


def _machine(host: Mapping[str, Any]) -> tuple[Any, ...]:
    return host["cpu"], host["cores"], round(host["memory_gib"]), len(host["cards"])


def changed(new: Record, old: Record) -> list[str]:
    """Return what differs between the circumstances of two records, and between their answers."""
    found = []
    for name, read in _FACTS.items():
        before, now = read(old), read(new)
        if before != now:
            found.append(f"{name}: {before} → {now}")
    answers = [
        (record["canary"]["after"] or record["canary"]["before"] or {}).get("hashes") or {} for record in (old, new)
    ]
    other = [case for case in answers[0] if case in answers[1] and answers[0][case] != answers[1][case]]
    if other:
        found.append(f"the canary answers {', '.join(other)} in other words")
    return found


def _short(text: str | None) -> str:
    return "none" if text is None else text if len(text) <= 19 else f"{text[:19]}…"


def _watts(cards: Iterable[Mapping[str, Any]]) -> str:
    found = {card["power_cap_w"] for card in cards}
    return (
        ", ".join("unknown" if watts is None else f"{watts:g} W" for watts in sorted(found, key=lambda one: one or 0))
        or "none"
    )


_FACTS: Mapping[str, Any] = {
    "verdict": lambda record: record["verdict"],
    "fingerprint": lambda record: _short(record["fingerprint"]),
    "stack": lambda record: record["stack"] or "none",
    "engine": lambda record: "{name} {version}".format(**record["engine"]) if record["engine"] else "unknown",
    "host class": lambda record: record["host"]["class"],
    "kernel": lambda record: record["host"]["kernel"],
    "firmware of the cards": lambda record: (
        ", ".join(sorted({card["guc"] for card in record["host"]["cards"]})) or "none"
    ),
    "power caps of the cards": lambda record: _watts(record["host"]["cards"]),
}
