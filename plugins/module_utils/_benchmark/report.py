# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A benchmark's record as text: a table in Markdown, and lines for a play. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .comparison import cells, compared

_COLUMNS = (
    "shape",
    "streams",
    "way",
    "prefix",
    "tok/s wall",
    "tok/s decode",
    "tok/s per request",
    "TTFT mean",
    "p50",
    "p95",
    "p99",
    "ITL p50",
    "failed",
)


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _cells_of(record: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for cell in cells(record["data"]):
        one = cell.summary
        first, gap = one["ttft_s"] or {}, one["itl_s"] or {}
        rows.append(
            [
                cell.shape,
                str(cell.streams),
                cell.target,
                cell.prefix,
                _number(one["wall_tok_s"], 1),
                _number(one["decode_tok_s"], 1),
                _number(one["request_decode_tok_s"], 1),
                *(_number(first.get(key), 3) for key in ("mean", "p50", "p95", "p99")),
                _number(gap.get("p50"), 4),
                f"{one['failed']}/{one['requests']}",
            ]
        )
    return rows


def table(record: Mapping[str, Any]) -> list[str]:
    """Return the figures as aligned columns, for a terminal."""
    rows = [list(_COLUMNS), *_cells_of(record)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def lines(record: Mapping[str, Any]) -> list[str]:
    """Return what a play prints of a record."""
    data = record["data"]
    found = [
        f"{record['profile']} on {record['host']['name']}: {record['verdict']}",
        f"{record['host']['class']}; {data['generator']['name']} {data['generator']['version']}",
        *(f"  {reason}" for reason in record["reasons"]),
    ]
    if _cells_of(record):
        found += table(record)
    found += _remarks(data)
    return found


def _remarks(data: Mapping[str, Any]) -> list[str]:
    found = [
        f"left out: {item.get('shape') or str(item['streams']) + ' streams'}: {item['reason']}"
        for item in data["left_out"]
    ]
    found += [
        f"frontdoor: {row['shape']} c{row['streams']} {row['prefix']} gives {row['wall_ratio']:.3f} of the engine's "
        f"throughput and adds {_number(row['ttft_added_s'], 3)} s to the first token"
        for row in data["frontdoor_share"]
        if row["wall_ratio"] is not None
    ]
    earlier, rows = data["comparison"]["with"], data["comparison"]["rows"]
    if earlier is None:
        found.append("comparison: benchmark_baselines names no record of this profile on this class of host")
    else:
        found.append(f"comparison with {earlier['id']} of {earlier['host']}: {len(rows)} figures")
        found += [f"  {line}" for line in compared(data)]
        found += [f"  {name}: not in the baseline" for name in data["comparison"]["missing"]]
    for row in data["expectations"]:
        what = f"{row['figure']} with {row['streams']} streams, {row['prompt_tokens']}/{row['output_tokens']} tokens"
        if row["ratio"] is not None:
            found.append(f"catalogue: {what}: {row['now']:g}, {row['ratio']:.2f} of the recorded {row['recorded']:g}")
        elif row["now"] is not None:
            found.append(
                f"catalogue: {what}: {row['recorded']:g} on another class of host ({row['host_class']}), "
                "so it is not expected here"
            )
    return found


def markdown(record: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """Return the whole record as Markdown. pictures: names of files beside it."""
    data, canary = record["data"], record["canary"]
    asked = ["passed" if side and side["ok"] else "failed" if side else "not asked" for side in canary.values()]
    head = [
        f"# Benchmark of {record['profile']}",
        "",
        f"- verdict: {record['verdict']}",
        *(f"- {reason}" for reason in record["reasons"]),
        f"- from {record['began_at']} to {record['ended_at']}",
        f"- host: {record['host']['name']}, {record['host']['class']}",
        f"- stack: {record['stack']}, fingerprint {record['fingerprint']}",
        f"- generator: {data['generator']['name']} {data['generator']['version']}, seed {data['seed']}",
        f"- canary before: {asked[0]}, after: {asked[1]}",
        "",
        "Times are in seconds. TTFT: time to the first token. ITL: time between two tokens.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
    ]
    rows = [f"| {' | '.join(row)} |" for row in _cells_of(record)]
    remarks = ["", *(f"- {text.strip()}" for text in _remarks(data))]
    shown = ["", *(f"![{name}]({name})" for name in pictures)] if pictures else []
    return "\n".join([*head, *rows, *remarks, *shown]) + "\n"


def plots(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return charts for draw.py: throughput and time to the first token against the number of streams."""
    found = {}
    for name, figure, title, unit in (
        ("throughput", "wall_tok_s", "Throughput", "output tokens per second"),
        ("ttft", "ttft_s", "Time to the first token, median", "seconds"),
    ):
        series: dict[str, list[list[float]]] = {}
        for cell in cells(record["data"]):
            value = cell.summary[figure]
            value = value["p50"] if isinstance(value, Mapping) else value
            if value is not None:
                series.setdefault(f"{cell.shape} {cell.target} {cell.prefix}", []).append([cell.streams, value])
        if series:
            found[name] = {
                "title": f"{title}: {record['profile']}",
                "x": "streams",
                "y": unit,
                "series": [{"name": label, "points": sorted(points)} for label, points in series.items()],
            }
    return found
