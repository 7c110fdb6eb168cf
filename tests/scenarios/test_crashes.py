# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed as each of its phases begins and ends, and what settles it: the host by itself, whoever else
asks meanwhile, by a switch or by b70ctl recover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import pytest

from scenarios.outcome import assert_serves, assert_stopped
from scenarios.recording import Recording
from scenarios.rig import Rig
from scenarios.sampling import Case, by_kind, every_second, sampled

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]

VERIFYING = "start alive health identity first_token canary open enable commit"
FORWARD = f"lock resolve guard journal close drain stop release {VERIFYING}".split()
BACK = f"close stop release {VERIFYING}".split()
RECOVERIES = ("host", "again", "recover")
AT_STAKE = ("stop", "health", "open", "enable")


def crashes() -> Iterator[tuple[str, str, str]]:
    """Each phase as it begins, settled by the host alone, and with all recoveries where the most is at stake; and each
    as it ends, with the others in turn."""
    turn = cycle(RECOVERIES[1:])
    for phase in FORWARD:
        if phase != "lock":  # who has not got the lock yet says nothing, so there is no moment to be killed at
            chosen = RECOVERIES if phase in AT_STAKE else RECOVERIES[:1]
            yield from ((phase, "begin", recovery) for recovery in chosen)
        yield phase, "end", next(turn)


def at_a_seam(_number: int, case: Case) -> bool:
    """Whether the host is alone with a phase that begins, or the phase that ends is one after which much differs."""
    phase, moment, recovery = case
    if moment == "begin":
        return recovery == "host" or (phase, recovery) in (("stop", "again"), ("open", "recover"))
    return phase in ("lock", "journal", *AT_STAKE)


def in_turn(phases: Sequence[str], recoveries: Sequence[str] = RECOVERIES) -> list[Case]:
    return list(zip(phases, cycle(recoveries), strict=False))


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


@pytest.mark.parametrize(("pair", "phase", "moment", "recovery"), by_kind(sampled(crashes(), at_a_seam)))
def test_a_switch_that_is_killed(
    rig: Rig, recorded: Begin, pair: tuple[str, str], phase: str, moment: str, recovery: str
) -> None:
    before, after = pair
    rig.have(before)
    rig.tell(after)
    recording = recorded()
    kill_at(rig, phase, "forward", moment, "switch", after)
    settle(rig, recovery, after)
    let_in = FORWARD.index(phase) + (moment == "end") > FORWARD.index("open")
    assert_serves(rig, after if recovery == "again" or let_in else before)
    assert recording.names() <= set(pair)


@pytest.mark.parametrize(("pair", "phase", "recovery"), by_kind(sampled(in_turn(BACK), every_second)))
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


@pytest.mark.parametrize(("phase", "recovery"), in_turn(["close", "stop", "commit"]))
def test_a_failed_switch_that_is_killed_as_it_stops(rig: Rig, recorded: Begin, phase: str, recovery: str) -> None:
    """What it was to do was to leave nothing running; what settles it may do better: serve what was verified last."""
    rig.have("sim-a")
    rig.tell("sim-b", "wrong-id")
    recorded()
    kill_at(rig, phase, "halt", "begin", "switch", "sim-b", "--on-failure", "stop")
    rig.tell("sim-b")
    settle(rig, recovery, "sim-b", faulty=True)
    assert_serves(rig, "sim-b" if recovery == "again" else "sim-a")


@pytest.mark.parametrize(
    ("phase", "recovery"), sampled(in_turn("journal start health canary open enable".split()), every_second)
)
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


@pytest.mark.parametrize(("phase", "recovery"), in_turn("close drain stop release commit".split(), ("host", "recover")))
def test_a_stop_that_is_killed(rig: Rig, recorded: Begin, phase: str, recovery: str) -> None:
    rig.have("sim-a")
    recorded()
    kill_at(rig, phase, "forward", "begin", "stop")
    settle(rig, recovery, "")
    assert_stopped(rig)
