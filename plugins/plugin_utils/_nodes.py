# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several hosts that serve one model: which node of the group a host is, from the variable b70_nodes. Pure."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._catalogue.problems import did_you_mean

DEFAULT_PORT = 18200
# The floor of the network between nodes; docs/nodes.md has the arithmetic. 0 demands nothing.
_FLOOR = {"bandwidth_min_gb_s": 1.0, "latency_max_us": 500.0}
_KEYS = ("hosts", "interface", "port", "key", *_FLOOR)  # the key goes to the host separately, see the role slot
_HOST_KEYS = ("name", "address")


@dataclass(frozen=True)
class NodePlace:
    """The place of a host in its group.

    rank: 0 leads. interface: the network device between the nodes. port: where each node answers the others; the
    engines form their group on the next port, and the network is measured on the third. hosts: (name, address) of each
    node, the leader first. bandwidth_min_gb_s, latency_max_us: the floor of the network between them.
    """

    rank: int
    interface: str
    port: int
    hosts: tuple[tuple[str, str], ...]
    bandwidth_min_gb_s: float
    latency_max_us: float

    @property
    def address(self) -> str:
        return self.hosts[self.rank][1]

    @property
    def addresses(self) -> list[str]:
        return [address for _name, address in self.hosts]

    @property
    def rendezvous_port(self) -> int:
        return self.port + 1

    def first(self, count: int) -> NodePlace:
        """Return the same place in a group of only the first `count` nodes."""
        return dataclasses.replace(self, hosts=self.hosts[:count])

    def as_dict(self) -> dict[str, Any]:
        """Return what the host must know of it."""
        hosts = [dict(zip(_HOST_KEYS, host, strict=True)) for host in self.hosts]
        floor = {"bandwidth_gb_s": self.bandwidth_min_gb_s, "latency_us": self.latency_max_us}
        return {"rank": self.rank, "interface": self.interface, "port": self.port, "hosts": hosts, "floor": floor}


def node_place(nodes: Any, name: str) -> NodePlace | None:
    """Return the place of the host with this name; None if it is in no group.

    :param nodes: the variable b70_nodes: ``{interface: NAME, port: N, hosts: [{name: HOST, address: IP}, ...],
        bandwidth_min_gb_s: N, latency_max_us: N}``; only interface and hosts are required. The key is not checked.
    :raises ValueError: naming the key that is wrong.
    """
    if not nodes:
        return None
    if not isinstance(nodes, Mapping):
        raise ValueError(f"b70_nodes is a mapping of {', '.join(_KEYS)}, not a {type(nodes).__name__}")
    for key in nodes:
        if key not in _KEYS:
            raise ValueError(f'b70_nodes: unknown key "{key}"{did_you_mean(str(key), _KEYS)}')
    interface = nodes.get("interface")
    if not isinstance(interface, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,15}", interface):
        raise ValueError(f"b70_nodes.interface is the network device between the nodes, not {interface!r}")
    hosts = _hosts(nodes.get("hosts"))
    rank = next((rank for rank, host in enumerate(hosts) if host[0] == name), None)
    port = port_of("b70_nodes.port is the first of three ports", nodes.get("port", DEFAULT_PORT), 65533)
    floor = {key: _floor(key, nodes.get(key, default)) for key, default in _FLOOR.items()}
    return None if rank is None else NodePlace(rank, interface, port, hosts, **floor)


def port_of(what: str, value: Any, most: int) -> int:
    """Return a port; raise ValueError that says what it is."""
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = 0
    if not 1 <= port <= most:
        raise ValueError(f"{what}, from 1 to {most}, not {value!r}")
    return port


def _floor(key: str, value: Any) -> float:
    try:
        floor = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        floor = math.nan
    if not 0 <= floor < math.inf:
        raise ValueError(f"b70_nodes.{key} is a number, and 0 demands nothing, not {value!r}")
    return floor


def _hosts(given: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"b70_nodes.hosts is a list of two hosts or more, the leader first, not {given!r}")
    hosts: list[tuple[str, str]] = []
    for index, host in enumerate(given):
        where = f"b70_nodes.hosts[{index}]"
        if not isinstance(host, Mapping) or sorted(host) != sorted(_HOST_KEYS):
            raise ValueError(f"{where} has the keys {' and '.join(_HOST_KEYS)}, not {host!r}")
        name, address = str(host["name"]), str(host["address"])
        try:
            known = ipaddress.ip_address(address)
        except ValueError as error:
            raise ValueError(
                f"{where}.address is an address of the network between the nodes, not {address!r}"
            ) from error
        if known.is_unspecified or known.is_loopback or known.is_multicast:
            raise ValueError(f"{where}.address is {address}, which the other nodes can't reach")
        for other in hosts:
            if name == other[0] or address == other[1]:
                raise ValueError(f"{where}: {name} ({address}) is given twice")
        hosts.append((name, address))
    return tuple(hosts)
