# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of figures: the frontdoor's share, an earlier record, and what the catalogue has recorded. Pure.

Only like is compared with like: the same shape, number of streams and way to the engine, cold with cold and warm with
warm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .completeness import lacks
from .shapes import Shape

FRONTDOOR, ENGINE = "frontdoor", "engine"
COLD, WARM = "cold", "warm"
_SHAPE_KEYS = ("prompt_tokens", "output_tokens", "rounds")
# The catalogue's measures, and the names of their figures here.
_MEASURES = {"wall": "wall_tok_s", "decode": "decode_tok_s"}
_NEAR = 0.1


@dataclass(frozen=True)
class Cell:
    """The figures of one scenario over one way to the engine."""

    shape: str
    streams: int
    target: str
    prefix: str
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.shape} c{self.streams} {self.target} {self.prefix}"


@dataclass(frozen=True)
class Band:
    """What counts as noise: shares by which throughput may fall and the time to the first token may grow."""

    rate: float
    ttft: float


def cells(data: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield all figures of a benchmark's data."""
    for shape, entry in data["shapes"].items():
        for scenario in entry["scenarios"].values():
            for target in (FRONTDOOR, ENGINE):
                for prefix, summary in scenario.get(target, {}).items():
                    yield Cell(shape, scenario["streams"], target, prefix, summary)


def ttft(summary: Mapping[str, Any]) -> float | None:
    spread = summary.get("ttft_s")
    return None if not spread else float(spread["p50"])


def _ratio(now: float | None, before: float | None) -> float | None:
    return round(now / before, 4) if now is not None and before else None


def shares(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the frontdoor's cost: its share of the engine's own throughput, and what it adds to the first token."""
    found = {(cell.shape, cell.streams, cell.prefix, cell.target): cell for cell in cells(data)}
    rows = []
    for (shape, streams, prefix, target), cell in found.items():
        direct = found.get((shape, streams, prefix, ENGINE))
        if target != FRONTDOOR or direct is None:
            continue
        through, straight = ttft(cell.summary), ttft(direct.summary)
        added = None if through is None or straight is None else round(through - straight, 4)
        ratio = _ratio(cell.summary["wall_tok_s"], direct.summary["wall_tok_s"])
        row = {"shape": shape, "streams": streams, "prefix": prefix, "wall_ratio": ratio, "ttft_added_s": added}
        rows.append(row)
    return rows


def essence(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `compare` reads of an earlier record."""
    shapes = {name: {**shape, "scenarios": {}} for name, shape in record["data"]["shapes"].items()}
    for cell in cells(record["data"]):
        scenario = shapes[cell.shape]["scenarios"].setdefault(f"c{cell.streams}", {"streams": cell.streams})
        figures = {key: cell.summary[key] for key in ("wall_tok_s", "ttft_s")}
        scenario.setdefault(cell.target, {})[cell.prefix] = figures
    kept = {key: record[key] for key in ("id", "began_at", "fingerprint", "profile")}
    host = {key: record["host"][key] for key in ("name", "class")}
    return {**kept, "host": host, "data": {"generator": record["data"]["generator"], "shapes": shapes}}


def conditions(data: Mapping[str, Any]) -> frozenset[tuple[Any, ...]]:
    """Return what was measured, without the figures."""
    return frozenset((cell.name, *(data["shapes"][cell.shape][key] for key in _SHAPE_KEYS)) for cell in cells(data))


def nearest(data: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the record that has the most of these figures, or None. The records are sorted, newest first.

    So a newer record of other requests hides nothing, and a record of few figures is no measure for many.
    """

    def common(record: Mapping[str, Any]) -> int:
        return len({row["scenario"] for row in compare(data, record, Band(0.0, 0.0))["rows"]})

    found = max(records, key=common, default=None)
    return found if found is not None and common(found) else None


def compare(
    data: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    band: Band,
    expected: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Compare with an earlier record of the same profile and host class.

    `regressions` has a sentence for each figure that is worse by more than the band. If the record has none of these
    figures, it is not named, and the figures `expected` after the catalogue count.
    """
    found: dict[str, Any] = {
        "with": None,
        "band": {"rate": band.rate, "ttft": band.ttft},
        "rows": [],
        "regressions": [],
    }
    if earlier is None:
        return {**found, "regressions": _below(expected, band)}
    before = {
        cell.name: cell.summary
        for cell in cells(earlier["data"])
        if _alike(data["shapes"].get(cell.shape), earlier["data"]["shapes"][cell.shape])
    }
    for cell in cells(data):
        if cell.name not in before:
            continue
        old = before[cell.name]
        for figure, now, then, limit in (
            ("wall_tok_s", cell.summary["wall_tok_s"], old["wall_tok_s"], 1 - band.rate),
            ("ttft_s.p50", ttft(cell.summary), ttft(old), 1 + band.ttft),
        ):
            ratio = _ratio(now, then)
            if ratio is None:
                continue
            worse = ratio < limit if figure == "wall_tok_s" else ratio > limit
            row = {"scenario": cell.name, "figure": figure, "now": now, "earlier": then, "ratio": ratio, "worse": worse}
            found["rows"].append(row)
            if worse:
                found["regressions"].append(
                    f"{cell.name}: {figure} is {now:g}, {ratio:.2f} of {then:g} (limit {limit:.2f})"
                )
    if not found["rows"]:
        return {**found, "regressions": _below(expected, band)}
    named = {key: earlier[key] for key in ("id", "began_at", "fingerprint")} | {"host": earlier["host"]["name"]}
    return {**found, "with": named}


def _below(expected: Sequence[Mapping[str, Any]], band: Band) -> list[str]:
    return [
        f"{row['scenario']}: {row['figure']} is {row['now']:g}, {row['ratio']:.2f} of {row['recorded']:g} "
        f"in the catalogue (limit {1 - band.rate:.2f})"
        for row in expected
        if row["ratio"] is not None and row["ratio"] < 1 - band.rate
    ]


def compared(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure that was compared, with what it was compared with."""
    comparison = data["comparison"]
    if comparison["rows"]:
        return [
            f"{row['scenario']}: {row['figure']} {row['now']:g}, {row['ratio']:.2f} of {row['earlier']:g}"
            + (" WORSE" if row["worse"] else "")
            for row in comparison["rows"]
        ]
    return [
        f"{row['scenario']}: {row['figure']} {row['now']:g}, {row['ratio']:.2f} of {row['recorded']:g} in the catalogue"
        for row in data["expectations"]
        if row["ratio"] is not None
    ]


def outlook(
    shapes: Sequence[Shape],
    streams: Sequence[int],
    targets: Sequence[str],
    earlier: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any] | None,
    host_class: str,
) -> list[str]:
    """Return what would be compared, a line for each cold figure.

    streams: empty for all that are known. earlier: good records, newest first.
    """
    known = {cell.streams for record in earlier for cell in cells(record["data"])}
    known |= {entry.get("streams", 1) for entry in (evidence or {}).get("tok_s") or []}
    unknown = {"wall_tok_s": 1.0, "decode_tok_s": 1.0, "ttft_s": None}
    ways = {target: {COLD: unknown} for target in targets}
    scenarios = {f"c{count}": {"streams": count, **ways} for count in sorted(known & set(streams or known))}
    data = {
        "shapes": {s.name: {**{key: getattr(s, key) for key in _SHAPE_KEYS}, "scenarios": scenarios} for s in shapes}
    }
    found = compare(data, nearest(data, earlier), Band(0.0, 0.0))
    lines = [
        f"{row['scenario']}: {row['earlier']:g} in {found['with']['id']} of {found['with']['host']}"
        for row in found["rows"]
    ]
    return lines or [
        f"{row['scenario']}: {row['recorded']:g} in the catalogue"
        for row in expectations(evidence, host_class, data)
        if row["ratio"] is not None
    ]


def _alike(one: Mapping[str, Any] | None, two: Mapping[str, Any]) -> bool:
    return one is not None and all(one[key] == two[key] for key in _SHAPE_KEYS)


def expectations(evidence: Mapping[str, Any] | None, host_class: str, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the catalogue's figures for the profile, beside those measured under the same conditions.

    A figure of another host class is shown, but not expected here: its `ratio` is None.
    """
    measured = [cell for cell in cells(data) if cell.target == FRONTDOOR and cell.prefix == COLD]
    rows = []
    for entry in (evidence or {}).get("tok_s") or []:
        figure = _MEASURES[entry.get("measure", "wall")]
        here = next((cell for cell in measured if _same_conditions(entry, cell, data["shapes"][cell.shape])), None)
        same = (evidence or {}).get("host_class") == host_class
        now = None if here is None else here.summary[figure]
        rows.append(
            {
                "streams": entry.get("streams", 1),
                "prompt_tokens": entry.get("prompt_tokens"),
                "output_tokens": entry.get("output_tokens"),
                "figure": figure,
                "recorded": entry["value"],
                "host_class": (evidence or {}).get("host_class"),
                "now": now,
                "scenario": None if here is None else here.name,
                "ratio": _ratio(now, entry["value"]) if same else None,
            }
        )
    return rows


def _same_conditions(entry: Mapping[str, Any], cell: Cell, shape: Mapping[str, Any]) -> bool:
    prompt = entry.get("prompt_tokens")
    return (
        entry.get("streams", 1) == cell.streams
        and entry.get("output_tokens") == shape["output_tokens"]
        and prompt is not None
        and abs(prompt - shape["prompt_tokens"]) <= _NEAR * shape["prompt_tokens"]
        and not entry.get("note")
    )


def headline(data: Mapping[str, Any]) -> str:
    """Return one line for lists of records: the highest throughput of clients, and its conditions."""
    known = [cell for cell in cells(data) if cell.summary["wall_tok_s"] is not None]
    outside = [cell for cell in known if cell.target == FRONTDOOR] or known
    if not outside:
        return "no figures"
    best = max(outside, key=lambda cell: float(cell.summary["wall_tok_s"]))
    first = ttft(best.summary)
    shown = "" if first is None else f", first token after {first:.2f} s"
    return f"{best.summary['wall_tok_s']:.1f} tok/s ({best.name}){shown}"


def lacking(data: Mapping[str, Any]) -> list[str]:
    """Return what a benchmark lacks of what it asked for, a sentence each."""
    shapes = data["shapes"]
    return [
        words
        for cell in cells(data)
        for words in lacks(cell.name, cell.streams * shapes[cell.shape]["rounds"], cell.summary)
    ]
