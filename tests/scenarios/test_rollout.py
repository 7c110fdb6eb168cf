# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rollout.yml on four hosts: a sound rollout, and every way in which one goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from machine import kill_tree, wait_for
from scenarios.outcome import assert_serves, loading
from scenarios.recording import status
from scenarios.rig import LOADS, QUARANTINE, SETTINGS, Rig

pytestmark = pytest.mark.fleet
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GIVEN = {
    **SETTINGS,
    # The simulated engine is no stack that can be installed.
    "profiles_choose": False,
    "profile": "sim-b",
    "waves": "1,1,2",
    "replace": "sim-a",
    "rollout_reconnect_timeout": 5,
}


# What the gate measures, with the generator of the simulated stack: some seconds.
GATE: dict[str, Any] = {
    "gate": "performance",
    "rollout_gate_shapes": [{"name": "tiny", "prompt_tokens": 20, "output_tokens": 16, "rounds": 2}],
    "rollout_gate_streams": [1, 2],
    "benchmark_generator": "vllm",
    "benchmark_band": 0.5,
    # First tokens of a simulated engine come at once.
    "benchmark_ttft_band": 1000,
}
BENCHMARK = "b70-benchmark-main.service"
# Seconds for each token while hosts are measured: more than a busy machine adds, and more than the band makes good.
TOKEN_S, SLOW_TOKEN_S = 0.1, 0.5


