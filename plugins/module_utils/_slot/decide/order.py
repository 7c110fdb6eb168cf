# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a switch, taken from the order of its phases."""

from __future__ import annotations

from ..words.types import Phase


def _span(first: Phase, last: Phase) -> tuple[Phase, ...]:
    order = tuple(Phase)
    return order[order.index(first) : order.index(last) + 1]


UNTOUCHED = _span(Phase.LOCK, Phase.CLEAR)  # nothing of the slot is touched yet
REPLACING = _span(Phase.CLOSE, Phase.OPEN)  # what each batch of engines takes
STOPPING = _span(Phase.STOP, Phase.RELEASE)
STARTING = _span(Phase.START, Phase.CANARY)  # what fails here may lie with the engine
VERIFYING = _span(Phase.ALIVE, Phase.CANARY)
FINISHING = _span(Phase.OPEN, Phase.COMMIT)
JUDGING = (Phase.IDENTITY, Phase.CANARY)  # what fails here is not explained by the log of an engine that still runs
