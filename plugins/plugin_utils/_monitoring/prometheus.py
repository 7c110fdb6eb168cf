# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus's configuration and its lists of targets, from the inventory.

What differs from host to host is a label of its target.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._load_balancer.fleet import FleetFault, address_of, authority, is_address
from .._templates import render

_TCP, _TLS = "b70_tcp", "b70_tls"

Hosts = Mapping[str, Mapping[str, Any]]
Targets = list[dict[str, Any]]


@dataclass(frozen=True)
class PrometheusSettings:
    """The role's variables.

    directory: of these files on the host. key_file: empty without an API key; ca_file: empty for the system's.
    interval_s: between two scrapes. Addresses are HOST:PORT, empty if there is no such service. name: of this
    monitoring host. site: of the hosts that name none of their own; two sites may have hosts of one name.
    """

    directory: str
    key_file: str
    ca_file: str
    interval_s: int
    rule_files: Sequence[str]
    node_port: int
    alertmanager: str
    blackbox: str
    prometheus: str
    name: str
    site: str
    template_dirs: Sequence[str] = ()


def settings_of(given: Mapping[str, Any]) -> PrometheusSettings:
    """Read the role's variables, which are text if they come from a command line."""
    return PrometheusSettings(
        directory=str(given["directory"]),
        key_file=str(given["key_file"]),
        ca_file=str(given["ca_file"]),
        interval_s=int(given["interval_s"]),
        rule_files=[str(one) for one in given["rule_files"]],
        node_port=int(given["node_port"]),
        alertmanager=str(given["alertmanager"]),
        blackbox=str(given["blackbox"]),
        prometheus=str(given["prometheus"]),
        name=str(given["name"]),
        site=str(given["site"]),
        template_dirs=given["template_dirs"],
    )


def _has_tls(told: Mapping[str, Any]) -> bool:
    return bool(told.get("frontdoor_tls_certificate"))


def _frontdoor(name: str, told: Mapping[str, Any]) -> str:
    """Return address and port of a frontdoor. With TLS, its certificate must name the address."""
    in_certificate = told.get("load_balancer_member_tls_name") if _has_tls(told) else ""
    address = str(told.get("monitoring_address") or in_certificate or address_of(name, told))
    return authority(address, int(told.get("frontdoor_port") or 8000))


def _target(name: str, address: str, **labels: str) -> dict[str, Any]:
    return {"targets": [address], "labels": {"instance": name, **labels}}


def frontdoor_targets(hosts: Hosts) -> Targets:
    """Return the frontdoors, each with its scheme."""
    return [
        _target(name, _frontdoor(name, told), __scheme__="https" if _has_tls(told) else "http")
        for name, told in hosts.items()
    ]


def node_targets(hosts: Hosts, port: int) -> Targets:
    """Return the node_exporters of all machines that the service depends on."""
    return [
        _target(name, authority(str(told.get("monitoring_address") or told.get("ansible_host") or name), port))
        for name, told in hosts.items()
    ]


def _with_sites(targets: Targets, hosts: Hosts, site: str) -> Targets:
    """Give each target the site of its host."""
    return [
        {
            **one,
            "labels": {**one["labels"], "site": str(hosts[one["labels"]["instance"]].get("monitoring_site") or site)},
        }
        for one in targets
    ]


def probe_targets(hosts: Hosts, balancers: Hosts) -> Targets:
    """Return the hosts whose certificate is looked at, and the load balancers that are asked for a connection."""
    found = [
        _target(name, _frontdoor(name, told), __param_module=_TLS, kind="frontdoor")
        for name, told in hosts.items()
        if _has_tls(told)
    ]
    for name, told in balancers.items():
        bound = str(told.get("load_balancer_bind_host") or "0.0.0.0")
        inside = "" if bound in ("0.0.0.0", "::") else bound
        address = str(told.get("monitoring_address") or inside or told.get("ansible_host") or name)
        module = _TLS if told.get("load_balancer_tls_certificate") else _TCP
        port = int(told.get("load_balancer_port") or 8000)
        found.append(_target(name, authority(address, port), __param_module=module, kind="load_balancer"))
    return found


def balancer_targets(balancers: Hosts) -> Targets:
    """Return HAProxy's own metrics, of the load balancers that show them to other hosts."""
    found = []
    for name, told in balancers.items():
        bound = str(told.get("load_balancer_metrics_host") or "127.0.0.1")
        if bound == "localhost" or (is_address(bound) and ipaddress.ip_address(bound).is_loopback):
            continue
        everywhere = bound in ("0.0.0.0", "::")
        address = str(told.get("monitoring_address") or told.get("ansible_host") or name) if everywhere else bound
        found.append(_target(name, authority(address, int(told.get("load_balancer_metrics_port") or 8405))))
    return found


def check_keys(hosts: Hosts, key_file: str) -> None:
    """Raise FleetFault if frontdoors want a key and there is none."""
    asked = [name for name, told in hosts.items() if told.get("frontdoor_api_keys")]
    if asked and not key_file:
        raise FleetFault(
            f"the frontdoors of {', '.join(asked)} require an API key; make one (python -m frontdoor --make-key NAME), "
            f"put its digest into frontdoor_api_keys and the key itself, encrypted, into monitoring_api_key"
        )


def files(settings: PrometheusSettings, hosts: Hosts, balancers: Hosts, others: Hosts) -> dict[str, str]:
    """Return the text of all files by their path below the directory; raise FleetFault if hosts or a key are missing.

    :param others: the monitoring and control hosts.
    """
    if not hosts:
        raise FleetFault("there is no host to monitor; put the frontdoors into the group b70_hosts")
    check_keys(hosts, settings.key_file)
    machines = {**others, **balancers, **hosts}
    targets = {
        "frontdoor": frontdoor_targets(hosts),
        "node": node_targets(machines, settings.node_port),
        "probe": probe_targets(hosts, balancers),
        "load_balancer": balancer_targets(balancers),
    }
    documents: dict[str, tuple[str, dict[str, Any]]] = {
        **{
            f"targets/{name}.yml": ("prometheus-targets.yml", {"targets": _with_sites(found, machines, settings.site)})
            for name, found in targets.items()
        },
        "blackbox.yml": ("prometheus-blackbox.yml", {}),
        "prometheus.yml": ("prometheus.yml", {"settings": settings}),
    }
    return {path: render(template, data, settings.template_dirs) for path, (template, data) in documents.items()}
