# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two models of which one sleeps while the other serves: switches, sleepers that fail, and who reaches them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from machine import wait_for
from scenarios.recording import Recording, ask, status
from scenarios.rig import PREFIX, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
A, B = "sim-sleep-a", "sim-sleep-b"
ASK = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method=sys.argv[2]), timeout=600)"


def have_sleeper(rig: Rig) -> dict[str, str]:
    """Let A serve while B sleeps. Return the process of each by its invocation."""
    rig.have(B)
    done = rig.ctl("switch", A)
    assert (done.code, done.data["outcome"]) == (0, "committed"), done
    rig.wait_settled()
    assert [row["profile"] for row in rig.ctl("status").data["standby"]] == [B]
    return {name: shown(rig, name, "InvocationID") for name in (A, B)}


def shown(rig: Rig, name: str, what: str) -> str:
    return rig.must("systemctl", "show", "--value", f"--property={what}", f"{PREFIX}{name}.service").strip()


def assert_served_by(rig: Rig, name: str, invocation: str) -> None:
    told, state, answer = status(rig), rig.state(), ask(rig.address, stream=False)
    assert (told["open"], told["verified"], told["model_slot"]["name"]) == (True, True, name), told
    assert state["engine"]["invocation_id"] == invocation
    assert (answer.status, answer.text, answer.stamp.split(" ")[1]) == (200, f"I am {name}.", invocation), answer
    assert rig.facts().enabled == (f"{PREFIX}{name}.service",)


def test_a_model_that_sleeps_is_woken_and_the_other_one_sleeps(rig: Rig, recorded: Begin) -> None:
    process = have_sleeper(rig)
    recording = recorded()
    for name in (B, A, B):
        predicted = rig.ctl("switch", name, "--check").data
        done = rig.ctl("switch", name)
        assert (done.code, done.data["way"], done.data["verified"]) == (0, "standby", True), done
        rig.wait_settled()
        entry = rig.journal()[-1]
        assert (entry["way"], entry["actions"]) == (predicted["way"], predicted["actions"])
        assert_served_by(rig, name, process[name])
    assert recording.names() == {A, B}


def test_one_that_nobody_asks_for_sleeps_until_somebody_does(rig: Rig, recorded: Begin) -> None:
    rig.have(A)
    process = shown(rig, A, "InvocationID")
    recording = recorded()
    assert rig.ctl("stop", "--idle").code == 0
    rig.wait_settled()
    told = status(rig)
    assert (told["open"], told["phase"], told["idle"]["profile"]) == (False, "stopped", A), told
    assert [row["profile"] for row in rig.ctl("status").data["standby"]] == [A]
    assert rig.facts().enabled == ()
    done = rig.ctl("switch", A)
    assert (done.code, done.data["way"], done.data["verified"]) == (0, "standby", True), done
    rig.wait_settled()
    assert_served_by(rig, A, process)
    assert recording.names() == {A}


def test_only_root_and_the_frontdoor_reach_the_requests_for_sleep(rig: Rig) -> None:
    have_sleeper(rig)
    url = rig.state()["backend_url"]
    for path, method in (("/is_sleeping", "GET"), ("/collective_rpc", "POST"), ("/health", "GET")):
        done = rig.run("setpriv", "--reuid=nobody", "--clear-groups", "python3", "-c", ASK, f"{url}{path}", method)
        assert done.code != 0, done
        assert "refused" in done.errors, done
    rig.must("python3", "-c", ASK, f"{url}/is_sleeping", "GET")
    # The frontdoor forwards none of them, whoever asks.
    for path, method in (("/is_sleeping", "GET"), ("/wake_up", "POST"), ("/collective_rpc", "POST")):
        done = rig.run("python3", "-c", ASK, f"http://127.0.0.1:8000{path}", method)
        assert "404" in done.errors, done


@pytest.mark.parametrize("fault", ["wrong-awake", "garbage-awake", "forgets-asleep"])
def test_one_that_wakes_wrong_is_loaded_and_no_client_notices(rig: Rig, recorded: Begin, fault: str) -> None:
    process = have_sleeper(rig)
    rig.tell_running(B, fault)
    recording = recorded()
    done = rig.ctl("switch", B)
    assert (done.code, done.data["outcome"], done.data["way"]) == (0, "committed", "plain"), done
    assert "woken in vain" in " ".join(done.data["warnings"]), done
    rig.wait_settled()
    invocation = shown(rig, B, "InvocationID")
    assert invocation != process[B]
    assert_served_by(rig, B, invocation)
    assert recording.names() == {A, B}


def test_one_that_is_killed_stays_down_until_it_is_wanted(rig: Rig, recorded: Begin) -> None:
    process = have_sleeper(rig)
    recorded()
    rig.must("systemctl", "kill", "--signal=KILL", "--kill-whom=all", f"{PREFIX}{B}.service")
    wait_for(lambda: shown(rig, B, "ActiveState") == "inactive", "systemd has tried to start it again")
    assert len(rig.facts().engines) == 1
    rig.wait_settled()
    assert_served_by(rig, A, process[A])
    done = rig.ctl("switch", B)
    assert (done.code, done.data["way"]) == (0, "plain"), done
    rig.wait_settled()
    assert_served_by(rig, B, shown(rig, B, "InvocationID"))
