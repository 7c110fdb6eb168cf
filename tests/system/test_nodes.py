# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two and three real hosts serve one model by pipeline parallelism on the real engine, and lose each other.

The tests are one story, in this order. The group has three hosts, and a profile over two nodes leaves the third one
out. The followers serve a model of their own whenever no part is wanted of them. Each start of an engine over several
nodes takes a minute or more on two processors.
"""

from __future__ import annotations

import json
import secrets
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from testinfra.host import Host

from demo import inventory_hosts
from system.product import (
    INVENTORY,
    QUESTION,
    ROOT,
    Client,
    Frontdoor,
    Play,
    answer_of,
    bare_hosts,
    lab_command,
    play,
    reach,
    served_process,
    until,
    words_of,
)

LIMIT_S = 900
MODELS = ROOT / "tests/lab/models"
SOURCES = ROOT / "inventory/group_vars/lab/models.yml"
ANSWER = "I am tiny-a."
BEFORE = "tiny-b"  # what the followers serve by themselves
QUESTIONS = (
    QUESTION,
    "Write these three words back to me unchanged: satin cobalt orbit",
    "A box holds 3 red and 4 blue blocks. How many blocks is that? Give just the number.",
    "Tell me a story.",
)


def over(nodes: int, name: str, **more: Any) -> dict[str, Any]:
    """A profile of tiny-a whose layers are dealt out to so many nodes."""
    return {
        "extends": "tiny-a",
        "title": f"Tiny A over {nodes} hosts",
        "status": "candidate",
        "nodes": nodes,
        "engine": {
            "cache_key": name,
            "start_timeout_s": LIMIT_S,
            # The worker for processors can run a later stage of a pipeline only after a warm-up, which eager engines
            # skip.
            "settings": {"pipeline_parallel_size": nodes, "enforce_eager": False},
            "env": {
                "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
                "VLLM_USE_AOT_COMPILE": "0",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            },
        },
        **more,
    }


WRONG = {"name": "wrong", "prompt": QUESTION, "max_tokens": 12, "compare": "exact", "expected": "I am nobody."}
PROFILES = {
    "tiny-pair": over(2, "tiny-pair"),
    "tiny-pair-wrong": over(2, "tiny-pair", canary={"cases": [WRONG]}),
    "tiny-trio": over(3, "tiny-trio", model={"directory": "tiny-a-3"}),
}


def with_a_third_layer(source: Path, target: Path) -> None:
    """Copy a model of two layers with a third one that adds nothing to what it is given: the same function.

    It is the first layer, but what its attention and its MLP write is multiplied by zero.
    """
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}, indent=2) + "\n")
    # The format: the length of the header in 8 bytes, the header as JSON with each tensor's place, the bytes.
    weights = (source / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", weights[:8])[0]
    header, tensors = json.loads(weights[8:begin]), weights[begin:]
    for name in [name for name in header if name.startswith("model.layers.0.")]:
        first, last = header[name]["data_offsets"]
        writes = name.endswith(("self_attn.o_proj.weight", "mlp.down_proj.weight"))
        offsets = [len(tensors), len(tensors) + last - first]
        header[name.replace(".0.", ".2.", 1)] = {**header[name], "data_offsets": offsets}
        tensors += bytes(last - first) if writes else tensors[first:last]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + tensors)


def unit_of(profile: str) -> str:
    return f"b70-slot-main-{profile}.service"


def runs(host: Host, profile: str) -> bool:
    return bool(host.run("systemctl is-active %s", unit_of(profile)).stdout.strip() == "active")


@dataclass(frozen=True)
class Group:
    """The hosts by name, the leader first. door: that of the leader, which is the one of the clients."""

    hosts: Mapping[str, Host]
    door: Frontdoor
    variables: Path

    @property
    def names(self) -> list[str]:
        return [*self.hosts]

    @property
    def leader(self) -> Host:
        return self.hosts[self.names[0]]

    @property
    def followers(self) -> list[Host]:
        return [*self.hosts.values()][1:]

    def run(self, playbook: str, *arguments: str) -> Play:
        return play(playbook, "-e", f"@{self.variables}", *arguments, limit_s=3600)

    def switch(self, profile: str) -> Play:
        return self.run("switch.yml", "-e", f"b70_target={self.names[0]}", "-e", f"profile={profile}")

    def answers(self) -> list[str]:
        return [answer_of(self.door.ask(question)) for question in QUESTIONS]

    def status(self, host: Host) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(host.run("b70ctl status --json").stdout)
        return found

    def assert_serves(self, profile: str, nodes: int = 1, answer: str = ANSWER) -> None:
        """The leader serves it, verified, and boots it; so many nodes run the parts of that very process, and no other
        does; what the nodes say of each other is the same everywhere; a request gets the right answer. Followers
        without a part serve their own model."""
        found = self.status(self.leader)
        assert (found["profile"], found["open"], found["verified"]) == (profile, True, True), found
        assert found["enabled_units"] == [unit_of(profile)]
        part = {"profile": profile, "epoch": served_process(self.leader), "state": "runs", "reason": ""}
        for rank, host in enumerate(self.followers, 1):
            if rank >= nodes:
                self.wait_given_back(host)
            running = profile if rank < nodes else BEFORE
            assert runs(host, running), (rank, host.run("journalctl -n 40 -u b70-node-main").stdout)
            self._assert_agreed(host, rank, part if rank < nodes else None)
        assert answer_of(self.door.ask()) == answer

    def _assert_agreed(self, host: Host, rank: int, part: dict[str, str] | None) -> None:
        """A node and the leader say the same of its part (None: none runs) and of what the leader wants. It is not open
        itself beside a part."""

        def agree() -> bool:
            leader, follower = self.status(self.leader)["node"], self.status(host)
            assert follower["open"] == (part is None)
            own, wish = follower["node"], leader["own"]["wish"]
            said = own["own"], leader["others"][self.names[rank]]
            if said[0]["part"] != said[1]["part"] or own["others"][self.names[0]]["wish"] != wish:
                return False
            found = said[0]["part"]
            if part is None:
                return found is None or found["state"] != "runs"
            return bool(found == part and wish["epoch"] == part["epoch"])

        until(agree, f"what {self.names[rank]} and the leader say of its part")

    def wait_given_back(self, host: Host) -> None:
        """Wait until a follower serves its own model, verified."""

        def serves() -> bool:
            found = self.status(host)
            return (found["profile"], found["verified"], found["at_work"]) == (BEFORE, True, None)

        until(serves, f"{BEFORE} on a follower")

    def wait_anew(self, before: str) -> None:
        """Wait until another process than `before` is served, verified, and nobody works on the slot."""
        until(lambda: served_process(self.leader) not in ("", before), "a verified engine")
        until(lambda: not self.status(self.leader)["at_work"], "the end of the work on the slot")

    @contextmanager
    def asked(self, *reasons: str) -> Iterator[None]:
        """A client asks all the time. It gets no wrong answer, and one of these words of why there is none."""
        client = Client(self.door)
        client.start()
        try:
            yield
        finally:
            seen = client.stop()
        assert {one.text for one in seen if one.status == 200} <= {ANSWER}, seen
        refused = [one for one in seen if one.status == 503]
        assert any(reason in one.text for one in refused for reason in reasons), (reasons, seen)
        assert all(one.retry_after for one in refused), refused


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("nodes")
    with_a_third_layer(MODELS / "tiny-a", folder / "tiny-a-3")
    models = yaml.safe_load(SOURCES.read_text())["model_weights_models"]
    with bare_hosts("nodes", 3):
        hosts = sorted(inventory_hosts(str(INVENTORY), "b70_hosts").items())
        nodes = [{"name": name, "address": found["ansible_host"]} for name, found in hosts]
        variables = {
            "b70_nodes": {"interface": "host0", "hosts": nodes, "key": secrets.token_hex(32)},
            "b70_profiles": PROFILES,
            "model_weights_models": models | {"tiny-a-3": {"path": str(folder / "tiny-a-3")}},
        }
        (folder / "variables.json").write_text(json.dumps(variables))
        door = Frontdoor(f"http://{nodes[0]['address']}:8000")
        yield Group({name: reach(found) for name, found in hosts}, door, folder / "variables.json")


@pytest.fixture(scope="module")
def alone(group: Group) -> list[str]:
    """The answers of one host. The followers serve a model of their own."""
    done = group.run("site.yml")
    assert done.code == 0, done.output
    key = json.loads(group.variables.read_text())["b70_nodes"]["key"]
    assert key not in done.output
    for host in group.followers:
        host.check_output("b70ctl switch %s", BEFORE)
    group.assert_serves("tiny-a")
    return group.answers()


def test_a_group_without_a_key_is_refused(group: Group, alone: list[str]) -> None:
    nodes = json.loads(group.variables.read_text())["b70_nodes"]
    done = group.run("site.yml", "--tags", "preflight", "-e", json.dumps({"b70_nodes": {**nodes, "key": ""}}))
    assert done.code != 0
    assert "whose key is missing" in words_of(done.output)
    assert "openssl rand -hex 32" in words_of(done.output)


def test_a_node_says_nothing_to_strangers(group: Group, alone: list[str]) -> None:
    nodes = json.loads(group.variables.read_text())["b70_nodes"]["hosts"]
    for node in nodes:
        assert requests.get(f"http://{node['address']}:18200/node", timeout=5).status_code == 403
    for host in group.hosts.values():
        assert host.check_output("stat -c '%a %U' /etc/b70-vllm-slot/keys/b70-nodes") == "600 root"


def begins(group: Group) -> None:
    """The follower begins its part, and the leader, which asks once a second, waits for it."""
    look = f"until systemctl is-active --quiet {unit_of('tiny-pair')}; do sleep 0.05; done"
    group.followers[0].check_output("timeout 300 sh -c %s", look)


def in_phase(phase: str) -> Callable[[Group], None]:
    """The switch of the leader is in this phase."""

    def wait(group: Group) -> None:
        until(lambda: (group.status(group.leader)["progress"] or "").startswith(phase), phase)

    return wait


@pytest.mark.parametrize(
    "reached", [begins, in_phase("health"), in_phase("canary")], ids=["waits", "loads", "is-asked"]
)
def test_a_part_that_is_killed_during_a_switch_leads_both_back(
    group: Group, alone: list[str], reached: Callable[[Group], None]
) -> None:
    with group.asked("tiny-pair"), ThreadPoolExecutor(1) as aside:
        switch = aside.submit(group.switch, "tiny-pair")
        reached(group)
        group.followers[0].check_output("systemctl kill --signal=KILL %s", unit_of("tiny-pair"))
        done = switch.result()
    assert done.code != 0
    said = words_of(done.output)
    assert "The switch of slot main to tiny-pair failed" in said
    assert f"node {group.names[1]} is gone from the engine" in said, done.output
    group.assert_serves("tiny-a")
    assert group.answers() == alone


def test_the_answers_of_two_nodes_are_those_of_one(group: Group, alone: list[str]) -> None:
    done = group.switch("tiny-pair")
    assert done.code == 0, done.output
    group.assert_serves("tiny-pair", 2)
    assert group.answers() == alone
    assert group.status(group.followers[0])["reason"] == f"part of tiny-pair, led by {group.names[0]} (node 1 of 2)"


def test_a_second_run_changes_nothing(group: Group) -> None:
    done = group.run("site.yml")
    assert (done.code, done.changed) == (0, 0), done.output
    group.assert_serves("tiny-pair", 2)


def test_a_leader_without_its_node_service_gets_it_back(group: Group) -> None:
    before = served_process(group.leader)
    group.leader.check_output("systemctl stop b70-node-main")
    until(lambda: group.leader.run("systemctl is-active b70-node-main").rc == 0, "the service of the leader")
    group.assert_serves("tiny-pair", 2)
    assert served_process(group.leader) == before


def test_a_follower_refuses_a_profile_of_its_own(group: Group) -> None:
    refused = group.followers[0].run("b70ctl switch tiny-a")
    assert refused.rc == 1
    assert f"which node {group.names[0]} leads" in refused.stdout
    group.assert_serves("tiny-pair", 2)


def test_a_part_that_is_killed_closes_the_leader_until_both_are_verified_again(group: Group) -> None:
    before = served_process(group.leader)
    with group.asked(f"node {group.names[1]} is gone"):
        group.followers[0].check_output("systemctl kill --signal=KILL %s", unit_of("tiny-pair"))
        group.wait_anew(before)
    group.assert_serves("tiny-pair", 2)


def test_the_group_comes_back_after_a_reboot_of_the_follower(group: Group) -> None:
    before = served_process(group.leader)
    with group.asked(f"node {group.names[1]} "):
        lab_command("reboot", group.names[1])
        group.wait_anew(before)
    group.assert_serves("tiny-pair", 2)


def test_the_group_comes_back_after_a_reboot_of_the_leader(group: Group) -> None:
    before = served_process(group.leader)
    lab_command("reboot", group.names[0])
    group.wait_anew(before)
    group.assert_serves("tiny-pair", 2)


def test_a_switch_that_fails_its_canary_leads_both_back(group: Group) -> None:
    done = group.switch("tiny-pair-wrong")
    assert done.code != 0
    group.assert_serves("tiny-pair", 2)


def test_the_answers_of_three_nodes_are_those_of_one(group: Group, alone: list[str]) -> None:
    done = group.switch("tiny-trio")
    assert done.code == 0, done.output
    group.assert_serves("tiny-trio", 3)
    assert group.answers() == alone


def test_one_of_three_parts_that_is_killed_begins_all_anew(group: Group) -> None:
    before = served_process(group.leader)
    with group.asked(f"node {group.names[2]} is gone"):
        group.followers[1].check_output("systemctl kill --signal=KILL %s", unit_of("tiny-trio"))
        group.wait_anew(before)
    group.assert_serves("tiny-trio", 3)


def test_three_nodes_come_back_after_a_reboot_of_the_leader(group: Group, alone: list[str]) -> None:
    before = served_process(group.leader)
    lab_command("reboot", group.names[0])
    group.wait_anew(before)
    group.assert_serves("tiny-trio", 3)
    assert group.answers() == alone


def test_a_profile_of_one_host_ends_all_parts(group: Group) -> None:
    done = group.switch("tiny-b")
    assert done.code == 0, done.output
    until(lambda: not any(runs(host, "tiny-trio") for host in group.followers), "the end of the parts")
    group.assert_serves("tiny-b", answer="I am tiny-b.")
    # What the followers serve again is remembered no longer.
    for host in group.followers:
        assert not host.file("/var/lib/b70/node/main.json").exists


NETWORK: dict[str, Any] = {"evaluate_only": ["network"]}
MEASURED = ("bandwidth.received", "bandwidth.sent", "latency")
SERVERS = "systemctl list-units --all --plain --no-legend 'b70-evaluate*'"


def floor_of(group: Group, gb_s: float) -> dict[str, Any]:
    """Variables that demand so much of the network. How fast a lab's is says nothing."""
    nodes = json.loads(group.variables.read_text())["b70_nodes"]
    return {"b70_nodes": {**nodes, "bandwidth_min_gb_s": gb_s, "latency_max_us": 0}}


