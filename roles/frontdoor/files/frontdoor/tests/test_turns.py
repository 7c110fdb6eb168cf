# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns: who may wait, who is next, how long, and through which changes of the slot."""

from __future__ import annotations

import asyncio
import datetime
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit import Call, Hold, Single, bench, changed_state, on_loop, serving_state, until

from frontdoor import errors
from frontdoor.admission.limiter import Limiter, Verdict
from frontdoor.config import from_table
from frontdoor.http.exchange import Exchange
from frontdoor.networks import client_key
from frontdoor.slot.state import parse

CHAT = "/v1/chat/completions"
ONE = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
PLACES = 4


class Guest(Single):
    """A waiter that notes what becomes of it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.place = "outside"

    def granted(self) -> None:
        assert self.place == "queue"
        self.place = "slot"

    def displaced(self) -> None:
        assert self.place == "queue"
        self.place = "displaced"


class TheDoor(RuleBasedStateMachine):
    """Any order of arrivals and departures, against what a person would call fair."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Limiter(2, PLACES)
        self.guests: list[Guest] = []

    def at(self, place: str) -> Counter[str]:
        return Counter(guest.key for guest in self.guests if guest.place == place)

    def restless(self) -> dict[Guest, str]:
        return {guest: guest.place for guest in self.guests if guest.place in ("queue", "slot")}

    @rule(key=st.sampled_from("abcdef"))
    def arrive(self, key: str) -> None:
        before, waiting, held = self.restless(), self.at("queue"), self.at("slot")
        guest = Guest(key)
        self.guests.append(guest)
        guest.place = "queue"
        verdict = self.gate.enter(guest, key, may_wait=True)
        if verdict is Verdict.ADMITTED:
            guest.place = "slot"
            assert not waiting, "somebody waited, and was passed by"
            assert sum(held.values()) < self.gate.limit
        displaced = [one for one, place in before.items() if one.place != place]
        if verdict is Verdict.QUEUE_FULL:
            guest.place = "refused"
            assert sum(waiting.values()) >= PLACES
            assert waiting[key] + 1 >= max(waiting.values()), "another key has places to spare"
        elif verdict is Verdict.QUEUED and sum(waiting.values()) >= PLACES:
            (victim,) = displaced
            assert victim.place == "displaced"
            most = max(waiting.values())
            assert waiting[victim.key] == most
            mates = [one for one, place in before.items() if place == "queue" and one.key == victim.key]
            assert victim is mates[-1], "who came last for its key goes first"
            # it cannot be had back at once: otherwise two clients would throw each other out for ever
            assert (waiting[key] + 1, held[key]) < (most, held[victim.key])
        else:
            assert not displaced

    @precondition(lambda self: self.restless())
    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        guests = list(self.restless())
        guest = guests[number % len(guests)]
        guest.place = "gone"
        assert self.gate.leave(guest)
        assert not self.gate.leave(guest)

    @rule(limit=st.integers(1, 4))
    def change(self, limit: int) -> None:
        self.gate.set_limits([limit])

    @invariant()
    def counted(self) -> None:
        waiting, held = self.at("queue"), self.at("slot")
        assert (self.gate.active, self.gate.queued) == (sum(held.values()), sum(waiting.values()))
        assert self.gate.queued <= PLACES
        assert not (waiting and self.gate.active < self.gate.limit)
        assert self.gate.waiting() == [guest for guest in self.guests if guest.place == "queue"]
        assert self.gate.shares() == {key: (waiting[key], held[key]) for key in sorted(waiting | held)}


TheDoor.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestTheDoor = TheDoor.TestCase


