# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions of the frontdoor's own to the engine: small answers, read whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from frontdoor.http.head import END, ResponseError, ResponseHead, parse_response_head
from frontdoor.http.relay import CloseRelay, Relay, relay_for
from frontdoor.http.upstream import Pool, UpstreamConnection

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


class Fetch:
    """One GET. `done` is called exactly once, unless it is given up."""

    def __init__(
        self, pool: Pool, path: str, done: Callable[[Fetched], None], *, timeout_s: float, fields: bytes = b""
    ) -> None:
        """`fields` are whole header lines that are sent along."""
        self._pool = pool
        self._path = path
        self._fields = fields
        self._done: Callable[[Fetched], None] | None = done
        self._timeout_s = timeout_s
        self._url = pool.url
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head: ResponseHead | None = None
        self._relay: Relay | None = None
        self._raw = b""
        self._body: list[bytes] = []

    def start(self) -> None:
        """Ask."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_s, self._expired)
        if self._pool.idle:
            self.upstream_ready(self._pool.idle.pop())
        else:
            self._connecting = self._pool.connect(self)

    @property
    def running(self) -> bool:
        """Whether the answer is still awaited."""
        return self._done is not None

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """Send the request."""
        self._connecting = None
        self._connection = connection
        connection.owner = self
        connection.receiver = self._on_head
        connection.transport.write(
            b"GET %b HTTP/1.1\r\n%b%b\r\n" % (self._path.encode("latin-1"), self._pool.host_line, self._fields)
        )

    def upstream_failed(self, reason: str) -> None:
        """Nobody listens."""
        self._connecting = None
        self._finish(Fetched(0, b"", reason, connected=False))

    def upstream_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        connection, self._connection = self._connection, None
        if self._head is not None and exc is None and isinstance(self._relay, CloseRelay):
            self._finish(self._whole(self._head))
        elif self._head is None and not self._raw and connection is not None and connection.served:
            self._connecting = self._pool.connect(self)
        else:
            self._finish(Fetched(0, b"", "the engine closed the connection before the end of its answer"))

    def _on_head(self, data: bytes) -> None:
        self._raw += data
        while True:
            end = self._raw.find(END) + 4
            if end < 4:
                if len(self._raw) > _MAX_BYTES:
                    self._fail("the response head is too long")
                return
            try:
                head = parse_response_head(self._raw[:end], to_head=False, drop_cors=False)
            except ResponseError as exc:
                self._fail(str(exc))
                return
            self._raw = self._raw[end:]
            if head.status >= 200:
                break
        self._head = head
        self._relay = relay_for(head, client_chunks=False)
        assert self._connection is not None
        self._connection.receiver = self._on_body
        self._on_body(self._raw)

    def _on_body(self, data: bytes) -> None:
        assert self._relay is not None
        assert self._head is not None
        try:
            self._body.append(self._relay.feed(data) if data else b"")
        except ResponseError as exc:
            self._fail(str(exc))
            return
        if self._relay.complete:
            connection, self._connection = self._connection, None
            if connection is not None and self._relay.reusable and self._head.keep_alive:
                self._pool.put(connection, self._url, asyncio.get_running_loop().time())
            elif connection is not None:
                connection.abort()
            self._finish(self._whole(self._head))
        elif sum(map(len, self._body)) > _MAX_BYTES:
            self._fail("the answer is too long")

    def _whole(self, head: ResponseHead) -> Fetched:
        return Fetched(head.status, b"".join(self._body), head=head)

    def _expired(self) -> None:
        self._timer = None
        connected = self._connection is not None
        self._drop()
        error = f"no answer within {self._timeout_s:g} s"
        self._finish(Fetched(0, b"", error, connected, timed_out=connected))

    def _fail(self, why: str) -> None:
        self._drop()
        self._finish(Fetched(0, b"", why))

    def _drop(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _finish(self, result: Fetched) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if done is not None:
            done(result)

    def client_gone(self, outcome: str = "") -> None:
        """Give up: `done` is not called any more."""
        self._done = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop()

    def pause(self) -> None:
        """Nothing is passed on before it is complete."""

    def resume(self) -> None:
        """Nothing was paused."""
