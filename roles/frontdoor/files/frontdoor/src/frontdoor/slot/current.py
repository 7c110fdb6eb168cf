# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot as requests see it: the state that was applied, and whether it is closed."""

from __future__ import annotations

import time

from frontdoor import errors
from frontdoor.errors import Refusal
from frontdoor.policy.editing import PathRules, policies
from frontdoor.slot.state import SlotState

STOPPING = Refusal(503, "stopping", "the frontdoor is stopping; try again shortly", 5)


class Slot:
    """Holds the applied state and what follows from it."""

    def __init__(self, state: SlotState) -> None:
        self.draining = False
        self.apply(state)

    def apply(self, state: SlotState) -> None:
        """Let requests be judged by this state from now on."""
        self.state = state
        #: rules for bodies, by path
        self.rules: dict[str, PathRules] = policies(state.rules, state.profile)
        #: what requests are told while the slot takes no work
        self.closed: Refusal | None = None
        if self.draining:
            self.closed = STOPPING
        elif not state.open:
            self.closed = errors.closed(state, time.time())

    def drain(self) -> None:
        """Take no more work, whatever the state says."""
        self.draining = True
        self.closed = STOPPING

    def count_down(self) -> None:
        """Tell clients what is left of the time until the slot is open."""
        if self.closed is not None and not self.draining:
            closed = errors.closed(self.state, time.time())
            if closed != self.closed:
                self.closed = closed
