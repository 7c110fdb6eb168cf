# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients that may connect at all, by their address."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# the words that systemd's IPAddressAllow= knows as well
_WORDS = {
    "any": ("0.0.0.0/0", "::/0"),
    "localhost": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/64"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
}


def networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks in a list of networks, addresses and words; raise ValueError, which names the entry."""
    try:
        return tuple(ipaddress.ip_network(text) for entry in entries for text in _WORDS.get(entry, (entry,)))
    except ValueError as exc:
        raise ValueError(f"{exc}; write networks such as 192.168.0.0/16, addresses, or {', '.join(_WORDS)}") from exc


def _peer(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address as a socket tells it, None where it is none."""
    try:
        peer = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    # a client by IPv4 on a socket for both
    return peer.ipv4_mapped or peer if peer.version == 6 else peer


def allowed(address: str, among: tuple[Network, ...]) -> bool:
    """Tell whether an address, as a socket tells it, is in one of the networks."""
    peer = _peer(address)
    return peer is not None and any(peer in network for network in among)


def is_address(text: str) -> bool:
    return _peer(text) is not None


def plain(address: str) -> str:
    """Return an IPv4 address as such, where it came in on a socket for both."""
    return address.removeprefix("::ffff:") if "." in address else address


def client_key(address: str) -> str:
    """Return the client as it competes without keys: an address, or the network of an IPv6 address.

    A host has as many addresses of its /64 as it likes. Those of the link are a network of all, and count one by one.
    """
    peer = _peer(address)
    if peer is None or peer.is_link_local:
        return address
    return str(peer if peer.version == 4 else ipaddress.IPv6Network((peer, 64), strict=False))
