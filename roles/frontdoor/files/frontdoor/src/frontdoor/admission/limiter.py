# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may generate now: permits, a bounded queue, fair turns. Pure code: no clock, no I/O."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Protocol


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


class Waiter(Protocol):
    """What the limiter calls back; hashable by identity."""

    def granted(self) -> None:
        """Its permits are held from now on. Must not raise, must not re-enter the limiter for itself."""

    def displaced(self) -> None:
        """The place in the queue is lost to a key that has fewer. Must not raise, must not re-enter the limiter."""


class Limiter:
    """Counts permits and keeps the queue. A request takes as many permits as it asks for generations, all at once.

    A holder is an entry in a table, so freeing twice, or freeing what was never held, changes nothing.
    The next turn is that of the key that holds the fewest permits, among those of the one served longest ago; within a
    key it is first come, first served. Whose turn it is keeps it until there are permits enough: what becomes free is
    kept for it, and nobody passes by. So a request for several permits waits for those that are held now, and no
    longer; and the others wait for one such request, not for all of them, since its key holds the most permits then.
    A full queue is shared alike: a newcomer takes the places of those who came last for the key with the most places,
    unless the two would only change sides. A request that waits takes as many places as it needs permits; an empty
    queue takes one of any size.
    """

    def __init__(self, limit: int, max_queued: int) -> None:
        self.limit = limit
        self.max_queued = max_queued
        #: permits in use, and permits that are waited for
        self.active = 0
        self.queued = 0
        # by waiter, in order of arrival: its key, and how many permits it needs
        self._holders: dict[Waiter, tuple[str, int]] = {}
        self._queued: dict[Waiter, tuple[str, int]] = {}
        # when a key last got a permit, as a running number; the key of the latest is the last
        self._served: dict[str, int] = {}
        self._serial = 0
        # for whom permits are kept
        self._turn: Waiter | None = None

    @property
    def full(self) -> bool:
        """Whether a newcomer would have to wait."""
        return self.active >= self.limit or bool(self._queued)

    @property
    def requests(self) -> int:
        """Requests that hold permits or wait for them."""
        return len(self._holders) + len(self._queued)

    def holders(self) -> list[tuple[Waiter, int]]:
        """Those who hold permits, and how many each."""
        return [(waiter, permits) for waiter, (_key, permits) in self._holders.items()]

    def waiting(self) -> list[Waiter]:
        """Those in the queue, in order of arrival."""
        return list(self._queued)

    def shares(self) -> dict[str, tuple[int, int]]:
        """By key: permits waited for, and permits held."""
        waiting, held = _by_key(self._queued), _by_key(self._holders)
        return {key: (waiting[key], held[key]) for key in sorted(waiting | held)}

    def enter(self, waiter: Waiter, key: str, *, may_wait: bool, permits: int = 1) -> Verdict:
        """Take permits, no more than there are; or join the queue, or be refused. Only who queued is `granted` them."""
        if not self._queued and self.active + permits <= self.limit:
            self._take(waiter, key, permits)
            return ADMITTED
        if not may_wait:
            return BUSY
        displaced = self._room_for(key, permits)
        if displaced is None:
            return QUEUE_FULL
        for other in displaced:
            self._forget(other)
        self._queued[waiter] = key, permits
        self.queued += permits
        if self._turn is None and self.active < self.limit:
            # there are permits, but not enough: they are kept
            self._turn = waiter
        for other in displaced:
            other.displaced()
        return QUEUED

    def leave(self, waiter: Waiter) -> bool:
        """Give the permits or the place in the queue back; True when there were some."""
        if waiter in self._holders:
            self.active -= self._holders.pop(waiter)[1]
        elif waiter in self._queued:
            self._forget(waiter)
        else:
            return False
        if self._queued:
            self._grant()
        return True

    def set_limit(self, limit: int) -> list[Waiter]:
        """Change the number of permits at once; a lower number takes effect as holders leave.

        Returns those who waited, and wait no more: they need more than there will ever be.
        """
        self.limit = limit
        beyond = [waiter for waiter, (_key, permits) in self._queued.items() if permits > limit]
        for waiter in beyond:
            self._forget(waiter)
        self._grant()
        return beyond

    def dismiss(self) -> list[Waiter]:
        """Empty the queue and return those who waited, in order of arrival."""
        waiting = self.waiting()
        self._queued.clear()
        self.queued, self._turn = 0, None
        return waiting

    def _take(self, waiter: Waiter, key: str, permits: int) -> None:
        self._holders[waiter] = key, permits
        self.active += permits
        self._serial += 1
        self._served.pop(key, None)
        self._served[key] = self._serial
        if len(self._served) > _KEYS_REMEMBERED:
            # who is forgotten was served before all of these, and is taken for it
            del self._served[next(iter(self._served))]

    def _forget(self, waiter: Waiter) -> tuple[str, int]:
        """Take somebody out of the queue."""
        key, permits = self._queued.pop(waiter)
        self.queued -= permits
        if waiter is self._turn:
            self._turn = None
        return key, permits

    def _room_for(self, key: str, permits: int) -> list[Waiter] | None:
        """Who has to leave the queue for a newcomer; None where it has to stay outside.

        Those are the last of the keys with the most places, as long as these can give some and could not ask for them
        back. Whose turn has come stays.
        """
        lacking = self.queued + permits - self.max_queued
        if lacking <= 0:
            return []
        if not self._queued:
            return [] if self.max_queued else None
        waiting, held = _by_key(self._queued), _by_key(self._holders)
        own = waiting[key] + permits, held[key]

        def share(waiter: Waiter) -> tuple[int, int]:
            other = self._queued[waiter][0]
            return waiting[other], held[other]

        others = [one for one in reversed(self._queued) if one is not self._turn and self._queued[one][0] != key]
        leaving: list[Waiter] = []
        while lacking > 0:
            last = max(others, key=share, default=None)
            if last is None or own >= share(last):
                return None
            others.remove(last)
            leaving.append(last)
            other, given = self._queued[last]
            waiting[other] -= given
            lacking -= given
        return leaving

    def _grant(self) -> None:
        """Let those in whose turn it is."""
        held = _by_key(self._holders)

        def rank(waiter: Waiter) -> tuple[int, int]:
            key = self._queued[waiter][0]
            return held[key], self._served.get(key, 0)

        while self._queued and (self._turn or self.active < self.limit):
            waiter = self._turn = self._turn or min(self._queued, key=rank)
            if self.active + self._queued[waiter][1] > self.limit:
                return
            key, permits = self._forget(waiter)
            self._take(waiter, key, permits)
            held[key] += permits
            waiter.granted()


def _by_key(waiters: dict[Waiter, tuple[str, int]]) -> Counter[str]:
    """How many permits these hold, or wait for, by key."""
    found: Counter[str] = Counter()
    for key, permits in waiters.values():
        found[key] += permits
    return found
