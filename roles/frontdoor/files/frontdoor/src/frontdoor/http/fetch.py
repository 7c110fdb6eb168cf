# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions of the frontdoor's own to the engine: small answers, read whole, each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from frontdoor.http.head import END, ResponseError, ResponseHead, parse_response_head
from frontdoor.http.relay import relay_for
from frontdoor.http.upstream import Pool

_MAX_BYTES = 4 * 1024 * 1024


class Fetched(NamedTuple):
    """An answer; `status` is 0 where there was none and `error` says why. `connected`: whether anybody listened."""

    status: int
    body: bytes
    error: str = ""
    connected: bool = True
    head: ResponseHead | None = None
    #: it listens, and did not answer in time
    timed_out: bool = False


def _unheard(got: Fetched) -> None:
    """Nobody waits for the answer."""


class Fetch:
    """One GET. `done` is called exactly once, unless it is given up."""

    def __init__(
        self, pool: Pool, path: str, done: Callable[[Fetched], None], *, timeout_s: float, fields: bytes = b""
    ) -> None:
        """`fields` are whole header lines that are sent along."""
        self._address = pool.address
        self._request = b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path.encode("latin-1"), pool.host_line, fields)
        self._done: Callable[[Fetched], None] = done
        self._timeout_s = timeout_s
        self._connected = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether the answer is still awaited."""
        return self._task is not None

    def client_gone(self) -> None:
        """Give up: `done` is not called any more."""
        task, self._task = self._task, None
        # it would keep whoever asked
        self._done = _unheard
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                got = await self._ask()
        except TimeoutError:
            got = Fetched(0, b"", f"no answer within {self._timeout_s:g} s", self._connected, timed_out=self._connected)
        except ResponseError as exc:
            got = Fetched(0, b"", str(exc))
        except OSError as exc:
            why = f"the engine refused the connection: {exc.strerror or exc}"
            got = Fetched(0, b"", _CUT if self._connected else why, self._connected)
        done = self._done
        self.client_gone()
        done(got)

    async def _ask(self) -> Fetched:
        reader, writer = await asyncio.open_connection(*self._address)
        self._connected = True
        try:
            writer.write(self._request)
            head, rest = await _read_head(reader)
            relay = relay_for(head, client_chunks=False)
            body = relay.feed(rest)
            while not relay.complete:
                data = await reader.read(_MAX_BYTES)
                if not data:
                    if not relay.whole:
                        raise ResponseError(_CUT)
                    break
                body += relay.feed(data)
                if len(body) > _MAX_BYTES:
                    raise ResponseError("the answer is too long")
            return Fetched(head.status, body, head=head)
        finally:
            writer.transport.abort()


_CUT = "the engine closed the connection before the end of its answer"


async def _read_head(reader: asyncio.StreamReader) -> tuple[ResponseHead, bytes]:
    """The head of the answer, after those that come before it, and what was read behind it."""
    data = b""
    while True:
        while (end := data.find(END) + 4) < 4:
            if len(data) > _MAX_BYTES:
                raise ResponseError("the response head is too long")
            more = await reader.read(_MAX_BYTES)
            if not more:
                raise ResponseError(_CUT)
            data += more
        head = parse_response_head(data[:end], to_head=False, drop_cors=False)
        data = data[end:]
        if head.status >= 200:
            return head, data
