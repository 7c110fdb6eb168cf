# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several engines of one slot: requests find one that is open and has room, and what happens to one is its own."""

from __future__ import annotations

import array
import asyncio
import fcntl
import json
import random
import socket
import termios
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit import Call, Client, Engine, Hold, bench, in_two_events, moody, on_loop, until
from several import Slot, rows, several, start_replica, state

from frontdoor.policy.dialect import PLAIN

CHAT = "/v1/chat/completions"


class Unreachable(asyncio.AbstractEventLoop):
    """Lets no connection be made, and tells that when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    def create_task(self, coro: Any, **_named: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coro)

    async def create_connection(self, *_given: Any, **_named: Any) -> Any:
        self.asked += 1
        await self.go.wait()
        raise ConnectionRefusedError(111, "Connection refused")


def unreachable(slot: Slot, *replicas: int) -> Unreachable:
    """Let no connection to these replicas be made."""
    loop = Unreachable()  # type: ignore[abstract]
    for one in replicas:
        slot.run.app.first.replicas.all[one].pool._loop = loop
    return loop


class Dying:
    """Takes the place of an engine that is ending: the kernel accepts connections for it, and it reads nothing more."""

    def __init__(self, engine: Engine) -> None:
        self._listening = socket.create_server(("127.0.0.1", engine.port))
        self._listening.setblocking(False)
        self._open: list[socket.socket] = []
        self._asked: socket.socket | None = None

    async def _accept(self) -> socket.socket:
        """Return the first connection that has something else than a look at the engine to read."""
        while True:
            connection, _address = await asyncio.get_running_loop().sock_accept(self._listening)
            self._open.append(connection)
            await until(partial(unread, connection))
            if connection.recv(4, socket.MSG_PEEK) == b"POST":
                return connection

    async def answer(self) -> None:
        """Answer one request and keep its connection, as before its end."""
        loop, connection = asyncio.get_running_loop(), await self._accept()
        # a small request is sent in one piece
        assert await loop.sock_recv(connection, 65536)
        await loop.sock_sendall(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        self._asked = connection

    async def end(self) -> None:
        """End when there is a request to read."""
        connection = self._asked or await self._accept()
        await until(lambda: unread(connection))
        self._listening.close()
        for one in self._open:
            one.close()


def unread(connection: socket.socket) -> int:
    """How many bytes there are to read."""
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


def holds(slot: Slot) -> Hold:
    """Let every engine answer when told."""
    hold = Hold()
    for engine in slot.engines:
        engine.script = hold
    return hold


async def ask(slot: Slot, count: int, *fields: str, body: Any = None) -> list[Client]:
    """Ask so many times at once, each on a connection of its own."""
    clients = [await slot.run.client() for _ in range(count)]
    for client in clients:
        client.request("POST", CHAT, json.dumps(body or {}).encode(), *fields)
    return clients


async def answers(clients: list[Client]) -> list[int]:
    return [(await client.answer()).status for client in clients]


async def status(slot: Slot) -> Any:
    return (await (await slot.run.client()).ask("GET", "/status")).json


@on_loop
async def test_requests_are_spread_and_each_replica_has_its_limit(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=2) as slot:
        hold = holds(slot)
        first = await ask(slot, 3)
        await until(lambda: slot.active == [1, 1, 1])
        more = await ask(slot, 5)
        await slot.run.queued(2)
        await until(lambda: slot.active == [2, 2, 2])
        told = (await status(slot))["frontdoor"]
        assert (told["max_active_generations"], told["active_generations"], told["queued_generations"]) == (6, 6, 2)
        hold.go.set()
        assert await answers(first + more) == [200] * 8
        assert max(engine.most_active for engine in slot.engines) == 2


@on_loop
async def test_who_waits_takes_whatever_replica_has_room_first(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=1) as slot:
        scripts = [Hold(), Hold()]
        for engine, script in zip(slot.engines, scripts, strict=True):
            engine.script = script
        clients = await ask(slot, 4)
        await slot.run.queued(2)
        scripts[1].go.set()
        await until(lambda: slot.asked == [1, 3])
        scripts[0].go.set()
        assert await answers(clients) == [200] * 4


@on_loop
async def test_a_wide_request_has_its_permits_of_one_replica(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=3) as slot:
        hold = holds(slot)
        clients = await ask(slot, 1, body={"n": 3})
        narrow = await ask(slot, 3)
        await until(lambda: sorted(slot.active) == [1, 3])
        hold.go.set()
        assert await answers(clients + narrow) == [200] * 4
        # six in all, and never so many on one
        [beyond] = await ask(slot, 1, body={"n": 4})
        refused = await beyond.answer()
        assert (refused.status, refused.json["error"]["code"]) == (400, "too_many_generations")
        assert refused.json["error"]["max_active_generations"] == 3


@on_loop
async def test_a_closed_replica_gets_nothing_and_its_answers_go_on(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        step = asyncio.Event()
        stream = in_two_events(step)
        for engine in slot.engines:
            engine.script = stream
        clients = await ask(slot, 2)
        for client in clients:
            await client.reader.readuntil(b"one")
        slot.tell(sequence=8, closed=(0,))
        more = await ask(slot, 2)
        await slot.run.queued(1)
        await until(lambda: slot.asked == [1, 2])
        told = await status(slot)
        assert [(row["open"], row["used"], row["reason"]) for row in told["replicas"]] == [
            (False, False, "it is being started"),
            (True, True, ""),
        ]
        assert (told["ok"], told["open"]) == (True, True)
        step.set()
        for client in clients:
            await client.reader.readuntil(b"two\n\n\r\n0\r\n\r\n")
        for client in more:
            await client.reader.readuntil(b"two\n\n\r\n0\r\n\r\n")
        assert slot.asked == [1, 3]
        await slot.run.settled()
        # it is open again, and gets requests at once
        slot.tell(sequence=9)
        again = await ask(slot, 2)
        assert await answers(again) == [200, 200]
        assert slot.asked == [2, 4]


@on_loop
async def test_those_who_wait_are_let_in_when_a_replica_opens(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=1, closed=(0,)) as slot:
        hold = holds(slot)
        clients = await ask(slot, 2)
        await slot.run.queued(1)
        slot.tell(sequence=8)
        await until(lambda: slot.active == [1, 1])
        hold.go.set()
        assert await answers(clients) == [200, 200]


@on_loop
async def test_a_replica_that_was_started_again_gets_nothing_until_it_is_verified(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        start_replica(tmp_path, 0, "f" * 32)
        slot.run.app.poll_state()
        assert await answers(await ask(slot, 4)) == [200] * 4
        assert slot.asked == [0, 4]
        told = await status(slot)
        assert (told["ok"], told["phase"]) == (True, "serving")
        assert "was started again and has not been verified" in told["replicas"][0]["reason"]
        # what is told of the one engine is told of an open one
        assert told["engine"]["unit"] == told["replicas"][1]["unit"]
        assert told["engine"]["url"] == told["frontdoor"]["backend"] == slot.engines[1].url
        # all of them: the slot is closed
        start_replica(tmp_path, 1, "e" * 32)
        slot.run.app.poll_state()
        refused = await (await slot.run.client()).chat()
        assert (refused.status, refused.json["error"]["code"]) == (503, "failed")
        assert slot.asked == [0, 4]


@on_loop
async def test_a_request_that_was_not_sent_is_tried_on_another_replica(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=2) as slot:
        await slot.engines[0].kill()
        await slot.engines[1].kill()
        assert await answers(await ask(slot, 6)) == [200] * 6
        assert slot.asked[2] == 6
        told = await status(slot)
        assert told["ok"], "one is enough"
        assert [row["used"] for row in told["replicas"]] == [False, False, True]
        assert "refused" in told["replicas"][0]["error"]
        assert [event["replica"] for event in slot.run.events() if event["event"] == "engine_unreachable"] == [0, 1]
        # the probe finds it again
        await slot.engines[0].start()
        slot.run.app.first.replicas.run_probes()
        await until(lambda: slot.run.app.first.replicas.all[0].health.reachable)
        assert await answers(await ask(slot, 2)) == [200] * 2
        assert slot.asked[0] == 1


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/models"])
@on_loop
async def test_a_slot_that_has_closed_meanwhile_is_asked_nothing_more(tmp_path: Path, path: str) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        loop = unreachable(slot, 0)
        client = await slot.run.client()
        client.request("GET" if path == "/v1/models" else "POST", path, b"{}")
        await until(lambda: loop.asked == 1)
        slot.tell(sequence=8, closed=(0, 1), phase="switching", open=False, verified=False)
        loop.go.set()
        refused = await client.answer()
        assert (refused.status, refused.json["error"]["code"]) == (503, "switching")
        assert slot.asked == [0, 0]


@pytest.mark.interpreted
@on_loop
async def test_a_strict_session_does_not_wait_in_a_slot_that_has_closed(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2, routing={"sticky": "strict"}) as slot:
        loop = unreachable(slot, 0, 1)
        [client] = await ask(slot, 1, body={"session_id": "s"})
        await until(lambda: loop.asked == 1)
        slot.tell(sequence=8, closed=(0, 1), phase="switching", open=False, verified=False)
        loop.go.set()
        refused = await client.answer()
        assert (refused.status, refused.json["error"]["code"]) == (503, "switching")
        assert (slot.run.app.first.limiter.queued, slot.run.app.first.limiter.active) == (0, 0)


@pytest.mark.parametrize("counts", [(1, 3), (3, 1)])
@on_loop
async def test_who_is_dismissed_may_have_sent_more_when_the_number_of_replicas_changes(
    tmp_path: Path, counts: tuple[int, int]
) -> None:
    engines = [Engine() for _ in range(3)]
    for index, engine in enumerate(engines):
        await engine.start()
        start_replica(tmp_path, index)

    def told(count: int) -> dict[str, Any]:
        profile = {"name": f"of-{count}", "served_model_name": "tiny-a", "modalities": ["text"]}
        one = {"replicas": None, "routing": None} if count == 1 else {}
        return {**state(engines[:count], 2, 60), "profile": profile, **one}

    before, after = counts
    async with bench(tmp_path, state=told(before)) as run:
        slot, limiter = Slot(run, engines), run.app.first.limiter
        hold = holds(slot)
        # one permit of the last replica is free, and whoever needs two waits for the other one
        running = await ask(slot, 2 * before - 1)
        await until(lambda: limiter.active == 2 * before - 1)
        assert limiter.held[-1] == 1
        client = await run.client()
        client.request("POST", CHAT, b'{"n":2}')
        await run.queued(2)
        client.request("POST", CHAT, b"{}")
        client.request("GET", "/status")
        # they are read ahead
        await (await run.client()).ask("GET", "/status")
        run.write_state(sequence=9, **told(after))
        # it begins anew, and what was sent behind it still comes after it
        hold.go.set()
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
        assert len((await client.answer()).json["replicas"]) == after
        assert await answers(running) == [200] * len(running)
        await run.settled()
        assert (limiter.held, limiter.active) == ([0, 0, 0], 0)
    for engine in engines:
        await engine.kill()


@pytest.mark.interpreted
@on_loop
async def test_without_any_replica_that_answers_the_client_is_told(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        for engine in slot.engines:
            await engine.kill()
        for path in (CHAT, "/v1/embeddings"):
            refused = await (await slot.run.client()).ask("POST", path, b"{}")
            assert (refused.status, refused.json["error"]["code"]) == (502, "engine_unreachable")
        ready = await (await slot.run.client()).ask("GET", "/ready")
        assert ready.status == 503


@on_loop
async def test_what_was_sent_is_not_sent_to_another(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:

        async def drop(call: Call) -> None:
            call.writer.transport.abort()

        for engine in slot.engines:
            engine.script = drop
        refused = await (await slot.run.client()).chat()
        assert (refused.status, refused.json["error"]["code"]) == (502, "engine_closed")
        assert sum(slot.asked) == 1


@pytest.mark.parametrize("kept", [False, True])
@on_loop
async def test_what_a_replica_had_not_read_when_it_ended_is_sent_to_another(tmp_path: Path, kept: bool) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        await slot.engines[0].kill()
        dying, replica = Dying(slot.engines[0]), slot.run.app.first.replicas.all[0]
        # what a probe found in between
        replica.stop()
        replica.health.forget()
        hold, limiter = holds(slot), slot.run.app.first.limiter
        # each has one of two
        clients = await ask(slot, 2)
        if kept:
            await dying.answer()
            await until(lambda: limiter.held == [0, 1])
            clients += await ask(slot, 1)
        await dying.end()
        await until(lambda: limiter.held == [0, 2])
        hold.go.set()
        assert await answers(clients) == [200] * len(clients)
        assert [row["used"] for row in (await status(slot))["replicas"]] == [False, True]


@pytest.mark.interpreted
@on_loop
async def test_a_request_that_ends_a_second_replica_goes_to_no_third(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=2) as slot:
        for engine in slot.engines:
            await engine.kill()
        ends = [asyncio.create_task(Dying(engine).end()) for engine in slot.engines]
        refused = await (await slot.run.client()).chat()
        assert (refused.status, refused.json["error"]["code"]) == (502, "engine_closed")
        assert [end.done() for end in ends].count(True) == 2
        for end in ends:
            end.cancel()


@on_loop
async def test_an_only_engine_that_ended_before_it_had_read_is_unreachable(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        await run.engine.kill()
        dying = Dying(run.engine)
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await dying.end()
        refused = await client.answer()
        assert (refused.status, refused.json["error"]["code"]) == (502, "engine_unreachable")
        assert "before it had read the request" in refused.json["error"]["message"]


@on_loop
async def test_streams_of_a_replica_that_dies_end_validly_and_others_go_on(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2) as slot:
        step = asyncio.Event()
        stream = in_two_events(step)
        for engine in slot.engines:
            engine.script = stream
        clients = await ask(slot, 4)
        for client in clients:
            await client.reader.readuntil(b"one\n\n\r\n")
        await slot.engines[0].kill()
        await until(lambda: slot.run.app.first.limiter.held == [0, 2])
        step.set()
        ends = [await client.reader.readuntil(b"0\r\n\r\n") for client in clients]
        cut = [end for end in ends if b"engine_cut" in end]
        assert len(cut) == 2
        assert sum(b"two" in end for end in ends) == 2


@pytest.mark.parametrize("name", ["header", "member"])
@on_loop
async def test_a_session_stays_with_its_replica_and_a_strict_one_waits_for_it(tmp_path: Path, name: str) -> None:
    async with several(tmp_path, count=3, permits=1) as slot:

        async def say(session: str, *fields: str) -> Client:
            told = (f"X-Session-Id: {session}",) if name == "header" else ()
            body = {"session_id": session} if name == "member" else {}
            [client] = await ask(slot, 1, *told, *fields, body=body)
            return client

        for session in ("a", "b", "a", "b", "a", "c"):
            assert (await (await say(session)).answer()).status == 200
        assert slot.asked == [3, 2, 1]
        hold = holds(slot)
        first = await say("a")
        await until(lambda: slot.active == [1, 0, 0])
        # its replica is full: it goes elsewhere, unless it is to wait
        strict = await say("a", "X-Sticky-Mode: strict")
        await slot.run.queued(1)
        prefers = await say("a")
        await until(lambda: sum(slot.active) == 2)
        # and holds up nobody
        other = await say("d")
        await until(lambda: slot.active == [1, 1, 1])
        assert slot.run.app.first.limiter.queued == 1
        hold.go.set()
        assert await answers([first, strict, prefers, other]) == [200] * 4
        assert slot.asked[0] == 5


@on_loop
async def test_a_strict_session_waits_for_a_replica_that_cannot_be_reached(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=1, routing={"sticky": "strict"}) as slot:
        session = "X-Session-Id: a"
        assert await answers(await ask(slot, 1, session)) == [200]
        assert slot.asked == [1, 0]
        await slot.engines[0].kill()
        waiting = await ask(slot, 1, session)
        await slot.run.queued(1)
        assert await answers(await ask(slot, 2)) == [200, 200]
        await slot.engines[0].start()
        slot.run.app.first.replicas.run_probes()
        assert await answers(waiting) == [200]
        assert slot.asked == [2, 2]


@on_loop
async def test_prompts_that_begin_alike_go_to_one_replica(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=4, routing={"prefix_affinity": True}) as slot:
        turn = [{"role": "system", "content": "s"}, {"role": "user", "content": "first"}]
        for number in range(4):
            turn += [{"role": "assistant", "content": "a"}, {"role": "user", "content": f"{number}"}]
            assert await answers(await ask(slot, 1, body={"messages": turn})) == [200]
        assert sorted(slot.asked) == [0, 0, 4]


@on_loop
async def test_prompts_that_nobody_finds_are_spread(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=4, routing={"prefix_affinity": True}) as slot:
        client = await slot.run.client()
        for number in range(6):
            body = json.dumps({"query": f"{number}", "items": ["a", "b"], "label_token_ids": [1, 2]}).encode()
            assert (await client.ask("POST", "/generative_scoring", body)).status == 200
        assert slot.asked == [2, 2, 2]


@pytest.mark.parametrize(("counts", "status"), [(True, 413), (False, 200)])
@on_loop
async def test_an_answer_that_the_engine_may_end_early_is_not_counted(
    tmp_path: Path, counts: bool, status: int
) -> None:
    async with several(tmp_path, count=2, permits=1, lengths={0: 600, 1: 600}) as slot:
        told = rows(slot.engines, 1, lengths={0: 600, 1: 600})
        for row in told:
            row["engine"]["dialect"] = PLAIN._replace(counts_answer=counts)._asdict()
        slot.tell(sequence=8, replicas=told, engine=told[0]["engine"])
        assert await answers(await ask(slot, 1, body={"max_completion_tokens": 700})) == [status]
        [client] = await ask(slot, 1, body={"messages": [{"role": "user", "content": "four" * 6000}]})
        assert (await client.answer()).status == 413


@on_loop
async def test_what_fits_no_context_is_refused_at_once(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=1, lengths={0: 100, 1: 1000}) as slot:
        for _ in range(3):
            assert await answers(await ask(slot, 1, body={"max_tokens": 900})) == [200]
        assert slot.asked == [0, 3]
        for told in ({"fields": ("X-Estimated-Prompt-Tokens: 1001",)}, {"body": {"max_tokens": 1001}}):
            [client] = await ask(slot, 1, *told.get("fields", ()), body=told.get("body"))
            refused = await client.answer()
            assert (refused.status, refused.json["error"]["code"]) == (413, "context_length_exceeded")
        assert slot.asked == [0, 3]


@on_loop
async def test_the_length_that_counts_is_the_one_the_engine_is_told(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=1, lengths={0: 600, 1: 600}) as slot:
        slot.tell(sequence=8, request={"max_tokens_default": 64, "max_tokens_cap": 500})
        assert await answers(await ask(slot, 1, body={"max_tokens": 90000})) == [200]
        assert json.loads(max(slot.engines, key=lambda one: len(one.requests)).requests[0].body)["max_tokens"] == 500
        slot.tell(sequence=9, request={"max_tokens_default": 700})
        [client] = await ask(slot, 1)
        assert (await client.answer()).json["error"]["code"] == "context_length_exceeded"


@on_loop
async def test_an_open_slot_without_an_open_replica_takes_nothing(tmp_path: Path) -> None:
    async with several(tmp_path, count=2) as slot:
        slot.tell(sequence=8, closed=(0, 1), open=True)
        refused = await (await slot.run.client()).chat()
        assert (refused.status, refused.json["error"]["code"]) == (503, "closed")
        assert slot.asked == [0, 0]


@on_loop
async def test_requests_that_are_alike_everywhere_are_spread(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=1) as slot:
        hold = holds(slot)
        clients = [await slot.run.client() for _ in range(6)]
        for number, client in enumerate(clients):
            client.request("POST", "/tokenize" if number % 2 else "/v1/embeddings", b"{}")
        await until(lambda: slot.active == [2, 2, 2])
        assert slot.run.app.first.limiter.held == [1, 1, 1]
        hold.go.set()
        assert await answers(clients) == [200] * 6
        assert [replica.passing for replica in slot.run.app.first.replicas.all] == [0, 0, 0]


@pytest.mark.interpreted
@on_loop
async def test_the_metrics_of_each_replica_can_be_asked_for(tmp_path: Path) -> None:
    async with several(tmp_path, count=2) as slot:
        client = await slot.run.client()
        for asked, replica in (("", 0), ("?replica=1", 1), ("?a=b&replica=0", 0)):
            before = slot.asked
            assert (await client.ask("GET", f"/engine/metrics{asked}")).status == 200
            assert slot.asked[replica] == before[replica] + 1
        refused = await client.ask("GET", "/engine/metrics?replica=2")
        assert (refused.status, refused.json["error"]["code"]) == (404, "unknown_path")


def telling(*, tokens: float, more: str = "") -> Any:
    """An engine that tells a counter and a histogram as vLLM does."""
    text = (
        "# HELP vllm:generation_tokens_total Number of generation tokens processed.\n"
        "# TYPE vllm:generation_tokens_total counter\n"
        f'vllm:generation_tokens_total{{engine="0",model_name="tiny-a"}} {tokens}\n'
        "# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.\n"
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="a } b"} 3.0\n'
        "vllm:time_to_first_token_seconds_count 3.0\n" + more
    )

    async def script(call: Call) -> None:
        await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    return script


@on_loop
async def test_the_metrics_of_all_replicas_are_one_answer(tmp_path: Path) -> None:
    async with several(tmp_path, count=3) as slot:
        slot.engines[0].script = telling(tokens=10)
        slot.engines[1].script = telling(tokens=20, more="llamacpp:requests_deferred 1\n")
        await slot.engines[2].kill()
        client = await slot.run.client()
        got = await client.ask("GET", "/engine/metrics?replica=all")
        assert (got.status, got.header("content-type")) == (200, "text/plain; version=0.0.4")
        assert got.body.decode().splitlines() == [
            "# HELP vllm:generation_tokens_total Number of generation tokens processed.",
            "# TYPE vllm:generation_tokens_total counter",
            'vllm:generation_tokens_total{slot="main",replica="0",engine="0",model_name="tiny-a"} 10',
            'vllm:generation_tokens_total{slot="main",replica="1",engine="0",model_name="tiny-a"} 20',
            "# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.",
            "# TYPE vllm:time_to_first_token_seconds histogram",
            'vllm:time_to_first_token_seconds_bucket{slot="main",replica="0",le="0.1",model_name="a } b"} 3.0',
            'vllm:time_to_first_token_seconds_count{slot="main",replica="0"} 3.0',
            'vllm:time_to_first_token_seconds_bucket{slot="main",replica="1",le="0.1",model_name="a } b"} 3.0',
            'vllm:time_to_first_token_seconds_count{slot="main",replica="1"} 3.0',
            'llamacpp:requests_deferred{slot="main",replica="1"} 1',
        ]
        assert (await client.ask("HEAD", "/engine/metrics?replica=all")).body == b""
        for engine in slot.engines[:2]:
            await engine.kill()
        refused = await client.ask("GET", "/engine/metrics?replica=all")
        assert (refused.status, refused.json["error"]["code"]) == (502, "engine_unreachable")


@on_loop
async def test_who_asks_for_the_metrics_at_once_gets_one_answer(tmp_path: Path) -> None:
    async with several(tmp_path, count=2) as slot:
        hold = holds(slot)
        before = slot.asked
        clients = [await slot.run.client() for _ in range(5)]
        for client in clients:
            client.request("GET", "/engine/metrics?replica=all")
        await until(lambda: slot.asked == [one + 1 for one in before])
        clients.pop().leave()
        hold.go.set()
        assert await answers(clients) == [200] * 4
        assert slot.asked == [one + 1 for one in before]


@pytest.mark.interpreted
@on_loop
async def test_each_replica_is_shown(tmp_path: Path) -> None:
    async with several(tmp_path, count=2, permits=2, closed=(1,)) as slot:
        tokens = [1000.0, 5000.0]

        def counting(index: int) -> Any:
            async def script(call: Call) -> None:
                if call.request.line.startswith("GET /metrics"):
                    tokens[index] += 50
                    text = f"vllm:generation_tokens_total {tokens[index]}\nvllm:kv_cache_usage_perc 0.{index + 1}\n"
                    await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
                else:
                    await call.json({})

            return script

        for index, engine in enumerate(slot.engines):
            engine.script = counting(index)
        app = slot.run.app
        slot.tell(sequence=8)
        app.first.replicas.run_probes()
        await until(lambda: all(one.health.reachable for one in app.first.replicas.all))
        for _look in range(2):
            assert await answers(await ask(slot, 4)) == [200] * 4
            app.first.replicas.run_vitals()
            await until(lambda: all(one.vitals._task is None for one in app.first.replicas.all))
            # two looks in one step of the clock tell no rate
            looked = app.loop.time()
            await until(lambda looked=looked: app.loop.time() > looked)  # type: ignore[misc]
        told = await status(slot)
        assert [(row["index"], row["cards"], row["cache_used"]) for row in told["replicas"]] == [
            (0, [0], 0.1),
            (1, [1], 0.2),
        ]
        rates = [row["tokens_per_s"] for row in told["replicas"]]
        assert all(rates)
        assert told["engine"]["tokens_per_s"] == pytest.approx(sum(rates))
        assert told["engine"]["cache_used"] == 0.2
        assert [row["unit"] for row in told["replicas"]] == [f"b70-slot-main-tiny-a@{one}.service" for one in (0, 1)]
        text = (await (await slot.run.client()).ask("GET", "/metrics")).body.decode()
        for index in (0, 1):
            for line in (
                f'b70_frontdoor_replica_used{{replica="{index}"}} 1',
                f'b70_frontdoor_replica_generation_slots{{replica="{index}"}} 2',
                f'b70_frontdoor_replica_requests_total{{replica="{index}",outcome="ok"}} 4',
            ):
                assert line in text.splitlines()
        logged = [event for event in slot.run.events() if event["event"] == "request"]
        assert sorted(event["replica"] for event in logged) == [0] * 4 + [1] * 4


@pytest.mark.interpreted
@on_loop
async def test_a_switch_waits_for_the_answers_of_all_replicas_and_changes_their_number(tmp_path: Path) -> None:
    async with several(tmp_path, count=3, permits=1) as slot:
        hold = holds(slot)
        clients = await ask(slot, 3)
        await until(lambda: slot.active == [1, 1, 1])
        slot.tell(sequence=8, phase="switching", open=False, switch={"from": "a", "to": "b"})
        assert (await status(slot))["frontdoor"]["active_generations"] == 3
        # one engine takes their place while they run
        slot.run.write_state(sequence=9, backend_url=slot.engines[1].url, replicas=None, routing=None)
        assert len(slot.run.app.first.replicas.all) == 1
        assert (await status(slot))["frontdoor"]["active_generations"] == 3
        hold.go.set()
        assert await answers(clients) == [200] * 3
        await slot.run.settled()
        assert slot.run.app.first.limiter.held == [0, 0, 0]
        assert await answers(await ask(slot, 1)) == [200]
        assert slot.asked == [1, 2, 1]
        # and three again
        slot.tell(sequence=10)
        assert await answers(await ask(slot, 3)) == [200] * 3


@pytest.mark.interpreted
@on_loop
async def test_under_load_nothing_is_lost_and_limits_hold(tmp_path: Path) -> None:
    """Replicas die, close, open and come back while requests end in every way there is."""
    rng = random.Random(20260607)
    async with several(tmp_path, count=3, permits=2, queue_s=30) as slot:
        limiter = slot.run.app.first.limiter
        most = [0, 0, 0]
        asked_while_closed: list[int] = []

        def moody_one(index: int) -> Any:
            async def script(call: Call) -> None:
                most[index] = max(most[index], limiter.held[index])
                await moody(call, rng)

            return script

        for index, engine in enumerate(slot.engines):
            engine.script = moody_one(index)
        done: list[int] = []
        going = True

        async def visitor() -> int:
            number = 0
            while going:
                number += 1
                client = await slot.run.client()
                fields = rng.choice(((), ("X-Session-Id: a",), ("X-Session-Id: b", "X-Sticky-Mode: strict")))
                client.request("POST", CHAT, json.dumps({"n": rng.choice((1, 1, 2))}).encode(), *fields)
                try:
                    async with asyncio.timeout(rng.choice((0.01, 0.05, 0.2))):
                        done.append((await client.answer()).status)
                except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, ValueError, IndexError):
                    pass
                client.leave()
            return number

        async def trouble() -> None:
            nonlocal going
            for number in range(10):
                victim = rng.randrange(3)
                engine = slot.engines[victim]
                if number % 2:
                    slot.tell(sequence=100 + number, closed=(victim,))
                    # what was sent before it was closed has come to its end, and been read
                    await until(lambda victim=victim: not limiter.held[victim])  # type: ignore[misc]
                    for _round in range(5):  # a loop that was held up sees its timers before its sockets
                        await asyncio.sleep(0.01)
                    before, elsewhere = len(engine.requests), sum(slot.asked)
                    await until(lambda elsewhere=elsewhere: sum(slot.asked) > elsewhere + 5)  # type: ignore[misc]
                    asked_while_closed.append(len(engine.requests) - before)
                    slot.tell(sequence=200 + number)
                else:
                    await engine.kill()
                    await asyncio.sleep(0.02)
                    await engine.start()
                    slot.run.app.first.replicas.run_probes()
                    await asyncio.sleep(0.03)
            await until(lambda: done.count(200) > 20)
            going = False

        visits = [asyncio.create_task(visitor()) for _ in range(8)]
        await trouble()
        asked = [await visit for visit in visits]
        await slot.run.settled()
        assert asked_while_closed == [0] * 5
        assert [1 <= one <= 2 for one in most] == [True] * 3
        assert (limiter.held, limiter.active, limiter.requests) == ([0, 0, 0], 0, 0)
        # each was counted once: whoever was answered, and nobody twice
        assert len(done) <= sum(slot.run.outcomes().values()) <= sum(asked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"open": "yes"}, "replicas[0].open: expected bool, got 'yes'"),
        ({"limits": {"max_active_generations": 0, "max_model_len": 5}}, "replicas[0].limits.max_active_generations: 0"),
        ({"limits": None}, "replicas[0].limits: expected a table"),
        ({"cards": ["0"]}, "replicas[0].cards[0]: expected int"),
        ({"backend_url": "https://x"}, "must look like http://HOST:PORT"),
        (
            {"engine": {"unit": "a/b", "invocation_id": "", "started_at": ""}},
            "replicas[0].engine.unit: 'a/b'",
        ),
    ],
)
@on_loop
async def test_a_state_with_a_wrong_replica_closes_the_slot(tmp_path: Path, change: Any, words: str) -> None:
    async with several(tmp_path, count=2) as slot:
        told = rows(slot.engines, 2)
        told[0] |= change
        slot.tell(sequence=8, replicas=told)
        refused = await (await slot.run.client()).chat()
        assert refused.status == 503
        assert words in refused.json["error"]["message"]
        slot.tell(sequence=9)
        assert await answers(await ask(slot, 1)) == [200]
