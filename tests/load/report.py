# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets, and how measured figures are held against them: as text, Markdown, JSON and a chart."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

#: one round: figures by scenario and target, e.g. round["plain"]["nginx"]["requests_per_s"]
Round = dict[str, dict[str, dict[str, float]]]


@dataclasses.dataclass(frozen=True)
class Goal:
    """One thing that must hold.

    `kind` says what is compared with `limit`: "ratio" to nginx, "over" (difference to nginx), or the value itself
    ("value"). `most` tells whether the limit is an upper one.
    """

    title: str
    unit: str
    scenario: str
    figure: str
    kind: str
    limit: float
    most: bool = True
    scale: float = 1.0
    #: how the figure of a row is written
    form: str = "{:.1f}"

    @property
    def rule(self) -> str:
        """The target in words."""
        sign = "<=" if self.most else ">="
        number = f"{self.limit:,g}"
        return {"ratio": f"{sign} {number} x nginx", "over": f"{sign} nginx + {number}"}.get(
            self.kind, f"{sign} {number}"
        )


GOALS = (
    Goal("CPU for 1M chunks, 64 streams x 5 ms", "s", "stream 64", "cpu_s_per_1m_events", "ratio", 1.2),
    Goal("CPU for 1M chunks, 256 streams x 5 ms", "s", "stream 256", "cpu_s_per_1m_events", "ratio", 1.2),
    Goal(
        "chunks/s, 368 streams x 5 ms, one core",
        "1/s",
        "stream 368",
        "events_per_s",
        "ratio",
        0.95,
        False,
        1,
        "{:,.0f}",
    ),
    Goal("time to first byte p99, 64 streams", "µs", "begin 64", "first_p99", "over", 100, form="{:.0f}"),
    Goal("way of a chunk p99, 64 streams", "µs", "stream 64", "way_p99", "value", 200, form="{:.0f}"),
    Goal("plain requests", "1/s", "plain", "requests_per_s", "ratio", 0.8, False, 1, "{:,.0f}"),
    Goal("CPU for 1k bodies of 1 MB", "s", "body 1 MB", "cpu_s_per_1k_requests", "ratio", 1.1, form="{:.2f}"),
    Goal("rejection p50", "µs", "reject", "whole_p50", "value", 200, form="{:.0f}"),
    Goal("rejection p99", "µs", "reject", "whole_p99", "value", 2000, form="{:.0f}"),
    Goal("rejections in a flood", "1/s", "flood", "requests_per_s", "value", 80_000, False, 1, "{:,.0f}"),
    Goal("admitted streams' pace in the flood", "%", "flood", "held_pace", "value", 99, False, 100),
    Goal("most generations the engine saw in the flood", "", "flood", "most_active", "value", 8, form="{:.0f}"),
    Goal("largest resident set in all of these", "MB", "process", "rss_mb", "value", 45),
    Goal("start until it listens", "s", "process", "start_s", "value", 0.3, form="{:.2f}"),
    Goal("client leaves during prefill: gone within", "ms", "process", "cancel_prefill_ms", "value", 5, form="{:.2f}"),
    Goal("client leaves in a stream: gone within", "ms", "process", "cancel_stream_ms", "value", 5, form="{:.2f}"),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A goal and what was measured; a missing figure is None, and so is the verdict then."""

    goal: Goal
    ours: float | None
    nginx: float | None
    ratio: float | None
    held: bool | None

    def cells(self) -> tuple[str, ...]:
        """The row of a table."""

        def text(value: float | None, form: str) -> str:
            return "-" if value is None else form.format(value)

        word = "-" if self.held is None else "PASS" if self.held else "MISS"
        form, unit = self.goal.form, f" ({self.goal.unit})" if self.goal.unit else ""
        ratio = text(self.ratio, "{:.2f}")
        return self.goal.title + unit, text(self.ours, form), text(self.nginx, form), ratio, self.goal.rule, word


def _values(rounds: list[Round], goal: Goal, target: str) -> list[float | None]:
    """The goal's figure in every round, None where a round lacks it."""
    found = [one.get(goal.scenario, {}).get(target, {}).get(goal.figure) for one in rounds]
    return [None if value is None else value * goal.scale for value in found]


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def judge(rounds: list[Round]) -> list[Verdict]:
    """Hold medians against the goals. Ratios and differences are made within a round, then the median is taken."""
    verdicts = []
    for goal in GOALS:
        ours, nginx = _values(rounds, goal, "frontdoor"), _values(rounds, goal, "nginx")
        pairs = [(a, b) for a, b in zip(ours, nginx, strict=True) if a is not None and b]
        mine, theirs = (_median([v for v in values if v is not None]) for values in (ours, nginx))
        ratio = _median([a / b for a, b in pairs])
        over = _median([a - b for a, b in pairs])
        seen = {"ratio": ratio, "over": over}.get(goal.kind, mine)
        held = None if seen is None else seen <= goal.limit if goal.most else seen >= goal.limit
        verdicts.append(Verdict(goal, mine, theirs, ratio, held))
    return verdicts


_HEADINGS = ("what", "frontdoor", "nginx", "ratio", "target", "")


def as_text(verdicts: list[Verdict]) -> str:
    """The table for a terminal."""
    rows = [_HEADINGS, *(verdict.cells() for verdict in verdicts)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)),
        ]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines)