@pytest.mark.parametrize("permits", [1, 2, 4, 7])
def test_who_fills_the_queue_all_the_time_shuts_nobody_out(permits: int) -> None:
    """One client asks for every place again and again; the others get their turns all the same."""
    gate = Limiter(1, permits)
    served: Counter[str] = Counter()
    guests: list[Guest] = []

    def ask(key: str) -> None:
        guest = Guest(key)
        guest.place = "queue"
        verdict = gate.enter(guest, key, may_wait=True)
        if verdict is Verdict.QUEUE_FULL:
            return
        guest.place = "slot" if verdict is Verdict.ADMITTED else "queue"
        guests.append(guest)

    for turn in range(300):
        for _ in range(permits + 2):
            ask("greedy")
        if turn % 2:
            ask("modest")
        holder = next(guest for guest in guests if guest.place == "slot")
        served[holder.key] += 1
        guests.remove(holder)
        gate.leave(holder)
        guests = [guest for guest in guests if guest.place in ("queue", "slot")]
    assert served["modest"] >= 100, served


def test_those_who_were_served_last_are_not_forgotten() -> None:
    gate = Limiter(1, 10)
    for number in range(4096):
        guest = Guest(str(number))
        gate.enter(guest, guest.key, may_wait=False)
        gate.leave(guest)
    holder = Guest("another")
    gate.enter(holder, holder.key, may_wait=False)
    # the one was served just now, the other never: it comes first, though it came later
    late, fresh = Guest("4095"), Guest("never")
    for guest in (late, fresh):
        guest.place = "queue"
        gate.enter(guest, guest.key, may_wait=True)
    gate.leave(holder)
    assert (late.place, fresh.place) == ("queue", "slot")


def test_a_network_of_ipv6_is_one_client() -> None:
    assert client_key("2001:db8:1:2::1") == client_key("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert client_key("2001:db8:1:3::1") != client_key("2001:db8:1:2::1")
    assert client_key("::ffff:192.0.2.7") == client_key("192.0.2.7") == "192.0.2.7"
    # on a link all hosts have the same prefix
    assert client_key("fe80::1%eth0") != client_key("fe80::2%eth0")
    assert client_key("local") == "local"


@on_loop
async def test_one_address_does_not_keep_the_queue_from_the_others(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}, admission={"max_queued": 4}) as run:
        run.engine.script = hold = Hold()
        greedy = [await run.client() for _ in range(5)]
        greedy[0].request("POST", CHAT, b'{"at":0}')
        await until(lambda: run.engine.active)
        for number, client in enumerate(greedy[1:], 1):
            client.request("POST", CHAT, b'{"at":%d}' % number)
            await run.queued(number)
        modest = await run.client(address="127.0.0.2")
        modest.request("POST", CHAT, b'{"at":"modest"}')
        refused = await greedy[4].answer()
        assert (refused.status, refused.json["error"]["code"]) == (503, "queue_full")
        assert int(refused.header("Retry-After") or 0) >= 1
        hold.go.set()
        assert (await modest.answer()).status == 200
        for client in greedy[:4]:
            assert (await client.answer()).status == 200
        order = [json.loads(request.body)["at"] for request in run.engine.requests]
        assert order == [0, "modest", 1, 2, 3]


@pytest.mark.interpreted
@on_loop
async def test_who_is_displaced_is_answered_before_its_next_request_is_taken(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}, admission={"max_queued": 2}) as run:
        run.engine.script = hold = Hold()
        holder, first, ahead, modest = [await run.client(address=f"127.0.0.{n}") for n in (1, 1, 1, 2)]
        holder.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active)
        first.request("POST", CHAT, b"{}")
        await run.queued(1)
        ahead.request("POST", CHAT, b"{}")
        ahead.request("GET", "/health")
        ahead.request("POST", CHAT, b"{}")
        await run.queued(2)
        modest.request("POST", CHAT, b"{}")
        answers = [await ahead.answer() for _ in range(3)]
        assert [answer.status for answer in answers] == [503, 200, 503]
        assert answers[2].json["error"]["code"] == "queue_full"
        hold.go.set()
        for client in (holder, first, modest):
            assert (await client.answer()).status == 200


