# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line chart as SVG inside HTML: axes, ticks, a legend, light and dark, no script. Pure."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

COLOURS = 6
STYLE = """
:root { --s0: #1f66d1; --s1: #c2620a; --s2: #1a7f55; --s3: #8444bd; --s4: #b8336a; --s5: #6b6f76; }
@media (prefers-color-scheme: dark) {
  :root { --s0: #6ea8fe; --s1: #f0a35e; --s2: #4cc38a; --s3: #b692f6; --s4: #f27ea9; --s5: #a2a8b0; }
}
figure { margin: 0; } figure svg { display: block; height: auto; max-width: 34rem; width: 100%; }
figure h4 { margin: .2rem 0; font-weight: 600; }
.plots { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }
.plot text { fill: currentColor; font: 12px system-ui, sans-serif; opacity: .75; }
.plot .grid { stroke: var(--line); } .plot .axis { stroke: currentColor; opacity: .5; }
.plot polyline { fill: none; stroke-linejoin: round; stroke-width: 2; } .old { opacity: .65; stroke-dasharray: 5 4; }
.legend { display: flex; flex-wrap: wrap; font-size: 13px; gap: .1rem 1.2rem; }
.legend { list-style: none; margin: .2rem 0 0; padding: 0; }
.legend svg { display: inline; height: .6rem; margin-right: .4rem; width: 1.6rem; }
"""
_WIDTH, _HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 40
_LEAST = 1e-300  # smaller values have no power of ten that can be computed
_LABEL = 26  # the least room between two labels of the x axis


@dataclass(frozen=True)
class PlotSeries:
    """One line. colour: a number, the same for lines that belong together. old: drawn dashed and paler."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    old: bool = False


def ticks(top: float, count: int = 5) -> list[float]:
    """Return round numbers from 0 to `top` or just above, about `count` of them."""
    if top <= _LEAST:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(top / count))
    least = top * (1 - 1e-9)  # rounding may miss a round number by this much
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * count >= least)
    return [round(step * number, 10) for number in range(math.ceil(least / step) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return powers of ten, and 3 between them, from one at or below `low` to one at or above `high`."""
    every = [float(f"{digit}e{power}") for power in range(-9, 13) for digit in (1, 3)]
    first = max(number for number, step in enumerate(every) if step <= low)
    last = min(number for number, step in enumerate(every) if step >= high)
    return every[first : last + 1]


def _share(value: float, low: float, high: float, power: bool) -> float:
    """Return where a value is between two others: 0 at the lower one, 1 at the higher one."""
    if low == high:
        return 0.5
    if power:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def chart(title: str, x_name: str, y_name: str, series: Sequence[PlotSeries]) -> str:
    """Return a figure, or nothing if there is no point. An axis whose values differ by large factors is logarithmic."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return ""
    xs = sorted({x for one in drawn for x, _y in one.points})
    ys = [y for one in drawn for _x, y in one.points]
    power_x = 0 < xs[0] < xs[-1] / 6 and len(xs) < 12
    power_y = 1e-9 < min(ys) < max(ys) / 30 < 1e10
    steps = decades(min(ys), max(ys)) if power_y else ticks(max(ys))

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = _share(x, xs[0], xs[-1], power_x), _share(y, steps[0], steps[-1], power_y)
        room = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + across * room[0], 1), round(_HEIGHT - _BOTTOM - up * room[1], 1)

    parts = []
    for step in steps:
        level = at(xs[0], step)[1]
        line = "axis" if step == steps[0] else "grid"
        parts.append(f'<line class="{line}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level}" y2="{level}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{level + 4}" text-anchor="end">{_number(step)}</text>')
    base, last = _HEIGHT - _BOTTOM, -math.inf
    for x in xs:
        place = at(x, steps[0])[0]
        if place - last >= _LABEL:
            last = place
            parts.append(f'<line class="axis" x1="{place}" x2="{place}" y1="{base}" y2="{base + 4}"/>')
            parts.append(f'<text x="{place}" y="{base + 18}" text-anchor="middle">{_number(x)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 5}" text-anchor="middle">{html.escape(x_name)}</text>')
    parts += [_line(one, [at(x, y) for x, y in one.points], x_name, y_name) for one in drawn]
    name = html.escape(f"{title}, {y_name}")
    keys = "".join(map(_key, sorted(drawn, key=lambda one: one.old)))
    return (
        f'<figure class="plot"><h4>{name}</h4><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}">'
        f'{"".join(parts)}</svg><ul class="legend">{keys}</ul></figure>'
    )


def _line(one: PlotSeries, places: Sequence[tuple[float, float]], x_name: str, y_name: str) -> str:
    colour, kind = f"var(--s{one.colour % COLOURS})", ' class="old"' if one.old else ""
    line = f'<polyline points="{" ".join(f"{x},{y}" for x, y in places)}" stroke="{colour}"/>'
    size = 3 if one.old or len(places) > 30 else 4
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{size}" fill="{colour}"><title>'
        f"{html.escape(f'{one.name}: {_number(point[1])} {y_name} at {_number(point[0])} {x_name}')}</title></circle>"
        for (x, y), point in zip(places, one.points, strict=True)
    )
    return f"<g{kind}>{line}{dots}</g>"


def _key(one: PlotSeries) -> str:
    kind = ' class="old"' if one.old else ""
    colour = f"var(--s{one.colour % COLOURS})"
    return (
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><line x1="0" x2="26" y1="5" y2="5" stroke-width="3" '
        f'stroke="{colour}"{kind}/></svg>{html.escape(one.name)}</li>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
