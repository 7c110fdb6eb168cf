# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots: taken when the body is complete, limited, freed exactly once, closed when the slot is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit import Call, Engine, Hold, Single, bench, in_two_events, moody, on_loop, until

from frontdoor.admission.limiter import Limiter, Verdict
from frontdoor.policy.routes import GATED_PATHS

CHAT = "/v1/chat/completions"
QUEUE = {"max_active_generations": 2, "queue_timeout_s": 60, "backend_timeout_s": 60}


@pytest.mark.parametrize("path", [*GATED_PATHS, "/v1/chat/completions/", "//v1//completions", "/x/../v1/messages"])
@pytest.mark.parametrize("spelling", ["plain", "escaped"])
@on_loop
async def test_no_spelling_evades_the_limit(tmp_path: Path, path: str, spelling: str) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(3)]
        wire = path.replace("/v", "/%76").replace("completions", "c%6Fmpletions") if spelling == "escaped" else path
        for client in clients[:2]:
            client.request("POST", wire + "?x=1", b"{}")
        await until(lambda: run.engine.active == 2)
        answer = await clients[2].ask("POST", wire, b"{}")
        assert answer.status == 503
        assert answer.header("Retry-After") == "1"
        assert answer.json["error"]["code"] == "busy"
        hold.go.set()
        for client in clients[:2]:
            assert (await client.answer()).status == 200
        # what reaches the engine is the spelling that was judged
        assert {r.line.split()[1].partition("?")[0] for r in run.engine.requests} <= set(GATED_PATHS)
        assert (await clients[2].ask("POST", wire, b"{}")).status == 200


@on_loop
async def test_other_paths_pass_while_all_slots_are_taken(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = hold = Hold()
        busy = [await run.client() for _ in range(2)]
        for client in busy:
            client.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active == 2)
        hold.go.set()
        other = await run.client()
        assert (await other.ask("GET", "/v1/models")).status == 200
        assert (await other.ask("GET", CHAT)).status == 200
        for client in busy:
            await client.answer()


@on_loop
async def test_a_slow_upload_holds_no_slot(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        slow = [await run.client() for _ in range(5)]
        for client in slow:
            client.send(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        await until(lambda: run.app.memory.held == len(slow))
        assert run.app.first.limiter.active == 0
        client = await run.client()
        assert (await client.chat()).status == 200


@on_loop
async def test_the_queue_is_first_come_first_served(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {**QUEUE, "max_active_generations": 1}}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(6)]
        for number, client in enumerate(clients):
            client.request("POST", CHAT, json.dumps({"at": number}).encode())
            await run.arrived(number + 1)
        status = (await (await run.client()).ask("GET", "/status")).json["frontdoor"]
        assert (status["active_generations"], status["queued_generations"]) == (1, 5)
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        assert [json.loads(r.body)["at"] for r in run.engine.requests] == list(range(6))
        assert run.engine.most_active == 1


@on_loop
async def test_the_wait_for_a_slot_ends(tmp_path: Path) -> None:
    async with bench(
        tmp_path, state={"limits": {**QUEUE, "max_active_generations": 1, "queue_timeout_s": 0.05}}
    ) as run:
        run.engine.script = hold = Hold()
        first, second = await run.client(), await run.client()
        first.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active == 1)
        answer = await second.chat()
        assert (answer.status, answer.json["error"]["code"]) == (503, "queue_timeout")
        hold.go.set()
        assert (await first.answer()).status == 200
        assert (await second.chat()).status == 200


