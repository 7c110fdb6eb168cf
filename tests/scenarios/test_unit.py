# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit of an engine does by itself.

It comes back however it ended, stays down where it was stopped, has what it writes to, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves, assert_stopped, wait_served
from scenarios.recording import Recording, ask
from scenarios.rig import LOADS, PREFIX, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
UNIT_A, UNIT_B = f"{PREFIX}sim-a.service", f"{PREFIX}sim-b.service"
STARTS = 5  # in half an hour, before systemd gives up
CACHES = "mnt/fast-ai/vllm-cache-exp"


def shown(rig: Rig, unit: str, name: str) -> str:
    return rig.must("systemctl", "show", "--value", f"--property={name}", unit).strip()


def end(rig: Rig, how: str) -> None:
    """The engine ends, and the one after it is healthy."""
    pids = set(rig.engines())
    if how == "worker":
        rig.tell_running("sim-a", "end", *LOADS["live"])  # the next one is not asked before it is told otherwise
        ask(rig.address, stream=False)
    else:
        # as one client in the lab did it: the main process only, which ends with 0
        rig.must("systemctl", "kill", f"--signal={how}", "--kill-who=main", UNIT_A)
    wait_for(lambda: not pids & set(rig.engines()), "the engine has ended")
    rig.tell("sim-a")


@pytest.mark.parametrize("how", ["worker", "SIGTERM", "SIGKILL"])
def test_an_engine_that_ends_is_started_again_and_served_only_verified(rig: Rig, recorded: Begin, how: str) -> None:
    # a start of its own: systemd counts those that nobody asked for
    rig.serve("sim-a")
    before = rig.facts().invocation
    recording = recorded()
    end(rig, how)
    wait_served(rig, before)
    assert_serves(rig, "sim-a")
    assert shown(rig, UNIT_A, "NRestarts") == "1"
    assert recording.names() <= {"sim-a"}


def test_an_engine_that_is_stopped_stays_down(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recorded()
    rig.must("systemctl", "stop", UNIT_A)
    assert shown(rig, UNIT_A, "SubState") == "dead", "it is about to start again"
    wait_for(lambda: ask(rig.address, stream=False).status == 503, "clients are told that it does not run")
    # By another engine's start as well, also while it waits for its own. Nobody serves what was started by hand.
    rig.must("systemctl", "start", UNIT_A)
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    rig.tell("sim-b")
    killed = shown(rig, UNIT_A, "InvocationID")
    rig.must("systemctl", "kill", "--signal=SIGKILL", "--kill-who=main", UNIT_A)

    def starts_again() -> bool:
        # A unit that is stopped before it waits for its next start ends as failed.
        return shown(rig, UNIT_A, "SubState") == "auto-restart" or shown(rig, UNIT_A, "InvocationID") != killed

    wait_for(starts_again, "systemd starts the engine again")
    rig.must("systemctl", "start", UNIT_B)
    rig.wait_settled()
    assert shown(rig, UNIT_A, "SubState") == "dead"
    assert rig.facts().running == (UNIT_B,)
    assert ask(rig.address, stream=False).status == 503
    rig.serve("sim-a")


def test_an_engine_that_ends_again_and_again_is_served_whatever_its_start_limit(rig: Rig, recorded: Begin) -> None:
    rig.serve("sim-a")
    recorded()
    for _start in range(STARTS):
        before = rig.facts().invocation
        end(rig, "SIGTERM")
        # After the last one systemd gives up, and the controller does not.
        wait_served(rig, before)
    assert_serves(rig, "sim-a")


@pytest.mark.parametrize("way", ["back", "stop"])
def test_an_engine_that_ends_with_0_while_it_loads_fails_its_switch(rig: Rig, recorded: Begin, way: str) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", "end-at-start")
    recording = recorded()
    done = rig.ctl("switch", "sim-b", *(["--on-failure", "stop"] if way == "stop" else []))
    rig.wait_settled()
    failure = done.data["failure"]
    assert (done.code, failure["phase"] in ("alive", "health")) == (1, True), done
    assert "exited 0" in failure["got"], failure
    assert any("died unexpectedly" in line for line in failure["log_tail"]), failure
    if way == "back":
        assert_serves(rig, "sim-a")
    else:
        assert_stopped(rig, f"phase {failure['phase']}")
    assert recording.names() == {"sim-a"}


def segments(rig: Rig) -> set[str]:
    return {path.name for path in (rig.root / "dev/shm").glob("sim-*")}


def test_a_killed_engine_leaves_no_shared_memory_behind(rig: Rig, recorded: Begin) -> None:
    rig.serve("sim-a", "leave-shm")
    # It goes with the last unit of its user, which is the keeper here.
    rig.must("systemctl", "stop", "b70-sim-keeper")
    try:
        recorded()
        left = segments(rig)
        assert len(left) == 1
        before = rig.facts().invocation
        rig.must("systemctl", "kill", "--signal=SIGKILL", UNIT_A)
        wait_served(rig, before)
        now = segments(rig)
        assert len(now) == 1, now
        assert not now & left, now
        rig.must("systemctl", "kill", "--signal=SIGKILL", UNIT_A)
        rig.must("systemctl", "stop", UNIT_A)
        assert segments(rig) == set()
    finally:
        rig.must("systemctl", "start", "b70-sim-keeper")


def test_an_engine_has_a_home_of_its_own(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    recorded()
    owner = int(rig.must("id", "-u", "b70"))
    environ = Path(f"/proc/{next(rig.engines())}/environ").read_text().split("\0")
    (made,) = (rig.root / CACHES).glob("sim-*/sim/home")
    path = f"/{made.relative_to(rig.root)}"
    assert f"HOME={path}" in environ
    assert (made.stat().st_uid, made.stat().st_mode & 0o700) == (owner, 0o700)
    # Made again after the caches were thrown away.
    rig.must("rm", "-r", path)
    rig.serve("sim-a")
    assert (made.stat().st_uid, made.stat().st_mode & 0o700) == (owner, 0o700)