class Play:
    """rollout.yml to sim-b, with the records of a test in a folder of its own."""

    def __init__(self, fleet: list[Rig], folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.records = folder.parent / f"{folder.name}-records"

    def start(self, *words: str, playbook: str = "rollout.yml", **given: Any) -> subprocess.Popen[str]:
        values = {**GIVEN, "rollout_dir": str(self.folder), "evidence_dir": str(self.records), **given}
        command = ["ansible-playbook", "-i", "inventory/lab.yml", playbook, *words, "-e", json.dumps(values)]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "B70_LAB": self.fleet[0].lab.name, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, **given: Any) -> tuple[int, str]:
        """(exit status, everything that was printed, in one line)."""
        with self.start(*words, **given) as process:
            output, _none = process.communicate(timeout=600)
        return process.returncode, " ".join(output.split())

    def record(self) -> dict[str, Any]:
        """What the controller wrote down of its one rollout."""
        (path,) = self.folder.glob("*/rollout.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def verdicts(self) -> list[str]:
        return [member["result"]["verdict"] for member in self.record()["members"]]


@pytest.fixture
def play(fleet: list[Rig], tmp_path: Path) -> Play:
    """All hosts serve sim-a, verified, and their engines are sound."""
    for rig in fleet:
        rig.have("sim-a")
    return Play(fleet, tmp_path)


def served(fleet: list[Rig]) -> list[str]:
    """What each host serves, verified."""
    for rig in fleet:
        rig.wait_settled()
    return [assert_serves(rig, "sim-a", "sim-b") for rig in fleet]


def switches(rig: Rig) -> int:
    return sum(record["event"] == "begin" and record["kind"] == "switch" for record in rig.journal())


def test_a_sound_fleet_is_rolled_out_and_then_only_looked_at(play: Play) -> None:
    code, said = play.run("--check")
    assert (code, served(play.fleet)) == (0, ["sim-a"] * 4), said
    code, said = play.run()
    assert (code, served(play.fleet)) == (0, ["sim-b"] * 4), said
    assert play.verdicts() == ["verified"] * 4
    record = play.record()
    assert record["status"] == "finished"
    assert [(member["wave"], member["before"]) for member in record["members"]] == [
        (1, "sim-a"),
        (2, "sim-a"),
        (3, "sim-a"),
        (3, "sim-a"),
    ]
    # The same fingerprint and the same questions, so the same answers. What is asked at once is no question of its own:
    # the answer that came last stands for it, which is another one on a busy machine, and hosts are not compared by it.
    asked = [member["result"]["answers"] for member in record["members"]]
    answers = [[answer for answer in found if answer["request"]] for found in asked]
    assert len(answers[0]) >= 4
    assert answers == answers[:1] * 4
    for kind in ("md", "html"):
        (text,) = play.folder.glob(f"*/rollout.{kind}")
        assert play.fleet[3].host.name in text.read_text()
    begun = [switches(rig) for rig in play.fleet]
    again = Play(play.fleet, play.folder / "again")
    code, said = again.run()
    assert (code, again.verdicts(), served(play.fleet)) == (0, ["already verified"] * 4, ["sim-b"] * 4), said
    assert [switches(rig) for rig in play.fleet] == begun


def test_nothing_starts_while_one_host_would_refuse(play: Play) -> None:
    weights = "/mnt/fast-ai/llm-models/sim/model.safetensors"
    play.fleet[3].must("mv", weights, f"{weights}.away")
    try:
        code, said = play.run()
    finally:
        play.fleet[3].must("mv", f"{weights}.away", weights)
    assert code != 0
    assert f"{play.fleet[3].host.name}: The switch would fail in phase guard" in said, said
    assert "ansible-playbook site.yml -e profile=sim-b" in said, said
    assert (served(play.fleet), list(play.folder.iterdir())) == (["sim-a"] * 4, [])


def test_a_canary_host_that_fails_is_the_only_one_that_was_touched(play: Play) -> None:
    begun = [switches(rig) for rig in play.fleet]
    play.fleet[2].tell("sim-b", "wrong-answer")
    code, said = play.run(canary=play.fleet[2].host.name, max_fail="100%")
    assert (code != 0, served(play.fleet)) == (True, ["sim-a"] * 4), said
    assert play.verdicts() == ["failed, rolled back", "not begun", "not begun", "not begun"]
    assert [switches(rig) - before for rig, before in zip(play.fleet, begun, strict=True)] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("on_failure", "wanted", "status"),
    [
        pytest.param("stop", ["sim-b", "sim-b", "sim-a", "sim-b"], "stopped"),
        ("rollback_wave", ["sim-b", "sim-b", "sim-a", "sim-a"], "stopped"),
        pytest.param("rollback_all", ["sim-a"] * 4, "rolled back"),
    ],
)
def test_the_third_host_fails(play: Play, on_failure: str, wanted: list[str], status: str) -> None:
    play.fleet[2].tell("sim-b", "wrong-answer")
    code, said = play.run(on_failure=on_failure)
    assert (code != 0, served(play.fleet)) == (True, wanted), said
    assert (play.record()["status"], play.verdicts()[2]) == (status, "failed, rolled back")
    if on_failure == "stop":
        # The fault is mended: the same command goes on, and switches nobody twice.
        begun = [switches(rig) for rig in play.fleet]
        play.fleet[2].tell("sim-b")
        code, said = play.run(on_failure=on_failure)
        assert (code, served(play.fleet)) == (0, ["sim-b"] * 4), said
        assert [switches(rig) - before for rig, before in zip(play.fleet, begun, strict=True)] == [0, 0, 1, 0]
        assert (play.record()["status"], play.verdicts()) == ("finished", ["verified"] * 4)


