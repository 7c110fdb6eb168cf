# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that asked for a stream hears that its request waits; whatever comes then is told within that stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from kit import Answer, Bench, Call, Client, Hold, bench, moody, on_loop, until
from several import several

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
ONE = {"max_active_generations": 1, "queue_timeout_s": 100, "backend_timeout_s": 600}
COMMENT, PING = b": waiting\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'
STREAM = b'{"stream":true}'
DONE = b"data: [DONE]\n\n"
# between two words, such a time as the sweep may be late
EVERY_S, LATE_S = 10, 0.5


def said(path: str) -> bytes:
    return PING if path == MESSAGES else COMMENT


async def words(call: Call) -> None:
    """An engine that streams two words."""
    await call.begin_events()
    await call.event("one")
    await call.event("[DONE]")
    await call.send(b"0\r\n\r\n")


class Held:
    """A frontdoor whose only permit is taken, until it is let go."""

    def __init__(self, run: Bench, holder: Client, hold: Hold) -> None:
        self.run, self.engine = run, run.engine
        self.url = f"http://127.0.0.1:{run.port}"
        self._holder, self._hold = holder, hold

    async def let_go(self) -> None:
        """Let the next request in."""
        self._hold.go.set()
        assert (await self._holder.answer()).status == 200

    async def waiting(self, path: str = CHAT, *fields: str, body: bytes = STREAM, seconds: float = EVERY_S) -> Client:
        """A client that has waited for so long."""
        client = await self.run.client()
        client.request("POST", path, body, *fields)
        await self.run.queued(1)
        await asyncio.sleep(seconds + LATE_S)
        return client

    async def row(self) -> dict[str, Any]:
        """What the journal says of the request that waited."""
        await self.run.settled()
        (row,) = [one for one in self.run.events() if one["event"] == "request" and one["client"] == "127.0.0.1"]
        return row


@contextlib.asynccontextmanager
async def held(tmp_path: Path, **sections: Any) -> AsyncIterator[Held]:
    # nothing happens but what a test does
    rarely = {"slot": {"poll_interval_s": 600}, "backend": {"probe_interval_s": 600}}
    async with bench(tmp_path, state={"limits": ONE}, **rarely, **sections) as run:
        run.engine.script = hold = Hold()
        holder = await run.client(address="127.0.0.2")
        holder.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active)
        run.engine.script = words
        yield Held(run, holder, hold)
        hold.go.set()


def error_in(answer: Answer, path: str = CHAT, comments: int = 1) -> dict[str, Any]:
    """The error that such a stream ends with, behind so many words of waiting."""
    assert answer.status == 200
    event = answer.body.removeprefix(said(path) * comments)
    name, data = (event if b"event: " in event else b"event: \n" + event).split(b"\n", 1)
    assert name == (b"event: error" if path in (MESSAGES, RESPONSES) else b"event: ")
    told = json.loads(data.removeprefix(b"data: "))
    assert data.endswith(b"}\n\n")
    error: dict[str, Any] = told["error"]
    return error


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@on_loop
async def test_a_stream_that_waits_says_so(tmp_path: Path, path: str) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting(path, "X-Request-Id: mine", "Origin: http://a", seconds=3 * EVERY_S)
        await door.let_go()
        answer = await client.answer()
        assert answer.body == said(path) * 3 + b"data: one\n\n" + DONE
        assert (answer.status, answer.header("X-Request-Id")) == (200, "mine")
        assert answer.header("Content-Type") == "text/event-stream; charset=utf-8"
        assert (answer.header("X-Accel-Buffering"), answer.header("Access-Control-Allow-Origin")) == ("no", "*")
        row = await door.row()
        assert (row["outcome"], row["status"], row["error"], row["queued"]) == ("ok", 200, None, True)
        assert 30 <= row["queue_wait_s"] < 32
        # and the connection goes on
        assert (await client.chat()).body.endswith(DONE)


@on_loop
async def test_nothing_is_said_before_the_first_pause_is_over(tmp_path: Path) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting(seconds=EVERY_S - 2 * LATE_S)
        await door.let_go()
        answer = await client.answer()
        assert answer.body == b"data: one\n\n" + DONE
        assert answer.header("Cache-Control") is None, "the head is the engine's own"


