# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts behind a load balancer and the models that each serves, from the inventory and the catalogue."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._catalogue.problems import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_MODEL = re.compile(r"[A-Za-z0-9_.:/@+-]+")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:-]+")
_DNS_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_EVERYWHERE = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost")
_MOST_WEIGHT = 256


class FleetFault(ValueError):
    """The inventory does not say enough; the text names the host and what to set."""


def authority(address: str, port: int) -> str:
    """Return address and port as URLs have them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True)
class FrontdoorServer:
    """One frontdoor. models: empty if nobody says which it serves. tls_name: a name in its certificate, or empty."""

    name: str
    address: str
    port: int
    models: tuple[str, ...] = ()
    permits: int = 0
    tls_name: str = ""

    @property
    def authority(self) -> str:
        """Return address and port as HAProxy reads them."""
        return authority(self.address, self.port)


@dataclass(frozen=True)
class ServerPool:
    """Hosts that serve the same names. models: empty for the only pool, whatever it serves."""

    name: str
    hosts: tuple[FrontdoorServer, ...]
    models: tuple[str, ...] = ()

    def weight(self, host: FrontdoorServer) -> int:
        """Return a host's weight, which is in proportion to its permits; 1 if those of any host are unknown.

        So the least busy host is asked first.
        """
        if not all(other.permits for other in self.hosts):
            return 1
        most = max(other.permits for other in self.hosts)
        return host.permits if most <= _MOST_WEIGHT else max(1, host.permits * _MOST_WEIGHT // most)


def is_address(text: str) -> bool:
    """Tell whether a text is an IP address, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _tls_name(name: str, address: str, told: Mapping[str, Any]) -> str:
    """Return the name that a host's certificate must have. HAProxy compares names in a certificate, never addresses."""
    if not told.get("frontdoor_tls_certificate"):
        return ""
    found = str(told.get("load_balancer_member_tls_name") or address)
    if is_address(found) or not _DNS_NAME.fullmatch(found):
        raise FleetFault(
            f"{name}: its frontdoor has TLS, and HAProxy looks for a DNS name in a certificate, not for {found!r}; "
            f"set load_balancer_member_tls_name for this host to a DNS name that its certificate has"
        )
    return found


def address_of(name: str, told: Mapping[str, Any]) -> str:
    """Return the address or name at which other hosts reach a host's frontdoor."""
    bound = str(told.get("frontdoor_bind_host") or "")
    inside = bound if bound not in _EVERYWHERE else ""
    address = str(told.get("load_balancer_member_address") or inside or told.get("ansible_host") or name)
    if not _ADDRESS.fullmatch(address):
        raise FleetFault(f"{name}: {address!r} is no address; set load_balancer_member_address for this host")
    return address


def host_of(name: str, told: Mapping[str, Any], catalogue: Mapping[str, Mapping[str, Any]]) -> FrontdoorServer:
    """Read what the inventory says of a host, and the catalogue of its profile."""
    if not _NAME.fullmatch(name):
        raise FleetFault(f"{name!r} cannot be the name of a server of HAProxy, which has letters, digits and _ . : -")
    address = address_of(name, told)
    profile_name = str(told.get("b70_profile") or "")
    models = [str(model) for model in told.get("load_balancer_member_models") or ()]
    permits = 0
    if profile_name:
        if profile_name not in catalogue:
            near = did_you_mean(profile_name, catalogue, 3)
            raise FleetFault(f'{name}: b70_profile is "{profile_name}", which is no profile{near}')
        profile = catalogue[profile_name]
        door = profile.get("frontdoor") or {}
        permits = int(door.get("max_active_generations") or 0)
        aliases = door.get("model_aliases")
        if aliases is None:
            aliases = told.get("frontdoor_model_aliases")
        models = models or [profile["engine"]["served_model_name"], *(aliases or ())]
    for model in models:
        if not _MODEL.fullmatch(model):
            raise FleetFault(f"{name}: the model name {model!r} has more than letters, digits and _ . : / @ + -")
    port = int(told.get("frontdoor_port") or 8000)
    return FrontdoorServer(name, address, port, tuple(dict.fromkeys(models)), permits, _tls_name(name, address, told))


def pools_of(hosts: Iterable[FrontdoorServer]) -> tuple[ServerPool, ...]:
    """Return one pool if all hosts serve the same or nobody says what; else one for each set of hosts and its names."""
    members = tuple(hosts)
    if not members:
        raise FleetFault("there is no host to balance; put the frontdoors into the group b70_hosts")
    if len({host.models for host in members}) == 1:
        return (ServerPool("b70", members),)
    unknown = [host.name for host in members if not host.models]
    if unknown:
        raise FleetFault(
            f"hosts serve different models, and nobody says which {', '.join(unknown)} serves; "
            f"set b70_profile or load_balancer_member_models for each host, or for none"
        )
    served: dict[tuple[FrontdoorServer, ...], list[str]] = {}
    for model in dict.fromkeys(model for host in members for model in host.models):
        served.setdefault(tuple(host for host in members if model in host.models), []).append(model)
    return tuple(
        ServerPool(f"b70_{number}", serving, tuple(models))
        for number, (serving, models) in enumerate(served.items(), 1)
    )


def resolved(name: str) -> tuple[str, ...]:
    """Return the addresses of a name; raise OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(sorted({str(entry[4][0]) for entry in found}))


def addresses_of(
    name: str,
    told: Mapping[str, Any],
    resolve: Callable[[str], tuple[str, ...]] = resolved,
    variable: str = "load_balancer_address",
) -> tuple[str, ...]:
    """Return the addresses from which a host asks. variable: what an operator sets if these are not Ansible's."""
    address = str(told.get(variable) or told.get("ansible_host") or name)
    if is_address(address):
        return (str(ipaddress.ip_address(address)),)
    try:
        return resolve(address)
    except OSError as error:
        raise FleetFault(
            f"{address} cannot be resolved here ({error.strerror}); set {variable} for the host {name}"
        ) from error
