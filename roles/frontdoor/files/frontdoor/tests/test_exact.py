# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine and its clients are told is exactly true: what was asked once, what ended, and where."""

from __future__ import annotations

import asyncio
import email.utils
import time
from pathlib import Path

import pytest
from kit import Call, bench, on_loop, read_head, until

from frontdoor.http.exchange import Exchange
from frontdoor.http.relay import _MAX_HELD
from frontdoor.policy.keys import digest

CHAT = "/v1/chat/completions"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.parametrize("delay", [0, 0.2])
@on_loop
async def test_a_generation_the_engine_took_is_not_asked_for_again(tmp_path: Path, delay: float) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.chat()).status == 200

        async def dies_at_work(call: Call) -> None:
            await asyncio.sleep(delay)
            call.writer.close()

        run.engine.script = dies_at_work
        answer = await client.chat()
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_closed")
        assert len(run.engine.requests) == 2


@on_loop
async def test_what_may_be_asked_twice_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a machine may well need longer than that to tell of a connection's end
    monkeypatch.setattr("frontdoor.http.exchange._STALE_S", 60)
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("GET", "/version")).status == 200

        async def dies_once(call: Call) -> None:
            if len(run.engine.requests) == 2:
                call.writer.close()
            else:
                await call.json({})

        run.engine.script = dies_once
        assert (await client.ask("GET", "/version")).status == 200
        assert len(run.engine.requests) == 3


@on_loop
async def test_a_client_that_pauses_is_not_taken_for_a_silent_engine(tmp_path: Path) -> None:
    limits = {"max_active_generations": 2, "queue_timeout_s": 0, "backend_timeout_s": 0.4}
    async with bench(tmp_path, {"limits": limits}) as run:

        async def firehose(call: Call) -> None:
            await call.begin_events()
            for _ in range(200):
                await call.event("x" * 65536)
            await call.event("[DONE]")
            await call.send(b"0\r\n\r\n")

        run.engine.script = firehose
        client = await run.client()
        # who is late is looked for here
        run.stop("sweep")
        client.pause()
        client.request("POST", CHAT, b"{}")
        await until(lambda: any(isinstance(one, Exchange) and one._paused for one in run.app.running))
        (exchange,) = run.app.running
        await asyncio.sleep(0.5)
        run.look()
        assert run.app.running == {exchange}
        client.resume()
        assert (await client.answer()).body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("size", [0, 300_000])
@on_loop
async def test_the_last_answer_of_a_connection_says_so(tmp_path: Path, size: int) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        # what is behind that body, or is too much of it, is not served
        start = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n".encode()
        if size:
            go = asyncio.Event()

            async def hold(call: Call) -> None:
                await go.wait()
                await call.json({})

            run.engine.script = hold
            client.send(start + b"Content-Length: 2\r\n\r\n{}" + b"x" * size)
            await until(lambda: any(connection._close_after for connection in run.app.connections))
            go.set()
        else:
            client.send(start + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /x")
        answer = await client.answer()
        assert (answer.status, answer.header("Connection")) == (200, "close")
        assert await client.closed()


@pytest.mark.parametrize("ending", ["between", "within", "reset"])
@on_loop
async def test_a_stream_that_ends_with_its_connection_is_whole_or_says_that_it_is_not(
    tmp_path: Path, ending: str
) -> None:
    async with bench(tmp_path) as run:

        async def until_close(call: Call) -> None:
            await call.send(EVENTS + b"Connection: close\r\n\r\ndata: one\n\nda")
            await asyncio.sleep(0.02)
            await call.send(b"ta: two\n" + (b"\n" if ending == "between" else b""))
            await asyncio.sleep(0.02)
            if ending == "reset":
                # the rest of what this client sent is never read
                call.writer.transport.abort()
            call.writer.close()

        run.engine.script = until_close
        client = await run.client()
        body = (await client.chat()).body
        if ending == "between":
            assert body == b"data: one\n\ndata: two\n\n"
        else:
            first, last = body.split(b"\n\n")[:2]
            assert first == b"data: one"
            assert b"engine_cut" in last
            assert b"two" not in body


@pytest.mark.parametrize("chunked", [True, False])
@on_loop
async def test_nothing_is_glued_to_an_event_that_was_begun(tmp_path: Path, chunked: bool) -> None:
    async with bench(tmp_path) as run:
        heard = asyncio.Event()

        async def long_event(call: Call) -> None:
            data = b"data: one\n\ndata: " + b"x" * (_MAX_HELD + 300_000)
            if chunked:
                await call.send(EVENTS + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(data), data))
            else:
                await call.send(EVENTS + b"\r\n" + data)
            await heard.wait()
            call.writer.close()

        run.engine.script = long_event
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        raw = bytearray()
        try:
            while data := await client.reader.read(2**20):
                raw += data
                if len(raw) > _MAX_HELD:
                    heard.set()
        except ConnectionError:
            pass
        # a part of it has left: only a broken transfer tells the truth now
        assert len(raw) > _MAX_HELD
        assert b"engine_cut" not in raw
        assert not raw.endswith(b"0\r\n\r\n")


