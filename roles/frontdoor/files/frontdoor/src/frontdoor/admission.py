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
    """Answer to `Gate.enter`."""

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
        """A slot is held from now on. Must not raise, must not re-enter the gate for itself."""

    def displaced(self) -> None:
        """The place in the queue is lost to a key that has fewer. Must not raise, must not re-enter the gate."""


class Gate:
    """Counts slots and keeps the queue.

    A holder is an entry in a table, so freeing twice, or freeing what was never held, changes nothing.
    The next slot goes to the key that holds the fewest slots, among those to the one served longest ago;
    within a key it is first come, first served. A full queue is shared alike: a newcomer takes the place of the one who
    came last for the key with the most places, unless the two would only change sides.
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

    @property
    def active(self) -> int:
        """Slots in use."""
        return len(self._holders)

    @property
    def queued(self) -> int:
        """Requests waiting."""
        return len(self._queued)

    def shares(self) -> dict[str, tuple[int, int]]:
        """By key: requests that wait, and slots held."""
        waiting, held = Counter(self._queued.values()), Counter(self._holders.values())
        return {key: (waiting[key], held[key]) for key in sorted(waiting | held)}

    def enter(self, waiter: Waiter, key: str, *, may_wait: bool) -> Verdict:
        """Take a slot, join the queue, or be refused. `granted` is called only for those who queued."""
        if not self.full:
            self.take(waiter, key)
            return ADMITTED
        if not may_wait:
            return BUSY
        displaced: Waiter | None = None
        if len(self._queued) >= self.max_queued:
            greediest = self._greedier_than(key)
            if greediest is None:
                return QUEUE_FULL
            displaced = self._queues[greediest][-1]
            self._forget(displaced)
        self._queued[waiter] = key
        self.full = True
        self._queues.setdefault(key, deque()).append(waiter)
        if displaced is not None:
            displaced.displaced()
        return QUEUED

    def leave(self, waiter: Waiter) -> bool:
        """Give the slot or the place in the queue back; True when there was one."""
        if self._holders.pop(waiter, None) is not None:
            if self._queues:
                self._grant()
            else:
                self.full = len(self._holders) >= self.limit
            return True
        if waiter not in self._queued:
            return False
        self._forget(waiter)
        self._weigh()
        return True

    def waiting(self) -> list[Waiter]:
        """Those in the queue, in order of arrival."""
        return list(self._queued)

    def set_limit(self, limit: int) -> None:
        """Change the number of slots at once; a lower number takes effect as holders leave."""
        self.limit = limit
        self._grant()
        self._weigh()

    def dismiss(self) -> list[Waiter]:
        """Empty the queue and return those who waited, in order of arrival."""
        waiting = self.waiting()
        self._queued.clear()
        self._queues.clear()
        self._weigh()
        return waiting

    def _weigh(self) -> None:
        self.full = len(self._holders) >= self.limit or bool(self._queued)

    def take(self, waiter: Waiter, key: str) -> None:
        """Take a slot; only for those who saw that the gate is not full."""
        holders, served = self._holders, self._served
        holders[waiter] = key
        self._serial = served[key] = self._serial + 1
        if len(holders) >= self.limit:
            self.full = True
        if len(served) > _KEYS_REMEMBERED:
            # whoever is forgotten was served before all of these, and is taken for it
            latest = sorted(served.items(), key=itemgetter(1))
            self._served = dict(latest[-_KEYS_REMEMBERED // 2 :])

    def _forget(self, waiter: Waiter) -> None:
        key = self._queued.pop(waiter)
        queue = self._queues[key]
        queue.remove(waiter)
        if not queue:
            del self._queues[key]

    def _greedier_than(self, key: str) -> str | None:
        """The key with the most places, if it can give one to `key` and nobody could ask for it back."""
        own = len(self._queues.get(key, ())) + 1
        if not self._queues or own > max(map(len, self._queues.values())):
            return None
        held = Counter(self._holders.values())
        most = max(self._queues, key=lambda name: (len(self._queues[name]), held[name]))
        return most if (own, held[key]) < (len(self._queues[most]), held[most]) else None

    def _grant(self) -> None:
        if not self._queued or len(self._holders) >= self.limit:
            return
        held = Counter(self._holders.values())
        while self._queued and len(self._holders) < self.limit:
            key = min(self._queues, key=lambda name: (held[name], self._served.get(name, 0)))
            queue = self._queues[key]
            waiter = queue.popleft()
            if not queue:
                del self._queues[key]
            del self._queued[waiter]
            self.take(waiter, key)
            held[key] += 1
            self._weigh()
            waiter.granted()