@pytest.mark.parametrize("limit", [0, 0.05])
@on_loop
async def test_a_shorter_wait_counts_for_those_who_wait_already(tmp_path: Path, limit: float) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(3)]
        await run.in_turn(*clients)
        run.write_state(limits={**ONE, "queue_timeout_s": limit})
        running, *others = [asyncio.create_task(client.answer()) for client in clients]
        for task in others:
            answer = await task
            assert (answer.status, answer.json["error"]["code"]) == (503, "queue_timeout")
        assert not running.done()
        hold.go.set()
        assert (await running).status == 200


@on_loop
async def test_a_longer_wait_counts_as_well(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(2)]
        await run.in_turn(*clients)
        # it is over, or nearly so, and cannot end between these two
        run.write_state(limits={**ONE, "queue_timeout_s": 0.05})
        run.write_state(limits=ONE)
        await asyncio.sleep(0.1)
        assert run.app.first.limiter.queued == 1
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200


@on_loop
async def test_more_slots_come_before_a_wait_that_is_over(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        clients = [await run.client() for _ in range(2)]
        await run.in_turn(*clients)
        run.write_state(limits={**ONE, "queue_timeout_s": 0, "max_active_generations": 2})
        await run.queued(0)
        hold.go.set()
        for client in clients:
            assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"request": {"chat_template_kwargs": {"enable_thinking": False}}}, b"enable_thinking"),
        ({"request": {"max_tokens_cap": 7}}, b'"max_tokens":7'),
        ({"profile": {"name": "tiny-b", "served_model_name": "tiny-b", "modalities": ["text"]}}, b"{"),
        ({"profile": {**serving_state("")["profile"], "title": "The same by another title"}}, b"{}"),
        ({"sequence": 8}, b"{}"),
    ],
)
@on_loop
async def test_what_waits_from_one_model_to_another_is_judged_anew(
    tmp_path: Path, changes: dict[str, Any], part: bytes
) -> None:
    """What waited was checked and edited for what was served then, although the slot never closed."""
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        running, client = await run.client(), await run.client()
        await run.in_turn(running, client)
        run.write_state(limits=ONE, **changes)
        assert run.app.first.limiter.queued == 1
        hold.go.set()
        assert [(await one.answer()).status for one in (running, client)] == [200, 200]
        assert part in run.engine.requests[-1].body


