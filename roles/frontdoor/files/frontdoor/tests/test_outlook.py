# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When those who are sent away are told to come back."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import Bench, Client, Hold, bench, on_loop, until

from frontdoor.admission.outlook import MAX_RETRY_AFTER_S, Outlook, remaining_s, told_s, turn_s, turns_s
from frontdoor.slot.state import utc_now

CHAT = "/v1/chat/completions"
# the least and nearly the most that a source of numbers between 0 and 1 gives
LEAST, MOST = 0.0, 0.999_999


@pytest.mark.parametrize(
    ("seconds", "earliest", "latest"),
    [
        # never less than a second, and never all at the same
        (0, 1, 2),
        (1, 1, 2),
        (2, 2, 3),
        (8, 8, 10),
        (40, 40, 50),
        # what clients do not honour is not told: they come back and are told again
        (59, 48, 60),
        (60, 48, 60),
        (61, 48, 60),
        (3600, 48, 60),
    ],
)
def test_what_a_client_is_told(seconds: float, earliest: int, latest: int) -> None:
    assert told_s(seconds, LEAST) == earliest
    assert told_s(seconds, MOST) == latest
    rng = random.Random(1)
    told = {told_s(seconds, rng.random()) for _ in range(2000)}
    assert told == set(range(earliest, latest + 1)), "every second of it"
    assert MAX_RETRY_AFTER_S == 60


def test_how_long_a_generation_still_runs() -> None:
    assert remaining_s(0, [10, 20, 30]) == 20
    # those that were over by now say nothing about it
    assert remaining_s(15, [10, 20, 30]) == 10
    assert remaining_s(25, [10, 20, 30]) == 5
    # longer than any, or nothing is known: as long again
    assert remaining_s(40, [10, 20, 30]) == 40
    assert remaining_s(7, []) == 7


def test_when_slots_become_free() -> None:
    assert turns_s([(2, 1), (8, 1)], 2, [10]) == [2, 8]
    assert turns_s([(2, 1)], 3, [10]) == [0, 0, 8]
    assert turns_s([(2, 2), (8, 1)], 3, [10]) == [2, 8, 8]
    # after the limit was lowered
    assert turns_s([(2, 1), (8, 1), (9, 1)], 1, [10]) == [1]
    turns = [1.0, 4.0]
    assert [turn_s(turns, ahead, 1, 10) for ahead in range(5)] == [1, 4, 11, 14, 21]
    # who needs both waits for the later one
    assert [turn_s(turns, ahead, 2, 10) for ahead in range(3)] == [4, 11, 14]


class Line:
    """Two slots whose generations take ten seconds, and have run for five and for none."""

    def __init__(self) -> None:
        self.outlook = Outlook()
        self.outlook.lasted([10.0] * 5)
        self.looked = 0

    def running(self) -> list[tuple[float, int]]:
        self.looked += 1
        return [(5.0, 1), (0.0, 1)]

    def ask(self, now: float, who: int, permits: int = 1, queued: int = 0) -> float:
        return self.outlook.wait_s(now, who, permits, queued, 2, self.running)


def test_each_has_a_time_of_its_own() -> None:
    line = Line()
    assert [line.ask(0, who) for who in range(5)] == [5, 10, 15, 20, 25]
    assert line.looked == 1, "in a flood the slots are looked at now and then"
    # who asks before its time gets no second one
    assert line.ask(0.1, 3) == pytest.approx(19.9)
    # behind those who wait
    assert Line().ask(0, 1, queued=2) == 15
    assert Line().ask(0, 1, permits=2) == 10


def test_whose_time_has_come_is_not_ahead_any_more() -> None:
    line = Line()
    assert [line.ask(0, who) for who in range(4)] == [5, 10, 15, 20]
    # as it is seen then: slots are free in 5 s and in 10, and two are still to come
    assert line.ask(12, 9) == 15


def test_times_that_nobody_is_told_are_not_kept() -> None:
    line = Line()
    waits = [line.ask(0, who) for who in range(100_000)]
    assert max(waits) < 2 * MAX_RETRY_AFTER_S
    assert len(line.outlook._told) < 20
    fast = Outlook()
    fast.lasted([0.001])
    for who in range(100_000):
        fast.wait_s(0, who, 1, 0, 2, lambda: [(0, 1), (0, 1)])
    assert len(fast._told) <= 4096


def test_another_engine_has_its_own_pace() -> None:
    line = Line()
    line.ask(0, 1)
    line.outlook.forget()
    # nothing but what runs is known
    assert line.ask(0, 2) == 1


def party(after_s: Callable[[Outlook, float, int, dict[int, float]], int], seed: int, mean_s: float) -> int:
    """Twenty clients of an official library at two slots: each asks three times. How many are served?"""
    rng, outlook, running, served = random.Random(seed), Outlook(), dict[int, float](), 0
    outlook.lasted(mean_s * rng.uniform(0.8, 1.2) for _ in range(20))
    agenda = [(rng.random() / 100, False, client, 2) for client in range(20)]
    heapq.heapify(agenda)
    while agenda:
        now, done, client, tries = heapq.heappop(agenda)
        if done:
            served += 1
            outlook.lasted([now - running.pop(client)])
        elif len(running) < 2:
            running[client] = now
            heapq.heappush(agenda, (now + mean_s * rng.uniform(0.8, 1.2), True, client, 0))
        elif tries:
            heapq.heappush(agenda, (now + after_s(outlook, now, client, running), False, client, tries - 1))
    return served


