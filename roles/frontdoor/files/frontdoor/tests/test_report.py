# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark's verdicts: what is compared with what, and on which side of the limit it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.dom import minidom

import pytest

SOURCE = Path(__file__).resolve().parents[5] / "tests" / "load" / "report.py"
pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason="the package stands without its repository")


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["report"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rounds(scenario: str, figure: str, pairs: list[tuple[float, float]]) -> list[dict[str, Any]]:
    return [{scenario: {"frontdoor": {figure: ours}, "nginx": {figure: nginx}}} for ours, nginx in pairs]


@pytest.mark.parametrize(
    ("scenario", "figure", "pairs", "held"),
    [
        # the median of the rounds' ratios is 1.1; that of the medians would be 2
        ("stream 64", "cpu_s_per_1m_events", [(11, 10), (22, 20), (40, 20)], True),
        ("stream 64", "cpu_s_per_1m_events", [(13, 10)], False),
        ("begin 64", "first_p99", [(350, 260)], True),
        ("begin 64", "first_p99", [(361, 260)], False),
        ("begin 256", "first_p99", [(500, 260)], True),
        ("begin 256", "first_p99", [(530, 260)], False),
        ("plain", "requests_per_s", [(50, 100)], True),
        ("plain", "requests_per_s", [(49, 100)], False),
        ("flood", "requests_per_s", [(69, 100)], False),
        ("flood", "held_pace", [(0.99, 1)], True),
        ("flood", "most_active", [(9, 8)], False),
    ],
)
def test_a_figure_is_held_against_its_target(
    report: ModuleType, scenario: str, figure: str, pairs: list[tuple[float, float]], held: bool
) -> None:
    (verdict,) = [v for v in report.judge(rounds(scenario, figure, pairs)) if v.ours is not None]
    assert (verdict.goal.scenario, verdict.goal.figure) == (scenario, figure)
    assert verdict.held is held
    assert ("PASS" if held else "MISS") in report.as_text([verdict])
    assert report.as_markdown([verdict], {"date": "today"}).count("|") == 21
    minidom.parseString(report.as_svg([verdict]))


def test_what_was_not_measured_is_neither_held_nor_missed(report: ModuleType) -> None:
    assert all(verdict.held is None for verdict in report.judge([{}]))
