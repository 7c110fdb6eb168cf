# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keepalived's configuration: two load balancers share one address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .fleet import FleetFault

_FIRST_PRIORITY = 200
_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")
_PASSWORD = re.compile(r"[A-Za-z0-9_.-]{1,8}")


@dataclass(frozen=True)
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
    peers = "\n".join(f"        {peer}" for peer in vrrp.peers)
    return f"""\
# Rendered by Ansible. The role load_balancer of arcpro.b70 writes it again; see docs/load-balancing.md.
global_defs {{
    enable_script_security
    script_user nobody nogroup
}}

# HAProxy, and not the hosts behind it: the other load balancer sees the same hosts.
vrrp_script haproxy {{
    script "/usr/bin/curl --silent --fail --max-time 1 --output /dev/null {vrrp.health_url}"
    interval 1
    timeout 2
    fall 2
    rise 2
}}

vrrp_instance b70 {{
    # Who has the address keeps it: each move breaks the connections that are open.
    state BACKUP
    nopreempt
    interface {vrrp.interface}
    virtual_router_id {vrrp.router_id}
    priority {_FIRST_PRIORITY - vrrp.place}
    advert_int 1
    unicast_src_ip {vrrp.own}
    unicast_peer {{
{peers}
    }}
    authentication {{
        auth_type PASS
        auth_pass {vrrp.password}
    }}
    virtual_ipaddress {{
        {vrrp.address}
    }}
    track_script {{
        haproxy
    }}
}}
"""
