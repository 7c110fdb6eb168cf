# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keepalived's configuration: two load balancers share one address."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Sequence

from .._templates import render
from .fleet import FleetFault

_FIRST_PRIORITY = 200
_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")
_PASSWORD = re.compile(r"[A-Za-z0-9_.-]{1,8}")


@dataclasses.dataclass(frozen=True)
class Vrrp:
    """The role's variables. own, peers: addresses of this load balancer and of the others; place: which one it is."""

    address: str
    interface: str
    router_id: int
    password: str
    own: str
    peers: Sequence[str]
    place: int
    health_url: str
    template_dirs: Sequence[str] = ()


def _faults(vrrp: Vrrp) -> list[str]:
    found = []
    try:
        ipaddress.ip_interface(vrrp.address)
    except ValueError:
        found.append("load_balancer_vrrp_address must be an address with its prefix, such as 192.0.2.10/24")
    if not _INTERFACE.fullmatch(vrrp.interface):
        found.append("load_balancer_vrrp_interface must name the network interface for the address, such as eth0")
    if not _PASSWORD.fullmatch(vrrp.password):
        found.append("load_balancer_vrrp_password must have 1 to 8 letters, digits and _ . -")
    if not 1 <= vrrp.router_id <= 255:
        found.append("load_balancer_vrrp_router_id must be 1 to 255")
    if not vrrp.peers:
        found.append("the group b70_load_balancers needs a second load balancer to share the address with")
    return found


def configuration(vrrp: Vrrp) -> str:
    """Return the whole keepalived.conf; raise FleetFault, which never quotes the password."""
    faults = _faults(vrrp)
    if faults:
        raise FleetFault("; ".join(faults))
    data = {**dataclasses.asdict(vrrp), "priority": _FIRST_PRIORITY - vrrp.place}
    return render("keepalived.conf", data, vrrp.template_dirs)
