# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where clients connect, how many may, and what is done before a connection carries requests."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

from frontdoor.config import Limits
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection
from frontdoor.networks import Network, allowed, client_key, plain

if TYPE_CHECKING:
    from frontdoor.app import Door

# connections that this host may have beyond the limit: of the switch, of whoever looks at the status
_RESERVED = 64
# who was refused at the door and takes the time to read it; beyond so many, connections are closed without a word
_MOST_REFUSED = 256

# connections that are accepted before others are served, and when it is tried again without descriptors
_ACCEPTED_AT_ONCE = 64
_ACCEPT_AGAIN_S = 0.2

_TOO_MANY = Refusal(503, "too_many_connections", "too many connections; try again later", 5)
_TOO_MANY_THERE = Refusal(503, "too_many_connections", "too many connections from this address; try again later", 5)
_NOT_FROM_THERE = Refusal(
    403, "address_not_allowed", "this address may not connect; ask the operator to add its network to those allowed"
)


class ConnectionLimiter:
    """Who is connected, and whether one more may be."""

    def __init__(self, limits: Limits, networks: tuple[Network, ...]) -> None:
        self._limits = limits
        self._networks = networks
        self.connections: set[ClientConnection] = set()
        self._refused: set[ClientConnection] = set()
        self._of_network: dict[str, int] = {}
        #: TLS handshakes under way, by network
        self.shaking_hands: Counter[str] = Counter()

    def has_room(self, network: str, *, near: bool) -> bool:
        """Whether one more handshake may begin."""
        if self._too_many(self.shaking_hands.total() + 1, near=near):
            return False
        there = self._of_network.get(network, 0) + self.shaking_hands[network]
        return near or there < self._limits.max_connections_per_address

    def _too_many(self, more: int, *, near: bool) -> bool:
        """Whether those that are served, and so many more, are over the limit."""
        most = self._limits.max_connections + (_RESERVED if near else 0)
        return len(self.connections) - len(self._refused) + more > most

    @property
    def may_linger(self) -> bool:
        """Whether somebody who is refused may be told."""
        return len(self._refused) <= _MOST_REFUSED

    def welcome(self, client: ClientConnection) -> Refusal | None:
        """Note a connection; return why it is not served."""
        self.connections.add(client)
        refusal = self._judge(client)
        if refusal is not None:
            # takes nobody's place
            self._refused.add(client)
        else:
            self._of_network[client.network] = self._of_network.get(client.network, 0) + 1
        return refusal

    def _judge(self, client: ClientConnection) -> Refusal | None:
        near, limits = client.from_this_host, self._limits
        if self._networks and not near and not allowed(client.address, self._networks):
            return _NOT_FROM_THERE
        if self._too_many(0, near=near):
            return _TOO_MANY
        if not near and self._of_network.get(client.network, 0) >= limits.max_connections_per_address:
            return _TOO_MANY_THERE
        return None

    def farewell(self, client: ClientConnection) -> None:
        """Forget a connection."""
        if client not in self.connections:
            return
        self.connections.discard(client)
        if client in self._refused:
            self._refused.discard(client)
            return
        left = self._of_network[client.network] - 1
        if left:
            self._of_network[client.network] = left
        else:
            del self._of_network[client.network]


class Listener:
    """The addresses that clients connect to."""

    def __init__(self, door: Door, tls: ssl.SSLContext | None) -> None:
        self._door = door
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self.sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Listen; raises OSError."""
        door, backlog = self._door, self._door.config.listen.backlog
        for family, address in await _addresses(door.loop, host, port):
            # as everywhere else :: is all addresses of the host, those of IPv4 too
            both = host == "::"
            try:
                listening = socket.create_server(address, family=family, backlog=backlog, dualstack_ipv6=both)
            except OSError as exc:
                # without what Python adds: the address is said by who reports it
                raise OSError(exc.errno, os.strerror(exc.errno or 0)) from exc
            self.sockets.append(listening)
            listening.setblocking(False)
            _end_dead_connections(listening, door.config.limits.dead_peer_timeout_s)
            if self._tls is None:
                server = await door.loop.create_server(lambda: ClientConnection(door), sock=listening, backlog=backlog)
                self._servers.append(server)
            else:
                door.loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Listen no more; connections go on."""
        for server in self._servers:
            server.close()
        for listening in self.sockets:
            if self._tls is not None:
                self._door.loop.remove_reader(listening)
                listening.close()
        self.sockets.clear()

    # With TLS a connection counts, and its time runs, from the moment it is there and not from the end of a handshake.

    def _accept(self, listening: socket.socket) -> None:
        loop = self._door.loop
        for _once in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # no descriptors or no memory: whoever waits is served when there are
                loop.remove_reader(listening)
                loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, listening)
                return
            accepted.setblocking(False)
            network, near = client_key(plain(peer[0])), peer[0] == accepted.getsockname()[0]
            if not self._door.crowd.has_room(network, near=near):
                # in clear text nobody would understand why, and handshakes are what there are too many of
                accepted.close()
                continue
            self._door.crowd.shaking_hands[network] += 1
            task = loop.create_task(self._secure(accepted, network))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._door.loop.add_reader(listening, self._accept, listening)

    async def _secure(self, accepted: socket.socket, network: str) -> None:
        door, limits = self._door, self._door.config.limits
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await door.loop.connect_accepted_socket(
                lambda: ClientConnection(door),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=limits.header_timeout_s,
                ssl_shutdown_timeout=limits.write_timeout_s,
            )
        except OSError:
            # no TLS, not in time, or gone
            pass
        finally:
            door.crowd.shaking_hands[network] -= 1
            # which are not kept for whoever was here once
            door.crowd.shaking_hands += Counter()


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _type, _proto, _name, address in found))


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
