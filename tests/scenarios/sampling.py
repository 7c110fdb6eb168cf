# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which combinations of a matrix every run of the tests has; the others are exhaustive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Case = tuple[str, ...]


def sampled(cases: Iterable[Case], wanted: Callable[[int, Case], bool]) -> list[Any]:
    """Return the cases as parameters; those that are not wanted, by number and content, are marked exhaustive."""
    return [
        pytest.param(*case, marks=() if wanted(number, case) else pytest.mark.exhaustive, id="-".join(case))
        for number, case in enumerate(cases)
    ]


def every_second(number: int, _case: Case) -> bool:
    """Choose every second case."""
    return number % 2 == 0
