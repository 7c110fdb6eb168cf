# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an inventory to the files of a load balancer; tests/checks/test_load_balancer.py has HAProxy read them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer import capacity, fleet, haproxy, keepalived
from ansible_collections.arcpro.b70.plugins.plugin_utils._load_balancer.fleet import FleetFault, FrontdoorServer

CATALOGUE: dict[str, Any] = {
    "small": {
        "engine": {"served_model_name": "org/small"},
        "frontdoor": {"max_active_generations": 2, "model_aliases": ["chat"]},
    },
    "large": {
        "engine": {"served_model_name": "large"},
        "frontdoor": {"max_active_generations": 8, "model_aliases": None},
    },
}
GIVEN: dict[str, Any] = {
    "bind_host": "0.0.0.0",
    "port": "8000",
    "metrics_host": "127.0.0.1",
    "metrics_port": 8405,
    "allowed_networks": [],
    "tls_certificate": "",
    "member_ca_file": "/etc/ssl/certs/ca-certificates.crt",
    "buffer_size": 1048576,
    "max_connections": 4096,
    "max_connections_per_address": 2048,
    "silence_timeout": 7500,
    "stop_timeout": 7200,
    "sticky": "",
    "sticky_header": "X-Session-Id",
    "sticky_load": 200,
    "default_model": "",
    "keys_file": "",
    "api_keys": {},
    "state_file": "/var/lib/b70-load-balancer/server-state",
    "template_dirs": [],
}
VRRP = keepalived.Vrrp(
    "192.0.2.10/24", "eth0", 51, "geheim12", "192.0.2.2", ["192.0.2.3"], 1, "http://127.0.0.1:8405/health"
)


def host(name: str = "h1", **told: Any) -> FrontdoorServer:
    return fleet.host_of(name, told, CATALOGUE)


def rendered(*hosts: FrontdoorServer, **changes: Any) -> str:
    return haproxy.configuration(haproxy.settings_of({**GIVEN, **changes}), fleet.pools_of(hosts))


@pytest.mark.parametrize(
    ("told", "authority"),
    [
        ({}, "h1:8000"),
        ({"ansible_host": "192.0.2.11"}, "192.0.2.11:8000"),
        ({"ansible_host": "192.0.2.11", "frontdoor_port": "8443"}, "192.0.2.11:8443"),
        # what the frontdoor is bound to, unless that is everywhere or only the host itself
        ({"ansible_host": "192.0.2.11", "frontdoor_bind_host": "10.0.0.1"}, "10.0.0.1:8000"),
        ({"ansible_host": "192.0.2.11", "frontdoor_bind_host": "0.0.0.0"}, "192.0.2.11:8000"),
        ({"ansible_host": "192.0.2.11", "load_balancer_member_address": "10.0.0.2"}, "10.0.0.2:8000"),
        ({"ansible_host": "2001:db8::1"}, "[2001:db8::1]:8000"),
    ],
)
def test_where_a_host_is(told: dict[str, Any], authority: str) -> None:
    assert host(**told).authority == authority


def test_what_a_host_serves() -> None:
    assert (host().models, host().permits) == ((), 0)
    assert (host(b70_profile="small").models, host(b70_profile="small").permits) == (("org/small", "chat"), 2)
    # the role's aliases count where the profile says nothing of its own
    assert host(b70_profile="large", frontdoor_model_aliases=["big"]).models == ("large", "big")
    assert host(b70_profile="small", frontdoor_model_aliases=["big"]).models == ("org/small", "chat")
    assert host(b70_profile="small", load_balancer_member_models=["mine"]).models == ("mine",)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        ("h1", {"b70_profile": "smal"}, 'h1: b70_profile is "smal", which is no profile; did you mean "small"?'),
        ("h1", {"ansible_host": "a b"}, "h1: 'a b' is no address; set load_balancer_member_address"),
        ("h 1", {}, "'h 1' cannot be the name of a server"),
        ("h1", {"load_balancer_member_models": ["a'b"]}, "h1: the model name"),
    ],
)
def test_what_cannot_be_a_host_is_named(name: str, told: dict[str, Any], said: str) -> None:
    with pytest.raises(FleetFault) as fault:
        host(name, **told)
    assert str(fault.value).startswith(said)


