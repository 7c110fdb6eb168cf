# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of an engine in every situation of a switch, under real systemd, while clients never stop asking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from matrix.promise import assert_serves, assert_stopped
from matrix.recording import Recording
from matrix.rig import Rig

pytestmark = pytest.mark.matrix
Begin = Callable[[], Recording]


@dataclass(frozen=True)
class Fault:
    """A fault of the engine that is switched to: in which phase it is found, and as which known symptom."""

    name: str
    phases: tuple[str, ...]
    symptom: str | None = None
    target: str = "sim-b"


FAULTS = (
    Fault("never-ready", ("health",), target="sim-short"),
    Fault("exit-at-start", ("alive", "health"), "context_does_not_fit"),
    Fault("crash-loop", ("health",)),
    Fault("health-500", ("health",)),
    Fault("wrong-id", ("identity",)),
    Fault("wrong-length", ("identity",)),
    Fault("wrong-answer", ("canary",)),
    Fault("wrong-one-in-four", ("canary",)),
    Fault("nan", ("first_token",)),
    Fault("garbage", ("canary",)),
    Fault("empty", ("canary",)),
    Fault("hang", ("first_token",), target="sim-short"),
    Fault("die", ("first_token",), "device_lost"),
)
faults = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def assert_named(result: dict[str, object], fault: Fault) -> None:
    """The failure says which phase found the fault, and which symptom explains it."""
    failure = result["failure"]
    assert isinstance(failure, dict), result
    assert failure["phase"] in fault.phases, failure
    assert failure["symptom"] == fault.symptom, failure
    assert str(failure["message"]) in str(result["msg"]), result


@faults
def test_a_first_deploy_of_a_broken_engine_ends_stopped(rig: Rig, recorded: Begin, fault: Fault) -> None:
    rig.wipe()
    rig.tell(fault.target, fault.name)
    recording = recorded()
    done = rig.ctl("switch", fault.target)
    rig.wait_settled()
    assert (done.code, done.data["outcome"]) == (1, "stopped"), done
    assert_named(done.data, fault)
    assert_stopped(rig, done.data["failure"]["message"])
    assert recording.names() == set()


@faults
def test_a_switch_to_a_broken_engine_goes_back(rig: Rig, recorded: Begin, fault: Fault) -> None:
    rig.serve("sim-a")
    rig.tell(fault.target, fault.name)
    recording = recorded()
    done = rig.ctl("switch", fault.target)
    rig.wait_settled()
    assert (done.code, done.data["outcome"]) == (1, "rolled_back"), done
    assert_named(done.data, fault)
    assert_serves(rig, "sim-a")
    assert recording.names() == {"sim-a"}
