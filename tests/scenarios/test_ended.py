# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches that somebody ends, and a host that settles what they leave behind without being asked."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves, assert_stopped, loading
from scenarios.recording import Recording
from scenarios.rig import CONTROLLER, CTL, LOADS, Rig
from scenarios.test_ansible import play
from scenarios.test_crashes import kill_at

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
PROGRESS = "run/b70/main/progress.jsonl"


def test_a_key_that_ends_the_command_leads_back_also_when_it_is_pressed_again(rig: Rig, recorded: Begin) -> None:
    """The terminal sends the signal to all of its foreground: to what b70ctl asks of systemd at that moment, too."""
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    with rig.popen("setsid", "--wait", CTL, "switch", "sim-b", "--json") as process:
        wait_for(lambda: '"to": "sim-b"' in json.dumps(rig.state()), "the switch works")
        wait_for(lambda: '"health"' in rig.read(PROGRESS), "the engine loads")
        pid = json.loads(rig.read(PROGRESS).splitlines()[0])["pid"]
        press = ("sh", "-c", f"kill -INT -{pid}")
        rig.must(*press)
        wait_for(lambda: '"back"' in rig.read(PROGRESS), "the way back has begun")
        while process.poll() is None and '"event": "end"' not in rig.read(PROGRESS):
            rig.run(*press)
        output, errors = process.communicate(timeout=300)
    rig.wait_settled()
    result = json.loads(output)
    assert (result["outcome"], result["profile"]) == ("rolled_back", "sim-a"), (output, errors)
    assert "told to end (SIGINT)" in result["failure"]["message"], result
    assert "told to end" in errors, errors
    assert_serves(rig, "sim-a")


def test_a_switch_that_is_killed_right_after_another_is_settled(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b")
    recording = recorded()
    for _time in range(4):
        done = rig.ctl("switch", "sim-b")
        assert done.code == 0, done
        kill_at(rig, "close", "forward", "end", "switch", "sim-a")
        rig.wait_settled()
        assert_serves(rig, "sim-b")
        done = rig.ctl("switch", "sim-a")
        assert done.code == 0, done
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert recording.names() <= {"sim-a", "sim-b"}


def test_a_controller_that_is_killed_goes_on_where_it_was(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-a", **LOADS)
    rig.tell("sim-b", **LOADS)
    recorded()
    kill_at(rig, "health", "forward", "begin", "switch", "sim-b")
    wait_for(
        lambda: loading(rig) and (rig.state().get("switch") or {}).get("to") == "sim-a",
        "the controller has started what was served before",
    )
    loads = rig.facts().invocation
    rig.must("systemctl", "kill", "--signal=KILL", CONTROLLER)
    rig.tell("sim-a")
    wait_for(lambda: rig.state().get("open"), "a model is served")
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert rig.facts().invocation == loads, "the engine that loaded was not started anew"


def test_a_slot_that_was_stopped_by_a_lost_card_is_served_after_the_reboot(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recorded()
    for name in ("sim-a", "sim-b"):
        rig.tell(name, "die")
    done = rig.ctl("switch", "sim-b")
    assert (done.code, done.data["outcome"]) == (1, "stopped"), done
    assert done.data["quarantine"]["symptom"] == "device_lost", done
    rig.wait_settled()
    assert_stopped(rig, "quarantine", "device_lost")
    rig.reboot()
    rig.wait_booted()
    assert_serves(rig, "sim-a")
    assert rig.ctl("status").data["quarantine"] is None


@pytest.mark.exhaustive
def test_a_play_is_told_how_long_a_load_may_take(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    code, said = play(rig, "sim-b", "-e", "health_timeout=1")
    assert code != 0, said
    assert "was not ready within 1 s" in said, said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