@on_loop
async def test_a_long_event_and_those_after_it_pass_whole(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        events = [b"data: " + b"x" * (_MAX_HELD + 300_000) + b"\n\n", b"data: two\n\n"]

        async def long_event(call: Call) -> None:
            await call.begin_events()
            wire = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
            for at in range(0, len(wire), 100_003):
                await call.send(wire[at : at + 100_003])

        run.engine.script = long_event
        client = await run.client()
        for _ in range(2):
            assert (await client.chat()).body == b"".join(events)


@on_loop
async def test_a_compressed_stream_passes_untouched_and_is_cut_as_such(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        step = asyncio.Event()

        async def zipped(call: Call) -> None:
            await call.send(EVENTS + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
            await call.send(b"5\r\n\x1f\x8b\x08\x00\x01\r\n")
            await step.wait()
            call.writer.close()

        run.engine.script = zipped
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await read_head(client.reader)
        # held back for the end of an event it would wait for ever
        assert await client.reader.readexactly(10) == b"5\r\n\x1f\x8b\x08\x00\x01\r\n"
        step.set()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reader.readexactly(1)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n",
    ],
)
@on_loop
async def test_answers_that_are_none_are_502(tmp_path: Path, head: bytes) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = lambda call: call.send(head)
        answer = await (await run.client()).chat()
        assert (answer.status, answer.json["error"]["code"]) == (502, "bad_engine_response")


@on_loop
async def test_the_length_of_an_answer_is_told_whatever_the_engine_calls_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = lambda call: call.json({}, extra="Connection: content-length\r\n")
        client = await run.client()
        for _ in range(2):
            answer = await client.chat()
            assert (answer.header("Content-Length"), answer.body) == ("2", b"{}")
        run.engine.script = lambda call: call.send(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
        answer = await client.chat()
        assert (answer.status, answer.header("Content-Length")) == (204, None)
        assert (await client.ask("GET", "/health")).status == 200


@on_loop
async def test_thousands_of_interim_answers_are_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def patient(call: Call) -> None:
            await call.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        run.engine.script = patient
        client = await run.client()
        for path in (CHAT, "/v1/embeddings"):
            assert (await client.ask("POST", path, b"{}")).json == {}
        assert (await client.ask("GET", "/v1/models")).status == 200


@on_loop
async def test_own_answers_have_a_date_and_say_what_is_allowed(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client, began = await run.client(), int(time.time())
        refused = await client.ask("POST", "/status", b"{}")
        assert (refused.status, refused.header("Allow")) == (405, "GET, HEAD, OPTIONS")
        for answer in (refused, await client.ask("GET", "/health"), await client.ask("OPTIONS", CHAT)):
            made = email.utils.parsedate_to_datetime(answer.header("Date") or "")
            assert began <= made.timestamp() <= time.time()


@on_loop
async def test_the_engine_is_told_whom_a_request_came_through(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("POST", CHAT, b"{}")).status == 200
        assert run.engine.requests[0].header("Via") == "1.1 b70-frontdoor"
        client.send(b"GET http://other:1/version HTTP/1.1\r\nHost: door\r\n\r\n")
        assert (await client.answer()).status == 200
        # RFC 9112 3.2.2: the target's host counts
        assert run.engine.requests[1].header("X-Forwarded-Host") == "other:1"


@pytest.mark.parametrize("origins", [[], ["*"]])
@on_loop
async def test_without_cors_no_request_reaches_the_engine_without_a_key(tmp_path: Path, origins: list[str]) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[keys]\nalice = "{digest("secret")}"\n')
    keys.chmod(0o600)
    async with bench(tmp_path, auth={"keys_file": str(keys)}, cors={"allow_origins": origins}) as run:
        client = await run.client()
        answer = await client.ask("OPTIONS", CHAT, b"{}")
        assert answer.status == (204 if origins else 401)
        assert run.engine.requests == []
        answer = await client.ask("OPTIONS", CHAT, b"{}", "Authorization: Bearer secret")
        assert answer.status == (204 if origins else 200)


@on_loop
async def test_heads_that_repeat_are_those_of_their_own_requests(tmp_path: Path) -> None:
    """What is known of the head before must not be taken for another one's, on this connection or its neighbour."""
    async with bench(tmp_path) as run:

        async def numbered(call: Call) -> None:
            bare = call.request.line.startswith("HEAD")
            size = 2 if "/version" in call.request.line else 3
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * (0 if bare else size))

        run.engine.script = numbered
        one, other = await run.client(), await run.client()
        for _turn in range(3):
            for client in (one, other, one):
                for path, size in (("/version", 2), ("/v1/completions", 3)):
                    method = "GET" if size == 2 else "POST"
                    for _again in range(2):
                        answer = await client.ask(method, path, None if size == 2 else b"{}")
                        assert (answer.status, answer.body) == (200, b"x" * size)
                bare = await client.ask("HEAD", "/version")
                assert (bare.status, bare.header("Content-Length"), bare.body) == (200, "2", b"")
                # the same head as before but for one letter, in two pieces
                client.send(b"POST /v1/completions HTTP/1.1\r\nHost: y\r\nContent-")
                await asyncio.sleep(0.001)
                client.send(b"Length: 2\r\n\r\n{}")
                assert (await client.answer()).body == b"xxx"
        assert run.outcomes() == {"ok": len(run.engine.requests)}
        one.leave()
        other.leave()