def test_no_network_is_measured_while_a_node_serves(group: Group) -> None:
    done = group.run("playbooks/evaluate.yml", "-e", json.dumps(NETWORK))
    assert done.code != 0
    assert "nothing was measured and nothing stopped" in words_of(done.output)
    for host in group.hosts.values():
        assert host.check_output(SERVERS) == ""


def test_the_network_is_measured_by_the_leader_and_nothing_is_left_behind(group: Group, tmp_path: Path) -> None:
    for host in group.hosts.values():
        host.check_output("b70ctl stop")
    given = {**NETWORK, **floor_of(group, 0), "evaluate_json_dir": str(tmp_path)}
    done = group.run("playbooks/evaluate.yml", "-e", json.dumps(given))
    assert (done.code, done.changed) == (0, 0), done.output
    leads, *others = group.names
    rows = {row["id"]: row for row in json.loads((tmp_path / f"{leads}.json").read_text())["rows"]}
    kept = json.loads(group.leader.file("/var/lib/b70/network.json").content_string)["links"]
    links = [f"network.{leads}-{name}" for name in others]
    assert set(rows) == {f"{link}.{what}" for link in links for what in MEASURED}
    assert all(row["level"] == "INFO" and row["value"] > 0 for row in rows.values())
    for name, link in zip(others, links, strict=True):
        (row,) = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
        assert (row["level"], row["note"]) == ("SKIP", f"{leads}, which leads the nodes, measures it")
        assert kept[name]["latency_us"] == rows[f"{link}.latency"]["value"]
    for host in group.hosts.values():
        assert host.check_output(SERVERS) == ""


def test_a_network_below_the_floor_fails_the_measure_and_the_guard(group: Group) -> None:
    floor = json.dumps({**NETWORK, **floor_of(group, 100000)})
    done = group.run("playbooks/evaluate.yml", "-e", floor)
    assert done.code != 0
    assert "is below the floor of 100000 GB/s (b70_nodes.bandwidth_min_gb_s); look at the link" in words_of(done.output)
    done = group.run("switch.yml", "-e", f"b70_target={group.names[0]}", "-e", "profile=tiny-pair", "-e", floor)
    assert done.code != 0
    assert "is too slow for tiny-pair. bandwidth sent:" in words_of(done.output)
    assert not runs(group.leader, "tiny-pair")
