# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was committed comes back by itself, however long the trouble lasted, and nobody healthy pays for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from machine import wait_for
from scenarios.matrix import matrix
from scenarios.outcome import assert_serves, assert_stopped, loading, wait_served
from scenarios.recording import Recording
from scenarios.rig import CONTROLLER, LOADS, PREFIX, WANTS, Rig
from scenarios.test_trouble import RUN_DIR, fill, mounted, own_disk

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
UNIT_A = f"{PREFIX}sim-a.service"
MODELS = "/mnt/fast-ai/llm-models"


def crash(rig: Rig) -> str:
    """Kill the engine of sim-a. Return the id of the process that was."""
    before = rig.facts().invocation
    rig.must("systemctl", "kill", "--signal=KILL", UNIT_A)
    return before


def heal(rig: Rig, *profiles: str) -> None:
    """Let the engines of these profiles work from their next start on."""
    for profile in profiles:
        rig.tell(profile)
        rig.tell_next_boot(profile)


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["boot", "serving", "switch", "way back"])
@pytest.mark.parametrize("lasts_s", [30.0, 90.0, 300.0])
def test_a_fault_that_ends_is_healed(rig: Rig, recorded: Begin, when: str, lasts_s: float) -> None:
    rig.serve("sim-a")
    if when == "boot":
        rig.tell_next_boot("sim-a", "exit-at-start")
        rig.reboot()
        wait_for(lambda: rig.state().get("reason"), "clients are told why nothing is served")
    else:
        recorded()
    if when == "serving":
        rig.tell("sim-a", "wrong-answer")
        crash(rig)
    elif when != "boot":
        rig.tell("sim-b", "exit-at-start")
        if when == "way back":
            rig.tell("sim-a", "exit-at-start")
        assert rig.ctl("switch", "sim-b").code == 1
    time.sleep(lasts_s)
    if when == "switch":
        # The way back has worked.
        assert_serves(rig, "sim-a")
        return
    rig.wait_settled()
    assert_stopped(rig)
    assert "next try" in rig.state()["reason"]
    heal(rig, "sim-a", "sim-b")
    # The longest pause so far is as long as the fault.
    wait_for(lambda: rig.state().get("open"), "it is served again")
    rig.wait_settled()
    assert_serves(rig, "sim-a")


@pytest.mark.exhaustive
def test_a_crash_loop_before_a_reboot_is_forgotten(rig: Rig) -> None:
    rig.serve("sim-a")
    rig.tell("sim-a", "exit-at-start")
    crash(rig)
    rig.wait_settled()
    assert_stopped(rig)
    rig.reboot()
    rig.wait_booted()
    assert_serves(rig, "sim-a")


@pytest.mark.exhaustive
def test_weights_that_come_late_after_a_boot_are_served(rig: Rig) -> None:
    rig.serve("sim-a")
    # The simulated engine reads no weights, so it is told to do what one without them does.
    rig.tell_next_boot("sim-a", "exit-at-start")
    rig.must("mv", MODELS, f"{MODELS}.away")
    try:
        rig.reboot()
        wait_for(lambda: rig.state().get("reason"), "clients are told why nothing is served")
        time.sleep(45.0)
    finally:
        rig.must("mv", f"{MODELS}.away", MODELS)
        heal(rig, "sim-a")
    wait_for(lambda: rig.state().get("open"), "it is served again")
    rig.wait_settled()
    assert_serves(rig, "sim-a")


def test_what_a_switch_would_refuse_keeps_nothing_closed(rig: Rig, recorded: Begin) -> None:
    """A leftover beside the weights is no reason to close an engine that comes back, and passes its canary."""
    rig.serve("sim-a")
    recorded()
    leftover = f"{MODELS}/sim/model-00001-of-00002.safetensors.tmp"
    rig.must("touch", leftover)
    try:
        wait_served(rig, crash(rig))
        assert_serves(rig, "sim-a")
    finally:
        rig.must("rm", leftover)


def test_a_verification_without_room_ends_no_healthy_engine(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    before = rig.facts()
    recorded()
    with own_disk(rig, "2m", RUN_DIR):
        fill(rig, RUN_DIR)
        rig.ctl("verify")
        assert rig.facts() == before
        rig.must("rm", f"{RUN_DIR}/filler")
        rig.wait_settled()
        assert_serves(rig, "sim-a")
        assert rig.facts() == before


def test_a_boot_link_that_is_refused_is_made_later(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recorded()
    wants = f"/{WANTS}"
    # The controller would make the link anew before the folder is read-only.
    rig.must("systemctl", "stop", CONTROLLER)
    rig.must("mount", "--bind", wants, wants)
    rig.must("rm", f"{wants}/{UNIT_A}")
    with mounted(rig, wants, "-o", "remount,bind,ro"):
        rig.must("systemctl", "start", CONTROLLER)
        wait_served(rig, crash(rig))
        assert rig.facts().enabled == ()
    wait_for(lambda: rig.facts().enabled == (UNIT_A,), "what is wanted boots", 0.5)
    rig.wait_settled()
    assert_serves(rig, "sim-a")


@pytest.mark.parametrize("how", matrix([("kill",)], [("restart",)]))
def test_the_end_of_the_controller_costs_nothing(rig: Rig, how: str) -> None:
    """The engine that loads goes on loading, whether its controller is killed or systemd starts another version."""
    rig.have("sim-a")
    rig.tell("sim-a", **LOADS)
    before = crash(rig)
    wait_for(lambda: rig.facts().invocation not in ("", before), "its next process loads")
    loads = rig.facts().invocation
    rig.must("systemctl", *(["kill", "--signal=KILL"] if how == "kill" else ["restart"]), CONTROLLER)
    rig.tell("sim-a")
    wait_served(rig, before)
    assert rig.facts().invocation == loads
    assert_serves(rig, "sim-a")


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_switch_by_hand_outlives_the_controller(rig: Rig, recorded: Begin, how: str) -> None:
    rig.have("sim-a")
    recorded()
    rig.tell("sim-b", **LOADS)
    with rig.begin("sim-b") as process:
        wait_for(lambda: loading(rig), "the engine loads")
        rig.must("systemctl", *(["kill", "--signal=KILL"] if how == "kill" else ["restart"]), CONTROLLER)
        rig.tell("sim-b")
        process.communicate(timeout=300)
    assert process.returncode == 0
    rig.wait_settled()
    assert_serves(rig, "sim-b")


@pytest.mark.exhaustive
def test_an_update_of_a_library_restarts_no_served_model(rig: Rig, recorded: Begin) -> None:
    """needrestart, which Ubuntu servers run after every update, restarts whatever maps a file that was replaced."""
    rig.have("sim-a")
    rig.must("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet", "needrestart")
    recorded()
    before = rig.facts()
    (engine,) = before.engines
    maps = Path(f"/proc/{engine}/maps").read_text().splitlines()
    library = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libz.so" in line)
    rig.must("sh", "-c", f"cp --preserve {library} {library}.new && mv {library}.new {library}")
    assert f"NEEDRESTART-SVC: {UNIT_A}" in rig.must("needrestart", "-b", "-r", "l")
    rig.run("needrestart", "-q", "-r", "a")
    assert rig.facts() == before
    assert_serves(rig, "sim-a")
