# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three engines of one profile on a host: switched as one, and each of them on its own while they serve."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from machine import LIMIT_S, wait_for
from scenarios.anew import VARIABLE, render_anew
from scenarios.matrix import matrix
from scenarios.outcome import assert_journal_closed, assert_serves
from scenarios.recording import Answer, Recording, ask, status
from scenarios.rig import LOADS, PREFIX, SIM_DIR, Rig

pytestmark = pytest.mark.scenario

PROFILE = "sim-r"
UNITS = tuple(f"{PREFIX}{PROFILE}@{number}.service" for number in range(3))


def shown(rig: Rig, name: str) -> list[str]:
    """A property of each unit."""
    return rig.must("systemctl", "show", "--value", f"--property={name}", *UNITS).split()


def rows(rig: Rig) -> list[tuple[bool, bool]]:
    return [(row["open"], row["verified"]) for row in rig.state().get("replicas") or []]


def assert_all_serve(rig: Rig) -> None:
    """All three run, boot, and are open for the very processes that were verified."""
    told, facts, state = status(rig), rig.facts(), rig.state()
    assert (told["open"], told["verified"], told["phase"]) == (True, True, "serving"), told
    assert (facts.running, facts.enabled, len(facts.engines)) == (UNITS, UNITS, 3), facts
    assert rows(rig) == [(True, True)] * 3, state
    assert [row["engine"]["invocation_id"] for row in state["replicas"]] == shown(rig, "InvocationID")
    answer = ask(rig.address, stream=False)
    assert (answer.status, answer.text) == (200, f"I am {PROFILE}."), answer
    assert answer.stamp.split(" ")[1] in shown(rig, "InvocationID"), answer
    assert_journal_closed(rig)


def have(rig: Rig) -> None:
    """Have three sound engines served."""
    if rig.state().get("open") and rows(rig) == [(True, True)] * 3 and not list(rig.root.glob("run/b70-sim/*.json")):
        assert_all_serve(rig)
        return
    rig.serve(PROFILE)


def test_a_switch_there_and_back(rig: Rig) -> None:
    rig.have("sim-a")
    done = rig.ctl("switch", PROFILE)
    assert done.code == 0, done
    rig.wait_settled()
    assert_all_serve(rig)
    assert rig.ctl("switch", PROFILE).data["outcome"] == "unchanged"
    said = rig.run("/opt/b70/bin/b70ctl", "status").output
    assert "3 of 3 replicas are served" in said, said
    # systemd keeps replicas beside each other, and everything else away.
    drop_in = rig.read(f"etc/systemd/system/{UNITS[1]}.d/10-b70-exclusive.conf")
    assert f"Conflicts={PREFIX}sim-a.service" in drop_in
    assert UNITS[0] not in drop_in
    assert rig.ctl("switch", "sim-a").code == 0
    assert_serves(rig, "sim-a")


def rolled(rig: Rig) -> list[str]:
    """Which rendering the process of each replica was started from."""
    found = []
    for pid in sorted(rig.engines()):
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found += [word.partition(b"=")[2].decode() for word in words if word.startswith(f"{VARIABLE}=".encode())]
    return found


def test_a_new_setting_goes_from_replica_to_replica_and_turns_no_client_away(
    rig: Rig, recorded: Callable[[], Recording]
) -> None:
    have(rig)
    number = render_anew(rig, PROFILE)
    predicted = rig.ctl("switch", PROFILE, "--check").data
    assert predicted["way"] == "rolling", predicted
    before, recording = shown(rig, "InvocationID"), recorded()
    done = rig.ctl("switch", PROFILE)
    assert (done.code, done.data["way"]) == (0, "rolling"), done
    rig.wait_settled()
    assert {answer.status for answer in recording.answers} == {200}
    asked, after = {served_by(answer) for answer in recording.answers}, shown(rig, "InvocationID")
    assert (bool(asked & {*before}), bool(asked & {*after})) == (True, True), "old and new ones answered"
    opened = [sum(row["open"] for row in state["replicas"]) for state in recording.states()]
    assert min(opened) == 2, opened
    entry = rig.journal()[-1]
    assert (entry["way"], entry["turned_away_s"], entry["actions"]) == ("rolling", 0.0, predicted["actions"])
    assert not {*before} & {*after}
    assert rolled(rig) == [number] * 3
    assert_all_serve(rig)
    assert rig.ctl("switch", PROFILE).data["outcome"] == "unchanged"


