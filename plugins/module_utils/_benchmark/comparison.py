# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of figures: the frontdoor's share, a baseline, and what the catalogue has recorded. Pure.

Only like is compared with like: the same shape, number of streams and way to the engine, cold with cold and warm with
warm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .completeness import lacks
from .shapes import RequestShape

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
    """The noise of figures: shares by which throughput may fall and the time to the first token may grow."""

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
    """Return what `compare` reads of a baseline."""
    shapes = {name: {**shape, "scenarios": {}} for name, shape in record["data"]["shapes"].items()}
    for cell in cells(record["data"]):
        scenario = shapes[cell.shape]["scenarios"].setdefault(f"c{cell.streams}", {"streams": cell.streams})
        figures = {key: cell.summary[key] for key in ("wall_tok_s", "ttft_s")}
        scenario.setdefault(cell.target, {})[cell.prefix] = figures
    kept = {key: record[key] for key in ("id", "began_at", "fingerprint", "profile")}
    host = {key: record["host"][key] for key in ("name", "class")}
    return {**kept, "host": host, "data": {"generator": record["data"]["generator"], "shapes": shapes}}


def baseline_key(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what a baseline holds for: a profile, a class of host, and a generator."""
    return record["profile"], record["host"]["class"], record["data"]["generator"]["name"]


def compare(data: Mapping[str, Any], baseline: Mapping[str, Any] | None, band: Band) -> dict[str, Any]:
    """Compare with the baseline of the same profile and host class.

    `regressions` has a sentence for each figure that is worse by more than the band; `missing` names the scenarios that
    the baseline has no figures of.
    """
    found: dict[str, Any] = {
        "with": None,
        "band": {"rate": band.rate, "ttft": band.ttft},
        "rows": [],
        "regressions": [],
        "missing": [],
    }
    if baseline is None:
        return found
    before = {
        cell.name: cell.summary
        for cell in cells(baseline["data"])
        if _alike(data["shapes"].get(cell.shape), baseline["data"]["shapes"][cell.shape])
    }
    for cell in cells(data):
        old = before.get(cell.name)
        if old is None:
            found["missing"].append(cell.name)
            continue
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
    named = {key: baseline[key] for key in ("id", "began_at", "fingerprint")} | {"host": baseline["host"]["name"]}
    return {**found, "with": named}


def compared(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure that was compared, with what it was compared with."""
    return [
        f"{row['scenario']}: {row['figure']} {row['now']:g}, {row['ratio']:.2f} of {row['earlier']:g}"
        + (" WORSE" if row["worse"] else "")
        for row in data["comparison"]["rows"]
    ]


def outlook(
    shapes: Sequence[RequestShape], streams: Sequence[int], targets: Sequence[str], baseline: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return what would be compared, a line for each cold figure, and the scenarios that the baseline lacks.

    streams: empty for those of the baseline.
    """
    known = {cell.name: cell for cell in cells(baseline["data"])}
    lines, missing = [], []
    for shape in shapes:
        own = {key: getattr(shape, key) for key in _SHAPE_KEYS}
        alike = _alike(baseline["data"]["shapes"].get(shape.name), own)
        for count in streams or sorted({cell.streams for cell in known.values()}):
            for target in targets:
                name = Cell(shape.name, count, target, COLD, {}).name
                if alike and name in known:
                    figure = known[name].summary["wall_tok_s"]
                    lines.append(f"{name}: {figure:g} in {baseline['id']} of {baseline['host']['name']}")
                else:
                    missing.append(name)
    return lines, missing


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
