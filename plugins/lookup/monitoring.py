# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files of Prometheus and Alertmanager, and the addresses of the hosts that scrape."""

from __future__ import annotations

DOCUMENTATION = r"""
name: monitoring
author: arcpro.b70 contributors (@arcpro-b70)
version_added: 0.2.0
short_description: Render what Prometheus scrapes from the inventory
description:
  - With V(prometheus), returns the files of Prometheus and of its blackbox exporter, as a mapping of paths to texts.
    What is scraped follows from the variables of the hosts, such as C(frontdoor_port).
  - With V(alertmanager), returns the configuration of Alertmanager.
  - With V(addresses), returns the list of addresses from which the hosts are scraped.
options:
  _terms:
    description: What to return - V(prometheus), V(alertmanager) or V(addresses).
    required: true
  settings:
    description: The values of the role's variables.
    type: dict
    default: {}
  receiver:
    description: For V(alertmanager), a receiver as Alertmanager documents it, without its name.
    type: dict
    default: {}
  tomorrow:
    description: For V(alertmanager), the receiver of warnings; without one, O(receiver) gets them.
    type: dict
    default: {}
  watchdog:
    description: For V(alertmanager), the receiver of the alert that always fires.
    type: dict
    default: {}
  group:
    description: The group of the hosts.
    type: str
    default: b70_hosts
  balancers:
    description: The group of the load balancers.
    type: str
    default: b70_load_balancers
  servers:
    description: The group of the hosts with Prometheus.
    type: str
    default: b70_monitoring
  control:
    description: The group of the control hosts.
    type: str
    default: b70_control
seealso:
  - plugin: arcpro.b70.load_balancer
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show from where the hosts are scraped
  ansible.builtin.debug:
    msg: "{{ lookup('arcpro.b70.monitoring', 'addresses') }}"
"""

RETURN = r"""
_raw:
  description: The files, the text, or the list of addresses.
  type: list
  elements: raw
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import plain
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer import fleet
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.lookup import FleetLookup
from ansible_collections.arcpro.b70.plugins.plugin_utils._monitoring import alertmanager, prometheus


class LookupModule(FleetLookup):
    """The lookup as Ansible finds it."""

    name = "monitoring"

    def renderers(self) -> dict[str, Callable[[], Any]]:
        return {
            "prometheus": self._prometheus,
            "alertmanager": self._alertmanager,
            "addresses": self._addresses,
        }

    def _prometheus(self) -> dict[str, str]:
        settings = prometheus.settings_of(plain(self.get_option("settings")))
        others = {**self.told("control"), **self.told("servers")}
        return prometheus.files(settings, self.told("group"), self.told("balancers"), others)

    def _alertmanager(self) -> str:
        receiver, tomorrow, watchdog, settings = (
            plain(self.get_option(name)) for name in ("receiver", "tomorrow", "watchdog", "settings")
        )
        return alertmanager.configuration(receiver, tomorrow, watchdog, settings["template_dirs"])

    def _addresses(self) -> list[str]:
        servers = self.told("servers").items()
        found = (fleet.addresses_of(name, told, variable="monitoring_server_address") for name, told in servers)
        return [address for addresses in found for address in addresses]
