# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats findings as the table on the screen. Pure: data in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from .examine import counts
from .model import Level

WIDTH = 110
_LABEL = 9


def table(findings: Sequence[Mapping[str, Any]], host: str, seconds: float | None = None) -> list[str]:
    """Return a line for each finding, with evidence, meaning, fix and source below those that are not PASS.

    Skipped checks are listed at the end, by reason.
    """
    widest = max((len(str(item["id"])) for item in findings), default=0)
    lines = []
    for item in findings:
        if item["level"] == Level.SKIP:
            continue
        head = f"{item['level']:<4}  {item['id']:<{widest}}  "
        lines += _folded(head, str(item["summary"]))
        if item["level"] != Level.PASS:
            for label, texts in (
                ("evidence", item["evidence"]),
                ("meaning", [item["meaning"]]),
                ("fix", [item["fix"]]),
                ("source", [item["source"]]),
            ):
                for number, text in enumerate(texts):
                    lines += _folded(f"      {label if number == 0 else '':<{_LABEL}}", str(text)) if text else []
    reasons: dict[str, list[str]] = {}
    for item in findings:
        if item["level"] == Level.SKIP:
            reasons.setdefault(str(item["summary"]), []).append(str(item["id"]))
    for reason, ids in reasons.items():
        lines += _folded("SKIP  ", f"{', '.join(ids)}: {reason}")
    took = "" if seconds is None else f" in {seconds:.1f} s"
    return [*lines, f"{host}: {said(counts(findings))}{took}"]


def _folded(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def said(numbers: Mapping[str, int]) -> str:
    """Return the counts of findings as text, such as `14 PASS, 1 WARN, 0 FAIL, 16 SKIP`."""
    return ", ".join(f"{numbers[str(level)]} {level}" for level in Level)


def stopped_by(findings: Sequence[Mapping[str, Any]], fail_on: str) -> list[str]:
    """Return the ids for which a run fails.

    fail_on: `FAIL`, `WARN` (also those at `WARN`) or `never`.
    """
    bad = {"FAIL": {Level.FAIL}, "WARN": {Level.FAIL, Level.WARN}, "never": set()}[fail_on]
    return [str(item["id"]) for item in findings if item["level"] in bad]
