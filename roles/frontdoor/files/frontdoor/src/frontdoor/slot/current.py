# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot as requests see it: the state that was applied, and whether it is closed."""

from __future__ import annotations

import time

from frontdoor import errors
from frontdoor.errors import Refusal
from frontdoor.policy.dialect import dialect_of
from frontdoor.policy.editing import PathRules, policies
from frontdoor.slot.state import SlotState

STOPPING = Refusal(503, "stopping", "the frontdoor is stopping; try again shortly", 5)


class Slot:
    """Holds the applied state and what follows from it."""

    def __init__(self, state: SlotState) -> None:
        self.draining = False
        #: what requests are told while the slot takes no work
        self.closed: Refusal | None = None
        self.apply(state)

    def apply(self, state: SlotState) -> None:
        """Let requests be judged by this state from now on."""
        self.state = state
        #: whether the engine runs on another host
        self.remote = (state.profile or {}).get("remote") is True
        #: rules for bodies, by path
        self.rules: dict[str, PathRules] = policies(state.rules, state.profile, dialect_of(state.engine))
        #: the names by which clients ask for its model; one that was stopped keeps those of the last, so that no other
        #: model answers in its place
        name = str((state.profile or {}).get("served_model_name") or "")
        names = (name,) if name else state.names
        self.names = (*names, *state.rules.model_aliases) if names else ()
        self.count_down()

    def drain(self) -> None:
        """Take no more work, whatever the state says."""
        self.draining = True
        self.count_down()

    def count_down(self) -> None:
        """Tell clients what is left of the time until the slot is open."""
        is_open = self.state.open and any(one.open for one in self.state.replicas)
        closed = None if is_open else errors.closed(self.state, time.time())
        closed = STOPPING if self.draining else closed
        # one that says the same keeps its rendered answers
        if closed != self.closed:
            self.closed = closed
