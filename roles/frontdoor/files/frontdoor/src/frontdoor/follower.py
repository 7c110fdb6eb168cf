# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows the state file of one slot, and keeps what its requests need in step with the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontdoor.admission.limiter import Limiter
from frontdoor.admission.outlook import Outlook
from frontdoor.admission.permits import Permits
from frontdoor.admission.router import Router
from frontdoor.config import Config
from frontdoor.http.client import Target
from frontdoor.observability.events import EventLog
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.sentinel import Sentinel
from frontdoor.policy.dialect import dialect_of
from frontdoor.policy.routing import Reader
from frontdoor.slot.current import STOPPING, Slot
from frontdoor.slot.replicas import Replicas
from frontdoor.slot.state import SlotState, StateFile


def _judged_by(state: SlotState) -> tuple[object, ...]:
    """Return what the rules for bodies depend on; another stack of the same model changes none of it."""
    profile, lengths = state.profile or {}, tuple(one.max_model_len for one in state.replicas)
    names = ("name", "served_model_name", "modalities", "reasoning", "remote")
    return state.rules, lengths, dialect_of(state.engine), *(profile.get(name) for name in names)


class Follower:
    """One slot: its file, its engines, and their permits. `applied` is called with each change."""

    def __init__(
        self,
        index: int,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        events: EventLog,
        ledger: Ledger,
        applied: Callable[[Follower, SlotState], None],
    ) -> None:
        """Take a `config` with this slot as its `slot`. `applied` hears who has a new state, and the one before."""
        self.name = config.slot.name
        self._ledger, self._events, self._applied = ledger, events, applied
        admission = config.admission
        self.limiter = Limiter(admission.max_active_generations, admission.max_queued)
        self.router = Router()
        self.replicas = Replicas(
            loop,
            config.backend,
            events,
            changed=self._replicas_changed,
            active=lambda number: self.limiter.held[number],
            swapped=self.limiter.swap,
        )
        self.permits = Permits(
            self.limiter,
            self.router,
            Outlook(),
            loop,
            loads=self.replicas.loads,
            waited=ledger.metrics.slots[self.name].queue_wait.observe,
            settle=ledger.settle,
        )
        self.sentinel = Sentinel(self.name, config.sentinels, ledger.metrics, events)
        self._state_file = StateFile(config)
        first = self._state_file.poll()
        assert first is not None
        self.slot = Slot(first)
        self._sequence = first.sequence
        self.target = Target(index, self.name, self.slot, self.replicas, self.permits, self.sentinel)
        self.reader = Reader(first.routing, (), counts_answer=False)
        self._take(first, first)

    def drain(self, *, dismiss: bool) -> None:
        """Take no more requests; with `dismiss` those that wait are refused, else they keep their places."""
        self.slot.drain()
        if dismiss:
            self.permits.dismiss(STOPPING)

    def configure(self, config: Config) -> None:
        """Go by new settings from the next poll on, which reads the file again, changed or not."""
        self.limiter.max_queued = config.admission.max_queued
        self._state_file.forget(config)

    def poll(self) -> None:
        """Apply the state file when it changed."""
        state = self._state_file.poll()
        if state is None:
            return
        before = self.slot.state
        if 0 < state.sequence < self._sequence:
            # the file decides, but its author should know
            self._events.emit("state_went_back", slot=self.name, sequence=state.sequence, was=self._sequence)
        self._sequence = state.sequence or self._sequence
        # requests that ended before are logged by the old rules
        self._ledger.settle()
        self.slot.apply(state)
        count = len(self.replicas.all)
        # first, so that a dismissed request finds the slot that serves its model now
        self._applied(self, before)
        self._take(state, before)
        if len(self.replicas.all) > count:
            self.replicas.run_probes()

    def _take(self, state: SlotState, before: SlotState) -> None:
        """Pass the new state on to the parts."""
        self.sentinel.apply(state)
        if self.replicas.apply(state, anew=before.phase != state.phase):
            self.permits.outlook.forget()
            self.router.forget()
        self.reader = Reader(
            state.routing,
            [one.max_model_len or 0 for one in state.replicas],
            counts_answer=dialect_of(state.engine).counts_answer,
        )
        self.permits.outlook.crowded_until = 0.0
        # waiting requests were edited by the rules of what was served before
        self._set_permits(anew=self.slot.closed is not None or _judged_by(state) != _judged_by(before))

    def _set_permits(self, *, anew: bool = False) -> None:
        """Admit requests as the new state allows; with `anew`, waiting requests begin anew."""
        limits = [one.state.max_active_generations for one in self.replicas.all]
        self.permits.set(limits, self.replicas.usable, self.slot.state.queue_timeout_s, anew=anew)

    def _replicas_changed(self) -> None:
        """Set the permits anew: one of the engines answers, or no longer does."""
        if self.replicas.several:
            self._set_permits()
