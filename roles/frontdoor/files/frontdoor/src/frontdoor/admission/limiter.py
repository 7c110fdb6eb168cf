# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limiter of generations: permits, a bounded queue, fair turns. Pure code: no clock, no I/O."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol


class Verdict(enum.Enum):
    """Answer to `Limiter.enter`."""

    ADMITTED = "admitted"
    QUEUED = "queued"
    BUSY = "busy"
    QUEUE_FULL = "queue_full"


# looked up for each request
ADMITTED, QUEUED, BUSY, QUEUE_FULL = Verdict
# keys whose last turn is remembered
_KEYS_REMEMBERED = 4096
#: any replica
ANY: Final = -1


class Waiter(Protocol):
    """The callbacks of the limiter; hashable by identity."""

    #: the replica whose permits it holds, set before it is told; of no meaning before
    replica: int

    def choose(self, room: int) -> int:
        """Return which of the replicas with room to take; they are bits.

        It must not raise, and must not use the limiter.
        """

    def granted(self) -> None:
        """Hear that the permits are held from now on; must not raise, must not re-enter the limiter for itself."""

    def displaced(self) -> None:
        """Hear that the place in the queue went to a key that has fewer.

        It must not raise, and must not re-enter the limiter.
        """


class Limiter:
    """Counts the permits of each replica and keeps the one queue.

    A request takes as many permits as it asks for generations, all at once and of one replica. Sets of replicas are
    bits of a number.
    A holder is an entry in a table, so freeing twice, or freeing what was never held, changes nothing.
    The next turn is that of the key that holds the fewest permits, among those of the one served longest ago; within a
    key it is first come, first served. Who may only use replicas without room is passed by. Whose turn it is keeps one
    replica with room until there are permits enough: what becomes free there is kept for it. So a request for several
    permits waits for those that are held now, and no longer; and the others wait for one such request, not for all of
    them, since its key holds the most permits then.
    A full queue is shared alike: a newcomer takes the places of those who came last for the key with the most places,
    unless the two would only change sides. A request that waits takes as many places as it needs permits; an empty
    queue takes one of any size.
    """

    def __init__(self, limit: int, max_queued: int) -> None:
        """Begin with one replica, which has `limit` permits."""
        self.max_queued = max_queued
        #: permits in use, and permits that are waited for
        self.active = 0
        self.queued = 0
        #: permits of each replica in use; those that are no more keep their place
        self.held = [0]
        # permits of each replica, whether it is used or not
        self._limits = [limit]
        #: permits of all replicas that are used, and the most that one replica has
        self.limit = self.most = limit
        # the replicas that are used, and those of them that have a permit for anybody
        self._usable = self._room = 1
        # by waiter, in order of arrival: its key, how many permits it needs, and of which replicas
        self._holders: dict[Waiter, tuple[str, int]] = {}
        self._queued: dict[Waiter, tuple[str, int, int]] = {}
        # when a key last got a permit, as a running number; the key of the latest is the last
        self._served: dict[str, int] = {}
        self._serial = 0
        # the waiter for whom permits of a replica are kept
        self._turns: dict[int, Waiter] = {}
        self._note_room(0)

    @property
    def full(self) -> bool:
        """True if every new request would have to wait."""
        return not self._room

    @property
    def requests(self) -> int:
        """Requests that hold permits or wait for them."""
        return len(self._holders) + len(self._queued)

    def holders(self) -> list[tuple[Waiter, int]]:
        """Return the waiters that hold permits, and how many each."""
        return [(waiter, permits) for waiter, (_key, permits) in self._holders.items()]

    def waiting(self) -> list[Waiter]:
        """Return the waiters in the queue, in order of arrival."""
        return list(self._queued)

    def shares(self) -> dict[str, tuple[int, int]]:
        """Return, by key, how many permits it waits for and how many it holds."""
        waiting, held = self._waiting_by_key(), self._held_by_key()
        return {key: (waiting[key], held[key]) for key in sorted(waiting | held)}

    def enter(self, waiter: Waiter, key: str, *, may_wait: bool, permits: int = 1, may_use: int = ANY) -> Verdict:
        """Take permits, join the queue, or be refused. Only queued requests are `granted`."""
        room = self._room & may_use
        if room and permits > 1:
            room = self._with(room, permits)
        if room:
            self._take(waiter, key, permits, room)
            return ADMITTED
        if not may_wait:
            return BUSY
        displaced = self._room_for(key, permits)
        if displaced is None:
            return QUEUE_FULL
        for other in displaced:
            self._forget(other)
        self._queued[waiter] = key, permits, may_use
        self.queued += permits
        self._keep(waiter, permits, may_use)
        for other in displaced:
            other.displaced()
        return QUEUED

    def leave(self, waiter: Waiter) -> bool:
        """Give the permits or the place in the queue back; True when there were some."""
        if waiter in self._holders:
            permits, replica = self._holders.pop(waiter)[1], waiter.replica
            self.active -= permits
            self.held[replica] -= permits
            if not self._room >> replica & 1:
                self._note_room(replica)
        elif waiter in self._queued:
            self._forget(waiter)
        else:
            return False
        if self._queued:
            self._grant()
        return True

    def set_limits(self, limits: Sequence[int], usable: int = ANY) -> list[Waiter]:
        """Change how many permits each replica has, and which of them are used.

        A lower number takes effect as holders leave, and so does the end of a replica.
        Returns those who waited, and wait no more: they need more than there will ever be.
        """
        self._limits = list(limits)
        self.held += [0] * (len(self._limits) - len(self.held))
        self._usable = usable & ((1 << len(self._limits)) - 1)
        self.most = max(self._limits)
        self.limit = sum(limit for replica, limit in enumerate(self._limits) if self._usable >> replica & 1)
        # nothing is kept for anybody on a replica that is not used, or never has so many permits
        self._turns = {
            one: waiter
            for one, waiter in self._turns.items()
            if self._usable >> one & 1 and self._queued[waiter][1] <= self._limits[one]
        }
        for replica in range(len(self.held)):
            self._note_room(replica)
        beyond = [
            waiter
            for waiter, (_key, permits, may_use) in self._queued.items()
            if not any(may_use >> replica & 1 and permits <= limit for replica, limit in enumerate(self._limits))
        ]
        for waiter in beyond:
            self._forget(waiter)
        self._grant()
        return beyond

    def swap(self, one: int, other: int) -> None:
        """Exchange the places of two replicas, before their limits are set: who holds permits holds them still."""
        places = {one: other, other: one}
        self.held += [0] * (max(places) + 1 - len(self.held))
        self.held[one], self.held[other] = self.held[other], self.held[one]
        self._turns = {places.get(replica, replica): waiter for replica, waiter in self._turns.items()}
        for waiter in self._holders:
            waiter.replica = places.get(waiter.replica, waiter.replica)

    def dismiss(self) -> list[Waiter]:
        """Empty the queue and return those who waited, in order of arrival."""
        waiting = self.waiting()
        for waiter in waiting:
            self._forget(waiter)
        return waiting

    def _note_room(self, replica: int) -> None:
        """See whether a replica has a permit for anybody."""
        bit = 1 << replica
        if self._usable & bit and self.held[replica] < self._limits[replica] and replica not in self._turns:
            self._room |= bit
        else:
            self._room &= ~bit

    def _with(self, room: int, permits: int) -> int:
        """Return the replicas of `room` with so many free permits."""
        return sum(
            1 << replica
            for replica, limit in enumerate(self._limits)
            if room >> replica & 1 and limit - self.held[replica] >= permits
        )

    def _keep(self, waiter: Waiter, permits: int, may_use: int) -> bool:
        """Keep a replica for a waiter who finds permits there, but not enough: the one with the most free."""
        room = self._room & may_use
        if not room:
            return False
        free = [
            limit - held if room >> one & 1 and permits <= limit else 0
            for one, (limit, held) in enumerate(zip(self._limits, self.held, strict=False))
        ]
        if not max(free):
            return False
        replica = free.index(max(free))
        self._turns[replica] = waiter
        self._note_room(replica)
        return True

    def _take(self, waiter: Waiter, key: str, permits: int, room: int) -> None:
        """Take permits of one of the replicas in `room`."""
        # with one engine there is nothing to choose
        waiter.replica = replica = 0 if len(self._limits) == 1 else waiter.choose(room)
        self._holders[waiter] = key, permits
        self.active += permits
        self.held[replica] += permits
        if self.held[replica] >= self._limits[replica]:
            self._room &= ~(1 << replica)
        self._serial += 1
        self._served.pop(key, None)
        self._served[key] = self._serial
        if len(self._served) > _KEYS_REMEMBERED:
            # a forgotten key was served before all of these, and is taken for it
            del self._served[next(iter(self._served))]

    def _forget(self, waiter: Waiter) -> tuple[str, int, int]:
        """Take somebody out of the queue."""
        key, permits, may_use = self._queued.pop(waiter)
        self.queued -= permits
        for replica in [one for one, other in self._turns.items() if other is waiter]:
            del self._turns[replica]
            self._note_room(replica)
        return key, permits, may_use

    def _room_for(self, key: str, permits: int) -> list[Waiter] | None:
        """Return the waiters that have to leave the queue for a newcomer; None where it has to stay outside.

        They are the last of the keys with the most places, as long as these can give some and could not ask for them
        back. A waiter whose turn has come stays.
        """
        lacking = self.queued + permits - self.max_queued
        if lacking <= 0:
            return []
        if not self._queued:
            return [] if self.max_queued else None
        waiting, held = self._waiting_by_key(), self._held_by_key()
        own = waiting[key] + permits, held[key]

        def share(waiter: Waiter) -> tuple[int, int]:
            other = self._queued[waiter][0]
            return waiting[other], held[other]

        kept = set(self._turns.values())
        others = [one for one in reversed(self._queued) if one not in kept and self._queued[one][0] != key]
        leaving: list[Waiter] = []
        while lacking > 0:
            last = max(others, key=share, default=None)
            if last is None or own >= share(last):
                return None
            others.remove(last)
            leaving.append(last)
            other, given, _may_use = self._queued[last]
            waiting[other] -= given
            lacking -= given
        return leaving

    def _grant(self) -> None:
        """Let those in whose turn it is."""
        # a waiter that has one keeps it, and may find enough elsewhere first
        for kept, waiter in list(self._turns.items()):
            _key, permits, may_use = self._queued[waiter]
            fits = self._with((self._room | 1 << kept) & may_use, permits)
            if fits:
                self._admit(waiter, fits)
        held = self._held_by_key()

        def rank(waiter: Waiter) -> tuple[int, int]:
            key = self._queued[waiter][0]
            return held[key], self._served.get(key, 0)

        passed_by: set[Waiter] = set()
        while self._queued and self._room:
            out = passed_by.union(self._turns.values())
            able = [one for one, (_key, _n, may) in self._queued.items() if may & self._room and one not in out]
            if not able:
                return
            waiter = min(able, key=rank)
            key, permits, may_use = self._queued[waiter]
            fits = self._with(self._room & may_use, permits)
            if fits:
                held[key] += permits
                self._admit(waiter, fits)
            elif not self._keep(waiter, permits, may_use):
                passed_by.add(waiter)

    def _admit(self, waiter: Waiter, fits: int) -> None:
        """Admit a request from the queue."""
        key, permits, _may_use = self._forget(waiter)
        self._take(waiter, key, permits, fits)
        waiter.granted()

    def _held_by_key(self) -> Counter[str]:
        """Return how many permits each key holds."""
        found: Counter[str] = Counter()
        for key, permits in self._holders.values():
            found[key] += permits
        return found

    def _waiting_by_key(self) -> Counter[str]:
        """Return how many permits each key waits for."""
        found: Counter[str] = Counter()
        for key, permits, _may_use in self._queued.values():
            found[key] += permits
        return found
