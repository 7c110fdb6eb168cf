# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hosts behind a load balancer on a fourth: what clients of one address see of a rollout and of a lost host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves
from scenarios.recording import GIVE_UP_S, Answer, ask
from scenarios.rig import SETTINGS, Rig

pytestmark = pytest.mark.fleet
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 900
LOAD_S = 4.0
# The fourth host has a frontdoor of its own at 8000.
PORT = 8080
CLIENTS = 4
# Each host is measured after its switch. A request of a client that reaches it meanwhile fails the benchmark.
GATE = {
    "gate": "performance",
    "gate_without_record": "pass",
    "rollout_gate_shapes": [{"name": "tiny", "prompt_tokens": 20, "output_tokens": 64, "rounds": 2}],
    "rollout_gate_streams": [2],
    "benchmark_generator": "vllm",
    "benchmark_band": 0.9,
    "benchmark_ttft_band": 1000,
}
CANARY = 4  # questions that an engine has answered, all rightly, before a client is let in


class Balanced:
    """The hosts behind the load balancer, and the load balancer."""

    def __init__(self, fleet: list[Rig], folder: Path) -> None:
        *self.members, self.balancer = fleet
        self.folder = folder
        self.inventory = folder / "balancers.yml"
        members: dict[str, Any] = {rig.host.name: {} for rig in self.members}
        groups = {"b70_load_balancers": {"hosts": {self.balancer.host.name: {}}}, "b70_behind": {"hosts": members}}
        self.inventory.write_text(json.dumps(groups))

    def play(self, playbook: str, **variables: Any) -> tuple[int, str]:
        """(exit status, everything that was printed)."""
        given = {
            **SETTINGS,
            "profiles_choose": False,
            "load_balancer_port": PORT,
            "replace": "sim-a,sim-b",
            "load_balancer_group": "b70_behind",
            "rollout_dir": str(self.folder / "rollouts"),
            "evidence_dir": str(self.folder / "records"),
        }
        done = subprocess.run(
            [
                *("ansible-playbook", "-i", "inventory/lab.yml", "-i", str(self.inventory), playbook),
                *("-e", json.dumps(given | variables)),
            ],
            cwd=ROOT,
            env={**os.environ, "B70_LAB": self.balancer.lab.name, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return done.returncode, done.stdout + done.stderr

    def converge(self) -> str:
        """Exit status and what was printed by the play of the load balancer."""
        code, said = self.play("playbooks/load_balancer.yml", b70_profile="sim-a")
        return f"{code} {said}"

    def ask(self, *, stream: bool) -> Answer:
        return ask(self.balancer.address, stream=stream, port=PORT)

    @contextlib.contextmanager
    def steady_load(self) -> Iterator[list[Answer]]:
        """Clients that ask without a pause, every other one for a stream; yields their answers."""
        answers: list[Answer] = []
        enough = threading.Event()

        def client(stream: bool) -> None:
            while not enough.is_set():
                answers.append(self.ask(stream=stream))

        threads = [threading.Thread(target=client, args=(number % 2 == 0,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield answers
        finally:
            enough.set()
            for thread in threads:
                thread.join(GIVE_UP_S)


def assert_all_answered(answers: list[Answer]) -> set[str]:
    """Assert that no request failed and that only verified engines answered. Return the names of their profiles."""
    names = set()
    for answer in answers:
        assert (answer.status, answer.whole) == (200, True), answer
        name, _invocation, asked, wrong = answer.stamp.split(" ")
        assert (int(asked) >= CANARY, int(wrong)) == (True, 0), answer
        assert answer.text == f"I am {name}.", answer
        names.add(name)
    return names


@pytest.fixture(scope="module")
def balanced(fleet: list[Rig], tmp_path_factory: pytest.TempPathFactory) -> Balanced:
    found = Balanced(fleet, tmp_path_factory.mktemp("balanced"))
    said = found.converge()
    assert said.startswith("0 "), said
    return found


def test_a_second_run_of_the_load_balancer_changes_nothing(balanced: Balanced) -> None:
    said = balanced.converge()
    assert (said.startswith("0 "), "changed=0" in said) == (True, True), said


def test_a_rollout_under_load_loses_no_request(balanced: Balanced) -> None:
    for rig in balanced.members:
        rig.have("sim-a")
        rig.tell("sim-b", load_s=LOAD_S)
    wait_for(lambda: balanced.ask(stream=False).status == 200, "the load balancer has a host")
    with balanced.steady_load() as answers:
        code, said = balanced.play("rollout.yml", profile="sim-b", waves="1,1,1", b70_target="b70_behind", **GATE)
    assert code == 0, said
    assert said.count("gate: 2") >= len(balanced.members), said
    assert [assert_serves(rig, "sim-b") for rig in balanced.members] == ["sim-b"] * 3
    assert len(answers) > 100
    assert assert_all_answered(answers) == {"sim-a", "sim-b"}


def test_a_frontdoor_that_hangs_is_out_before_clients_see_it(balanced: Balanced) -> None:
    for rig in balanced.members:
        rig.have("sim-b")
    hung = balanced.members[1]
    unit = ("systemctl", "kill", "b70-openai-frontdoor.service")
    with balanced.steady_load() as answers:
        wait_for(lambda: len(answers) > 20, "clients are answered")
        hung.must(*unit, "--signal=STOP")
        try:
            begun = len(answers)
            wait_for(lambda: len(answers) > begun + 60, "clients are answered while one host hangs")
        finally:
            hung.must(*unit, "--signal=CONT")
    # What the hung host had begun ends when it goes on; nothing that came after it waited for that.
    assert assert_all_answered(answers) == {"sim-b"}
