# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many connections there may be, in all and from one network, and from where."""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

from frontdoor.config import Limits
from frontdoor.errors import Refusal
from frontdoor.networks import Network, allowed

# connections that this host may have beyond the limit: of the switch, and of a person who looks at the status
_RESERVED = 64
# refused connections that are kept until the client has read why; any more are closed without a word
_MOST_REFUSED = 256

_TOO_MANY = Refusal(503, "too_many_connections", "too many connections; try again later", 5)
_TOO_MANY_THERE = Refusal(503, "too_many_connections", "too many connections from this address; try again later", 5)
_NOT_FROM_THERE = Refusal(
    403, "address_not_allowed", "this address may not connect; ask the operator to add its network to those allowed"
)


class Connection(Protocol):
    """What is known of a client when it connects."""

    address: str
    network: str
    from_this_host: bool


C = TypeVar("C", bound=Connection)


class ConnectionLimiter(Generic[C]):
    """Knows all connections, and whether one more may be served."""

    def __init__(self, limits: Limits, networks: tuple[Network, ...]) -> None:
        self._limits = limits
        self._networks = networks
        self.connections: set[C] = set()
        self._refused: set[C] = set()
        self._of_network: dict[str, int] = {}
        #: TLS handshakes under way, by network
        self.handshakes: Counter[str] = Counter()

    def has_room(self, network: str, *, near: bool) -> bool:
        """Whether one more TLS handshake may begin."""
        if self._too_many(self.handshakes.total() + 1, near=near):
            return False
        there = self._of_network.get(network, 0) + self.handshakes[network]
        return near or there < self._limits.max_connections_per_address

    def _too_many(self, more: int, *, near: bool) -> bool:
        """Whether those that are served, and so many more, exceed the limit."""
        most = self._limits.max_connections + (_RESERVED if near else 0)
        return len(self.connections) - len(self._refused) + more > most

    @property
    def may_linger(self) -> bool:
        """Whether a refused client may be told why."""
        return len(self._refused) <= _MOST_REFUSED

    def add(self, client: C) -> Refusal | None:
        """Note a connection; return why it is not served."""
        self.connections.add(client)
        refusal = self._judge(client)
        if refusal is not None:
            # takes nobody's place
            self._refused.add(client)
        else:
            self._of_network[client.network] = self._of_network.get(client.network, 0) + 1
        return refusal

    def _judge(self, client: C) -> Refusal | None:
        near = client.from_this_host
        if self._networks and not near and not allowed(client.address, self._networks):
            return _NOT_FROM_THERE
        if self._too_many(0, near=near):
            return _TOO_MANY
        if not near and self._of_network.get(client.network, 0) >= self._limits.max_connections_per_address:
            return _TOO_MANY_THERE
        return None

    def remove(self, client: C) -> None:
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