def as_markdown(verdicts: list[Verdict], about: dict[str, Any]) -> str:
    """The table for a page, with the run that it comes from."""
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|---|---:|---:|---:|---:|---|"]
    lines += ["| " + " | ".join(verdict.cells()) + " |" for verdict in verdicts]
    source = "; ".join(f"{name}: {value}" for name, value in about.items())
    return "\n".join([*lines, "", f"Medians of interleaved rounds. {source}.", ""])


_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .dim { fill: #59636e } .bar { fill: #2f6fd0 }
  .miss { fill: #c4432b } .base { stroke: #59636e } .limit { stroke: #1f2328; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } .bar { fill: #6ea8fe }
    .miss { fill: #ff8a70 } .base { stroke: #9198a1 } .limit { stroke: #e6edf3 } }
"""


def as_svg(verdicts: list[Verdict]) -> str:
    """A chart of what is compared with nginx: bars, nginx at 1, and the target of each as a dashed line."""
    rows = [v for v in verdicts if v.goal.kind == "ratio" and v.ratio is not None]
    left, width, step, top = 300, 360, 30, 44
    longest = max([1.5, *(v.ratio or 0.0 for v in rows)])
    scale = width / longest
    height = top + step * len(rows) + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 140} {height}" role="img">',
        f"<title>The frontdoor against nginx</title><style>{_STYLE}</style>",
        '<text x="8" y="18">The frontdoor against nginx (nginx = 1)</text>',
        '<text x="8" y="34" class="dim">dashed: the target</text>',
    ]
    for number, verdict in enumerate(rows):
        ratio, limit = verdict.ratio or 0.0, left + verdict.goal.limit * scale
        y, kind = top + number * step, "bar" if verdict.held else "miss"
        word = f"{'less' if verdict.goal.most else 'more'} is better"
        parts += [
            f'<text x="{left - 10}" y="{y + 16}" text-anchor="end">{verdict.goal.title}</text>',
            f'<rect class="{kind}" x="{left}" y="{y + 4}" width="{ratio * scale:.1f}" height="16" rx="2"/>',
            f'<line class="limit" x1="{limit:.1f}" y1="{y}" x2="{limit:.1f}" y2="{y + 24}"/>',
            f'<text x="{left + width + 130}" y="{y + 16}" text-anchor="end">{ratio:.2f}, {word}</text>',
        ]
    one, bottom = left + scale, top + step * len(rows)
    parts += [
        f'<line class="base" x1="{one:.1f}" y1="{top}" x2="{one:.1f}" y2="{bottom}"/>',
        f'<text x="{one:.1f}" y="{bottom + 16}" text-anchor="middle" class="dim">1</text>',
        "</svg>",
        "",
    ]
    return "\n".join(parts)