@pytest.mark.parametrize(
    ("body", "path", "every_s"),
    [
        (b"{}", CHAT, EVERY_S),
        (b'{"stream":false}', CHAT, EVERY_S),
        (b'{"stream":"true"}', CHAT, EVERY_S),
        (STREAM, "/v1/embeddings", EVERY_S),
        (STREAM, CHAT, 0),
    ],
)
@on_loop
async def test_who_awaits_no_stream_or_is_to_hear_nothing_waits_silently(
    tmp_path: Path, body: bytes, path: str, every_s: int
) -> None:
    async with held(tmp_path, admission={"queue_keepalive_s": every_s}) as door:
        client = await door.waiting(path, body=body, seconds=ONE["queue_timeout_s"])
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "queue_timeout")
        assert answer.header("Retry-After")
        await door.let_go()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@on_loop
async def test_a_wait_that_ends_is_told_in_the_stream(tmp_path: Path, path: str) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting(path, seconds=ONE["queue_timeout_s"])
        answer = await client.answer()
        error = error_in(answer, path, comments=9)
        assert error["code"] == "queue_timeout"
        assert "no generation slot became free within 100 s" in error["message"]
        kinds = {RESPONSES: "server_error", MESSAGES: "overloaded_error"}
        assert error["type"] == kinds.get(path, "service_unavailable")
        await door.let_go()
        row = await door.row()
        assert (row["outcome"], row["status"], row["error"]) == ("refused", 503, "queue_timeout")
        assert door.run.app.ledger.metrics.refusals["queue_timeout"] == 1
        assert (await client.chat()).status == 200


@on_loop
async def test_a_switch_a_restart_and_a_lost_place_are_told_in_the_stream(tmp_path: Path) -> None:
    async with held(tmp_path, admission={"max_queued": 2}) as door:
        client, second = await door.waiting(), await door.run.client()
        door.run.write_state(sequence=8, phase="switching", open=False, limits=ONE)
        assert error_in(await client.answer())["code"] == "switching"
        door.run.write_state(sequence=9, limits=ONE)
        # a full queue is shared: the last of those who have the most of it loses a place
        client.request("POST", CHAT, STREAM)
        await door.run.queued(1)
        second.request("POST", CHAT, STREAM)
        await door.run.queued(2)
        await asyncio.sleep(EVERY_S + LATE_S)
        other = await door.run.client(address="127.0.0.3")
        other.request("POST", CHAT, b"{}")
        assert error_in(await second.answer())["code"] == "queue_full"
        door.run.app.drain()
        assert error_in(await client.answer())["code"] == "stopping"
        assert await client.closed()
        await door.let_go()


@on_loop
async def test_what_begins_anew_goes_on_in_the_same_stream(tmp_path: Path) -> None:
    """The rules changed while it waited, so the request is judged once more, and sent by the new ones or refused."""
    names = {"served_model_name": "a"}
    async with held(tmp_path) as door:
        client, unread = await door.waiting(), await door.run.client()
        unread.request("POST", CHAT, b'{"stream":true,"model":"other"}')
        await door.run.queued(2)
        await asyncio.sleep(EVERY_S + LATE_S)
        door.run.write_state(
            sequence=8,
            limits=ONE,
            request={"max_tokens_cap": 7, "model_policy": "reject"},
            profile={"served_model_name": "a"},
        )
        assert error_in(await unread.answer())["code"] == "model_not_found"
        assert error_in(await client.answer(), comments=2)["code"] == "model_not_found"
        client.request("POST", CHAT, b'{"stream":true,"model":"a"}')
        await door.run.queued(1)
        await asyncio.sleep(EVERY_S + LATE_S)
        door.run.write_state(sequence=9, limits=ONE, request={"max_tokens_cap": 5}, profile=names)
        await door.let_go()
        assert (await client.answer()).body == COMMENT + b"data: one\n\n" + DONE
        assert json.loads(door.engine.requests[-1].body)["max_tokens"] == 5


def answers(head: bytes, *parts: bytes, lost: bool = False) -> Any:
    """An engine that says just this."""

    async def engine(call: Call) -> None:
        for part in (b"HTTP/1.1 " + head + b"\r\n", *parts):
            await call.send(part)
            await asyncio.sleep(0.01)
        if lost:
            call.writer.transport.abort()

    return engine


