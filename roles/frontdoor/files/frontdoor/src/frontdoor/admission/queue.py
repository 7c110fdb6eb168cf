# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request's wait for a slot."""

from __future__ import annotations

import abc
import asyncio
import math
from typing import TYPE_CHECKING

from frontdoor import errors
from frontdoor.admission.limiter import BUSY, QUEUED, Limiter
from frontdoor.errors import Refusal

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection


class Waiting(abc.ABC):
    """The part of a request that waits. It ends with `go_on` or `refuse`, or whoever it is stops it."""

    __slots__ = ("_client", "_done", "_door", "_queue_timer", "_started", "_waited", "places")

    _client: ClientConnection
    _done: bool
    _door: Door
    #: how many slots it takes
    places: int
    _queue_timer: asyncio.TimerHandle | None
    #: when the request was complete, and how long it waited
    _started: float
    _waited: float

    @abc.abstractmethod
    def go_on(self) -> None:
        """There is a slot, after a wait."""

    @abc.abstractmethod
    def refuse(self, refusal: Refusal) -> None:
        """There is none."""

    def wait(self, gate: Limiter) -> None:
        """Wait for a slot, where that is allowed."""
        timeout = self._door.state.queue_timeout_s
        verdict = gate.enter(self, self._client.key, may_wait=timeout > 0, places=self.places)
        if verdict is QUEUED:
            self._queue_timer = self._door.loop.call_later(timeout, self._wait_over)
        elif verdict is BUSY:
            self.refuse(busy(self._door, self._client, self.places))
        else:
            self.refuse(self._queue_full())

    def granted(self) -> None:
        """The gate gave a slot after a wait."""
        self.stop_timer()
        self._waited = self._door.loop.time() - self._started
        self._door.ledger.metrics.queue_wait.observe(self._waited)
        self.go_on()

    def displaced(self) -> None:
        """The place in the queue went to a key that has fewer."""
        # not from within the gate: the client may have sent its next request ahead
        self._door.loop.call_soon(self._wait_over, True)

    def wait_until(self, timeout: float) -> None:
        """Wait no longer than this since the wait began; for those that wait."""
        self.stop_timer()
        loop = self._door.loop
        self._queue_timer = loop.call_later(max(0.0, self._started + timeout - loop.time()), self._wait_over)

    def _wait_over(self, displaced: bool = False) -> None:
        if not self._done:
            door = self._door
            waited = self._waited = door.loop.time() - self._started
            door.ledger.metrics.queue_wait.observe(waited)
            if displaced:
                self.refuse(self._queue_full())
            else:
                # when it asks again it stands behind the others that wait
                after = turn_s(door, self._client, self.places, door.gate.queued - self.places)
                self.refuse(errors.queue_timeout(door.gate.limit, waited, after))

    def _queue_full(self) -> Refusal:
        door = self._door
        return errors.queue_full(door.gate.queued, turn_s(door, self._client))

    @property
    def slots_since(self) -> float:
        """Since when it has held its slots, where it does; of the loop's clock."""
        return self._started + self._waited

    def stop_timer(self) -> None:
        """Wait no more."""
        if self._queue_timer is not None:
            self._queue_timer.cancel()
            self._queue_timer = None


def turn_s(door: Door, client: ClientConnection, places: int = 1, queued: int = 0) -> int:
    """In how many seconds a client that is sent away should ask again, behind so many that wait for slots."""

    def running() -> list[tuple[float, int]]:
        # those that ended count
        door.ledger.settle()
        now, found = door.loop.time(), []
        for waiter, held in door.gate.holders():
            assert isinstance(waiter, Waiting)
            found.append((now - waiter.slots_since, held))
        return found

    return math.ceil(door.outlook.wait_s(door.loop.time(), id(client), places, queued, door.gate.limit, running))


def busy(door: Door, client: ClientConnection, places: int = 1) -> Refusal:
    """No slot is free for who may not wait."""
    # in a flood all are told the same
    if places > 1 or door.loop.time() >= door.outlook.crowded_until:
        door.busy = errors.busy(door.gate.limit, places, turn_s(door, client, places))
    return door.busy
