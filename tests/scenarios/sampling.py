# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which combinations of a matrix every run of the tests has; the others are exhaustive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Case = tuple[str, ...]
# The profile that is served, and the one that is switched to.
ALIKE = ("sim-a", "sim-b")
KINDS = {
    "to-gguf": ("sim-a", "sim-gguf"),
    "to-image": ("sim-gguf", "sim-image"),
    "to-remote": ("sim-image", "sim-remote"),
    "to-vllm": ("sim-remote", "sim-a"),
}


def sampled(cases: Iterable[Case], wanted: Callable[[int, Case], bool]) -> list[Any]:
    """Return the cases as parameters; those that are not wanted, by number and content, are marked exhaustive."""
    return [
        pytest.param(*case, marks=() if wanted(number, case) else pytest.mark.exhaustive, id="-".join(case))
        for number, case in enumerate(cases)
    ]


def by_kind(cases: Iterable[Any]) -> list[Any]:
    """Return the parameters for two engines of one kind, and those that are not exhaustive for every other pair too."""
    known = list(cases)
    rows = [pytest.param(ALIKE, *case.values, marks=case.marks, id=case.id) for case in known]
    for name, pair in KINDS.items():
        marks = [pytest.mark.exhaustive, pytest.mark.kinds]
        rows += [
            pytest.param(pair, *case.values, marks=marks, id=f"{name}-{case.id}") for case in known if not case.marks
        ]
    return rows


def every_second(number: int, _case: Case) -> bool:
    """Choose every second case."""
    return number % 2 == 0
