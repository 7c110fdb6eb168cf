# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that reboots, or loses its power, at each phase of a switch, and serves again by itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, product

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Phase
from machine import wait_for
from scenarios.matrix import FORWARD, by_kind, matrix
from scenarios.outcome import assert_serves, assert_stopped
from scenarios.recording import Recording
from scenarios.rig import Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]

WAYS = ("reboot", "power")
# Nothing to be rebooted in before the journal knows of the switch.
PHASES = FORWARD[FORWARD.index(Phase.JOURNAL) :]
EACH_PHASE = list(zip(PHASES, cycle(WAYS), strict=False))


def wait_at(rig: Rig, phase: str, direction: str, *words: str) -> None:
    """Run b70ctl as a service of the host until then; it waits there for the end of the host."""
    unit = ["systemd-run", "--quiet", "--collect", "--property=KillMode=mixed", "--property=TimeoutStopSec=10"]
    rig.must(*unit, "/opt/b70/bin/crash-at", phase, direction, "begin", "wait", "--", *words)
    wait_for(lambda: (rig.root / "run/b70-sim/reached").exists(), f"the switch is at {phase}")


def go_down(rig: Rig, way: str) -> None:
    """The host goes down and comes back, and its own verification has done what it does."""
    if way == "reboot":
        rig.reboot()
    else:
        rig.lose_power()
    rig.wait_booted()


@pytest.mark.parametrize(("pair", "phase", "way"), by_kind(matrix(EACH_PHASE, product(PHASES, WAYS))))
def test_a_host_that_goes_down_during_a_switch(
    rig: Rig, recorded: Begin, pair: tuple[str, str], phase: str, way: str
) -> None:
    before, after = pair
    rig.have(before)
    rig.tell(after)
    recording = recorded()
    wait_at(rig, phase, "forward", "switch", after)
    go_down(rig, way)
    # What is served is what was committed. A switch that has only that left to do may get it done while the host shuts
    # down.
    late = phase in ("open", "enable", "commit") and way == "reboot" and rig.wanted() == after
    assert_serves(rig, after if late else before)
    assert recording.names() <= set(pair)


@pytest.mark.parametrize(("phase", "way"), [("stop", "power"), ("health", "reboot")])
def test_a_host_that_goes_down_on_the_way_back(rig: Rig, recorded: Begin, phase: str, way: str) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", "wrong-id")
    recorded()
    wait_at(rig, phase, "back", "switch", "sim-b")
    go_down(rig, way)
    assert_serves(rig, "sim-a")


@pytest.mark.parametrize(("pair", "way"), by_kind(matrix([("power",)], [("reboot",)])))
def test_a_host_that_goes_down_while_it_serves(rig: Rig, recorded: Begin, pair: tuple[str, str], way: str) -> None:
    rig.have(pair[0])
    recording = recorded()
    go_down(rig, way)
    assert_serves(rig, pair[0])
    assert len({answer.stamp.split(" ")[1] for answer in recording.answers if answer.stamp}) <= 2


def test_a_host_that_goes_down_during_its_first_deploy_serves_nothing(rig: Rig, recorded: Begin) -> None:
    rig.wipe()
    recording = recorded()
    wait_at(rig, "canary", "forward", "switch", "sim-b")
    go_down(rig, "power")
    assert_stopped(rig)
    assert recording.names() == set()


def test_an_engine_that_is_broken_after_a_reboot_is_not_served(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    # Not in /run, which a boot empties: the engine reads it where the boot copies it from.
    rig.tell_next_boot("sim-a", "wrong-answer")
    recording = recorded()
    go_down(rig, "reboot")
    try:
        assert_stopped(rig, "phase canary: a canary answer was wrong")
    finally:
        rig.tell_next_boot("sim-a")
    assert recording.names() <= {"sim-a"}
