# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Permits to generate: taken at once, waited for with a limit, or refused with a time to come back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from frontdoor import errors
from frontdoor.admission.limiter import ADMITTED, ANY, BUSY, QUEUED, Limiter
from frontdoor.admission.outlook import Outlook
from frontdoor.admission.router import ANYWHERE, Router, Wish
from frontdoor.errors import Refusal


class Owner(Protocol):
    """The request a permit is for. Where it has to wait one of the two is called, unless it is released before."""

    def admitted(self, waited: float) -> None:
        """Go on with the permits, after a wait of so many seconds."""

    def refuse(self, refusal: Refusal) -> None:
        """Turn the request away: there are no permits."""

    def dismissed(self) -> None:
        """Judge the request anew: it waited, and something else is served now."""


class Permits:
    """The permits of the slot, and what those are told who get none."""

    def __init__(
        self,
        limiter: Limiter,
        router: Router,
        outlook: Outlook,
        loop: asyncio.AbstractEventLoop,
        *,
        loads: Callable[[], list[int]],
        waited: Callable[[float], None],
        settle: Callable[[], None],
    ) -> None:
        """Take the parts that share the permits.

        `loads` tells how many requests each replica has, `waited` hears how many seconds each wait took. `settle` notes
        ended generations in the outlook.
        """
        self.limiter = limiter
        self.router = router
        self.loads = loads
        self.outlook = outlook
        self.loop = loop
        self.waited = waited
        self._settle = settle
        #: seconds that a request may wait; 0 for none
        self.timeout_s = 0.0
        self._busy = errors.busy(1, 1, 1)

    def set(self, limits: Sequence[int], usable: int, timeout_s: float, *, anew: bool = False) -> None:
        """Change how many permits each replica has, which are used, and how long requests wait for them.

        With `anew` everybody who waits is dismissed. They leave the queue first, or the limits could let them in, and
        are told last, when all holds for them and for the requests that their clients sent ahead.
        """
        dismissed = self.limiter.dismiss() if anew else []
        if timeout_s != self.timeout_s:
            self.timeout_s = timeout_s
            for waiter in self.limiter.waiting():
                assert isinstance(waiter, Permit)
                waiter.wait_until(timeout_s)
        self.router.usable = usable
        for waiter in self.limiter.set_limits(limits, usable):
            assert isinstance(waiter, Permit)
            waiter.refuse(errors.too_many_generations(waiter.count, self.limiter.most))
        for waiter in dismissed:
            assert isinstance(waiter, Permit)
            waiter.dismiss()

    def dismiss(self, refusal: Refusal) -> None:
        """Refuse everybody who waits."""
        for waiter in self.limiter.dismiss():
            assert isinstance(waiter, Permit)
            waiter.refuse(refusal)

    def busy(self, client: int, count: int = 1) -> Refusal:
        """Return the refusal of a request that may not wait while no permit is free; in a flood all get the same."""
        now, limit = self.loop.time(), self.limiter.limit
        if count > 1 or now >= self.outlook.crowded_until:
            wait = self.outlook.wait_s(now, client, count, 0, limit, self._running)
            self._busy = errors.busy(limit, count, math.ceil(wait))
        return self._busy

    def turn_s(self, client: int, count: int = 1, queued: int = 0) -> int:
        """Return the seconds after which a refused client should ask again, behind so many permits in the queue."""
        wait = self.outlook.wait_s(self.loop.time(), client, count, queued, self.limiter.limit, self._running)
        return math.ceil(wait)

    def _running(self) -> list[tuple[float, int]]:
        self._settle()
        now, found = self.loop.time(), []
        for holder, count in self.limiter.holders():
            assert isinstance(holder, Permit)
            found.append((now - holder.since - holder.waited, count))
        return found


