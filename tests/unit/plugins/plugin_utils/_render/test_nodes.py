# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine over several hosts: what is checked of it, and what each host gets."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.network import Floor
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.nodes import Group
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import NodePart, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.slot_file import parse_slot_file
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.decode import decode
from ansible_collections.arcpro.b70.plugins.plugin_utils._choice.choose import against_nodes
from ansible_collections.arcpro.b70.plugins.plugin_utils._nodes import node_place
from unit import contracts
from unit.plugins.plugin_utils._render.test_replicas import faults, profile, rendered

HOSTS = [{"name": name, "address": f"10.20.0.{number}"} for number, name in enumerate(("alpha", "beta", "gamma"), 1)]
GROUP = {"interface": "ens2f0np0", "hosts": HOSTS}
SPREAD = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "max_model_len": 4096,
    "max_num_seqs": 4,
    "compilation_config": {"cudagraph_mode": "NONE"},
}
ACCEPTS = {"accepts_rules": ["four-cards-under-load"]}
UNIT, NODE = "b70-slot-main-one.service", "b70-node-main.service"


def pair(**changes):
    return profile(**{"cards": 2, "nodes": 2, "engine": {"settings": SPREAD}, **ACCEPTS, **changes})


def on(node, found=None, **group):
    return rendered(found or pair(), nodes={**GROUP, **group}, node=node)


def words(text, flag):
    argv = json.loads(text)["engine"]["argv"]
    return argv[argv.index(flag) + 1]


def test_the_leader_has_the_api_and_waits_for_the_others():
    files = on("alpha")
    contracts.check("resolved-profile", files["one.json"])
    found = parse_profile(files["one.json"], "x")
    assert found.node == NodePart(0, 2)
    assert [words(files["one.json"], flag) for flag in ("--nnodes", "--node-rank")] == ["2", "0"]
    assert [words(files["one.json"], flag) for flag in ("--master-addr", "--master-port")] == ["10.20.0.1", "18201"]
    assert "--headless" not in found.engine.argv
    unit = files[UNIT]
    assert "ExecStartPre=+/opt/b70/bin/b70ctl await-nodes one\nTimeoutStartSec=690\n" in unit
    assert "Restart=always" in unit
    assert "WantedBy=multi-user.target" in unit


def test_a_follower_computes_and_is_nobodys_to_start_but_the_leaders():
    files = on("beta")
    found = parse_profile(files["one.json"], "x")
    assert found.node == NodePart(1, 2)
    assert found.engine.argv[-1] == "--headless"
    assert words(files["one.json"], "--node-rank") == "1"
    unit = files[UNIT]
    for absent in ("await-nodes", "b70-controller-main", "Restart=always", "[Install]"):
        assert absent not in unit
    assert "Restart=no" in unit


def test_each_node_speaks_over_the_interface_of_the_group():
    for name, address in (("alpha", "10.20.0.1"), ("beta", "10.20.0.2")):
        files = on(name)
        env = json.loads(files["one.json"])["engine"]["env"]
        assert env["VLLM_HOST_IP"] == address
        # Of four workers; vLLM takes all of them for those of the host where nobody says so.
        assert env["LOCAL_WORLD_SIZE"] == "2"
        assert {env[key] for key in ("GLOO_SOCKET_IFNAME", "CCL_KVS_IFACE", "FI_TCP_IFACE")} == {"ens2f0np0"}
        # The nodes of the profile, and nobody else: the third one of the group has no part in it.
        own = "IPAddressDeny=any\nIPAddressAllow=localhost 10.20.0.1 10.20.0.2\n"
        assert f"{own}RestrictNetworkInterfaces=lo ens2f0np0\n" in files[UNIT]
        assert "IPAddressAllow=localhost 127.0.0.1 10.20.0.1 10.20.0.2 10.20.0.3\n" in files[NODE]


def test_other_addresses_that_are_allowed_may_be_behind_any_interface():
    unit = rendered(pair(), nodes=GROUP, node="alpha", engine_ip_allow=["192.0.2.7"])[UNIT]
    assert "192.0.2.7" in next(line for line in unit.splitlines() if line.startswith("IPAddressAllow="))
    assert "RestrictNetworkInterfaces" not in unit


def test_the_number_of_workers_on_a_node_is_the_slots():
    assert "belongs to the slot; use nodes" in faults(nodes=1, engine={"env": {"LOCAL_WORLD_SIZE": "4"}})


def test_parts_have_the_service_of_the_node_beside_them():
    for name in ("alpha", "beta"):
        assert f"Wants={NODE}\nAfter={NODE}\n" in on(name)[UNIT]
    assert NODE not in on("alpha", profile())[UNIT]


def test_the_key_goes_to_the_service_alone():
    key = "k" * 40
    files = on("alpha", key=key)
    assert "LoadCredential=b70-nodes:/etc/b70-vllm-slot/keys/b70-nodes\n" in files[NODE]
    assert not any(key in text for text in files.values())


def test_nodes_have_one_fingerprint_whatever_their_interfaces_are_called():
    one, other = (json.loads(files["one.json"])["fingerprint"] for files in (on("alpha"), on("beta", interface="eth9")))
    assert one == other
    alone = profile(cards=4, engine={"settings": {"max_model_len": 4096, "max_num_seqs": 4}})
    assert json.loads(rendered(alone)["one.json"])["fingerprint"] != one


