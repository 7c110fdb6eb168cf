# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.plot import PlotSeries, chart, decades, ticks

NUMBERS = st.floats(0, 1e9, allow_nan=False, allow_subnormal=False)


@pytest.mark.parametrize(
    ("top", "steps"),
    [
        (781.04, [0, 200, 400, 600, 800]),
        (1126, [0, 250, 500, 750, 1000, 1250]),
        (5, [0, 1, 2, 3, 4, 5]),
        (0.49, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (0, [0, 1]),
    ],
)
def test_ticks_are_round(top, steps):
    assert ticks(top) == steps


@given(st.floats(1e-6, 1e12))
def test_ticks_reach_the_top_and_are_few(top):
    steps = ticks(top)
    assert steps[-1] >= top * 0.998
    assert steps[-2] < top
    assert len(steps) <= 6


def test_decades_hold_what_they_are_made_for():
    assert decades(0.071, 9.02) == [0.03, 0.1, 0.3, 1, 3, 10]


class Points(HTMLParser):
    """Where a chart draws: x and y of each dot, and whether tags are closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.dots: list[tuple[float, float]] = []
        self.opened: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        if tag == "circle":
            told = dict(attrs)
            self.dots.append((float(told["cx"]), float(told["cy"])))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.opened.pop()

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag


@given(st.lists(st.tuples(st.integers(1, 512), NUMBERS), min_size=1, max_size=30))
@example([(1, 125030049.0)])
def test_every_point_is_inside_the_axes(points):
    drawn = Points(chart("rate", "streams", "tok/s", [PlotSeries("a", points, 0)]))
    assert drawn.opened == []
    assert len(drawn.dots) == len(points)
    assert all(56 <= x <= 506 and 12 <= y <= 220 for x, y in drawn.dots)


def test_powers_of_two_are_as_far_from_each_other_and_more_is_higher():
    points = [(1, 58.2), (2, 109.4), (4, 201.7), (8, 352.9), (16, 548.1)]
    dots = Points(chart("rate", "streams", "tok/s", [PlotSeries("a", points, 0)])).dots
    gaps = {round(dots[place + 1][0] - dots[place][0]) for place in range(4)}
    assert len(gaps) == 1
    assert [y for _x, y in dots] == sorted((y for _x, y in dots), reverse=True)


def test_a_chart_names_its_axes_lines_and_points_and_escapes_them():
    text = chart(
        "rate", "streams", "tok/s", [PlotSeries("<b>", [(8, 781.04)], 0), PlotSeries("old", [(8, 700)], 0, old=True)]
    )
    assert "<b>" not in text
    assert text.index("</svg>&lt;b&gt;</li>") < text.index("</svg>old</li>")
    assert "&lt;b&gt;: 781 tok/s at 8 streams" in text
    assert re.findall(r'text-anchor="middle">([^<]*)', text) == ["8", "streams"]


def test_nothing_is_drawn_of_nothing():
    assert chart("rate", "streams", "tok/s", [PlotSeries("a", [], 0)]) == ""
