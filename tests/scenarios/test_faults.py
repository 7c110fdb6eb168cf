# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of an engine in every situation of a switch, under real systemd, while clients never stop asking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from scenarios.matrix import matrix
from scenarios.outcome import assert_serves, assert_stopped
from scenarios.recording import Recording
from scenarios.rig import Done, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]

# first: nothing was served before · switch: something was, and there is to be no way back · back: there is one, and it
# leads to a healthy engine · broken: there is one, and the engine that it leads to does not start rightly again
SITUATIONS = ("first", "switch", "broken", "back")
SECOND_FAULT = "wrong-length"  # of the engine that a broken way back leads to


@dataclass(frozen=True)
class Fault:
    """A fault of the engine that is switched to: in which phase it is found, and as which known symptom."""

    name: str
    phases: tuple[str, ...]
    symptom: str | None = None
    target: str = "sim-b"
    systemd: bool = False  # systemd sees it too


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("never-ready", ("health",), target="sim-short"),
        Fault("exit-at-start", ("alive", "health"), "context_does_not_fit", systemd=True),
        Fault("crash-loop", ("health",), systemd=True),
        Fault("health-500", ("health",)),
        Fault("wrong-id", ("identity",)),
        Fault("wrong-length", ("identity",)),
        Fault("wrong-answer", ("canary",)),
        Fault("wrong-one-in-four", ("canary",)),
        Fault("wrong-together", ("canary",)),
        Fault("nan", ("first_token",)),
        Fault("garbage", ("canary",)),
        Fault("empty", ("canary",)),
        Fault("hang", ("first_token",), target="sim-mute"),
        Fault("die", ("first_token",), "device_lost", systemd=True),
    )
}
# Faults of an engine that is to stop, and what it leaves behind for the next one to wait for.
OUTSTAYING = ("ignore-term", "slow-stop", "keep-port", "keep-device")
# What takes longer, or is louder, but is no failure.
SURVIVED = ("slow-ready", "flood")


def assert_failed(done: Done, outcome: str, phases: tuple[str, ...], symptom: str | None, *, second: str = "") -> None:
    """The result names the phase that found the fault, and the symptom that explains it; so for the way back."""
    result = done.data
    assert (done.code, result["outcome"]) == (1, outcome), done
    failure = result["failure"]
    assert failure["phase"] in phases, failure
    assert failure["symptom"] == symptom, failure
    assert failure["message"] in result["msg"], result
    later = [(one["phase"], one["direction"]) for one in result["failures"]]
    assert later == ([(second, "back")] if second else []), result


def pair(fault: str) -> tuple[str, str]:
    """What is served before, and what is switched to."""
    return ("sim-card-a", "sim-card-b") if fault == "keep-device" else ("sim-a", "sim-b")


# Those that only HTTP shows are proven without a host: ``_slot/test_faults_over_http.py``.
SEEN = [name for name, fault in FAULTS.items() if fault.systemd]


@pytest.mark.parametrize(("situation", "name"), matrix(product(SITUATIONS, SEEN), product(SITUATIONS, FAULTS)))
def test_an_engine_that_is_broken(rig: Rig, recorded: Begin, situation: str, name: str) -> None:
    fault = FAULTS[name]
    if situation == "first":
        rig.wipe()
    else:
        rig.have("sim-a")
    rig.tell(fault.target, fault.name)
    if situation == "broken":
        rig.tell("sim-a", SECOND_FAULT)
    recording = recorded()
    words = ["--on-failure", "stop"] if situation == "switch" else []
    done = rig.ctl("switch", fault.target, *words)
    rig.wait_settled()
    if situation == "back":
        assert_failed(done, "rolled_back", fault.phases, fault.symptom)
        assert_serves(rig, "sim-a")
    else:
        second = "identity" if situation == "broken" else ""
        assert_failed(done, "stopped", fault.phases, fault.symptom, second=second)
        # What is to be served is tried again meanwhile, and clients are told how the last try failed.
        told = [] if situation == "broken" else [f"phase {done.data['failure']['phase']}"]
        assert_stopped(rig, *told)
    assert recording.names() == (set() if situation == "first" else {"sim-a"})


@pytest.mark.parametrize(("situation", "fault"), matrix(product(SITUATIONS, OUTSTAYING)))
def test_an_engine_that_does_not_want_to_go(rig: Rig, recorded: Begin, situation: str, fault: str) -> None:
    old, new = pair(fault)
    # What is held is to be held for a while yet when its release is waited for.
    values = {"hold_s": 4.0, "stop_s": 1.5}
    if situation == "first":
        rig.wipe()
    else:
        rig.serve(old, fault, **values)
    if situation == "switch":
        rig.tell(new)
    else:
        rig.tell(new, "wrong-id", fault, **values)
    rig.tell(old, *([SECOND_FAULT, fault] if situation == "broken" else []), **values)
    recording = recorded()
    done = rig.ctl("switch", new)
    rig.wait_settled()
    if situation == "switch":
        assert (done.code, done.data["outcome"]) == (0, "committed"), done
        assert_serves(rig, new)
    elif situation == "back":
        assert_failed(done, "rolled_back", ("identity",), None)
        assert_serves(rig, old)
    else:
        assert_failed(done, "stopped", ("identity",), None, second="identity" if situation == "broken" else "")
        assert_stopped(rig, "phase identity: ")
    assert recording.names() <= {old, new}
    if situation == "first":
        return
    if fault.startswith("keep"):
        rig.must("journalctl", "--sync")
        kept = rig.must("journalctl", "--unit=b70-sim-keeper", "--output=cat", f"--since=@{recording.began:.0f}")
        assert f" of {old} " in kept, "the fault did not strike"
    else:
        stop = next(row for row in done.data["phases"] if (row["name"], row["direction"]) == ("stop", "forward"))
        assert stop["seconds"] > 1, f"the fault did not strike: {stop}"


@pytest.mark.parametrize(
    ("situation", "fault"), matrix([("switch", "flood")], product(("first", "switch", "back"), SURVIVED))
)
def test_an_engine_that_is_only_slow_or_loud(rig: Rig, recorded: Begin, situation: str, fault: str) -> None:
    if situation == "first":
        rig.wipe()
    else:
        rig.have("sim-a")
    rig.tell("sim-b", *(["wrong-id"] if situation == "back" else [fault]), load_s=1.0)
    if situation == "back":
        rig.tell("sim-a", fault, load_s=1.0)
    recorded()
    done = rig.ctl("switch", "sim-b")
    rig.wait_settled()
    assert done.data["outcome"] == ("rolled_back" if situation == "back" else "committed"), done
    assert_serves(rig, "sim-a" if situation == "back" else "sim-b")