def test_a_host_without_a_part_does_not_have_the_profile():
    assert UNIT in on("beta")
    assert "one.json" not in on("gamma")
    assert NODE in on("gamma")
    for files in (on("delta"), rendered(pair())):
        assert "one.json" not in files
        assert NODE not in files


def test_a_host_needs_a_group_that_is_large_enough():
    assert against_nodes(pair(), 2) == []
    assert against_nodes(profile(), 1) == []
    assert against_nodes(pair(), 1) == ["one needs 2 nodes, and this host is in no group (b70_nodes)."]
    four = profile(cards=1, nodes=4, engine={"settings": SPREAD}, **ACCEPTS)
    assert against_nodes(four, 3) == ["one needs 4 nodes, and the group of this host has 3 (b70_nodes)."]


def test_the_host_knows_its_group():
    text = on("beta")["slot.json"]
    group, place = parse_slot_file(text, "x").nodes, node_place(GROUP, "beta")
    assert place is not None
    assert group == decode(Group, place.as_dict())
    assert (group.rank, group.port, [host.name for host in group.hosts]) == (1, 18200, ["alpha", "beta", "gamma"])
    assert group.interface == "ens2f0np0"
    assert parse_slot_file(on("delta")["slot.json"], "x").nodes is None


def test_the_floor_of_the_network_has_defaults_and_can_be_set_and_taken_away():
    def floor(**group):
        found = parse_slot_file(on("beta", **group)["slot.json"], "x").nodes
        assert found is not None
        return found.floor

    assert floor() == Floor(1.0, 500.0)
    assert floor(bandwidth_min_gb_s=0.1, latency_max_us="2000") == Floor(0.1, 2000.0)
    assert not floor(bandwidth_min_gb_s=0, latency_max_us=0)


def test_a_profile_of_one_node_is_the_same_in_a_group():
    inside, outside = on("alpha", profile()), rendered(profile())
    assert {name: text for name, text in inside.items() if name not in ("slot.json", NODE)} == {
        name: text for name, text in outside.items() if name != "slot.json"
    }


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path, name):
    files = on(name)
    for unit in (UNIT, NODE):
        path = tmp_path / unit
        # The programs are none of this machine's.
        path.write_text(files[unit].replace("/opt/b70/bin/b70ctl", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / NODE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert NODE not in done.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cards": 1}, "needs 4 cards, but cards is 1 on each of 2 nodes"),
        ({"nodes": 3, "cards": 2}, "nodes: is 3, but tensor_parallel_size x pipeline_parallel_size is 4"),
        ({"replicas": 2, "cards": 2}, "an engine over 2 nodes has all cards: 1"),
        ({"nodes": 9}, "nodes"),
    ],
)
def test_combinations_that_cannot_work_are_refused(changes, said):
    assert said in faults(**{"cards": 2, "nodes": 2, "engine": {"settings": SPREAD}, **changes})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pipeline_parallel_size": 2, "distributed_executor_backend": "ray"}, "must be mp over several nodes"),
        ({"pipeline_parallel_size": 2, "data_parallel_size": 2}, "is for engines on one host"),
        ({}, "must be a multiple of the nodes"),
    ],
)
def test_settings_that_do_not_go_with_nodes_are_refused(settings, said):
    settings = {"max_model_len": 4096, "max_num_seqs": 4, **settings}
    assert said in faults(cards=2, nodes=2, engine={"settings": settings})


def test_flags_of_the_group_belong_to_the_slot():
    said = faults(nodes=1, engine={"extra_args": ["--nnodes", "2", "--headless"]})
    assert "--nnodes belongs to the slot; use nodes" in said
    assert "--headless belongs to the slot; use nodes" in said


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({**GROUP, "host": []}, 'unknown key "host"'),
        ({"hosts": HOSTS}, "interface is the network device"),
        ({**GROUP, "interface": "eth0; reboot"}, "interface is the network device"),
        ({**GROUP, "port": 65534}, "the first of three ports"),
        ({**GROUP, "bandwidth_min_gb_s": "fast"}, "bandwidth_min_gb_s is a number, and 0 demands nothing, not 'fast'"),
        ({**GROUP, "latency_max_us": -1}, "latency_max_us is a number"),
        ({**GROUP, "latency_max_us": True}, "latency_max_us is a number"),
        ({**GROUP, "bandwidth_min": 1}, 'unknown key "bandwidth_min"; did you mean "bandwidth_min_gb_s"'),
        ({**GROUP, "hosts": HOSTS[:1]}, "a list of two hosts or more"),
        ({**GROUP, "hosts": [HOSTS[0], {"name": "beta"}]}, r"hosts\[1\] has the keys name and address"),
        ({**GROUP, "hosts": [HOSTS[0], {"name": "beta", "address": "beta.lan"}]}, "not 'beta.lan'"),
        ({**GROUP, "hosts": [HOSTS[0], {"name": "beta", "address": "127.0.0.1"}]}, "can't reach"),
        ({**GROUP, "hosts": [HOSTS[0], HOSTS[0]]}, "alpha .10.20.0.1. is given twice"),
    ],
)
def test_faulty_groups_are_refused(group, said):
    with pytest.raises(ValueError, match=said):
        node_place(group, "alpha")