def test_one_model_needs_no_routing() -> None:
    for hosts in ([host("h1"), host("h2")], [host("h1", b70_profile="small"), host("h2", b70_profile="small")]):
        (pool,) = fleet.pools_of(hosts)
        assert (pool.name, pool.models, len(pool.hosts)) == ("b70", (), 2)
        text = rendered(*hosts)
        assert "json_query" not in text
        assert "uri /ready?unready_status=404 " in text


def test_names_that_the_same_hosts_serve_share_a_backend() -> None:
    hosts = [
        host("h1", load_balancer_member_models=["a", "a-alias", "chat"]),
        host("h2", load_balancer_member_models=["b", "chat"]),
        host("h3", load_balancer_member_models=["b"]),
    ]
    found = [(pool.models, [each.name for each in pool.hosts]) for pool in fleet.pools_of(hosts)]
    assert found == [(("a", "a-alias"), ["h1"]), (("chat",), ["h1", "h2"]), (("b",), ["h2", "h3"])]
    text = rendered(*hosts)
    assert "use_backend b70_1 if { var(txn.model) -m str -- a a-alias }" in text
    assert "uri /ready?model=chat&unready_status=404 " in text


def test_a_host_that_nobody_knows_cannot_be_routed() -> None:
    with pytest.raises(FleetFault, match="nobody says which h2, h3 serves; set b70_profile"):
        fleet.pools_of([host("h1", b70_profile="small"), host("h2"), host("h3")])
    with pytest.raises(FleetFault, match="no host to balance"):
        fleet.pools_of([])


def test_weights_follow_permits() -> None:
    small, large = host("h1", load_balancer_member_models=["m"], b70_profile="small"), host("h2", b70_profile="large")
    large = dataclasses.replace(large, models=("m",))
    (pool,) = fleet.pools_of([small, large])
    assert [pool.weight(each) for each in pool.hosts] == [2, 8]
    (pool,) = fleet.pools_of([small, dataclasses.replace(large, permits=0)])
    assert [pool.weight(each) for each in pool.hosts] == [1, 1]
    (pool,) = fleet.pools_of([dataclasses.replace(small, permits=1), dataclasses.replace(large, permits=1000)])
    assert [pool.weight(each) for each in pool.hosts] == [1, 256]


@pytest.mark.parametrize("key", ["tls_certificate", "bind_host", "default_model", "sticky_header"])
def test_a_setting_is_one_word(key: str) -> None:
    with pytest.raises(FleetFault, match=f"load_balancer_{key}: 'a b' has a space"):
        rendered(host(), **{key: "a b"})


def test_networks_are_checked() -> None:
    assert "unless { src 192.0.2.0/24 2001:db8::/32 }" in rendered(
        host(), allowed_networks=["192.0.2.0/24", "2001:db8::/32"]
    )
    with pytest.raises(FleetFault, match="load_balancer_allowed_networks: 'lan'"):
        rendered(host(), allowed_networks=["lan"])


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"ansible_host": "door.example.com"}, "door.example.com"),
        ({"ansible_host": "192.0.2.11", "load_balancer_member_tls_name": "door.example.com"}, "door.example.com"),
        ({"ansible_host": "inner.lan", "load_balancer_member_tls_name": "door.example.com"}, "door.example.com"),
    ],
)
def test_hosts_with_tls_are_verified_by_name(told: dict[str, Any], name: str) -> None:
    text = rendered(host(frontdoor_tls_certificate="/etc/ssl/door.pem", **told))
    assert (
        f"ssl verify required ca-file /etc/ssl/certs/ca-certificates.crt verifyhost {name} sni str({name}) "
        f"check-sni {name}\n"
    ) in text
    # a name without TLS asks for nothing
    assert "verifyhost" not in rendered(host(**told))


