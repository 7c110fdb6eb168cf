# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An event loop whose clock jumps to the next timer when nothing else is left to do."""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

# How long the kernel may take to bring bytes from one socket of the process to another. Nearly always they are there
# when the call that sends them returns.
_KERNEL_S = 50e-6


class _Selector(selectors.BaseSelector):
    """Takes what is ready; where nothing is, moves the clock of its loop instead of waiting."""

    def __init__(self) -> None:
        self._real = selectors.EpollSelector()
        #: the clock; it begins where no time is near zero
        self.now = 1e5
        #: what the loop waits for that its own timers and sockets do not bring: work in threads
        self.outside = 0
        #: when, by the real clock, `give_up` is called
        self.ends = math.inf
        self.give_up: Callable[[], None] = lambda: None
        #: conditions that are waited for
        self.wanted: dict[asyncio.Future[None], Callable[[], object]] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        if began >= self.ends:
            self.ends = math.inf
            self.give_up()
            return []
        if self._met():
            return self._real.select(0)
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.outside:
            # A limit of the real clock that passes while nothing can happen is seen at the next call.
            ready = self._real.select(min(math.inf if timeout is None else timeout, max(0.0, self.ends - began), 3600))
            self.now += time.monotonic() - began
            return ready
        # epoll counts in milliseconds
        if select.select([self._real], [], [], _KERNEL_S)[0]:
            return self._real.select(0)
        self.now += timeout
        return []

    def _met(self) -> bool:
        """Wake those whose condition is met, and say whether there were any."""
        met = False
        for waiter, done in list(self.wanted.items()):
            if waiter.done():
                continue
            try:
                if not done():
                    continue
                waiter.set_result(None)
            except Exception as error:
                waiter.set_exception(error)
            met = True
        return met

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """A plain loop of asyncio, for what happens in this process and on sockets between its own ends.

    Time passes only where nothing is ready: then it is the time of the next timer at once. While threads work for the
    loop, the clock is the real one. Other processes would be overtaken by it: what has to do with them runs on uvloop.
    """

    def __init__(self) -> None:
        self._clock = _Selector()
        self._behind = time.time() - self._clock.now
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def wall_time(self) -> float:
        """The time of the day that goes with it, in the place of time.time."""
        return self._behind + self._clock.now

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **kwargs: Any) -> Any:
        # as uvloop does, and asyncio only where it made the socket; else the kernel holds bytes back for its own time
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return super()._make_socket_transport(sock, *args, **kwargs)  # type: ignore[misc]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._clock.outside += 1

        def ended(_: asyncio.Future[Any]) -> None:
            self._clock.outside -= 1

        done.add_done_callback(ended)
        return done

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("another process has another clock: use on_uvloop")

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("another process has another clock: use on_uvloop")

    async def until(self, done: Callable[[], object]) -> None:
        """Wait until something is so; looks whenever anything has happened."""
        waiter = self.create_future()
        self._clock.wanted[waiter] = done
        try:
            await waiter
        finally:
            del self._clock.wanted[waiter]

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float, virtual: float) -> Any:
        """Cancel what hangs: after seconds of the real clock, or after so many of its own."""
        async with asyncio.timeout(virtual) as timeout:
            self._clock.ends = time.monotonic() + seconds
            self._clock.give_up = lambda: timeout.reschedule(self.time())
            try:
                yield
            finally:
                self._clock.ends = math.inf
