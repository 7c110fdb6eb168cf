# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files of a load balancer, and the addresses of load balancers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: load_balancer
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Render the configuration of a load balancer from the inventory
description:
  - With V(haproxy), returns the configuration of HAProxy for the hosts of a group. What a host serves follows from its
    C(b70_profile) or C(load_balancer_member_models). Hosts that serve different models get a backend for each.
  - With V(build), returns what a HAProxy with this configuration reports at C(/health) of its metrics address.
  - With V(keys), returns HAProxy's map of API keys.
  - With V(keepalived), returns the configuration of keepalived.
  - With V(floors), returns how many hosts each backend keeps in service, for M(arcpro.b70.b70_load_balancer_member).
  - With V(addresses), returns the list of addresses from which the load balancers connect to the hosts.
options:
  _terms:
    description: What to return - V(haproxy), V(build), V(keys), V(keepalived), V(floors) or V(addresses).
    required: true
  settings:
    description: Values of the role's variables, by their names without C(load_balancer_).
    type: dict
    default: {}
  catalogue:
    description: The profiles, as the lookup P(arcpro.b70.catalogue#lookup) returns them.
    type: dict
    default: {}
  min_ready:
    description: A number or share of hosts that stay in service for each model, or such a value by model.
    type: raw
    default: 1
  group:
    description: The group of the hosts.
    type: str
    default: b70_hosts
  balancers:
    description: The group of the load balancers.
    type: str
    default: b70_load_balancers
seealso:
  - module: arcpro.b70.b70_load_balancer_member
"""

EXAMPLES = r"""
- name: Show from where requests arrive
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.load_balancer', 'addresses') }}"
"""

RETURN = r"""
_raw:
  description: The text, or the list of addresses.
  type: list
  elements: raw
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer import capacity, fleet, haproxy, keepalived
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.lookup import FleetLookup


class LookupModule(FleetLookup):
    """The lookup as Ansible finds it."""

    name = "load_balancer"

    def renderers(self) -> dict[str, Callable[[], Any]]:
        return {
            "haproxy": self._haproxy,
            "build": lambda: haproxy.build_of(self._haproxy()),
            "keys": lambda: haproxy.keys_map(plain(self.get_option("settings")["api_keys"])),
            "keepalived": self._keepalived,
            "floors": lambda: capacity.floors(plain(self.get_option("min_ready")), self._pools()),
            "addresses": lambda: [address for found in self._balancers().values() for address in found],
        }

    def _balancers(self) -> dict[str, tuple[str, ...]]:
        return {name: fleet.addresses_of(name, told) for name, told in self.told("balancers").items()}

    def _pools(self) -> tuple[fleet.ServerPool, ...]:
        catalogue = plain(self.get_option("catalogue"))
        return fleet.pools_of(fleet.host_of(name, told, catalogue) for name, told in self.told("group").items())

    def _haproxy(self) -> str:
        return haproxy.configuration(haproxy.settings_of(plain(self.get_option("settings"))), self._pools())

    def _keepalived(self) -> str:
        given, found = plain(self.get_option("settings")), self._balancers()
        own = str(self._known["inventory_hostname"])
        return keepalived.configuration(
            keepalived.Vrrp(
                address=given["vrrp_address"],
                interface=given["vrrp_interface"],
                router_id=int(given["vrrp_router_id"]),
                password=str(given["vrrp_password"]),
                own=found[own][0],
                peers=[addresses[0] for name, addresses in found.items() if name != own],
                place=list(found).index(own),
                health_url=given["health_url"],
                template_dirs=given["template_dirs"],
            )
        )