VLLM = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'
JSON, SSE = b"Content-Type: application/json\r\n", b"Content-Type: text/event-stream\r\n"


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n" % len(body)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        ("400 Bad Request", VLLM, "too long"),
        ("404 Not Found", b'{"object":"error","message":"too long","code":404}', "too long"),
        ("500 Internal Server Error", b'{"error":"too long"}', "too long"),
        ("500 Internal Server Error", b"Internal Server Error", "the engine answered with status 500"),
        ("500 Internal Server Error", b"[1]", "the engine answered with status 500"),
        ("422 Unprocessable Content", b'{"detail":[]}', "the engine answered with status 422"),
        ("429 Too Many Requests", b"", "the engine answered with status 429"),
    ],
)
@on_loop
async def test_what_the_engine_refuses_is_told_in_the_stream(
    tmp_path: Path, path: str, status: str, body: bytes, message: str
) -> None:
    async with held(tmp_path) as door:
        door.engine.script = answers(status.encode() + b"\r\n" + JSON + sized(body), body)
        client = await door.waiting(path)
        await door.let_go()
        error = error_in(await client.answer(), path)
        assert error["message"] == message
        if body == VLLM and path != RESPONSES:
            assert (error["type"], error["code"]) == ("BadRequestError", 400)
        row = await door.row()
        number = int(status[:3])
        assert (row["outcome"], row["status"]) == ("engine_5xx" if number >= 500 else "ok", number)
        door.engine.script = words
        assert (await client.chat()).status == 200


@pytest.mark.parametrize(
    ("engine", "code", "outcome"),
    [
        (answers(b"200 OK\r\n" + JSON + sized(b"{}"), b"{}"), "bad_engine_response", "upstream_error"),
        (
            answers(b"200 OK\r\nContent-Encoding: gzip\r\n" + SSE, lost=True),
            "bad_engine_response",
            "upstream_error",
        ),
        (answers(b"garbage\r\n"), "bad_engine_response", "upstream_error"),
        (answers(b"200", lost=True), "engine_closed", "upstream_error"),
        (answers(b"400 No\r\n" + sized(b"{}"), b"{", lost=True), "engine_closed", "upstream_error"),
        (answers(b"400 No\r\nContent-Length: 9000000\r\n", b"x" * 9000000), "bad_engine_response", "upstream_error"),
        (answers(b"400 No\r\nTransfer-Encoding: chunked\r\n", b"x\r\n"), "bad_engine_response", "upstream_error"),
        (answers(b"200 OK\r\n" + SSE + sized(b"data: x\n\n"), b"data", lost=True), "engine_closed", "upstream_error"),
    ],
)
@on_loop
async def test_an_engine_that_fails_is_told_in_the_stream(tmp_path: Path, engine: Any, code: str, outcome: str) -> None:
    async with held(tmp_path) as door:
        door.engine.script = engine
        client = await door.waiting()
        await door.let_go()
        assert error_in(await client.answer())["code"] == code
        assert (await door.row())["outcome"] == outcome


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (SSE + sized(b"data: one\n\n" + DONE), [b"data: one\n", b"\n" + DONE]),
        (SSE + sized(b"data: one\n\n" + DONE), [b"data: one\n\n" + DONE]),
        (SSE, [b"data: one\n\n", DONE]),
        (SSE + b"Transfer-Encoding: chunked\r\n", [b"6\r\ndata: \r\n", b"13\r\none\n\n" + DONE + b"\r\n0\r\n\r\n"]),
    ],
)
@on_loop
async def test_streams_of_any_framing_follow(tmp_path: Path, head: bytes, parts: list[bytes]) -> None:
    async with held(tmp_path) as door:
        # and nothing that comes before the engine's answer
        early = b"103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 "
        door.engine.script = answers(
            early + b"200 OK\r\n" + head, *parts, lost=b"Content" not in head.replace(b"Content-Type", b"")
        )
        client = await door.waiting(CHAT, "Accept-Encoding: gzip")
        await door.let_go()
        if head == SSE:
            await until(lambda: door.engine.requests[1:])
        assert (await client.answer()).body == COMMENT + b"data: one\n\n" + DONE
        # nothing compressed can follow
        assert door.engine.requests[-1].header("Accept-Encoding") == "identity"


@on_loop
async def test_an_older_client_has_its_stream_until_the_end_of_the_connection(tmp_path: Path) -> None:
    async with held(tmp_path) as door:
        client, other = await door.run.client(), await door.run.client()
        for one in (client, other):
            one.send(
                f"POST {CHAT} HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len(STREAM)}\r\n\r\n".encode()
                + STREAM
            )
        await door.run.queued(2)
        await asyncio.sleep(EVERY_S + LATE_S)
        await door.let_go()
        answer = await client.answer()
        assert (answer.header("Connection"), answer.header("Transfer-Encoding")) == ("close", None)
        assert answer.body == COMMENT + b"data: one\n\n" + DONE
        assert (await other.answer()).body == COMMENT + b"data: one\n\n" + DONE
        door.engine.script = hold = Hold()
        holder, late = await door.run.client(), await door.run.client()
        holder.request("POST", CHAT, b"{}")
        await until(lambda: door.engine.active)
        late.send(f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(STREAM)}\r\n\r\n".encode() + STREAM)
        await asyncio.sleep(ONE["queue_timeout_s"] + LATE_S)
        assert error_in(await late.answer(), comments=9)["code"] == "queue_timeout"
        hold.go.set()