def test_a_corrupt_second_engine_takes_the_first_one_back_while_the_third_serves(
    rig: Rig, recorded: Callable[[], Recording]
) -> None:
    have(rig)
    number = render_anew(rig, PROFILE)
    before, recording = shown(rig, "InvocationID"), recorded()
    rig.tell(f"{PROFILE}@18081", "wrong-answer", env={VARIABLE: number})
    done = rig.ctl("switch", PROFILE)
    rig.must("rm", "-f", f"{SIM_DIR}/{PROFILE}@18081.json", f"/etc/b70-vllm-slot/pending/{PROFILE}.json")
    assert done.data["outcome"] == "rolled_back", done
    assert done.data["failure"]["replica"] == 1
    rig.wait_settled()
    assert {answer.status for answer in recording.answers} == {200}
    after = shown(rig, "InvocationID")
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]
    assert number not in rolled(rig)
    assert_all_serve(rig)


def test_one_corrupt_engine_takes_the_switch_back(rig: Rig) -> None:
    rig.have("sim-a")
    rig.tell(f"{PROFILE}@18081", "wrong-answer")
    done = rig.ctl("switch", PROFILE)
    assert done.data["outcome"] == "rolled_back", done
    assert done.data["failure"]["replica"] == 1
    assert_serves(rig, "sim-a")


@pytest.mark.parametrize(
    "phase", matrix([("canary",), ("enable",)], ((phase,) for phase in "stop start health open".split()))
)
def test_a_switch_that_is_killed_is_settled_by_the_host(rig: Rig, phase: str) -> None:
    rig.have("sim-a")
    rig.tell(PROFILE)
    done = rig.run("/opt/b70/bin/crash-at", phase, "forward", "begin", "kill", "--", "switch", PROFILE)
    assert done.code == -9, done
    rig.wait_settled()
    if phase == "enable":
        assert_all_serve(rig)
    else:
        assert_serves(rig, "sim-a")


def test_one_that_is_killed_is_verified_alone_while_the_others_serve(rig: Rig) -> None:
    have(rig)
    before = shown(rig, "InvocationID")
    seen = []
    rig.run("systemctl", "kill", "--signal=KILL", UNITS[1])

    def back() -> bool:
        shut = [is_open for is_open, _verified in rows(rig)] == [True, False, True]
        seen.append((rig.state().get("open"), shut))
        answer = ask(rig.address, stream=False)
        assert not shut or answer.status == 200, answer
        now = shown(rig, "InvocationID")
        return now[1] != before[1] and rows(rig) == [(True, True)] * 3 and now[1] == _verified(rig, 1)

    wait_for(back, "the second engine is open again")
    rig.wait_settled()
    after = shown(rig, "InvocationID")
    assert (after[0], after[2]) == (before[0], before[2]), "the others go on"
    assert all(is_open for is_open, _shut in seen), seen
    assert any(shut for _open, shut in seen), "clients were served while it was closed"
    assert_all_serve(rig)


def _verified(rig: Rig, number: int) -> str:
    return str(rig.state()["replicas"][number]["engine"]["invocation_id"])


