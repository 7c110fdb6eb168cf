# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections to the engine."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from frontdoor.config import Backend, split_backend_url

# of the kernel's struct tcp_info (linux/tcp.h): bytes_acked, notsent_bytes, bytes_sent and bytes_retrans
_TCP_INFO = struct.Struct("=120xQ16xI52xQQ")

_LOCAL = ("127.0.0.1", "::1", "localhost")

# requests under way, of all engines, from which on new ones come first, and streams that are served before the loop
# looks for new ones
_CROWD = 128
_STREAMS_AT_ONCE = 8
_MOST_HELD = 32 * 1024


class Owner(Protocol):
    """The callbacks of the exchange that a connection works for."""

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """Use a connection, a fresh one unless `connection.served` is positive."""

    def upstream_failed(self, reason: str) -> None:
        """Go on without an engine: no connection could be made."""

    def upstream_lost(self, exc: Exception | None) -> None:
        """Go on without the connection, which ended before it was given back."""


class UpstreamConnection(asyncio.Protocol):
    """One keep-alive connection. While it has an owner, its bytes go to `receiver`."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        #: of the engine it leads to
        self.url = pool.url
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.owner: Owner | None = None
        self.receiver: Callable[[bytes], None] | None = None
        #: whether what comes is the rest of an event stream: requests and answers that begin are served before it
        self.streams = False
        self._held = b""
        self.served = 0
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.pool.open.add(self)

    def data_received(self, data: bytes) -> None:
        if self.receiver is None:
            # bytes nobody asked for: whatever follows them cannot be trusted
            self.transport.abort()
        elif not self._held and not (self.streams and self.pool.crowded):
            self.receiver(data)
        else:
            if not self._held:
                self.pool.put_off(self)
            self._held += data
            if len(self._held) > _MOST_HELD:
                # the loop reads on and on from one connection, unless its client makes it pause
                self.deliver()

    def deliver(self) -> None:
        """Hand on what was put off."""
        data, self._held = self._held, b""
        if data and self.receiver is not None:
            self.receiver(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.deliver()
        owner = self.owner
        self.release()
        self.pool.gone(self)
        if owner is not None:
            owner.upstream_lost(exc)

    def heard_all(self) -> bool:
        """Tell whether the engine's host has taken all that was sent; asked when the connection is lost.

        Bytes that it has not acknowledged were read by no program there.
        """
        try:
            raw = self.transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size
            )
            acknowledged, unsent, sent, sent_again = _TCP_INFO.unpack(raw)
        except (OSError, struct.error):
            # then it is not known, and may well be
            return True
        # the handshake counts as one byte
        return not unsent and sent - sent_again <= acknowledged - 1

    def unread(self, exc: Exception | None) -> bool:
        """Tell whether the engine's process ended before it had read all that was sent.

        The kernel then resets the connection, instead of ending it (RFC 2525 2.17). Between hosts, others reset
        connections as well.
        """
        return self.pool.local and isinstance(exc, ConnectionResetError)

    def release(self) -> None:
        """Have no owner any more, who hears nothing from now on."""
        self.owner = self.receiver = None
        self.streams = False
        self._held = b""

    def abort(self) -> None:
        """Close at once; the owner hears nothing."""
        self.release()
        self.transport.abort()


class Pool:
    """Idle connections to one engine address, newest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Backend) -> None:
        self._loop = loop
        self._settings = settings
        #: connections that are likely alive, to be popped; those that were idle for long are swept away
        self.idle: list[UpstreamConnection] = []
        #: connections in use or idle
        self.open: set[UpstreamConnection] = set()
        self._put_off: deque[UpstreamConnection] = deque()
        self._crowd = _CROWD
        self.address = ("", 0)
        self.url = ""
        self.host_line = b""
        #: whether the engine is on this host
        self.local = False

    @property
    def crowded(self) -> bool:
        """True while a new request would wait long behind the streams of the many under way."""
        return len(self.open) - len(self.idle) >= self._crowd

    def share(self, pools: int) -> None:
        """Be one of so many pools that requests are spread over."""
        self._crowd = max(1, _CROWD // pools)

    def point_to(self, url: str) -> None:
        """Use another engine from now on; connections in use are let finish."""
        if url == self.url:
            return
        self.url = url
        self.address = host, port = split_backend_url(url)
        self.local = host in _LOCAL
        self.host_line = f"Host: {f'[{host}]' if ':' in host else host}:{port}\r\n".encode()
        self.drop_idle()

    def connect(self, owner: Owner) -> asyncio.Task[None]:
        """Open a connection for the owner; cancel the task to give up."""
        return self._loop.create_task(self._connect(owner))

    async def _connect(self, owner: Owner) -> None:
        connection, url, limit_s = UpstreamConnection(self), self.url, self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._loop.create_connection(lambda: connection, *self.address)
        except TimeoutError:
            owner.upstream_failed(f"{url} did not accept a connection within {limit_s:g} s")
        except OSError as exc:
            owner.upstream_failed(f"{url} refused the connection: {exc.strerror or exc}")
        except asyncio.CancelledError:
            # the connection may have been made in the moment of giving up
            if connection in self.open:
                connection.abort()
            raise
        else:
            owner.upstream_ready(connection)

    def put_off(self, connection: UpstreamConnection) -> None:
        """Deliver what came on a stream after everything else that the loop found, a few streams at a time."""
        if not self._put_off:
            self._loop.call_soon(self._deliver)
        self._put_off.append(connection)

    def _deliver(self) -> None:
        for _stream in range(min(_STREAMS_AT_ONCE, len(self._put_off))):
            self._put_off.popleft().deliver()
        if self._put_off:
            self._loop.call_soon(self._deliver)

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Give a connection back after a complete response; `now` is the loop's time."""
        connection.release()
        if connection.url != self.url or len(self.idle) >= self._settings.pool_size:
            connection.abort()
            return
        connection.served += 1
        connection.idle_since = now
        self.idle.append(connection)

    def gone(self, connection: UpstreamConnection) -> None:
        """Forget a connection that was closed."""
        self.open.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self) -> None:
        """Close what has been idle too long."""
        self.drop_idle(self._loop.time() - self._settings.pool_idle_timeout_s)

    def drop_idle(self, since: float = math.inf) -> None:
        """Close what has been idle since before a time, or everything that is not in use."""
        for connection in [c for c in self.idle if c.idle_since < since]:
            self.idle.remove(connection)
            connection.abort()
