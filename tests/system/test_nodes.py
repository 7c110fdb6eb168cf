# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two real hosts serve one model by pipeline parallelism on the real engine, and lose each other.

The tests are one story, in this order. Each start of the engine takes minutes on two processors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from testinfra.host import Host

from demo import inventory_hosts
from system.product import INVENTORY, Play, bare_hosts, lab_command, play, reach, words_of

LIMIT_S = 900.0
UNIT = "b70-slot-main-tiny-pair.service"
QUESTIONS = (
    "Who are you?",
    "Write these three words back to me unchanged: satin cobalt orbit",
    "A box holds 3 red and 4 blue blocks. How many blocks is that? Give just the number.",
)
PAIR: dict[str, Any] = {
    "extends": "tiny-a",
    "title": "Tiny A over two hosts",
    "status": "candidate",
    "nodes": 2,
    "engine": {
        "cache_key": "tiny-pair",
        "start_timeout_s": LIMIT_S,
        # The worker for processors can run a later stage of a pipeline only after a warm-up, which eager engines skip.
        "settings": {"pipeline_parallel_size": 2, "enforce_eager": False},
        "env": {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_USE_AOT_COMPILE": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        },
    },
}
WRONG = {
    **PAIR,
    "canary": {
        "cases": [
            {
                "name": "wrong",
                "prompt": "Who are you?",
                "max_tokens": 12,
                "compare": "exact",
                "expected": "I am nobody.",
            }
        ]
    },
}


@dataclass(frozen=True)
class Pair:
    names: tuple[str, str]
    leader: Host
    follower: Host
    url: str
    variables: Path

    def run(self, playbook: str, *arguments: str) -> Play:
        return play(playbook, "-e", f"@{self.variables}", *arguments, limit_s=3600)

    def switch(self, profile: str) -> Play:
        return self.run("switch.yml", "-e", f"b70_target={self.names[0]}", "-e", f"profile={profile}")

    def status(self, host: Host) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(host.run("b70ctl status --json").stdout)
        return found

    def ask(self, question: str, limit_s: float = 120) -> requests.Response:
        body = {"model": "tiny-a", "max_tokens": 12, "temperature": 0}
        body["messages"] = [{"role": "user", "content": question}]
        return requests.post(f"{self.url}/v1/chat/completions", json=body, timeout=limit_s)

    def answers(self) -> list[str]:
        return [self.ask(question).json()["choices"][0]["message"]["content"] for question in QUESTIONS]

    def wait_for(self, *, is_open: bool, limit_s: float = LIMIT_S) -> dict[str, Any]:
        end = time.monotonic() + limit_s
        while True:
            found = self.status(self.leader)
            if (found["open"] and found["verified"]) if is_open else not found["open"]:
                return found
            assert time.monotonic() < end, found
            time.sleep(1)

    def runs(self, host: Host) -> bool:
        return bool(host.run("systemctl is-active %s", UNIT).stdout.strip() == "active")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with bare_hosts("nodes", 2):
        hosts = sorted(inventory_hosts(str(INVENTORY), "b70_hosts").items())
        nodes = [{"name": name, "address": found["ansible_host"]} for name, found in hosts]
        profiles = {"tiny-pair": PAIR, "tiny-pair-wrong": WRONG}
        variables = tmp_path_factory.mktemp("nodes") / "variables.json"
        variables.write_text(
            json.dumps({"b70_nodes": {"interface": "host0", "hosts": nodes}, "b70_profiles": profiles})
        )
        (first, one), (second, other) = hosts
        yield Pair((first, second), reach(one), reach(other), f"http://{one['ansible_host']}:8000", variables)


def test_the_answers_are_those_of_one_host(pair: Pair) -> None:
    done = pair.run("site.yml")
    assert done.code == 0, done.output
    alone = pair.answers()
    done = pair.switch("tiny-pair")
    assert done.code == 0, done.output
    assert pair.answers() == alone
    assert pair.runs(pair.follower)
    assert "node 1 of 2" in pair.status(pair.follower)["reason"]


def test_a_second_run_changes_nothing(pair: Pair) -> None:
    done = pair.run("site.yml")
    assert (done.code, done.changed) == (0, 0), done.output


def test_a_part_that_is_killed_closes_the_leader_until_both_are_verified_again(pair: Pair) -> None:
    pair.follower.check_output("systemctl kill --signal=KILL %s", UNIT)
    assert "node" in pair.wait_for(is_open=False, limit_s=60)["reason"]
    refused = pair.ask(QUESTIONS[0])
    assert refused.status_code == 503, refused.text
    pair.wait_for(is_open=True)
    assert pair.ask(QUESTIONS[1]).json()["choices"][0]["message"]["content"] == "satin cobalt orbit"


def test_a_follower_refuses_a_profile_of_its_own(pair: Pair) -> None:
    refused = pair.follower.run("b70ctl switch tiny-a")
    assert refused.rc == 1
    assert f"which node {pair.names[0]} leads" in refused.stdout
    assert pair.status(pair.leader)["open"]


def test_a_switch_that_fails_its_canary_leads_both_back(pair: Pair) -> None:
    done = pair.switch("tiny-pair-wrong")
    assert done.code != 0
    found = pair.status(pair.leader)
    assert (found["profile"], found["open"], found["verified"]) == ("tiny-pair", True, True)
    assert pair.runs(pair.follower)


def test_the_group_comes_back_after_a_reboot_of_the_leader(pair: Pair) -> None:
    lab_command("reboot", pair.names[0])
    pair.wait_for(is_open=True)
    assert pair.ask(QUESTIONS[0]).json()["choices"][0]["message"]["content"] == "I am tiny-a."


def test_a_profile_of_one_host_ends_the_part(pair: Pair) -> None:
    done = pair.switch("tiny-b")
    assert done.code == 0, done.output
    end = time.monotonic() + 60
    while pair.runs(pair.follower):
        assert time.monotonic() < end
        time.sleep(1)


NETWORK: dict[str, Any] = {"evaluate_only": ["network"]}
SERVERS = "systemctl list-units --all --plain --no-legend 'b70-evaluate*'"


def floor_of(pair: Pair, gb_s: float) -> dict[str, Any]:
    """Variables that demand so much of the network. How fast a lab's is says nothing."""
    group = json.loads(pair.variables.read_text())["b70_nodes"]
    return {"b70_nodes": {**group, "bandwidth_min_gb_s": gb_s, "latency_max_us": 0}}


def test_no_network_is_measured_while_a_node_serves(pair: Pair) -> None:
    done = pair.run("playbooks/evaluate.yml", "-e", json.dumps(NETWORK))
    assert done.code != 0
    assert "nothing was measured and nothing stopped" in words_of(done.output)
    for host in (pair.leader, pair.follower):
        assert host.check_output(SERVERS) == ""


def test_the_network_is_measured_by_the_leader_and_nothing_is_left_behind(pair: Pair, tmp_path: Path) -> None:
    pair.leader.check_output("b70ctl stop")
    given = {**NETWORK, **floor_of(pair, 0), "evaluate_json_dir": str(tmp_path)}
    done = pair.run("playbooks/evaluate.yml", "-e", json.dumps(given))
    assert (done.code, done.changed) == (0, 0), done.output
    leads, follows = pair.names
    rows = {row["id"]: row for row in json.loads((tmp_path / f"{leads}.json").read_text())["rows"]}
    link = f"network.{leads}-{follows}"
    assert set(rows) == {f"{link}.bandwidth.received", f"{link}.bandwidth.sent", f"{link}.latency"}
    assert all(row["level"] == "INFO" and row["value"] > 0 for row in rows.values())
    (row,) = json.loads((tmp_path / f"{follows}.json").read_text())["rows"]
    assert (row["level"], row["note"]) == ("SKIP", f"{leads}, which leads the nodes, measures it")
    kept = json.loads(pair.leader.file("/var/lib/b70/network.json").content_string)["links"][follows]
    assert kept["latency_us"] == rows[f"{link}.latency"]["value"]
    for host in (pair.leader, pair.follower):
        assert host.check_output(SERVERS) == ""


def test_a_network_below_the_floor_fails_the_measure_and_the_guard(pair: Pair) -> None:
    floor = json.dumps({**NETWORK, **floor_of(pair, 100000)})
    done = pair.run("playbooks/evaluate.yml", "-e", floor)
    assert done.code != 0
    assert "is below the floor of 100000 GB/s (b70_nodes.bandwidth_min_gb_s); look at the link" in words_of(done.output)
    done = pair.run("switch.yml", "-e", f"b70_target={pair.names[0]}", "-e", "profile=tiny-pair", "-e", floor)
    assert done.code != 0
    assert "is too slow for tiny-pair. bandwidth sent:" in words_of(done.output)
    assert not pair.runs(pair.leader)
