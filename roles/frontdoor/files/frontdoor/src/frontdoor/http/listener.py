# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses that clients connect to, and TLS handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from frontdoor.http import proxied
from frontdoor.http.client import ClientConnection, Server
from frontdoor.networks import client_key

# when it is tried again to accept connections, without descriptors
_ACCEPT_AGAIN_S = 0.2


class Listener:
    def __init__(
        self, server: Server, tls: ssl.SSLContext | None, backlog: int = 1024, *, proxy_protocol: bool = False
    ) -> None:
        """Take the server and the context of its handshakes.

        `backlog`: connections that the kernel keeps before they are accepted. With `proxy_protocol` trusted proxies of
        other hosts say first for whom they connect.
        """
        self._loop = server.loop
        self._server = server
        self._limiter = server.connections
        self._connection = functools.partial(ClientConnection, server)
        #: for the next handshakes; whether there is one stays as it is
        self.tls = tls
        self._backlog = backlog
        self._proxy_protocol = proxy_protocol
        self._servers: list[asyncio.Server] = []
        # sockets that are accepted from here, and what takes the connections of the next process
        self._watched: list[socket.socket] = []
        self._keep: Callable[[socket.socket], None] | None = None
        self.sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    async def open(
        self, host: str, port: int, kept: Iterable[socket.socket] = (), unix: str = ""
    ) -> list[socket.socket]:
        """Listen and return the sockets to keep that are new; raises OSError.

        `kept` are sockets of the process before: those that listen are used where they fit, and those of clients, of
        which nothing was read, are served.
        """
        loop, backlog = self._loop, self._backlog
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        wanted: dict[Any, None] = dict.fromkeys((family, address) for family, _type, _proto, _name, address in found)
        wanted |= {(socket.AF_UNIX, unix): None} if unix else {}
        before, clients = dict[Any, socket.socket](), list[socket.socket]()
        for one in kept:
            if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                clients.append(one)
            elif (where := (one.family, one.getsockname())) in wanted:
                before[where] = one
            else:
                # nobody listens there any more: whoever keeps it too lets it go
                one.shutdown(socket.SHUT_RDWR)
                one.close()
        new = []
        for family, address in wanted:
            listening = before.get((family, address))
            if listening is None and family == socket.AF_UNIX:
                # not kept: its folder goes with the process
                listening = _listen_at(address, backlog)
            elif listening is None:
                # as everywhere else :: is all addresses of the host, those of IPv4 too
                both = host == "::"
                listening = socket.create_server(address, family=family, backlog=backlog, dualstack_ipv6=both)
                new.append(listening)
            self.sockets.append(listening)
            listening.setblocking(False)
            if family == socket.AF_UNIX:
                serve = loop.create_unix_server
                self._servers.append(await serve(self._connection, sock=listening, backlog=backlog))
                continue
            _end_dead_connections(listening, self._server.limits.dead_peer_timeout_s)
            if self.tls is None and not self._proxy_protocol:
                self._servers.append(await loop.create_server(self._connection, sock=listening, backlog=backlog))
            else:
                self._watch(listening)
        for one in clients:
            with contextlib.suppress(OSError):
                self._take(one, one.getpeername()[0])
        return new

    def _watch(self, listening: socket.socket) -> None:
        self._watched.append(listening)
        self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Listen no more; connections go on."""
        for server in self._servers:
            server.close()
        for listening in self._watched:
            self._loop.remove_reader(listening)
            listening.close()
        self._servers, self._watched, self.sockets = [], [], []

    def hand_over(self, keep: Callable[[socket.socket], None]) -> None:
        """Serve only this host and proxies from now on; `keep` takes the connections of all others, still unread.

        The host has to see how the process ends, and a proxy knows other hosts.
        """
        own = [one.dup() for one in self.sockets]
        self.close()
        self._keep = keep
        for listening in own:
            self._watch(listening)

    # With TLS a connection counts, and its time runs, from the moment it is there and not from the end of a handshake.

    def _accept(self, listening: socket.socket) -> None:
        loop = self._loop
        try:
            accepted, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            # no descriptors or no memory: whoever waits is served when there are
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, listening)
            return
        self._take(accepted, peer[0] if peer else "")

    def _take(self, accepted: socket.socket, peer: str) -> None:
        """Serve an accepted connection, or have it kept for the next process."""
        accepted.setblocking(False)
        limiter = self._limiter
        network, near, proxy = client_key(peer), peer in ("", accepted.getsockname()[0]), limiter.is_proxy(peer)
        if self._keep is not None and not near and not proxy:
            self._keep(accepted)
            return
        if not limiter.has_room(network, near=near, proxy=proxy):
            # in clear text nobody would understand why, and handshakes are what there are too many of
            accepted.close()
            return
        limiter.handshakes[network] += 1
        task = self._loop.create_task(self._secure(accepted, network, announced=proxy and not near))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    async def _secure(self, accepted: socket.socket, network: str, *, announced: bool) -> None:
        limits, handshakes = self._server.limits, self._limiter.handshakes
        tls = None if accepted.family == socket.AF_UNIX else self.tls
        connection: Callable[..., ClientConnection] = self._connection
        try:
            if announced and self._proxy_protocol:
                connection = functools.partial(connection, await self._source(accepted, limits.header_timeout_s))
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                connection,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=limits.header_timeout_s if tls else None,
                ssl_shutdown_timeout=limits.write_timeout_s if tls else None,
            )
        except OSError:
            # no TLS or header, not in time, or gone
            pass
        finally:
            handshakes[network] -= 1
            # drop networks without any
            handshakes += Counter()

    async def _source(self, accepted: socket.socket, limit_s: float) -> str:
        """Return whom a proxy connects for; raise OSError and close the connection if it does not say so in time."""
        try:
            async with asyncio.timeout(limit_s):
                return await proxied.source(self._loop, accepted)
        except (OSError, ValueError) as exc:
            accepted.close()
            raise ConnectionAbortedError from exc


def _listen_at(path: str, backlog: int) -> socket.socket:
    """Listen at a path, which everybody of this host may use, as its ports; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            # of a process that was killed
            os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    os.chmod(path, 0o666)
    listening.listen(backlog)
    return listening


def _end_dead_connections(listening: socket.socket, seconds: float) -> None:
    """Have the kernel find clients that vanished without a word; connections inherit it from where they came in."""
    if seconds <= 0:
        return
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # a silent one is asked after half of the time, three times; what was sent to it waits no longer than that either
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds / 2)))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds / 6)))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