@on_loop
async def test_the_queue_is_bounded_and_a_waiting_client_may_leave(tmp_path: Path) -> None:
    limits = {**QUEUE, "max_active_generations": 1}
    async with bench(tmp_path, state={"limits": limits}, admission={"max_queued": 1}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(3)]
        for number, client in enumerate(clients[:2]):
            client.request("POST", CHAT, b"{}")
            await run.arrived(number + 1)
        assert (await clients[2].chat()).json["error"]["code"] == "queue_full"
        clients[1].leave()
        await run.queued(0)
        hold.go.set()
        assert (await clients[0].answer()).status == 200
        await run.settled()
        assert len(run.engine.requests) == 1


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        (
            {
                "phase": "switching",
                "switch": {"id": "1", "from": "tiny-a", "to": "tiny-b", "started_at": "", "eta_s": None},
            },
            "switching",
            "switching from tiny-a to tiny-b",
        ),
        (
            {"phase": "verifying", "switch": {"from": None, "to": "tiny-b"}},
            "verifying",
            "tiny-b is loaded and is being verified",
        ),
        ({"phase": "stopped", "reason": "stopped by hand"}, "stopped", "stopped by hand"),
        ({"phase": "failed", "reason": "canary exact_ok"}, "failed", "canary exact_ok"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@on_loop
async def test_a_closed_slot_says_why(
    tmp_path: Path, state: dict[str, object], code: str, words: str, path: str
) -> None:
    async with bench(tmp_path, state={**state, "open": False, "retry_after_s": 33}) as run:
        client = await run.client()
        answer = await client.ask("POST", path, b"{}")
        assert (answer.status, answer.header("Retry-After")) == (503, "33")
        assert answer.json["error"]["code"] == code
        assert words in answer.json["error"]["message"]
        assert (await client.ask("GET", "/health")).status == 200
        ready = await client.ask("GET", "/ready")
        assert (ready.status, ready.json["phase"]) == (503, code)
        assert not run.engine.requests


@on_loop
async def test_closing_keeps_streams_and_dismisses_the_queue(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {**QUEUE, "max_active_generations": 1}}) as run:
        step = asyncio.Event()
        stream = in_two_events(step)
        run.engine.script = stream
        running, waiting = await run.client(), await run.client()
        running.request("POST", CHAT, b"{}")
        await running.reader.readuntil(b"one")
        waiting.request("POST", CHAT, b"{}")
        await run.queued(1)
        run.write_state(sequence=8, phase="switching", open=False, switch={"from": "a", "to": "b"})
        assert (await waiting.answer()).json["error"]["code"] == "switching"
        status = (await waiting.ask("GET", "/status")).json
        assert status["frontdoor"]["state_sequence"] == 8
        assert status["frontdoor"]["active_generations"] == 1
        step.set()
        await running.reader.readuntil(b"two\n\n\r\n0\r\n\r\n")
        await run.settled()
        run.write_state(sequence=9)
        run.engine.script = Hold()
        run.engine.script.go.set()
        assert (await waiting.chat()).status == 200


@on_loop
async def test_a_changed_limit_takes_effect_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {**QUEUE, "max_active_generations": 1}}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(4)]
        for client in clients:
            client.request("POST", CHAT, b"{}")
        await run.queued(3)
        run.write_state(limits={**QUEUE, "max_active_generations": 3})
        await until(lambda: run.engine.active == 3)
        assert run.app.first.limiter.queued == 1
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        assert run.engine.most_active == 3


@on_loop
async def test_a_new_engine_address_is_used_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as run, another_engine() as other:
        client = await run.client()
        assert (await client.chat()).status == 200
        run.write_state(backend_url=other.url)
        assert (await client.chat()).status == 200
        assert len(other.requests) == 1


@contextlib.asynccontextmanager
async def another_engine() -> AsyncIterator[Engine]:
    engine = Engine()
    await engine.start()
    yield engine
    await engine.kill()


@on_loop
async def test_turns_are_fair_between_addresses(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {**QUEUE, "max_active_generations": 1}}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client(address=f"127.0.0.{number}") for number in (1, 1, 1, 1, 2, 3)]
        for number, client in enumerate(clients):
            client.request("POST", CHAT, b"%d" % number)
            await run.arrived(number + 1)
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        assert [request.body for request in run.engine.requests] == [b"0", b"4", b"5", b"1", b"2", b"3"]


