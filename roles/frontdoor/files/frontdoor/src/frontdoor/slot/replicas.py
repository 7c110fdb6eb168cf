# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines of the slot: the connections to each, the state of each, and which of them are used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from frontdoor.config import Backend
from frontdoor.http.upstream import Pool
from frontdoor.observability.events import EventLog
from frontdoor.slot.engine import EngineHealth, Probe, Vitals
from frontdoor.slot.state import ReplicaState, SlotState


class Replica:
    """One engine: where it is, whether it answers, how fast it generates."""

    def __init__(
        self,
        index: int,
        state: ReplicaState,
        loop: asyncio.AbstractEventLoop,
        backend: Backend,
        events: EventLog,
        changed: Callable[[], None],
        active: Callable[[int], int],
    ) -> None:
        """Take one engine.

        `changed` hears that it answers, or no longer does; `active` tells how many generations it runs.
        """
        self.index = index
        self.state = state
        self.pool = Pool(loop, backend)
        self.health = EngineHealth(events, changed)
        self.probe = Probe(self.pool, self.health, loop.time, backend.silence_limit_s)
        self.vitals = Vitals(self.pool, self.health, loop.time, lambda: active(self.index), lambda: self.state.engine)
        #: requests under way that need no permit
        self.passing = 0

    def apply(self, state: ReplicaState, *, anew: bool) -> bool:
        """Take what the slot says of it; return whether another engine may run now, as `anew` says in any case."""
        before, self.state = self.state, state
        self.pool.point_to(state.backend_url)
        another = (before.engine, before.backend_url) != (state.engine, state.backend_url)
        if another:
            self.vitals.forget()
        if not (anew or another or before.open != state.open):
            return False
        # the findings were about the old engine, or about the time without one
        self.health.forget()
        self.probe.again()
        return True

    def stop(self) -> None:
        """Stop asking the engine."""
        self.probe.stop()
        self.vitals.stop()
        self.pool.drop_idle()


class Replicas:
    """All of them; their number is that of the state."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        backend: Backend,
        events: EventLog,
        changed: Callable[[], None],
        active: Callable[[int], int],
        swapped: Callable[[int, int], None],
    ) -> None:
        """Take the loop and the backend. `swapped` hears of two replicas that have each other's place now."""
        self._loop = loop
        self._swapped = swapped
        self._backend = backend
        self._events = events
        self._changed = changed
        self._active = active
        #: in order of their indices; at least one once a state was applied
        self.all: list[Replica] = []
        #: whether there is something to choose
        self.several = False

    def apply(self, state: SlotState, *, anew: bool) -> bool:
        """Have as many as the state says; requests that run on one that is no more go on there.

        Returns whether all of them may be others than before.
        """
        self._keep(state)
        changed = [one.apply(told, anew=anew) for one, told in zip(self.all, state.replicas, strict=False)]
        for index in range(len(self.all), len(state.replicas)):
            told = state.replicas[index]
            made = Replica(index, told, self._loop, self._backend, self._events, self._changed, self._active)
            made.pool.point_to(told.backend_url)
            self.all.append(made)
        for gone in self.all[len(state.replicas) :]:
            gone.stop()
        del self.all[len(state.replicas) :]
        self.several = len(self.all) > 1
        for replica in self.all:
            replica.health.replica = replica.index if self.several else None
            replica.pool.share(len(self.all))
        return all(changed)

    def _keep(self, state: SlotState) -> None:
        """Give each engine that has another place now what is known of it, and what it has under way."""
        for place, told in enumerate(state.replicas[: len(self.all)]):
            known = [one for one in self.all if told.engine is not None and one.state.engine == told.engine]
            if not known or known[0].index == place:
                continue
            other, one = self.all[place], known[0]
            self._swapped(place, one.index)
            self.all[place], self.all[one.index] = one, other
            one.index, other.index = place, one.index

    def next(self, tried: int) -> Replica:
        """Return the least loaded replica for a request without a permit, of those not in `tried`, which are bits."""
        if not self.several:
            return self.all[0]
        among, loads = self.usable & ~tried or self.open, self.loads()
        return min((one for one in self.all if among >> one.index & 1), key=lambda one: loads[one.index])

    @property
    def open(self) -> int:
        """The replicas that may be given requests, as bits; all of them where the slot has no open one."""
        found = sum(1 << one.index for one in self.all if one.state.open)
        return found or (1 << len(self.all)) - 1

    @property
    def usable(self) -> int:
        """The open replicas that answer, as far as is known; all open ones where none does."""
        found = sum(1 << one.index for one in self.all if one.state.open and one.health.reachable is not False)
        return found or self.open

    @property
    def used(self) -> list[Replica]:
        """The open ones."""
        return [one for one in self.all if self.open >> one.index & 1]

    def loads(self) -> list[int]:
        """Return the requests under way, by replica."""
        return [self._active(one.index) + one.passing for one in self.all]

    def run_probes(self) -> None:
        for replica in self.all:
            replica.probe.run()

    def run_vitals(self) -> None:
        for replica in self.all:
            replica.vitals.run()

    def sweep(self) -> None:
        """Close connections that have been idle too long."""
        for replica in self.all:
            replica.pool.sweep()

    def stop(self) -> None:
        for replica in self.all:
            replica.stop()

    # --- taken together, where one number is told -------------------------------------------------------------------

    @property
    def reachable(self) -> bool | None:
        """True if a replica answers; None while that is not known."""
        found = {one.health.reachable for one in self.used}
        return True if True in found else None if None in found else False

    @property
    def error(self) -> str:
        """The reason why no replica answers; empty as long as one does."""
        if self.reachable:
            return ""
        return next((one.health.error for one in self.used if one.health.error), "")

    @property
    def silent_s(self) -> float | None:
        """For how long the one that is silent longest has sent nothing; None while none is known to be silent."""
        return max((found for one in self.used if (found := one.probe.silent_s) is not None), default=None)

    @property
    def tokens_per_s(self) -> float | None:
        """The sum of the reported values; None if none reports one."""
        told = [found for one in self.used if (found := one.vitals.tokens_per_s) is not None]
        return sum(told) if told else None

    @property
    def cache_used(self) -> float | None:
        """The share in use of the fullest cache, from 0 to 1; None if none reports it."""
        return max((found for one in self.used if (found := one.vitals.cache_used) is not None), default=None)
