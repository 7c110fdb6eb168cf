# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed as each of its phases begins and ends, and what settles it: the host by itself, whoever else
asks meanwhile, by a switch or by b70ctl recover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, product

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Phase
from scenarios.matrix import BACK, FORWARD, Case, by_kind, matrix
from scenarios.outcome import assert_serves, assert_stopped
from scenarios.recording import Recording
from scenarios.rig import Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]

RECOVERIES = ("host", "again", "recover")
# Who has not got the lock yet says nothing, so there is no moment to be killed at.
CRASHES = [case for case in product(FORWARD, ("begin", "end"), RECOVERIES) if case[:2] != ("lock", "begin")]


def in_turn(phases: Iterable[str], recoveries: Sequence[str] = RECOVERIES) -> list[Case]:
    """Return each phase with one recovery."""
    return list(zip(phases, cycle(recoveries), strict=False))


# Each phase once: as it begins, or the lock as it ends; every second one is settled by the host alone.
EACH_PHASE = [
    (phase, "end" if phase == "lock" else "begin", recovery)
    for phase, recovery in in_turn(FORWARD, ("again", "host", "recover", "host"))
]


def kill_at(rig: Rig, phase: str, direction: str, moment: str, *words: str) -> None:
    """Run b70ctl until then, and no further."""
    done = rig.run("/opt/b70/bin/crash-at", phase, direction, moment, "kill", "--", *words)
    assert done.code == -9, f"it was not killed at {phase} {moment}: {done}"


def settle(rig: Rig, recovery: str, target: str, *, faulty: bool = False) -> None:
    """Waits until what was killed is settled: by the host, which nobody tells to, and by whoever else asks meanwhile.

    faulty: the target's engine may still run with its fault. Then the next run verifies it where it runs, refuses it
    and goes back; the one after that starts it anew."""
    if recovery == "again":
        done = rig.ctl("switch", target)
        if faulty and done.code == 1:
            assert done.data["outcome"] == "rolled_back", done
            done = rig.ctl("switch", target)
        assert done.code == 0, done
    elif recovery == "recover":
        done = rig.ctl("recover")
        assert done.code in (0, 3), done
    rig.wait_settled()


@pytest.mark.parametrize(("pair", "phase", "moment", "recovery"), by_kind(matrix(EACH_PHASE, CRASHES)))
def test_a_switch_that_is_killed(
    rig: Rig, recorded: Begin, pair: tuple[str, str], phase: str, moment: str, recovery: str
) -> None:
    before, after = pair
    rig.have(before)
    rig.tell(after)
    recording = recorded()
    kill_at(rig, phase, "forward", moment, "switch", after)
    settle(rig, recovery, after)
    let_in = FORWARD.index(Phase(phase)) + (moment == "end") > FORWARD.index(Phase.OPEN)
    assert_serves(rig, after if recovery == "again" or let_in else before)
    assert recording.names() <= set(pair)


@pytest.mark.parametrize(("pair", "phase", "recovery"), by_kind(matrix(in_turn(BACK)[::2], in_turn(BACK))))
def test_a_way_back_that_is_killed(rig: Rig, recorded: Begin, pair: tuple[str, str], phase: str, recovery: str) -> None:
    before, after = pair
    rig.have(before)
    rig.tell(after, "wrong-id")
    recording = recorded()
    kill_at(rig, phase, "back", "begin", "switch", after)
    rig.tell(after)
    settle(rig, recovery, after, faulty=True)
    assert_serves(rig, after if recovery == "again" else before)
    assert recording.names() <= set(pair)


@pytest.mark.parametrize(("phase", "recovery"), matrix(in_turn(["stop"]), in_turn(["close", "stop", "commit"])))
def test_a_failed_switch_that_is_killed_as_it_stops(rig: Rig, recorded: Begin, phase: str, recovery: str) -> None:
    """What it was to do was to leave nothing running; what settles it may do better: serve what was verified last."""
    rig.have("sim-a")
    rig.tell("sim-b", "wrong-id")
    recorded()
    kill_at(rig, phase, "halt", "begin", "switch", "sim-b", "--on-failure", "stop")
    rig.tell("sim-b")
    settle(rig, recovery, "sim-b", faulty=True)
    assert_serves(rig, "sim-b" if recovery == "again" else "sim-a")


FIRST = in_turn("journal start health canary open enable".split())


@pytest.mark.parametrize(("phase", "recovery"), matrix(FIRST[2:5:2], FIRST))
def test_a_first_deploy_that_is_killed(rig: Rig, recorded: Begin, phase: str, recovery: str) -> None:
    """There is nothing to go back to: what was not let in is stopped."""
    rig.wipe()
    recording = recorded()
    kill_at(rig, phase, "forward", "end", "switch", "sim-b")
    settle(rig, recovery, "sim-b")
    if recovery == "again" or phase in ("open", "enable", "commit"):
        assert_serves(rig, "sim-b")
    else:
        assert_stopped(rig)
    assert recording.names() <= {"sim-b"}


STOPS = in_turn("close drain stop release commit".split(), ("host", "recover"))


@pytest.mark.parametrize(("phase", "recovery"), matrix(STOPS[2:3], STOPS))
def test_a_stop_that_is_killed(rig: Rig, recorded: Begin, phase: str, recovery: str) -> None:
    rig.have("sim-a")
    recorded()
    kill_at(rig, phase, "forward", "begin", "stop")
    settle(rig, recovery, "")
    assert_stopped(rig)