@pytest.mark.interpreted
@on_loop
async def test_many_endings_leave_no_slot_behind(tmp_path: Path) -> None:
    """Requests that end in every way there is; afterwards nothing is held."""
    rng = random.Random(20260607)
    limits = {"max_active_generations": 3, "queue_timeout_s": 0.02, "backend_timeout_s": 60}
    async with bench(tmp_path, state={"limits": limits}) as run:

        async def visitor() -> None:
            for _ in range(40):
                client = await run.client()
                client.request("POST", CHAT, b"{}" * rng.choice((1, 1, 50_000)))
                try:
                    async with asyncio.timeout(rng.choice((0.002, 0.01, 0.03))):
                        await client.answer()
                except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                    pass
                client.leave()

        # what the engine has of clients that left, and was told already, it counts until it looks
        held: list[int] = []

        async def script(call: Call) -> None:
            held.append(run.app.first.limiter.active)
            await moody(call, rng)

        run.engine.script = script
        # at least one gets there, however slow this machine is
        first = await run.client()
        first.request("POST", CHAT, b"{}")
        await until(lambda: held)
        await asyncio.gather(*(visitor() for _ in range(10)))
        first.leave()
        await run.settled()
        assert run.app.first.limiter.active == 0
        assert 1 <= max(held) <= 3
        assert sum(run.outcomes().values()) <= 401


class Seat(Single):
    """A waiter that remembers."""

    def __init__(self, log: list[Seat]) -> None:
        self.log = log
        self.lost = False

    def granted(self) -> None:
        self.log.append(self)

    def displaced(self) -> None:
        self.lost = True


def test_the_gate_never_exceeds_its_limit_and_frees_once() -> None:
    """100 000 random operations against the counts a person would keep."""
    rng = random.Random(1)
    granted: list[Seat] = []
    gate = Limiter(4, 8)
    waiting: set[Seat] = set()
    holding: set[Seat] = set()
    for _ in range(100_000):
        what = rng.random()
        if what < 0.5:
            seat = Seat(granted)
            verdict = gate.enter(seat, rng.choice("abc"), may_wait=rng.random() < 0.7)
            if verdict is Verdict.ADMITTED:
                holding.add(seat)
            elif verdict is Verdict.QUEUED:
                waiting = {one for one in waiting if not one.lost} | {seat}
        elif what < 0.97 and (holding or waiting):
            pool = holding if holding and (rng.random() < 0.7 or not waiting) else waiting
            seat = next(iter(pool))
            assert gate.leave(seat)
            assert not gate.leave(seat), "a second leave must change nothing"
            pool.discard(seat)
        elif what < 0.99:
            gate.set_limits([rng.randrange(1, 7)])
        else:
            assert set(gate.dismiss()) == waiting
            waiting.clear()
        for seat in granted:
            waiting.remove(seat)
            holding.add(seat)
        granted.clear()
        assert (gate.active, gate.queued) == (len(holding), len(waiting))
        assert not (waiting and gate.active < gate.limit)
        assert gate.full is (gate.active >= gate.limit or gate.queued > 0)
    for seat in list(holding | waiting):
        gate.leave(seat)
    assert (gate.active, gate.queued) == (0, 0)


def test_turns_are_fair_between_keys() -> None:
    log: list[Seat] = []
    gate = Limiter(1, 100)
    first = Seat(log)
    gate.enter(first, "greedy", may_wait=True)
    greedy = [Seat(log) for _ in range(5)]
    for seat in greedy:
        gate.enter(seat, "greedy", may_wait=True)
    modest = Seat(log)
    gate.enter(modest, "modest", may_wait=True)
    served = [first]
    while gate.active:
        gate.leave(served[-1])
        served += log
        log.clear()
        if len(served) == 7:
            break
    assert served.index(modest) == 1
    assert [s for s in served if s in greedy] == greedy
