# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bounds on connections and on the bytes of bodies, in all and for each client. Pure code."""

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
    """The facts about a client when it connects."""

    address: str
    network: str
    from_this_host: bool


C = TypeVar("C", bound=Connection)


class ConnectionLimiter(Generic[C]):
    """Knows all connections, and whether one more may be served. This host itself has only a limit in all."""

    def __init__(self, limits: Limits, networks: tuple[Network, ...], proxies: tuple[Network, ...] = ()) -> None:
        """Take the `networks` that may connect, all if there are none, and the `proxies` that say for whom they ask."""
        self.configure(limits, networks, proxies)
        self.connections: set[C] = set()
        self._refused: set[C] = set()
        self._of_network: Counter[str] = Counter()
        #: TLS handshakes under way, by network
        self.handshakes: Counter[str] = Counter()

    def configure(self, limits: Limits, networks: tuple[Network, ...], proxies: tuple[Network, ...]) -> None:
        """Go by other limits and networks from the next connection on."""
        self._limits = limits
        self._networks = networks
        self._proxies = proxies

    def has_room(self, network: str, *, near: bool, proxy: bool = False) -> bool:
        """Tell whether one more TLS handshake may begin."""
        return self._excess(network, self.handshakes, near=near, exempt=near or proxy) is None

    def _excess(self, network: str, begun: Counter[str], *, near: bool, exempt: bool) -> Refusal | None:
        """Return why one connection more than those served and those begun is too many; None if it is not."""
        limits, served = self._limits, len(self.connections) - len(self._refused) + begun.total()
        if served >= limits.max_connections + (_RESERVED if near else 0):
            return _TOO_MANY
        there = self._of_network[network] + begun[network]
        return None if exempt or there < limits.max_connections_per_address else _TOO_MANY_THERE

    @property
    def may_linger(self) -> bool:
        """True if a refused client may be told why."""
        return len(self._refused) <= _MOST_REFUSED

    def is_proxy(self, address: str) -> bool:
        """Tell whether an address is that of a proxy, which is believed for whom it asks."""
        return allowed(address, self._proxies)

    def refusal_of(self, address: str) -> Refusal | None:
        """Return why a request from an address for which a proxy asks is refused; None if it is not."""
        return _NOT_FROM_THERE if self._networks and not allowed(address, self._networks) else None

    def add(self, client: C) -> Refusal | None:
        """Note a connection; return why it is not served."""
        near, network = client.from_this_host, client.network
        # a proxy has the connections of many clients
        exempt = near or self.is_proxy(client.address)
        refusal = None if exempt else self.refusal_of(client.address)
        refusal = refusal or self._excess(network, Counter(), near=near, exempt=exempt)
        self.connections.add(client)
        if refusal is None:
            self._of_network[network] += 1
        else:
            # takes nobody's place
            self._refused.add(client)
        return refusal

    def remove(self, client: C) -> None:
        """Forget a connection."""
        if client in self._refused:
            self._refused.discard(client)
        elif client in self.connections:
            self._of_network[client.network] -= 1
            if not self._of_network[client.network]:
                del self._of_network[client.network]
        self.connections.discard(client)


class MemoryBudget:
    """Counts bodies that are coming in and bodies that the engine does not have yet."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        #: bytes held now
        self.held = 0
        self._of_client: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of clients that bytes are held for."""
        return len(self._of_client)

    def add(self, client_key: str, size: int) -> None:
        """Count bytes of a client; fewer than 0 take them back."""
        self.held += size
        held = self._of_client.pop(client_key, 0) + size
        if held:
            self._of_client[client_key] = held

    def excess(self, client_key: str) -> str:
        """Return why a body of this client may not grow; empty if it may."""
        limits = self.limits
        if self.held > limits.max_buffered_bytes:
            return "too many large requests are being received"
        if self._of_client.get(client_key, 0) > max(limits.max_buffered_bytes_per_client, limits.max_body_bytes):
            return "too many large requests of yours are being received"
        return ""
