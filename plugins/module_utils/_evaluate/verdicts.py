# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on measures, from their share of a reference. More is better, except for latencies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# The most that a B70's memory can do, by its bus and clock (256 bit GDDR6). A faster copy was compressed.
B70_MEMORY_GB_S = 608.0
LESS_IS_BETTER = ("us",)
LEVELS = ("PASS", "WARN", "FAIL", "INFO", "SKIP")
COMPRESSED = (
    "more than the memory of the card can do: it was compressed; NEOReadDebugKeys=1 and "
    "RenderCompressedBuffersEnabled=0 did not reach the tool"
)


def reference_of(data: Any) -> dict[str, float]:
    """Return a reference from ``{id: value}`` or a file that this role wrote; raise ValueError if it is neither."""
    if isinstance(data, Mapping) and isinstance(data.get("rows"), Sequence):
        data = {row["id"]: row["value"] for row in data["rows"] if row.get("value") is not None}
    if not isinstance(data, Mapping) or not data:
        raise ValueError("a reference maps names of measures to figures, or is a file that this role wrote")
    found = {}
    for name, value in data.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"the reference for {name} is {value!r}, and must be a finite figure above 0")
        found[str(name)] = float(value)
    return found


def compare(
    measures: Sequence[Mapping[str, Any]], reference: Mapping[str, float], warn_below: float, fail_below: float
) -> list[dict[str, Any]]:
    """Return the rows with ``level``, ``reference`` and ``share``.

    A row below ``fail_below`` of the reference fails, as does one that comes with FAIL. A measure that the reference
    has and this run lacks is a WARN, unless its benchmark was left out (SKIP) or failed. A run that measured nothing of
    the reference fails, because a comparison of nothing shows nothing.
    """
    rows = []
    for measure in measures:
        row = {"reference": None, "share": None, "note": "", **measure}
        value, wanted = row["value"], reference.get(row["id"])
        if row.get("level") != "SKIP" and value is not None:
            level = "INFO"
            if wanted is not None:
                share = wanted / value if row["unit"] in LESS_IS_BETTER else value / wanted
                row.update(reference=wanted, share=round(share, 3))
                level = "FAIL" if share < fail_below else "WARN" if share < warn_below else "PASS"
            if row["id"].startswith("memory.card") and value > B70_MEMORY_GB_S and ".float" in row["id"]:
                level, row["note"] = "WARN" if level != "FAIL" else level, COMPRESSED
            row["level"] = "FAIL" if row.get("level") == "FAIL" else level
        rows.append(row)
    known = {row["id"] for row in rows}
    silent = {row["id"] for row in rows if row["level"] in ("FAIL", "SKIP") and row["value"] is None}
    for name, wanted in reference.items():
        if name not in known and not any(name.startswith(f"{prefix}") for prefix in silent):
            note = "in the reference, and not measured here"
            rows.append({"id": name, "value": None, "unit": "", "level": "WARN", "reference": wanted, "share": None,
                         "tool": "", "note": note})  # fmt: skip
    if reference and all(row["share"] is None for row in rows):
        rows.append({"id": "reference", "value": None, "unit": "", "level": "FAIL", "reference": None, "share": None,
                     "tool": "", "note": "nothing of the reference was measured here"})  # fmt: skip
    return rows


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {level: sum(row["level"] == level for row in rows) for level in LEVELS}


def stops(rows: Sequence[Mapping[str, Any]], fail_on: str) -> list[str]:
    """Return the names of the rows that make a run fail; ``fail_on`` is FAIL, WARN or never."""
    bad = {"FAIL": ("FAIL",), "WARN": ("FAIL", "WARN"), "never": ()}[fail_on]
    return [str(row["id"]) for row in rows if row["level"] in bad]


def table(rows: Sequence[Mapping[str, Any]], host: str) -> list[str]:
    """Return lines for the screen."""
    wide = max((len(str(row["id"])) for row in rows), default=0)
    lines = []
    for row in rows:
        head = f"{row['level']:<4}  {row['id']:<{wide}}"
        if row["value"] is None:
            lines.append(f"{head}  {row['note']}")
            continue
        line = f"{head}  {row['value']:>9.2f} {row['unit']:<7}"
        if row["reference"] is not None:
            line += f"  {row['share'] * 100:.0f} % of {row['reference']:.2f}"
        lines.append(f"{line}  {row['tool']}{': ' + row['note'] if row['note'] else ''}".rstrip())
    number = counts(rows)
    said = ", ".join(f"{count} {level}" for level, count in number.items() if count)
    return [*lines, f"{host}: {said or 'nothing was measured'}"]