@pytest.mark.parametrize(
    "told",
    [
        {"ansible_host": "192.0.2.11"},
        {"ansible_host": "2001:db8::1"},
        {"ansible_host": "door.example.com", "load_balancer_member_address": "192.0.2.11"},
        {"ansible_host": "door.example.com", "load_balancer_member_tls_name": "192.0.2.11"},
        {"ansible_host": "door.example.com", "load_balancer_member_tls_name": "a) b"},
    ],
)
def test_hosts_with_tls_need_a_name(told: dict[str, Any]) -> None:
    with pytest.raises(FleetFault, match=r"^h1: its frontdoor has TLS.*set load_balancer_member_tls_name"):
        host(frontdoor_tls_certificate="/etc/ssl/door.pem", **told)


def test_keys_are_digests() -> None:
    assert haproxy.keys_map({"bob": "sha256:22", "alice": "sha256:11"}) == "11 alice\n22 bob\n"


def test_addresses_of_load_balancers() -> None:
    resolve = {"lb.example.com": ("192.0.2.2", "2001:db8::2")}.__getitem__
    assert fleet.addresses_of("lb", {"ansible_host": "192.0.2.9"}, resolve) == ("192.0.2.9",)
    assert fleet.addresses_of("lb.example.com", {}, resolve) == ("192.0.2.2", "2001:db8::2")
    told = {"ansible_host": "192.0.2.9", "load_balancer_address": "10.0.0.9"}
    assert fleet.addresses_of("lb", told, resolve) == ("10.0.0.9",)


def test_a_shared_address() -> None:
    text = keepalived.configuration(VRRP)
    assert "priority 199\n" in text
    assert "unicast_src_ip 192.0.2.2\n    unicast_peer {\n        192.0.2.3\n    }\n" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": "192.0.2.10/33"}, "load_balancer_vrrp_address must be"),
        ({"interface": ""}, "load_balancer_vrrp_interface must name"),
        ({"password": "much-too-long"}, "load_balancer_vrrp_password must have 1 to 8"),
        ({"router_id": 0}, "load_balancer_vrrp_router_id must be 1 to 255"),
        ({"peers": []}, "needs a second load balancer"),
    ],
)
def test_what_cannot_be_shared_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(FleetFault, match=said) as fault:
        keepalived.configuration(dataclasses.replace(VRRP, **change))
    assert "much-too-long" not in str(fault.value)


def test_what_runs_is_known_by_its_build() -> None:
    keys: dict[str, Any] = {"keys_file": "/etc/haproxy/b70-keys.map", "api_keys": {"alice": "sha256:11"}}
    texts = [
        rendered(host()),
        rendered(host("h2")),
        rendered(host(), **keys),
        rendered(host(), **{**keys, "api_keys": {"alice": "sha256:22"}}),
    ]
    assert len({haproxy.build_of(text) for text in texts}) == 4
    assert haproxy.build_of(rendered(host())) == haproxy.build_of(texts[0])


def test_each_backend_keeps_so_many_hosts_in_service() -> None:
    one = fleet.pools_of([host("h1", b70_profile="small"), host("h2", b70_profile="small")])
    two = fleet.pools_of([host("h1", b70_profile="small"), host("h2", b70_profile="large")])
    assert capacity.floors(2, one) == {"": "2"}
    assert capacity.floors({"chat": "50%"}, one) == {"": "1", "b70": "50%"}
    assert capacity.floors({"large": 2, "": 0}, two) == {"": "0", "b70_2": "2"}
    with pytest.raises(FleetFault, match='b70_min_ready names larg, which no host serves; did you mean "large"'):
        capacity.floors({"larg": 1}, two)
    for wrong in ("few", "101%", -1, {"large": "1.5"}):
        with pytest.raises(FleetFault, match="write a number of hosts, or a share"):
            capacity.floors(wrong, two)
