# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may generate now: slots, a bounded queue, fair turns. Pure code: no clock, no I/O."""

from __future__ import annotations

import enum
from collections import Counter, deque
from operator import itemgetter
from typing import Protocol


class Verdict(enum.Enum):
    """Answer to `Limiter.enter`."""

    ADMITTED = "admitted"
    QUEUED = "queued"
    BUSY = "busy"
    QUEUE_FULL = "queue_full"


# looked up for each request
ADMITTED, QUEUED, BUSY, QUEUE_FULL = Verdict


# keys whose last turn is remembered; beyond that the half that was served last
_KEYS_REMEMBERED = 4096


class Waiter(Protocol):
    """What the gate calls back; hashable by identity."""

    def granted(self) -> None:
        """Its slots are held from now on. Must not raise, must not re-enter the gate for itself."""

    def displaced(self) -> None:
        """The place in the queue is lost to a key that has fewer. Must not raise, must not re-enter the gate."""


class Limiter:
    """Counts slots and keeps the queue. A request takes as many slots as it asks for generations, all at once.

    A holder is an entry in a table, so freeing twice, or freeing what was never held, changes nothing.
    The next turn is that of the key that holds the fewest slots, among those of the one served longest ago; within a
    key it is first come, first served. Whose turn it is keeps it until there are slots enough: what becomes free is
    kept for it, and nobody passes by. So a request for several slots waits for those that are held now, and no longer;
    and the others wait for one such request, not for all of them, since its key holds the most slots then.
    A full queue is shared alike: a newcomer takes the places of those who came last for the key with the most places,
    unless the two would only change sides. A request that waits takes as many places as it needs slots; an empty queue
    takes one of any size.
    """

    def __init__(self, limit: int, max_queued: int) -> None:
        self.limit = limit
        self.max_queued = max_queued
        self._holders: dict[Waiter, str] = {}
        #: whether a newcomer would have to wait
        self.full = False
        # when a key last got a slot, as a running number
        self._served: dict[str, int] = {}
        self._serial = 0
        self._queues: dict[str, deque[Waiter]] = {}
        self._queued: dict[Waiter, str] = {}
        # of those that need more than one: how many; and what that is beyond one each, held and waited for
        self._wide: dict[Waiter, int] = {}
        self._more_held = 0
        self._more_queued = 0
        # for whom slots are kept
        self._turn: Waiter | None = None

    @property
    def active(self) -> int:
        """Slots in use."""
        return len(self._holders) + self._more_held

    @property
    def queued(self) -> int:
        """Slots waited for."""
        return len(self._queued) + self._more_queued

    @property
    def requests(self) -> int:
        """Requests that hold slots or wait for them."""
        return len(self._holders) + len(self._queued)

    def holders(self) -> list[tuple[Waiter, int]]:
        """Those who hold slots, and how many each."""
        return [(waiter, self._wide.get(waiter, 1)) for waiter in self._holders]

    def fits(self, places: int) -> bool:
        """Whether a newcomer would get so many slots at once."""
        return not self.full and self.active + places <= self.limit

    def shares(self) -> dict[str, tuple[int, int]]:
        """By key: slots waited for, and slots held."""
        waiting, held = self._places(self._queued), self._places(self._holders)
        return {key: (waiting[key], held[key]) for key in sorted(waiting | held)}

    def enter(self, waiter: Waiter, key: str, *, may_wait: bool, places: int = 1) -> Verdict:
        """Take slots, no more than there are; or join the queue, or be refused. Only who queued is `granted` them."""
        if self.fits(places):
            self.take(waiter, key, places)
            return ADMITTED
        if not may_wait:
            return BUSY
        displaced = self._room_for(key, places)
        if displaced is None:
            return QUEUE_FULL
        for other in displaced:
            self._forget(other)
        self._queued[waiter] = key
        if places > 1:
            self._wide[waiter] = places
            self._more_queued += places - 1
        self.full = True
        self._queues.setdefault(key, deque()).append(waiter)
        if self._turn is None and self.active < self.limit:
            # there are slots, but not enough: they are kept
            self._turn = waiter
        for other in displaced:
            other.displaced()
        return QUEUED

    def leave(self, waiter: Waiter) -> bool:
        """Give the slots or the place in the queue back; True when there were some."""
        if self._holders.pop(waiter, None) is not None:
            if self._wide:
                self._more_held -= self._wide.pop(waiter, 1) - 1
            if self._queues:
                self._grant()
            else:
                self.full = len(self._holders) + self._more_held >= self.limit
            return True
        if waiter not in self._queued:
            return False
        self._forget(waiter)
        self._grant()
        self._weigh()
        return True

    def waiting(self) -> list[Waiter]:
        """Those in the queue, in order of arrival."""
        return list(self._queued)

    def set_limit(self, limit: int) -> list[Waiter]:
        """Change the number of slots at once; a lower number takes effect as holders leave.

        Returns those who waited, and wait no more: they need more than there will ever be.
        """
        self.limit = limit
        beyond = [waiter for waiter in self._queued if self._wide.get(waiter, 1) > limit]
        for waiter in beyond:
            self._forget(waiter)
        self._grant()
        self._weigh()
        return beyond

    def dismiss(self) -> list[Waiter]:
        """Empty the queue and return those who waited, in order of arrival."""
        waiting = self.waiting()
        for waiter in waiting:
            self._forget(waiter)
        self._weigh()
        return waiting

    def _weigh(self) -> None:
        self.full = self.active >= self.limit or bool(self._queued)

    def take(self, waiter: Waiter, key: str, places: int = 1) -> None:
        """Take slots; only for those who saw that there are enough."""
        holders, served = self._holders, self._served
        holders[waiter] = key
        if places > 1:
            self._wide[waiter] = places
            self._more_held += places - 1
        self._serial = served[key] = self._serial + 1
        if len(holders) + self._more_held >= self.limit:
            self.full = True
        if len(served) > _KEYS_REMEMBERED:
            # whoever is forgotten was served before all of these, and is taken for it
            latest = sorted(served.items(), key=itemgetter(1))
            self._served = dict(latest[-_KEYS_REMEMBERED // 2 :])

    def _places(self, waiters: dict[Waiter, str]) -> Counter[str]:
        """By key: what these hold, or wait for."""
        found = Counter(waiters.values())
        for waiter, places in self._wide.items():
            if waiter in waiters:
                found[waiters[waiter]] += places - 1
        return found

    def _forget(self, waiter: Waiter) -> None:
        """Take somebody out of the queue."""
        key = self._queued.pop(waiter)
        if self._wide:
            self._more_queued -= self._wide.pop(waiter, 1) - 1
        if waiter is self._turn:
            self._turn = None
        queue = self._queues[key]
        queue.remove(waiter)
        if not queue:
            del self._queues[key]

    def _room_for(self, key: str, places: int) -> list[Waiter] | None:
        """Who has to leave the queue for a newcomer; None where nobody has to.

        Those are the last of the keys with the most places, as long as these can give some and could not ask for them
        back. Whose turn has come stays.
        """
        lacking = self.queued + places - self.max_queued
        if lacking <= 0:
            return []
        if not self._queues:
            return [] if self.max_queued else None
        if len(self._queues.get(key, ())) + places > max(map(len, self._queues.values())) + self._more_queued:
            return None
        waiting, held = self._places(self._queued), self._places(self._holders)
        own = waiting.pop(key, 0) + places, held[key]
        lines = {name: reversed(queue) for name, queue in self._queues.items()}
        leaving: list[Waiter] = []
        while lacking > 0:
            most = max(waiting, key=lambda name: (waiting[name], held[name]), default=None)
            if most is None or own >= (waiting[most], held[most]):
                return None
            last = next(lines[most])
            if last is self._turn:
                del waiting[most]
                continue
            given = self._wide.get(last, 1)
            lacking -= given
            waiting[most] -= given
            leaving.append(last)
        return leaving

    def _grant(self) -> None:
        held: Counter[str] | None = None
        while self._queued:
            waiter = self._turn
            if waiter is None:
                if self.active >= self.limit:
                    return
                counts = held = self._places(self._holders) if held is None else held
                key = min(self._queues, key=lambda name: (counts[name], self._served.get(name, 0)))
                waiter = self._turn = self._queues[key][0]
            key, places = self._queued[waiter], self._wide.get(waiter, 1)
            if self.active + places > self.limit:
                return
            self._forget(waiter)
            self.take(waiter, key, places)
            if held is not None:
                held[key] += places
            self._weigh()
            waiter.granted()
