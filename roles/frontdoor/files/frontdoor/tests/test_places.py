# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request takes as many slots as it asks for generations: counted, limited, taken at once, and fairly."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit import Hold, Single, bench, on_loop, until

from frontdoor.admission.limiter import Limiter, Verdict

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
FOUR = {"max_active_generations": 4, "queue_timeout_s": 60, "backend_timeout_s": 60}
PLACES = 8


# --- through the frontdoor ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        (CHAT, {"n": 200}, 200),
        (CHAT, {"best_of": 5}, 5),
        (COMPLETIONS, {"prompt": ["a"] * 3, "n": 5}, 5),
        (GENERATE, {"sampling_params": {"n": 5}}, 5),
        ("/completion", {"prompt": "a", "n_cmpl": 5}, 5),
        ("/v1/chat/completions/batch", {"messages": [[], []], "n": 5}, 5),
    ],
)
@pytest.mark.parametrize("queue_s", [0, 60])
@on_loop
async def test_more_than_there_are_is_refused_at_once(
    tmp_path: Path, path: str, body: dict[str, Any], wanted: int, queue_s: int
) -> None:
    async with bench(tmp_path, state={"limits": {**FOUR, "queue_timeout_s": queue_s}}) as run:
        client = await run.client()
        answer = await client.ask("POST", path, json.dumps(body).encode())
        error = answer.json["error"]
        assert (answer.status, error["code"], error["param"]) == (400, "too_many_generations", "n")
        assert error["max_active_generations"] == 4
        assert f"{wanted} generations at once; at most 4" in error["message"]
        assert answer.header("Retry-After") is None
        assert not run.engine.requests
        assert (await client.chat()).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": ["a"] * 10}),
        (COMPLETIONS, {"prompt": ["a"] * 3, "n": 2}),
        ("/completion", {"prompt": ["a"] * 10}),
        ("/v1/chat/completions/batch", {"messages": [[]] * 10}),
    ],
)
@on_loop
async def test_more_prompts_than_there_are_places_take_all(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    """An engine takes them in turn, so waiting for as many places would be of no use."""
    async with bench(tmp_path, state={"limits": FOUR}) as run:
        run.engine.script = hold = Hold()
        first, second = await run.client(), await run.client()
        first.request("POST", path, json.dumps(body).encode())
        await until(lambda: run.engine.active)
        assert run.app.first.limiter.active == 4
        second.request("POST", CHAT, b"{}")
        await run.queued(1)
        hold.go.set()
        assert ((await first.answer()).status, (await second.answer()).status) == (200, 200)


@on_loop
async def test_the_engine_never_has_more_generations_than_there_are_places(tmp_path: Path) -> None:
    """As it was seen: one request for many counts as one of two, and the engine makes all of them."""
    async with bench(tmp_path, state={"limits": {**FOUR, "queue_timeout_s": 0}}) as run:
        run.engine.script = hold = Hold()
        wide, narrow, late = [await run.client() for _ in range(3)]
        wide.request("POST", CHAT, b'{"n":3}')
        narrow.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active == 2)
        status = (await late.ask("GET", "/status")).json["frontdoor"]
        assert (status["active_generations"], status["total_generation_requests"]) == (4, 2)
        assert b"\nb70_frontdoor_active_generations 4\n" in (await late.ask("GET", "/metrics")).body
        refused = await late.ask("POST", CHAT, b'{"n":2}')
        assert (refused.status, refused.json["error"]["code"]) == (503, "busy")
        hold.go.set()
        for client in (wide, narrow):
            assert (await client.answer()).status == 200
        assert (await late.ask("POST", CHAT, b'{"n":4}')).status == 200