@on_loop
async def test_a_reload_changes_how_often(tmp_path: Path) -> None:
    async with held(tmp_path, admission={"queue_keepalive_s": 0}) as door:
        client, app = await door.waiting(), door.run.app
        app.configure(app.config._replace(admission=app.config.admission._replace(queue_keepalive_s=2.0)))
        await asyncio.sleep(2 + LATE_S)
        await door.let_go()
        assert (await client.answer()).body == 2 * COMMENT + b"data: one\n\n" + DONE


@on_loop
async def test_who_leaves_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting(seconds=2 * EVERY_S)
        client.leave()
        await door.run.queued(0)
        await door.let_go()
        await door.run.settled()
        assert len(door.engine.requests) == 1
        assert door.run.app.memory.held == 0


@on_loop
async def test_requests_that_were_sent_ahead_have_heads_of_their_own(tmp_path: Path) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting()
        client.request("POST", CHAT, STREAM)
        await door.let_go()
        assert (await client.answer()).body == COMMENT + b"data: one\n\n" + DONE
        answer = await client.answer()
        assert (answer.body, answer.header("Cache-Control")) == (b"data: one\n\n" + DONE, None)


@on_loop
async def test_timings_are_added_to_it(tmp_path: Path) -> None:
    async with held(tmp_path, request={"metrics": True}) as door:
        client = await door.waiting()
        await door.let_go()
        body = (await client.answer()).body
        assert body.startswith(COMMENT + b"data: one\n\ndata: {")
        waited = json.loads(body.split(b"data: ")[-2])["metrics"]["engine_queue_wait_ms"]
        assert 10_000 <= waited < 12_000


@on_loop
async def test_the_engine_that_was_to_have_it_is_gone(tmp_path: Path) -> None:
    async with held(tmp_path) as door:
        client = await door.waiting()
        await door.engine.kill()
        assert error_in(await client.answer())["code"] == "engine_unreachable"


@on_loop
async def test_who_has_to_wait_once_more_says_so(tmp_path: Path) -> None:
    """It was admitted, and its replica was gone; a strict session waits until that is back."""
    async with several(tmp_path, count=2, permits=1, queue_s=300, routing={"sticky": "strict"}) as slot:
        client = await slot.run.client()
        assert (await client.ask("POST", CHAT, STREAM, "X-Session-Id: a")).status == 200
        await slot.engines[0].kill()
        client = await slot.run.client()
        client.request("POST", CHAT, STREAM, "X-Session-Id: a")
        await slot.run.queued(1)
        await asyncio.sleep(EVERY_S + LATE_S)
        slot.engines[0].script = words
        await slot.engines[0].start()
        slot.run.app.first.replicas.run_probes()
        assert (await client.answer()).body == COMMENT + b"data: one\n\n" + DONE


@pytest.mark.parametrize("seed", range(4))
@on_loop
async def test_whatever_happens_a_stream_that_was_begun_ends_validly(tmp_path: Path, seed: int) -> None:
    """Engines that fail in all ways, changed rules and limits, switches: what is begun has an end, and one alone."""
    rng = random.Random(seed)
    limits = {"max_active_generations": 2, "queue_timeout_s": 20, "backend_timeout_s": 3}
    seen: Counter[str] = Counter()

    async def engine(call: Call) -> None:
        await asyncio.sleep(rng.random())
        await moody(call, rng)

    async with bench(tmp_path, state={"limits": limits}, admission={"queue_keepalive_s": 1}) as run:
        run.engine.script = engine

        async def visitor() -> None:
            for _ in range(8):
                client = await run.client()
                path = rng.choice((CHAT, COMPLETIONS, RESPONSES, MESSAGES))
                client.request("POST", path, STREAM)
                try:
                    answer = await client.answer()
                except (asyncio.IncompleteReadError, ConnectionError):
                    # of an answer that had a length no end is valid but the one that was announced
                    seen["cut"] += 1
                    continue
                body = answer.body.removeprefix(said(path))
                if body == answer.body:
                    seen["at once"] += 1
                    continue
                while body.startswith(said(path)):
                    body = body.removeprefix(said(path))
                assert answer.chunks, "an end that is cut"
                assert body.endswith(b"\n\n")
                assert body.count(b'"error":{') == 1 or body == b"data: x\n\n" * 3, body
                seen["error" if b"error" in body else "whole"] += 1

        async def meddle() -> None:
            for number in range(8, 40):
                await asyncio.sleep(rng.uniform(0.5, 4))
                what = rng.randrange(4)
                changes: dict[str, Any] = {"limits": limits}
                if what == 0:
                    changes |= {"phase": "switching", "open": False}
                elif what == 1:
                    changes["request"] = {"max_tokens_cap": number}
                elif what == 2:
                    changes["limits"] = {**limits, "queue_timeout_s": rng.choice((2, 5, 20))}
                run.write_state(sequence=number, **changes)

        await asyncio.gather(meddle(), *(visitor() for _ in range(12)))
        run.write_state(sequence=50, limits=limits)
        await run.settled()
        assert seen["error"] > 5, seen
        assert run.app.memory.held == 0