@pytest.mark.parametrize("mean_s", [0.5, 3, 8])
def test_most_of_those_who_are_told_when_to_come_are_served(mean_s: float) -> None:
    def told(outlook: Outlook, now: float, client: int, running: dict[int, float]) -> int:
        ages = [(now - since, 1) for since in running.values()]
        return told_s(math.ceil(outlook.wait_s(now, client, 1, 0, 2, lambda: ages)), random.Random(client).random())

    served = [party(told, seed, mean_s) for seed in range(20)]
    always_a_second = [party(lambda *_: 1, seed, mean_s) for seed in range(20)]
    assert sum(served) > 20 * 15, served
    assert sum(always_a_second) < 20 * 8, always_a_second


# --- through the frontdoor --------------------------------------------------------------------------------------------

LIMITS = {"max_active_generations": 2, "queue_timeout_s": 0, "backend_timeout_s": 60}


async def hold_both(run: Bench) -> tuple[Hold, list[Client]]:
    """Two clients whose generations go on until they are told; such took forty seconds lately."""
    run.engine.script = hold = Hold()
    clients = [await run.client() for _ in range(2)]
    for client in clients:
        client.request("POST", CHAT, b"{}")
    await until(lambda: run.engine.active == 2)
    run.app.first.permits.outlook.lasted([40.0] * 64)
    return hold, clients


async def let_go(hold: Hold, clients: list[Client]) -> None:
    hold.go.set()
    for client in clients:
        assert (await client.answer()).status == 200


@on_loop
async def test_who_finds_no_slot_is_told_when_there_will_be_one(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": LIMITS}) as run:
        hold, clients = await hold_both(run)
        spreads = [LEAST, MOST, LEAST, LEAST, LEAST]
        run.spread = lambda: spreads.pop(0)
        late = [await run.client() for _ in range(5)]
        told = []
        for client in late:
            answer = await client.chat()
            assert answer.json["error"]["code"] == "busy"
            told.append(int(answer.header("Retry-After") or 0))
        # a machine that stalls may take some seconds of it; the third and fourth wait for whom they let in
        assert 25 <= told[0] <= 40 < told[1] <= 50
        assert told[2] == told[3] == told[4] == 48
        await let_go(hold, clients)


@on_loop
async def test_what_ended_tells_how_long_the_next_will_take(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": LIMITS}) as run:
        client = await run.client()
        for _ in range(3):
            assert (await client.chat()).status == 200
        run.write_state(limits=LIMITS, open=False, phase="stopped")
        # who was refused held no slot
        assert (await client.chat()).status == 503
        run.app.ledger.settle()
        assert len(run.app.first.permits.outlook._lasted) == 0, "another engine"
        run.write_state(limits=LIMITS)
        assert (await client.chat()).status == 200
        run.app.ledger.settle()
        assert len(run.app.first.permits.outlook._lasted) == 1


@pytest.mark.interpreted
@on_loop
async def test_who_waited_in_vain_is_told_behind_how_many_it_stands(tmp_path: Path) -> None:
    limits = {**LIMITS, "queue_timeout_s": 60}
    async with bench(tmp_path, state={"limits": limits}, admission={"max_queued": 1}) as run:
        hold, clients = await hold_both(run)
        waiting, other = await run.client(), await run.client()
        waiting.request("POST", CHAT, b"{}")
        await run.queued(1)
        full = await other.chat()
        assert full.json["error"]["code"] == "queue_full"
        assert int(full.header("Retry-After") or 0) >= 25
        run.write_state(limits={**limits, "queue_timeout_s": 0.05})
        answer = await waiting.answer()
        assert answer.json["error"]["code"] == "queue_timeout"
        assert int(answer.header("Retry-After") or 0) >= 25
        await let_go(hold, clients)


@on_loop
async def test_for_a_long_load_clients_keep_coming(tmp_path: Path) -> None:
    now = utc_now()
    move = {"from": "tiny-a", "to": "tiny-b", "started_at": now, "eta_s": 900}
    state = {"phase": "switching", "open": False, "switch": move, "updated_at": now, "retry_after_s": 900}
    async with bench(tmp_path, state=state) as run:
        client = await run.client()
        seen = set()
        for spread in (LEAST, 0.5, MOST):
            run.spread = lambda spread=spread: spread
            refused, ready = await client.chat(), await client.ask("GET", "/ready")
            # how long it really takes stands in the body
            assert 800 < refused.json["error"]["switch"]["eta_s"] <= 900
            assert refused.header("Retry-After") == ready.header("Retry-After")
            seen.add(int(refused.header("Retry-After") or 0))
        assert seen == {48, 54, 60}
        assert (await client.ask("GET", "/status")).json["retry_after_s"] == 48