@on_loop
async def test_who_needs_several_waits_for_all_of_them(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": FOUR}) as run:
        holds = [Hold() for _ in range(3)]
        first, second, wide, late = [await run.client(address=f"127.0.0.{n}") for n in (1, 2, 3, 4)]
        for client, hold in zip((first, second), holds, strict=False):
            before = run.engine.active
            run.engine.script = hold
            client.request("POST", CHAT, b'{"n":2}')
            await until(lambda before=before: run.engine.active == before + 1)
        run.engine.script = holds[2]
        wide.request("POST", CHAT, b'{"n":3}')
        await run.queued(3)
        late.request("POST", CHAT, b"{}")
        await run.queued(4)
        assert b"\nb70_frontdoor_queued_generations 4\n" in (await (await run.client()).ask("GET", "/metrics")).body
        holds[0].go.set()
        assert (await first.answer()).status == 200
        # two are free, and kept for whose turn it is: nobody passes by
        assert (run.app.first.limiter.active, run.app.first.limiter.queued) == (2, 4)
        holds[1].go.set()
        assert (await second.answer()).status == 200
        await run.queued(0)
        assert run.app.first.limiter.active == 4
        holds[2].go.set()
        for client in (wide, late):
            assert (await client.answer()).status == 200


@pytest.mark.interpreted
@on_loop
async def test_fewer_slots_send_away_who_cannot_have_its_own_any_more(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": FOUR}) as run:
        run.engine.script = hold = Hold()
        holder, wide, narrow = [await run.client() for _ in range(3)]
        holder.request("POST", CHAT, b'{"n":4}')
        await until(lambda: run.engine.active)
        wide.request("POST", CHAT, b'{"n":3}')
        await run.queued(3)
        narrow.request("POST", CHAT, b"{}")
        await run.queued(4)
        run.write_state(limits={**FOUR, "max_active_generations": 2})
        answer = await wide.answer()
        assert (answer.status, answer.json["error"]["code"]) == (400, "too_many_generations")
        hold.go.set()
        for client in (holder, narrow):
            assert (await client.answer()).status == 200


@on_loop
async def test_whose_turn_it_is_may_leave(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": FOUR}) as run:
        run.engine.script = hold = Hold()
        holder, wide, narrow = [await run.client() for _ in range(3)]
        holder.request("POST", CHAT, b'{"n":2}')
        await until(lambda: run.engine.active)
        wide.request("POST", CHAT, b'{"n":4}')
        await run.queued(4)
        narrow.request("POST", CHAT, b"{}")
        await run.queued(5)
        wide.leave()
        await until(lambda: run.engine.active == 2)
        hold.go.set()
        for client in (holder, narrow):
            assert (await client.answer()).status == 200


# --- the gate by itself ---------------------------------------------------------------------------------------------


class Guest(Single):
    """A waiter that notes what becomes of it."""

    def __init__(self, key: str, permits: int) -> None:
        self.key = key
        self.permits = permits
        self.where = "queue"

    def granted(self) -> None:
        assert self.where == "queue"
        self.where = "slot"

    def displaced(self) -> None:
        assert self.where == "queue"
        self.where = "displaced"


class TheDoor(RuleBasedStateMachine):
    """Any order of arrivals and departures of requests of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Limiter(4, PLACES)
        self.guests: list[Guest] = []

    def those(self, where: str) -> list[Guest]:
        return [guest for guest in self.guests if guest.where == where]

    def at(self, where: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for guest in self.those(where):
            found[guest.key] += guest.permits
        return found

    @rule(key=st.sampled_from("abcd"), permits=st.integers(1, 4))
    def arrive(self, key: str, permits: int) -> None:
        if permits > self.gate.limit:
            return
        waiting, held, queue = self.at("queue"), self.at("slot"), self.those("queue")
        turn = self.gate._turns.get(0)
        guest = Guest(key, permits)
        verdict = self.gate.enter(guest, key, may_wait=True, permits=permits)
        self.guests.append(guest)
        displaced = [one for one in queue if one.where == "displaced"]
        if verdict is Verdict.ADMITTED:
            guest.where = "slot"
            assert not queue, "somebody waited, and was passed by"
        elif verdict is Verdict.QUEUE_FULL:
            guest.where = "refused"
            assert not displaced
            assert sum(waiting.values()) + permits > PLACES
            assert queue, "an empty queue takes everybody"
        for one in displaced:
            assert one is not turn, "its turn had come"
            # it cannot be had back at once
            assert (waiting[key] + permits, held[key]) < (waiting[one.key], held[one.key])
            mates = [other for other in queue if other.key == one.key and other.where == "queue"]
            assert not [other for other in mates if self.guests.index(other) > self.guests.index(one)]
        assert all(one.where in ("queue", "displaced") for one in queue)

    @precondition(lambda self: self.those("queue") or self.those("slot"))
    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        guests = self.those("queue") + self.those("slot")
        guest = guests[number % len(guests)]
        guest.where = "gone"
        assert self.gate.leave(guest)
        assert not self.gate.leave(guest)

    @rule(limit=st.integers(1, 6))
    def change(self, limit: int) -> None:
        for guest in self.gate.set_limits([limit]):
            assert isinstance(guest, Guest)
            assert guest.permits > limit
            guest.where = "refused"

    @rule()
    def dismiss(self) -> None:
        for guest in self.gate.dismiss():
            assert isinstance(guest, Guest)
            guest.where = "refused"

    @invariant()
    def counted(self) -> None:
        gate, waiting, held = self.gate, self.at("queue"), self.at("slot")
        assert (gate.active, gate.queued) == (sum(held.values()), sum(waiting.values()))
        assert gate.requests == len(self.those("queue")) + len(self.those("slot"))
        assert gate.waiting() == self.those("queue")
        assert gate.shares() == {key: (waiting[key], held[key]) for key in sorted(waiting | held)}
        assert gate.full is (gate.active >= gate.limit or gate.queued > 0)
        assert gate.queued <= PLACES or len(self.those("queue")) == 1
        # nothing is kept of those who left
        assert {*gate._holders, *gate._queued} == {*self.those("queue"), *self.those("slot")}
        if self.those("queue") and gate.active < gate.limit:
            # slots are free, and not enough of them for whose turn it is
            turn = gate._turns.get(0)
            assert isinstance(turn, Guest)
            assert gate.active + turn.permits > gate.limit


TheDoor.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestTheDoor = TheDoor.TestCase


@pytest.mark.parametrize("crowd", ["one address", "many addresses"])
def test_nobody_is_kept_out_for_ever(crowd: str) -> None:
    """Small requests come as fast as they leave: one for all slots gets its turns all the same, and so do they."""
    rng = random.Random(3)
    gate = Limiter(4, 1000)
    everybody: list[Guest] = []

    def come(who: str, permits: int) -> Guest:
        guest = Guest(who if crowd == "one address" else f"{who} {len(everybody)}", permits)
        everybody.append(guest)
        verdict = gate.enter(guest, guest.key, may_wait=True, permits=permits)
        assert verdict in (Verdict.ADMITTED, Verdict.QUEUED)
        if verdict is Verdict.ADMITTED:
            guest.where = "slot"
        return guest

    for _ in range(20):
        come("small", 1)
    wide = come("wide", 4)
    turns, small = 0, 0
    for _ in range(800):
        gone = rng.choice([guest for guest in everybody if guest.where == "slot"])
        gone.where = "gone"
        gate.leave(gone)
        if gone is wide:
            turns += 1
            wide = come("wide", 4)
        else:
            small += 1
            come("small", 1)
    # by address each gets as many turns; by arrival each waits for those who came before
    assert turns > (150 if crowd == "one address" else 30), turns
    assert small > 500, small


def test_whose_turn_has_come_is_not_passed_by_newcomers() -> None:
    """A newcomer that was never served has the first claim on a turn, but not on one that has been given."""
    gate = Limiter(2, 100)
    holders = [Guest(f"h{number}", 1) for number in range(2)]
    for guest in holders:
        gate.enter(guest, guest.key, may_wait=True)
        guest.where = "slot"
    wide = Guest("wide", 2)
    gate.enter(wide, wide.key, may_wait=True, permits=2)
    gate.leave(holders[0])
    newcomers = [Guest(f"new {number}", 1) for number in range(50)]
    for guest in newcomers:
        assert gate.enter(guest, guest.key, may_wait=True) is Verdict.QUEUED
    assert wide.where == "queue"
    gate.leave(holders[1])
    assert wide.where == "slot"
    gate.leave(wide)
    assert [guest.where for guest in newcomers[:3]] == ["slot", "slot", "queue"]


@on_loop
async def test_the_drain_waits_for_them(tmp_path: Path) -> None:
    """What a switch reads while it waits is not 0 before the last of them ended."""
    async with bench(tmp_path, state={"limits": FOUR}) as run:
        run.engine.script = hold = Hold()
        client, other = await run.client(), await run.client()
        client.request("POST", CHAT, b'{"n":4}')
        await until(lambda: run.engine.active)
        run.write_state(sequence=8, phase="switching", open=False, limits=FOUR)
        assert (await other.ask("GET", "/status")).json["frontdoor"]["active_generations"] == 4
        hold.go.set()
        assert (await client.answer()).status == 200
        await asyncio.sleep(0)
        assert (await other.ask("GET", "/status")).json["frontdoor"]["active_generations"] == 0
