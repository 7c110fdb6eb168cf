# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an inventory to what Prometheus scrapes; tests/checks/test_monitoring.py has Prometheus do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ansible.template import trust_as_template

from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.fleet import FleetFault, addresses_of
from ansible_collections.arcpro.b70.plugins.plugin_utils._monitoring import alertmanager, prometheus

GIVEN: dict[str, Any] = {
    "directory": "/etc/b70-monitoring",
    "key_file": "",
    "ca_file": "",
    "interval_s": "15",
    "rule_files": [],
    "node_port": "9100",
    "alertmanager": "127.0.0.1:9093",
    "blackbox": "127.0.0.1:9115",
    "prometheus": "127.0.0.1:9090",
    "name": "mon",
    "site": "north",
    "template_dirs": [],
}


def files(
    hosts: dict[str, Any], balancers: dict[str, Any] | None = None, others: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    found = prometheus.files(prometheus.settings_of({**GIVEN, **changes}), hosts, balancers or {}, others or {})
    return {path: yaml.safe_load(text) for path, text in found.items()}


def alerting(
    receiver: Mapping[str, Any], tomorrow: Mapping[str, Any] | None = None, watchdog: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return dict(yaml.safe_load(alertmanager.configuration(receiver, tomorrow, watchdog)))


def target(file: list[dict[str, Any]]) -> tuple[str, dict[str, str]]:
    (one,) = file
    (address,) = one["targets"]
    return address, one["labels"]


def job(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [one for one in found["prometheus.yml"]["scrape_configs"] if one["job_name"] == name]
    return dict(one)


@pytest.mark.parametrize(
    ("told", "address", "scheme"),
    [
        ({}, "h1:8000", "http"),
        ({"ansible_host": "192.0.2.1", "frontdoor_port": "9000"}, "192.0.2.1:9000", "http"),
        ({"ansible_host": "2001:db8::1"}, "[2001:db8::1]:8000", "http"),
        ({"ansible_host": "192.0.2.1", "frontdoor_bind_host": "198.51.100.1"}, "198.51.100.1:8000", "http"),
        # behind a proxy on the host itself
        ({"ansible_host": "192.0.2.1", "frontdoor_bind_host": "127.0.0.1"}, "192.0.2.1:8000", "http"),
        ({"ansible_host": "192.0.2.1", "frontdoor_tls_certificate": "/c"}, "192.0.2.1:8000", "https"),
        (
            {
                "ansible_host": "192.0.2.1",
                "frontdoor_tls_certificate": "/c",
                "load_balancer_member_tls_name": "h.example",
            },
            "h.example:8000",
            "https",
        ),
        # the name of a certificate means nothing without one
        ({"ansible_host": "192.0.2.1", "load_balancer_member_tls_name": "h.example"}, "192.0.2.1:8000", "http"),
        ({"ansible_host": "192.0.2.1", "monitoring_address": "198.51.100.7"}, "198.51.100.7:8000", "http"),
    ],
)
def test_a_frontdoor_is_asked_where_it_listens(told: dict[str, Any], address: str, scheme: str) -> None:
    found = files({"h1": told})
    assert target(found["targets/frontdoor.yml"]) == (
        address,
        {"instance": "h1", "__scheme__": scheme, "site": "north"},
    )


def test_node_exporters_are_asked_at_the_hosts_addresses() -> None:
    told = {"ansible_host": "192.0.2.1", "frontdoor_bind_host": "198.51.100.1"}
    address, labels = target(files({"h1": told}, node_port=9200)["targets/node.yml"])
    assert (address, labels) == ("192.0.2.1:9200", {"instance": "h1", "site": "north"})


def test_the_machines_around_the_hosts_have_node_exporters_too_and_none_twice() -> None:
    found = files({"h1": {}}, {"lb": {}}, {"mon": {}, "ctl": {}, "h1": {}})["targets/node.yml"]
    assert sorted(one["labels"]["instance"] for one in found) == ["ctl", "h1", "lb", "mon"]


def test_all_that_is_read_has_a_site_and_a_host_may_have_its_own() -> None:
    hosts = {"h1": {"monitoring_site": "south", "frontdoor_tls_certificate": "/c"}, "h2": {}}
    found = files(hosts, {"lb": {"load_balancer_metrics_host": "0.0.0.0"}})
    targets = [one for path, file in found.items() if path.startswith("targets/") for one in file]
    assert {(one["labels"]["instance"], one["labels"]["site"]) for one in targets} == {
        ("h1", "south"),
        ("h2", "north"),
        ("lb", "north"),
    }
    assert found["prometheus.yml"]["global"]["external_labels"] == {"site": "north"}
    own = job(found, "b70-monitoring")["static_configs"]
    assert {(one["labels"]["service"], one["labels"]["instance"], one["labels"]["site"]) for one in own} == {
        (service, "mon", "north") for service in ("prometheus", "alertmanager", "blackbox")
    }


def test_only_what_has_a_certificate_is_asked_for_it_and_each_load_balancer_for_a_connection() -> None:
    tls = {"frontdoor_tls_certificate": "/c", "ansible_host": "192.0.2.1"}
    balancers = {
        "lb1": {"ansible_host": "192.0.2.8", "load_balancer_tls_certificate": "/c", "load_balancer_port": 443},
        "lb2": {"ansible_host": "192.0.2.9", "load_balancer_bind_host": "198.51.100.9"},
    }
    found = files({"h1": tls, "h2": {}}, balancers)["targets/probe.yml"]
    assert [(one["targets"][0], one["labels"]["__param_module"], one["labels"]["kind"]) for one in found] == [
        ("192.0.2.1:8000", "b70_tls", "frontdoor"),
        ("192.0.2.8:443", "b70_tls", "load_balancer"),
        ("198.51.100.9:8000", "b70_tcp", "load_balancer"),
    ]
    modules = files({"h1": {}})["blackbox.yml"]["modules"]
    assert {one["labels"]["__param_module"] for one in found} == set(modules)


@pytest.mark.parametrize(
    ("bound", "address"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("localhost", None),
        ("", None),
        ("0.0.0.0", "192.0.2.8"),
        ("10.0.0.8", "10.0.0.8"),
    ],
)
def test_metrics_of_a_load_balancer_that_others_may_read(bound: str, address: str | None) -> None:
    told = {"ansible_host": "192.0.2.8", "load_balancer_metrics_host": bound}
    found = files({"h1": {}}, {"lb1": told})["targets/load_balancer.yml"]
    assert [one["targets"] for one in found] == ([] if address is None else [[f"{address}:8405"]])


def test_all_engines_of_a_host_are_asked_by_one_scrape() -> None:
    scrape = job(files({"h1": {}}), "b70-engine")
    assert (scrape["metrics_path"], scrape["params"]) == ("/engine/metrics", {"replica": ["all"]})


def test_the_key_is_a_file_and_stands_nowhere_else() -> None:
    hosts = {"h1": {"frontdoor_api_keys": {"prometheus": "sha256:00"}}, "h2": {}}
    found = files(hosts, key_file="/k", ca_file="/ca")
    for name in ("b70-frontdoor", "b70-engine"):
        assert job(found, name)["authorization"] == {"credentials_file": "/k"}
        assert job(found, name)["tls_config"] == {"ca_file": "/ca"}
    assert "authorization" not in job(found, "b70-node")


def test_hosts_that_want_a_key_are_named_when_there_is_none() -> None:
    with pytest.raises(FleetFault, match=r"h2 require an API key; make one.*monitoring_api_key"):
        files({"h1": {}, "h2": {"frontdoor_api_keys": {"prometheus": "sha256:00"}}})


def test_an_inventory_without_hosts_says_what_to_do() -> None:
    with pytest.raises(FleetFault, match="into the group b70_hosts"):
        files({})


def test_an_address_that_is_none_names_the_host() -> None:
    with pytest.raises(FleetFault, match="h1: 'a b' is no address"):
        files({"h1": {"ansible_host": "a b"}})


def test_without_its_services_prometheus_asks_for_none() -> None:
    found = files({"h1": {}}, blackbox="", alertmanager="", rule_files=["/own.yml"])
    assert "alerting" not in found["prometheus.yml"]
    assert "b70-probe" not in [one["job_name"] for one in found["prometheus.yml"]["scrape_configs"]]
    assert found["prometheus.yml"]["rule_files"] == ["/etc/b70-monitoring/rules/b70.yml", "/own.yml"]
    assert list(found)[-1] == "prometheus.yml"


def test_alertmanager_tells_the_receiver_and_is_quiet_without_one() -> None:
    receiver = {"webhook_configs": [{"url": "https://alerts.example"}]}
    config = alerting(receiver)
    assert config["receivers"][0] == {"name": config["route"]["receiver"], **receiver}
    assert alerting({})["receivers"][0] == {"name": config["route"]["receiver"]}


def test_a_host_in_maintenance_is_silent_and_nobody_is_told_of_that() -> None:
    config = alerting({})
    silent = config["route"]["routes"][0]
    assert silent == {
        "receiver": config["receivers"][1]["name"],
        "matchers": ['alertname=~"B70HostInMaintenance|B70HostInWork"'],
    }
    assert list(config["receivers"][1]) == ["name"]
    assert {
        "source_matchers": ["alertname=B70HostInMaintenance"],
        "target_matchers": ["alertname!=B70HostInMaintenance"],
        "equal": ["site", "instance"],
    } in config["inhibit_rules"]


def test_the_work_of_a_play_silences_what_it_causes_and_not_what_fails_in_it() -> None:
    rules = alerting({})["inhibit_rules"]
    (work,) = [rule for rule in rules if rule["source_matchers"] == ["alertname=B70HostInWork"]]
    assert work["equal"] == ["site", "instance"]
    (silenced,) = work["target_matchers"]
    assert {"B70FrontdoorGone", "B70NodeExporterGone"} <= set(re.findall(r"B70\w+", silenced))
    assert not re.search("Failed|Quarantined|Wedged|CardWithoutDriver|Fault|Watchdog\\b", silenced)


def test_warnings_wait_for_tomorrow_and_a_dead_mans_switch_hears_every_minute() -> None:
    now, tomorrow, dead_man = ({"webhook_configs": [{"url": f"https://{name}"}]} for name in ("now", "later", "switch"))
    config = alerting(now, tomorrow, dead_man)
    names = {one["name"]: one for one in config["receivers"]}
    _nobody, always, later = config["route"]["routes"]
    assert (always["matchers"], always["repeat_interval"]) == (["alertname=Watchdog"], "1m")
    assert names[always["receiver"]]["webhook_configs"] == dead_man["webhook_configs"]
    assert later["matchers"] == ["severity=warning"]
    assert names[later["receiver"]]["webhook_configs"] == tomorrow["webhook_configs"]
    _nobody, always, later = alerting(now)["route"]["routes"]
    assert (always["receiver"], later["receiver"]) == ("nobody", config["route"]["receiver"])


def test_hosts_of_one_name_at_two_sites_silence_nothing_of_each_other() -> None:
    config = alerting({})
    assert all("site" in rule["equal"] for rule in config["inhibit_rules"])
    assert config["route"]["group_by"] == ["site", "alertname"]


def test_a_name_that_cannot_be_resolved_says_which_variable_to_set() -> None:
    def nobody(name: str) -> tuple[str, ...]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(FleetFault, match=r"m1\.example cannot be resolved.*set monitoring_server_address .* m1"):
        addresses_of("m1", {"ansible_host": "m1.example"}, nobody, "monitoring_server_address")
    told = {"ansible_host": "m1.example", "monitoring_server_address": "192.0.2.4"}
    assert addresses_of("m1", told, nobody, "monitoring_server_address") == ("192.0.2.4",)


def test_a_receiver_of_the_inventory_can_be_written():
    """Ansible gives lookups texts of a type of its own."""
    receiver = {"webhook_configs": [{"url": trust_as_template("http://alerts.example/hook"), "send_resolved": True}]}
    found, _nobody = alerting(receiver)["receivers"]
    assert found == {"name": "b70", **receiver}
