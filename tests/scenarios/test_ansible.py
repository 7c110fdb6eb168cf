# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""switch.yml that loses its host, its own process, or its module there; and a profile that changes under its engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from machine import kill_tree, wait_for
from scenarios.outcome import assert_serves, loading
from scenarios.recording import Recording
from scenarios.rig import LOADS, SETTINGS, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FRONTDOOR = "b70-openai-frontdoor.service"
SSH_SESSION = r"for pid in $(pgrep -f '^sshd: root@notty'); do kill -9 $pid; done; true"


def start_play(
    rig: Rig, profile: str, *words: str, profiles: Path = HERE / "profiles", playbook: str = "switch.yml"
) -> subprocess.Popen[str]:
    """Start a playbook, in a session of its own."""
    # The simulated engine is no stack that can be installed, so a host that serves nothing would refuse its profiles.
    given = {**SETTINGS, "b70_profile_dirs": [str(profiles)], "profiles_choose": False}
    command = ["ansible-playbook", "-i", "inventory/lab.yml", "--limit", rig.host.name, playbook, *words]
    return subprocess.Popen(
        [*command, "-e", json.dumps({**given, "profile": profile})],
        cwd=ROOT,
        env={**os.environ, "B70_LAB": rig.lab.name, "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def play(
    rig: Rig, profile: str, *words: str, profiles: Path = HERE / "profiles", playbook: str = "switch.yml"
) -> tuple[int, str]:
    """(exit status, everything that was printed, in one line)."""
    with start_play(rig, profile, *words, profiles=profiles, playbook=playbook) as process:
        output, _none = process.communicate(timeout=600)
    return process.returncode, " ".join(output.split())


def wait_loading(rig: Rig) -> None:
    wait_for(lambda: loading(rig), "the engine loads")


def test_a_play_that_is_killed_does_not_end_the_switch(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    with start_play(rig, "sim-b") as process:
        wait_loading(rig)
        kill_tree(process)
        process.communicate(timeout=120)
    rig.must("sh", "-c", SSH_SESSION)
    assert rig.state()["phase"] in ("switching", "verifying"), "the switch ended with the play"
    rig.tell("sim-b")
    rig.wait_settled()
    assert_serves(rig, "sim-b")
    code, said = play(rig, "sim-b")
    assert code == 0, said
    assert len([record for record in rig.journal() if record["event"] == "begin" and record["kind"] == "switch"]) == 2


@pytest.mark.exhaustive
def test_a_module_that_is_killed_is_missed_and_the_next_run_settles_it(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    with start_play(rig, "sim-b") as process:
        wait_loading(rig)
        first = json.loads(rig.read("run/b70/main/progress.jsonl").splitlines()[0])
        rig.must("kill", "-9", str(first["pid"]))
        output, _none = process.communicate(timeout=600)
    assert process.returncode != 0, output
    assert "vanished in phase" in " ".join(output.split()), output
    rig.tell("sim-b")
    code, said = play(rig, "sim-b")
    assert code == 0, said
    rig.wait_settled()
    assert_serves(rig, "sim-b")


@pytest.fixture
def edited(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """A copy of the profiles to edit; in the end the host has the others again."""
    yield Path(shutil.copytree(HERE / "profiles", tmp_path / "profiles"))
    rig.wipe()
    code, said = play(rig, "sim-a", "--tags", "always,slot", playbook="site.yml")
    assert code == 0, said


def shown(rig: Rig, unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit as systemd tells them."""
    listing = rig.must("systemctl", "show", f"--property={','.join(names)}", unit)
    return dict(line.split("=", 1) for line in listing.splitlines())


@pytest.mark.exhaustive
def test_a_changed_profile_restarts_nothing_before_its_unit_is_told_to(rig: Rig, recorded: Begin, edited: Path) -> None:
    """What is changed binds the engine to a NUMA node, which systemd shows before, and the process after, its start."""
    rig.have("sim-a")
    before = rig.facts()
    door = shown(rig, FRONTDOOR, "InvocationID", "MainPID")
    sequence = rig.state()["sequence"]
    for name in ("sim-a", "sim-b"):
        with open(edited / f"{name}.yml", "a") as file:
            file.write("  numa: {policy: bind, nodes: [0]}\n")
    recording = recorded()
    code, said = play(rig, "sim-a", "--tags", "always,slot", playbook="site.yml")
    assert (code, " changed=0 " in said) == (0, True), said
    code, said = play(rig, "sim-a", "--tags", "always,slot", profiles=edited, playbook="site.yml")
    assert (code, " changed=0 " in said) == (0, False), said
    assert rig.facts() == before
    assert shown(rig, FRONTDOOR, "InvocationID", "MainPID") == door
    assert rig.state()["sequence"] == sequence
    bound = {"NUMAPolicy": "bind", "NUMAMask": "0", "CPUAffinityFromNUMA": "yes"}
    assert shown(rig, "b70-slot-main-sim-b.service", *bound) == bound
    # What is served, and boots, stays as it was verified.
    assert shown(rig, "b70-slot-main-sim-a.service", *bound)["NUMAPolicy"] != "bind"
    drift = rig.ctl("status").data["drift_of"]
    assert drift == {
        "directives": "started with KillSignal=SIGINT IPAddressDeny=any IPAddressAllow=localhost, rendered is "
        "KillSignal=SIGINT NUMAPolicy=bind NUMAMask=0 CPUAffinity=numa IPAddressDeny=any IPAddressAllow=localhost"
    }
    assert recording.refusals() == [], "a client was refused although nothing was to be restarted"
    # Now it is told to.
    code, said = play(rig, "sim-a", profiles=edited)
    assert code == 0, said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    after = rig.facts()
    assert after.invocation != before.invocation
    assert shown(rig, "b70-slot-main-sim-a.service", *bound) == bound
    assert shown(rig, FRONTDOOR, "InvocationID", "MainPID") == door
    assert rig.ctl("status").data["drift"] is None
    maps = rig.read(f"proc/{shown(rig, after.running[0], 'MainPID')['MainPID']}/numa_maps")
    assert {line.split()[1] for line in maps.splitlines()} == {"bind:0"}, maps
