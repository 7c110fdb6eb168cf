# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""switch.yml that loses its host, its own process, or the module that it started there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.promise import assert_serves
from matrix.recording import Recording
from matrix.rig import Rig, wait_for

pytestmark = pytest.mark.matrix
Begin = Callable[[], Recording]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOAD_S = 6.0
SSH_SESSION = r"for pid in $(pgrep -f '^sshd: root@notty'); do kill -9 $pid; done; true"


def start_play(rig: Rig, profile: str) -> subprocess.Popen[str]:
    """Start switch.yml in a session of its own."""
    places = {"b70_profile_dirs": [str(HERE / "profiles")], "b70_stack_dirs": [str(HERE / "stacks")]}
    command = ["ansible-playbook", "-i", "inventory/lab.yml", "--limit", rig.host.name, "switch.yml"]
    return subprocess.Popen(
        [*command, "-e", json.dumps({**places, "profile": profile})],
        cwd=ROOT,
        env={**os.environ, "B70_LAB": rig.lab.name, "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def play(rig: Rig, profile: str) -> tuple[int, str]:
    """(exit status, everything that was printed, in one line)."""
    with start_play(rig, profile) as process:
        output, _none = process.communicate(timeout=180)
    return process.returncode, " ".join(output.split())


def wait_loading(rig: Rig) -> None:
    wait_for(lambda: rig.state().get("phase") == "verifying", 120, "the engine loads")


def test_a_play_that_is_killed_does_not_end_the_switch(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", load_s=LOAD_S)
    recorded()
    with start_play(rig, "sim-b") as process:
        wait_loading(rig)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
    rig.must("sh", "-c", SSH_SESSION)
    assert rig.state()["phase"] == "verifying", "the switch ended with the play"
    rig.wait_settled()
    assert_serves(rig, "sim-b")
    code, said = play(rig, "sim-b")
    assert code == 0, said
    assert len([record for record in rig.journal() if record["event"] == "begin" and record["kind"] == "switch"]) == 2


def test_a_play_whose_connection_is_lost_sees_the_end(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", load_s=LOAD_S)
    recorded()
    with start_play(rig, "sim-b") as process:
        wait_loading(rig)
        rig.must("sh", "-c", SSH_SESSION)
        output, _none = process.communicate(timeout=180)
    assert process.returncode == 0, output
    rig.wait_settled()
    assert_serves(rig, "sim-b")


def test_a_module_that_is_killed_is_missed_and_the_next_run_settles_it(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", load_s=LOAD_S)
    recorded()
    with start_play(rig, "sim-b") as process:
        wait_loading(rig)
        first = json.loads(rig.read("run/b70/main/progress.jsonl").splitlines()[0])
        rig.must("kill", "-9", str(first["pid"]))
        output, _none = process.communicate(timeout=180)
    assert process.returncode != 0, output
    assert "vanished in phase" in " ".join(output.split()), output
    rig.tell("sim-b")
    code, said = play(rig, "sim-b")
    assert code == 0, said
    rig.wait_settled()
    assert_serves(rig, "sim-b")
