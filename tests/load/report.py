# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets, and how measured figures are held against them: as text, Markdown, JSON and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

#: one round: figures by scenario and target, e.g. round["plain"]["nginx"]["requests_per_s"]
Round = dict[str, dict[str, dict[str, float]]]


class Goal(NamedTuple):
    """One figure, and what must hold of it; without a limit it is information.

    `kind` says what is compared with `limit`: "ratio" to nginx, "over" (difference to nginx), or the value itself
    ("value"). `most` tells whether the limit is an upper one.
    """

    title: str
    unit: str
    scenario: str
    figure: str
    limit: float | None = None
    kind: str = "value"
    most: bool = True
    scale: float = 1.0
    #: how the figure of a row is written
    form: str = "{:.1f}"

    @property
    def rule(self) -> str:
        """The target in words."""
        if self.limit is None:
            return ""
        sign = "<=" if self.most else ">="
        number = f"{self.limit:,g}"
        return {"ratio": f"{sign} {number} x nginx", "over": f"{sign} nginx + {number}"}.get(
            self.kind, f"{sign} {number}"
        )


GOALS = (
    Goal("CPU for 1M chunks, 64 streams x 5 ms", "s", "stream 64", "cpu_s_per_1m_events", 1.15, "ratio"),
    Goal("time to first byte p99, 64 streams", "µs", "begin 64", "first_p99", 100, "over", form="{:.0f}"),
    Goal("time to first byte p99, 256 streams", "µs", "begin 256", "first_p99", 2, "ratio", form="{:.0f}"),
    Goal("plain requests", "1/s", "plain", "requests_per_s", 0.5, "ratio", most=False, form="{:,.0f}"),
    Goal("rejections in a flood", "1/s", "flood", "requests_per_s", 0.7, "ratio", most=False, form="{:,.0f}"),
    Goal("largest resident set in all of these", "MB", "process", "rss_mb", 45),
    Goal("CPU for 1M chunks, 256 streams x 5 ms", "s", "stream 256", "cpu_s_per_1m_events"),
    Goal("chunks/s, 368 streams x 5 ms, one core", "1/s", "stream 368", "events_per_s", form="{:,.0f}"),
    Goal("way of a chunk p99, 64 streams", "µs", "stream 64", "way_p99", form="{:.0f}"),
    Goal("CPU for 1k bodies of 1 MB", "s", "body 1 MB", "cpu_s_per_1k_requests", 1, "ratio", form="{:.2f}"),
    Goal("CPU for 1k bodies of 8 MB", "s", "body 8 MB", "cpu_s_per_1k_requests", form="{:.2f}"),
    Goal("longest wait for /health beside hostile bodies of 8 MB", "ms", "process", "health_8_ms", 50),
    Goal("longest wait for /health beside hostile bodies of 64 MB", "ms", "process", "health_64_ms", 50),
    Goal("rejection p99 in a flood", "µs", "flood", "whole_p99", form="{:,.0f}"),
    Goal("admitted streams' pace in the flood", "%", "flood", "held_pace", 99, most=False, scale=100),
    Goal("most generations the engine saw in the flood", "", "flood", "most_active", 8, form="{:.0f}"),
    Goal("start until it listens", "s", "process", "start_s", form="{:.2f}"),
    Goal("client leaves during prefill: gone within", "ms", "process", "cancel_prefill_ms", form="{:.2f}"),
    Goal("client leaves in a stream: gone within", "ms", "process", "cancel_stream_ms", form="{:.2f}"),
)