def test_neither_a_failure_that_max_fail_allows_nor_a_dead_load_balancer_stops_the_others(play: Play) -> None:
    dead = play.folder.parent / "balancers.yml"
    dead.write_text("b70_load_balancers: {hosts: {balancer: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    play.fleet[1].tell("sim-b", "wrong-answer")
    code, said = play.run("-i", str(dead), max_fail="25%")
    # It is finished, and Ansible counts the host as the table does.
    assert (code, served(play.fleet)) == (2, ["sim-b", "sim-a", "sim-b", "sim-b"]), said
    assert play.record()["status"] == "finished"


def test_a_host_that_cannot_be_reached_any_more_is_a_failed_host(play: Play) -> None:
    lost = play.fleet[3]
    lost.tell("sim-b", **LOADS)
    with play.start() as process:
        wait_for(lambda: loading(lost), "the last wave loads")
        lost.must("systemctl", "stop", "ssh.socket", "ssh.service")
        lost.must("sh", "-c", "pkill -KILL -f '^sshd: root' || true")
        lost.tell("sim-b")
        try:
            output, _none = process.communicate(timeout=600)
        finally:
            lost.must("systemctl", "start", "ssh.service")
    assert process.returncode != 0, output
    assert play.verdicts() == ["verified", "verified", "verified", "unreachable"], output
    # Its switch belongs to the host, and has gone on.
    assert served(play.fleet) == ["sim-b"] * 4
    code, said = play.run()
    assert (code, play.record()["status"], play.verdicts()) == (0, "finished", ["verified"] * 4), said


def test_a_rollout_whose_controller_was_killed_is_finished_by_the_next_run(play: Play) -> None:
    begun = [switches(rig) for rig in play.fleet]
    play.fleet[1].tell("sim-b", load_s=15.0)
    with play.start() as process:
        wait_for(lambda: loading(play.fleet[1]), "the second wave loads")
        kill_tree(process)
        process.communicate(timeout=120)
    assert play.record()["status"] == "running"
    code, said = play.run()
    assert (code, served(play.fleet)) == (0, ["sim-b"] * 4), said
    record = play.record()
    assert record["status"] == "finished"
    assert [member["before"] for member in record["members"]] == ["sim-a"] * 4
    assert [switches(rig) - before for rig, before in zip(play.fleet, begun, strict=True)] == [1] * 4


def test_a_second_rollout_is_told_who_owns_the_fleet_and_disturbs_nobody(play: Play) -> None:
    play.fleet[1].tell("sim-b", **LOADS)
    with play.start() as process:
        wait_for(lambda: loading(play.fleet[1]), "the second wave loads")
        # The play begins no further task.
        process.send_signal(signal.SIGSTOP)
        try:
            play.fleet[1].tell("sim-b")
            code, said = Play(play.fleet, play.folder / "other").run()
        finally:
            process.send_signal(signal.SIGCONT)
        assert code != 0
        assert f"{play.fleet[0].host.name}: it belongs to the rollout of sim-b by" in said, said
        output, _none = process.communicate(timeout=600)
    assert (process.returncode, served(play.fleet)) == (0, ["sim-b"] * 4), output
    assert play.verdicts() == ["verified"] * 4


def test_a_host_that_answers_differently_is_named_and_closed(play: Play) -> None:
    odd = play.fleet[2]
    odd.tell("sim-b", "other-words")
    code, said = play.run()
    assert code != 0, said
    assert play.verdicts() == ["verified", "verified", "disagrees, quarantined", "verified"]
    assert f"{odd.host.name}: canary case identity" in said, said
    held = json.loads(odd.read(QUARANTINE))
    assert "canary case identity" in held["reason"]
    told = status(odd)
    assert (told["open"], told["phase"]) == (False, "failed"), told
    assert odd.facts().running == ("b70-slot-main-sim-b.service",), "the engine stays for inspection"
    assert odd.ctl("switch", "sim-a").code == 5
    # The way out: mend it, clear it, and have it verified and compared again.
    odd.tell("sim-b")
    odd.must("/opt/b70/bin/b70ctl", "clear-quarantine", "--why", "mended")
    assert odd.ctl("switch", "sim-a").code == 0
    code, said = play.run()
    assert (code, served(play.fleet)) == (0, ["sim-b"] * 4), said


def chosen(play: Play, rig: Rig) -> dict[str, Any]:
    """Have one host measure sim-b, which it serves for that, and choose its record as the baseline of the gate."""
    rig.serve("sim-b", token_s=TOKEN_S)
    shapes = {f"benchmark_{name}": GATE[f"rollout_gate_{name}"] for name in ("shapes", "streams")}
    code, said = play.run("--limit", rig.host.name, playbook="playbooks/benchmark.yml", **{**GATE, **shapes})
    assert code == 0, said
    rig.serve("sim-a")
    return {**GATE, "benchmark_baselines": [name.removesuffix(".json") for name in measured(rig)]}


def measured(rig: Rig) -> list[str]:
    return sorted(os.listdir(rig.root / "var/lib/b70/records/benchmark"))


@pytest.fixture
def unmeasured(play: Play) -> Play:
    """No host has measured anything, and all are as fast."""
    for rig in play.fleet:
        rig.tell("sim-b", token_s=TOKEN_S)
        rig.must("rm", "-rf", "/var/lib/b70/records", "/var/lib/b70/benchmark")
    return play


def test_a_gate_that_could_not_judge_begins_nothing_and_one_that_was_killed_is_collected(unmeasured: Play) -> None:
    play = unmeasured
    code, said = play.run("--check", **GATE)
    assert (code != 0, served(play.fleet)) == (True, ["sim-a"] * 4), said
    assert f"the gate could not judge {play.fleet[0].host.name}: there is nothing to compare with" in said, said
    assert "-e gate_without_record=pass" in said, said
    # What cannot be looked up must not only cost the canary host its place.
    code, said = play.run(**{**GATE, "rollout_gate_shapes": ["shrot-128"]})
    assert (code != 0, served(play.fleet)) == (True, ["sim-a"] * 4), said
    assert f"the gate could not ask {play.fleet[0].host.name} what it would judge: the shape" in said, said
    gate = chosen(play, play.fleet[3])
    canary = play.fleet[0]
    with play.start(**gate) as process:
        wait_for(lambda: canary.run("systemctl", "is-active", "-q", BENCHMARK).code == 0, "the canary is measured")
        kill_tree(process)
        output, _none = process.communicate(timeout=120)
    assert "gate performance: the first host that each wave switches is measured" in output, output
    assert f"of {play.fleet[3].host.name}" in output, output
    assert play.verdicts() == ["verified, to be measured", "not begun", "not begun", "not begun"]
    wait_for(lambda: canary.run("systemctl", "is-active", "-q", BENCHMARK).code != 0, "the benchmark has ended")
    begun = switches(canary)
    code, said = play.run(**gate)
    assert (code, served(play.fleet)) == (0, ["sim-b"] * 4), said
    assert "the benchmark began before this play" in said, said
    assert (switches(canary), len(measured(canary))) == (begun, 1)
    assert (play.record()["status"], play.verdicts()) == ("finished", ["verified"] * 4)
    figures = [member["result"]["figures"] for member in play.record()["members"]]
    assert [len(lines) > 1 for lines in figures] == [True, True, True, False], figures
    (page,) = play.folder.glob("*/rollout.html")
    assert "tiny c2 frontdoor cold: wall_tok_s" in page.read_text()


def test_a_host_that_is_slower_than_recorded_holds_the_rollout(unmeasured: Play) -> None:
    play = unmeasured
    gate = chosen(play, play.fleet[3])
    slow = play.fleet[1]
    slow.tell("sim-b", token_s=SLOW_TOKEN_S)
    code, said = play.run(max_fail="100%", **gate)
    assert (code != 0, served(play.fleet)) == (True, ["sim-b", "sim-b", "sim-a", "sim-a"]), said
    assert play.verdicts() == ["verified", "verified, held by the gate", "not begun", "not begun"]
    assert f"the gate holds it at {slow.host.name}: tiny c1 frontdoor cold: wall_tok_s is" in said, said
    assert "(limit 0.50)" in said, said
    slow.serve("sim-b", token_s=TOKEN_S)
    code, said = play.run(**gate)
    assert (code, served(play.fleet), play.record()["status"]) == (0, ["sim-b"] * 4, "finished"), said
    assert len(measured(slow)) == 2
