# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The axes of the scenarios' matrices, and which cases every run has; the others are exhaustive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Phase

Case = tuple[str, ...]

# Other slots make room in CLEAR, and one slot has none; a switch beside the old engine alone has RESTORE.
# ``_slot/test_make_room.py`` and ``_slot/test_beside.py`` kill those.
FORWARD = tuple(phase for phase in Phase if phase not in (Phase.CLEAR, Phase.RESTORE))
# The way back drains nobody, and sim-a, where it leads, has no warm-up.
BACK = tuple(phase for phase in FORWARD[FORWARD.index(Phase.CLOSE) :] if phase not in (Phase.DRAIN, Phase.WARM_UP))

# The profile that is served, and the one that is switched to.
ALIKE = ("sim-a", "sim-b")
KINDS = {
    "to-gguf": ("sim-a", "sim-gguf"),
    "to-image": ("sim-gguf", "sim-image"),
    "to-remote": ("sim-image", "sim-remote"),
    "to-vllm": ("sim-remote", "sim-a"),
}


def matrix(each_run: Iterable[Case], exhaustive: Iterable[Case] = ()) -> list[Any]:
    """Return all cases as parameters; those that not every run has are marked exhaustive."""
    always = list(each_run)
    more = [case for case in exhaustive if case not in always]
    return [pytest.param(*case, id="-".join(case)) for case in always] + [
        pytest.param(*case, marks=pytest.mark.exhaustive, id="-".join(case)) for case in more
    ]


def by_kind(parameters: Iterable[Any]) -> list[Any]:
    """Return the parameters for two engines of one kind, and those of each run for every other pair too."""
    known = list(parameters)
    rows = [pytest.param(ALIKE, *case.values, marks=case.marks, id=case.id) for case in known]
    for name, pair in KINDS.items():
        marks = [pytest.mark.exhaustive, pytest.mark.kinds]
        # None of these has a warm-up.
        rows += [
            pytest.param(pair, *case.values, marks=marks, id=f"{name}-{case.id}")
            for case in known
            if not case.marks and Phase.WARM_UP not in case.values
        ]
    return rows