class Verdict(NamedTuple):
    """A goal and the medians that were measured; a missing figure is None. `held` is None without a limit."""

    goal: Goal
    before: float | None
    ours: float | None
    nginx: float | None
    ratio: float | None
    held: bool | None

    def cells(self) -> tuple[str, ...]:
        """The row of a table."""

        def text(value: float | None, form: str) -> str:
            return "-" if value is None else form.format(value)

        word = "" if self.held is None else "PASS" if self.held else "MISS"
        form, unit = self.goal.form, f" ({self.goal.unit})" if self.goal.unit else ""
        figures = (text(value, form) for value in (self.before, self.ours, self.nginx))
        return self.goal.title + unit, *figures, text(self.ratio, "{:.2f}"), self.goal.rule, word


def _values(rounds: list[Round], goal: Goal, target: str) -> list[float | None]:
    """The goal's figure in every round, None where a round lacks it."""
    found = [one.get(goal.scenario, {}).get(target, {}).get(goal.figure) for one in rounds]
    return [None if value is None else value * goal.scale for value in found]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def judge(rounds: list[Round]) -> list[Verdict]:
    """Hold medians against the goals. Ratios and differences are made within a round, then the median is taken."""
    verdicts = []
    for goal in GOALS:
        before, ours, nginx = (_values(rounds, goal, target) for target in ("before", "frontdoor", "nginx"))
        pairs = [(a, b) for a, b in zip(ours, nginx, strict=True) if a is not None and b]
        mine, ratio, over = _median(ours), _median(a / b for a, b in pairs), _median(a - b for a, b in pairs)
        seen = {"ratio": ratio, "over": over}.get(goal.kind, mine)
        held = None
        if seen is not None and goal.limit is not None:
            held = seen <= goal.limit if goal.most else seen >= goal.limit
        verdicts.append(Verdict(goal, _median(before), mine, _median(nginx), ratio, held))
    return [verdict for verdict in verdicts if verdict.ours is not None]


def _table(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    """Headings and rows, without the column of a version that was not measured."""
    after = "after" if any(verdict.before is not None for verdict in verdicts) else "frontdoor"
    rows = [("what", "before", after, "nginx", "ratio", "target", ""), *(verdict.cells() for verdict in verdicts)]
    return rows if after == "after" else [(row[0], *row[2:]) for row in rows]


def as_text(verdicts: list[Verdict]) -> str:
    """The table for a terminal."""
    rows = _table(verdicts)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:-1], widths[1:-1]), row[-1]]).rstrip() for row in rows
    )


def as_markdown(verdicts: list[Verdict], about: dict[str, Any]) -> str:
    """The table for a page, with the run that it comes from."""
    headings, *rows = _table(verdicts)
    source = "; ".join(f"{name}: {value}" for name, value in about.items())
    rule = "|---|" + "---:|" * (len(headings) - 2) + "---|"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(
        ["| " + " | ".join(headings) + " |", rule, *lines, "", f"Medians of interleaved rounds. {source}.", ""]
    )


_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .dim { fill: #59636e } .bar { fill: #2f6fd0 }
  .miss { fill: #c4432b } .base { stroke: #59636e } .limit { stroke: #1f2328; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } .bar { fill: #6ea8fe }
    .miss { fill: #ff8a70 } .base { stroke: #9198a1 } .limit { stroke: #e6edf3 } }
"""


def as_svg(verdicts: list[Verdict]) -> str:
    """A chart of what is compared with nginx: bars, nginx at 1, and the target of each as a dashed line."""
    rows = [(v, v.goal.limit, v.ratio) for v in verdicts if v.goal.kind == "ratio" and v.goal.limit and v.ratio]
    left, width, step, top = 300, 360, 30, 44
    longest = max([1.5, *(max(most, ratio) for _, most, ratio in rows)])
    scale = width / longest
    height = top + step * len(rows) + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 140} {height}" role="img">',
        f"<title>The frontdoor against nginx</title><style>{_STYLE}</style>",
        '<text x="8" y="18">The frontdoor against nginx (nginx = 1)</text>',
        '<text x="8" y="34" class="dim">dashed: the target</text>',
    ]
    for number, (verdict, most, ratio) in enumerate(rows):
        limit = left + most * scale
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