@on_loop
async def test_what_waits_and_is_not_taken_any_more_is_told_why(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        running, client = await run.client(), await run.client()
        await run.in_turn(running)
        client.request("POST", "/v1/chat/completions", b'{"model":"tiny-a"}')
        await run.queued(1)
        profile = {"name": "tiny-b", "served_model_name": "tiny-b", "modalities": ["text"]}
        run.write_state(limits=ONE, profile=profile, request={"model_policy": "reject"})
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
        hold.go.set()
        assert (await running.answer()).status == 200


def stamp(ago_s: float) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


SWITCH = {"from": "a", "to": "b", "started_at": "2026-06-07T09:08:40Z", "eta_s": 90}


@pytest.mark.parametrize(
    ("state", "left"),
    [
        # the rest of what is expected, as the switch said it at `updated_at`
        ({"phase": "verifying", "retry_after_s": 60, "switch": SWITCH}, {0: 60, 10: 50, 59.5: 1, 600: 1, -50: 60}),
        # or from the beginning of the wait
        ({"phase": "switching", "switch": SWITCH}, {0: 86, 10: 76, 5000: 1}),
        ({"phase": "switching", "switch": {**SWITCH, "started_at": ""}}, {0: 90, 10: 80}),
        # nobody knows when: when to ask again does not come nearer
        ({"phase": "switching", "retry_after_s": 30, "switch": {**SWITCH, "eta_s": None}}, {0: 30, 100: 30}),
        ({"phase": "failed", "retry_after_s": 60}, {0: 60, 100: 60}),
        ({"phase": "stopped"}, {0: 30, 100: 30}),
        ({"phase": "switching", "updated_at": None, "retry_after_s": 9, "switch": SWITCH}, {0: 9, 5: 9}),
        ({"phase": "switching", "updated_at": "soon", "retry_after_s": 9, "switch": SWITCH}, {0: 9, 5: 9}),
    ],
)
def test_the_time_to_come_back_is_what_is_left(state: dict[str, Any], left: dict[float, int]) -> None:
    raw = json.dumps(changed_state("http://h:1", {"open": False, **state})).encode()
    known = parse(raw, from_table({}))
    updated = datetime.datetime.fromisoformat("2026-06-07T09:08:44Z").timestamp()
    for elapsed, seconds in left.items():
        refusal = errors.closed(known, updated + elapsed)
        assert refusal.retry_after_s == seconds, (state, elapsed)
        told = (refusal.details or {}).get("switch") or {}
        assert told.get("eta_s") in (None, seconds)


@on_loop
async def test_clients_see_the_time_run_down(tmp_path: Path) -> None:
    switch = {"from": "a", "to": "b", "started_at": stamp(0), "eta_s": 40}
    state = {"phase": "switching", "open": False, "switch": switch, "updated_at": stamp(0), "retry_after_s": 40}
    async with bench(tmp_path, state=state) as run:
        client = await run.client()
        seen: list[int] = []
        while len(set(seen)) < 2:
            answer = await client.chat()
            seen.append(int(answer.header("Retry-After") or 0))
            assert answer.json["error"]["switch"]["eta_s"] == seen[-1]
            await asyncio.sleep(0.05)
        assert seen == sorted(seen, reverse=True)
        assert 1 <= seen[-1] < seen[0] <= 40


@on_loop
async def test_many_clients_at_a_narrow_door_lose_nothing(tmp_path: Path) -> None:
    """Places taken, lost, left and given up in any order: each request is answered once, nothing is held."""
    rng = random.Random(7)
    async with bench(tmp_path, state={"limits": ONE}, admission={"max_queued": 3}) as run:
        seen: Counter[str] = Counter()
        engine_has: Counter[str] = Counter()
        at_work: set[int] = set()
        go = asyncio.Event()

        async def engine(call: Call) -> None:
            number = json.loads(call.request.body)["at"]
            engine_has[number] += 1
            # the engine itself may have one more, whose client left, until it looks
            at_work.add(run.app.first.limiter.active)
            at_work.add(sum(isinstance(one, Exchange) and one._connection is not None for one in run.app.running))
            await go.wait()
            await asyncio.sleep(rng.uniform(0, 0.004))
            await call.json({"at": number})

        async def visitor(number: int) -> None:
            address = f"127.0.0.{1 + number % 4}"
            client = await run.client(address=address)
            for turn in range(40):
                asked = [f"{number} {turn} {ahead}" for ahead in range(rng.choice((1, 1, 3)))]
                for name in asked:
                    client.request("POST", CHAT, json.dumps({"at": name}).encode())
                if go.is_set() and rng.random() < 0.1:
                    client.leave()
                    client = await run.client(address=address)
                    continue
                for name in asked:
                    answer = await client.answer()
                    kind = "ok" if answer.status == 200 else answer.json["error"]["code"]
                    seen[kind] += 1
                    # its own answer, and no other's
                    assert kind != "ok" or answer.json == {"at": name}
                    assert engine_has[name] == (kind == "ok")
            client.leave()

        run.engine.script = engine
        visitors = asyncio.gather(*(visitor(number) for number in range(12)))
        # the engine is at one request, and those that wait do so until the others have found no place
        await until(lambda: visitors.done() or seen["queue_full"])
        run.write_state(limits={**ONE, "queue_timeout_s": 0.05})
        await until(lambda: visitors.done() or seen["queue_timeout"])
        assert not visitors.done()
        # now it is quick, and some leave
        go.set()
        await visitors
        assert set(seen) == {"ok", "queue_full", "queue_timeout"}, seen
        assert max(at_work) == 1
        await run.settled()
        assert max(engine_has.values()) == 1