# --- the official clients -------------------------------------------------------------------------------------------

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
DELTA = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "logprobs": []}
START = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m"}}
START["message"] |= {"content": [], "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # type: ignore[operator]
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one"}}
ENDS = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]


def says(*events: dict[str, Any]) -> Any:
    """An engine that streams events as vLLM does."""

    async def engine(call: Call) -> None:
        await call.begin_events()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            data = f"{name}data: {json.dumps(event)}\n\n".encode()
            await call.send(b"%x\r\n%b\r\n" % (len(data), data))
        await call.send(b"0\r\n\r\n")

    return engine


async def heard(door: Held, stream: Any) -> list[Any]:
    """What a library makes of a stream that waits for half a minute and is answered, or refused by a switch."""
    events: list[Any] = []

    async def listen() -> None:
        async for event in stream:
            events.append(event)

    await asyncio.sleep(25)
    await door.let_go()
    await listen()
    return events


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
@on_loop
async def test_openai(tmp_path: Path, api: str) -> None:
    async with (
        held(tmp_path) as door,
        openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="x", max_retries=0, timeout=60) as client,
    ):

        def ask() -> Any:
            if api == "chat":
                return client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "x"}], stream=True
                )
            if api == "completions":
                return client.completions.create(model="m", prompt="x", stream=True)
            return client.responses.create(model="m", input="x", stream=True)

        delta = {"delta": {"content": "one"}} if api == "chat" else {"text": "one"}
        event = (
            {**DELTA, "delta": "one", "sequence_number": 0}
            if api == "responses"
            else CHUNK | {"choices": [{"index": 0, **delta}]}
        )
        door.engine.script = says(event)
        asked = asyncio.ensure_future(ask())
        events = await heard(door, await asked)
        assert len(events) == 1
        door.engine.script = hold = Hold()
        holder = await door.run.client()
        holder.request("POST", CHAT, b"{}")
        await until(lambda: door.engine.active)
        with pytest.raises(openai.APIError) as caught:
            async for _event in await ask():
                pass
        assert caught.value.code == "queue_timeout"
        assert "no generation slot became free" in caught.value.message
        hold.go.set()


@pytest.mark.parametrize("how", ["raw", "helper"])
@on_loop
async def test_anthropic(tmp_path: Path, how: str) -> None:
    async with (
        held(tmp_path) as door,
        anthropic.AsyncAnthropic(base_url=door.url, api_key="x", max_retries=0, timeout=60) as client,
    ):
        about: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        door.engine.script = says(START, BLOCK, TEXT, *ENDS)
        if how == "raw":
            asked = asyncio.ensure_future(client.messages.create(**about, stream=True))
            kinds = [event.type for event in await heard(door, await asked)]
            assert kinds == [event["type"] for event in (START, BLOCK, TEXT, *ENDS)]
        else:
            async with client.messages.stream(**about) as stream:
                assert (await heard(door, stream.text_stream)) == ["one"]
        door.engine.script = hold = Hold()
        holder = await door.run.client()
        holder.request("POST", CHAT, b"{}")
        await until(lambda: door.engine.active)
        with pytest.raises(anthropic.APIStatusError) as caught:
            async for _event in await client.messages.create(**about, stream=True):
                pass
        body: Any = caught.value.body
        assert (body["error"]["type"], body["error"]["code"]) == ("overloaded_error", "queue_timeout")
        hold.go.set()