def test_one_that_is_killed_under_load_costs_only_what_it_was_generating(
    rig: Rig, recorded: Callable[[], Recording]
) -> None:
    have(rig)
    replicas = [f"{PROFILE}@{port}" for port in range(18080, 18083)]

    def held() -> list[Future[Answer]]:
        """Ask for as many streams as there are permits, each held until its engine is told otherwise."""
        for replica in replicas:
            # The next process loads until its replica is told otherwise.
            rig.tell_running(replica, "hold-stream", *LOADS["live"])
        streams = [pool.submit(ask, rig.address, stream=True, limit_s=LIMIT_S) for _ in range(24)]
        # One client of the recording asks for no stream.
        wait_for(lambda: all(row["active_generations"] > 1 for row in status(rig)["replicas"]), "each has a stream")
        return streams

    before, recording = shown(rig, "InvocationID"), recorded()
    with ThreadPoolExecutor(36) as pool:
        streams = held()
        for replica in (replicas[0], replicas[2]):
            rig.tell(replica)
        rig.must("systemctl", "kill", "--signal=KILL", UNITS[1])
        wait_for(lambda: [row[0] for row in rows(rig)] == [True, False, True], "it is closed")
        meanwhile = [pool.submit(ask, rig.address, stream=False, limit_s=LIMIT_S) for _ in range(12)]
        told = wait_for(lambda: closed_in_status(rig), "the status shows it")
        closed_at = time.time()
        said = rig.run("/opt/b70/bin/b70ctl", "status").output
        assert [(row["index"], row["open"], row["verified"]) for row in told] == [
            (0, True, True),
            (1, False, False),
            (2, True, True),
        ]
        assert "DEGRADED: 2 of 3 replicas are served" in said, said
        assert "replica 0: open, verified" in said, said
        assert "replica 1: closed" in said, said
        rig.tell(replicas[1])
        answers = [one.result() for one in (*streams, *meanwhile)]
        wait_for(lambda: rows(rig) == [(True, True)] * 3, "all are open", 0.2)
        rig.wait_settled()
        after = shown(rig, "InvocationID")
        wait_for(lambda: all(row["used"] for row in status(rig)["replicas"]), "the frontdoor uses all")
        streams = held()
        for replica in replicas:
            rig.tell(replica)
        later = [one.result() for one in streams]
    for replica in replicas:
        os.unlink(rig.root / f"{SIM_DIR.lstrip('/')}/{replica}.json")
    assert_all_serve(rig)
    seen = [*answers, *later, *recording.answers]
    broken = [answer for answer in seen if (answer.status, answer.whole) != (200, True)]
    assert broken, "it was generating nothing"
    for answer in broken:
        assert answer.began <= closed_at, answer
        if answer.stream and answer.status == 200:
            assert "engine_cut" in answer.error, answer
            assert answer.stamp.split(" ")[1] == before[1], answer
        else:
            assert (answer.status, "engine_closed" in answer.error) == (502, True), answer
    assert {served_by(answer) for answer in answers if answer not in broken} == {before[0], before[2]}
    assert {served_by(answer) for answer in later} == set(after)
    recording.answers += [*answers, *later]  # and each of these by a process that had been verified and let in


def closed_in_status(rig: Rig) -> list[dict[str, Any]]:
    """The frontdoor's rows once it has read that one is closed, [] before."""
    told: list[dict[str, Any]] = status(rig)["replicas"]
    return told if [row["open"] for row in told] == [True, False, True] else []


def served_by(answer: Answer) -> str:
    """The process that gave it."""
    return answer.stamp.split(" ")[1]


def test_one_that_is_broken_for_good_is_closed_and_the_slot_is_degraded(rig: Rig) -> None:
    have(rig)
    rig.tell(f"{PROFILE}@18082", "wrong-answer")
    rig.run("systemctl", "kill", "--signal=KILL", UNITS[2])
    wait_for(lambda: rows(rig) == [(True, True), (True, True), (False, False)], "it is closed", 0.2)
    wait_for(lambda: "canary" in rig.state()["replicas"][2]["reason"], "it has failed")
    rig.wait_settled()
    # The third one is tried again and again meanwhile.
    assert set(UNITS[:2]) <= set(rig.facts().running)
    assert ask(rig.address, stream=False).status == 200

    def waits() -> bool:
        said = rig.run("/opt/b70/bin/b70ctl", "status").output
        assert "DEGRADED: 2 of 3 replicas are served" in said, said
        return "next: the controller waits, and tries again at" in said

    wait_for(waits, "a pause between two tries")
    os.unlink(rig.root / f"run/b70-sim/{PROFILE}@18082.json")
    done = rig.ctl("recover")
    assert done.code == 0, done
    assert_all_serve(rig)


def test_a_reboot_verifies_all_of_them(rig: Rig) -> None:
    have(rig)
    rig.reboot()
    rig.wait_booted()
    wait_for(lambda: rows(rig) == [(True, True)] * 3, "all are open", 0.2)
    rig.wait_settled()
    assert_all_serve(rig)
    assert rig.ctl("switch", "sim-a").code == 0


def test_a_process_that_is_killed_at_once_with_all_others(rig: Rig) -> None:
    have(rig)
    before = set(shown(rig, "InvocationID"))
    for pid in tuple(rig.engines()):
        os.kill(pid, signal.SIGKILL)

    def all_anew() -> bool:
        now = shown(rig, "InvocationID")
        told = rig.state().get("replicas") or []
        let_in = [row["engine"]["invocation_id"] for row in told if row["open"] and row["verified"]]
        return not before & set(now) and let_in == now

    wait_for(all_anew, "all are open for new processes", 0.2)
    rig.wait_settled()
    assert_all_serve(rig)