class Permit:
    """The permits of one request, as the limiter sees it."""

    __slots__ = (
        *("_client", "_may_use", "_owner", "_permits", "_timer", "_wish"),
        *("client_key", "count", "replica", "since", "waited"),
    )

    def __init__(
        self,
        permits: Permits,
        owner: Owner,
        client: int,
        client_key: str,
        count: int,
        now: float,
        wish: Wish | None = None,
    ) -> None:
        """Take the need of one request.

        `client` tells connections apart, `client_key` is who competes, `count` is how many permits are needed. `wish`
        says which replica would be best.
        """
        self._permits = permits
        self._wish = wish
        self._may_use = ANY if wish is None else permits.router.may_use(wish, permits.loads())
        #: the one whose permits are held
        self.replica = 0
        self._owner: Owner | None = owner
        self._client = client
        self.client_key = client_key
        self.count = count
        self._timer: asyncio.TimerHandle | None = None
        #: when they were asked for, and how long the request waited
        self.since = now
        self.waited = 0.0

    def acquire(self) -> bool:
        """Take the permits and return whether they are held now; if not, the owner waits, or was refused."""
        permits = self._permits
        may_wait = permits.timeout_s > 0
        verdict = permits.limiter.enter(
            self, self.client_key, may_wait=may_wait, permits=self.count, may_use=self._may_use
        )
        if verdict is ADMITTED:
            return True
        if verdict is QUEUED:
            self.wait_until(permits.timeout_s)
        elif verdict is BUSY:
            self.refuse(permits.busy(self._client, self.count))
        else:
            self.refuse(self._queue_full())
        return False

    def move(self, tried: int) -> bool | None:
        """Exchange the permits for those of a replica that was not tried, or for a place in the queue.

        `tried` are replicas as bits. Returns what `acquire` does, or None where there is nowhere to go; then they are
        kept. Who is bound to one replica waits until that is used again.
        """
        permits, usable = self._permits, self._permits.router.usable
        elsewhere = self._may_use & ~tried
        if elsewhere & usable:
            self._may_use = elsewhere
        elif self._wish is None or not self._wish.strict or self._may_use & usable:
            return None
        permits.limiter.leave(self)
        return self.acquire()

    def choose(self, room: int) -> int:
        permits = self._permits
        return permits.router.choose(self._wish or ANYWHERE, room, permits.loads())

    @property
    def waiting(self) -> bool:
        """True while the request is in the queue."""
        return self._timer is not None

    def release(self) -> None:
        """Give back what is held, or leave the queue."""
        self._owner = None
        if self._timer is not None:
            self._stop_timer()
        self._permits.limiter.leave(self)

    def granted(self) -> None:
        self._stop_timer()
        self._note_wait()
        assert self._owner is not None
        self._owner.admitted(self.waited)

    def displaced(self) -> None:
        # not from within the limiter: the client may have sent its next request ahead
        self._permits.loop.call_soon(self._refuse_displaced)

    def wait_until(self, timeout_s: float) -> None:
        """Change how long the request may wait, counted from when it began to."""
        if self._timer is not None:
            self._stop_timer()
        loop = self._permits.loop
        self._timer = loop.call_later(max(0.0, self.since + timeout_s - loop.time()), self._expired)

    def refuse(self, refusal: Refusal) -> None:
        """Tell the owner that there is no permit."""
        if self._owner is not None:
            self._owner.refuse(refusal)

    def dismiss(self) -> None:
        """Tell the waiting owner that something else is served now."""
        if self._owner is not None:
            self._owner.dismissed()

    def _expired(self) -> None:
        if self._owner is not None:
            self._note_wait()
            permits = self._permits
            # when it asks again it stands behind the others that wait
            after = permits.turn_s(self._client, self.count, permits.limiter.queued - self.count)
            self.refuse(errors.queue_timeout(permits.limiter.limit, self.waited, after))

    def _refuse_displaced(self) -> None:
        if self._owner is not None:
            self._note_wait()
            self.refuse(self._queue_full())

    def _queue_full(self) -> Refusal:
        return errors.queue_full(self._permits.limiter.queued, self._permits.turn_s(self._client))

    def _note_wait(self) -> None:
        self.waited = self._permits.loop.time() - self.since
        self._permits.waited(self.waited)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
