# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams pass event by event, and end validly whatever happens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from kit import Bench, Call, Client, bench, on_loop, read_chunks, until

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True, params=[0, 128], ids=["crowd", "alone"])
def crowd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this holds with and without streams being put off behind new requests."""
    monkeypatch.setattr("frontdoor.http.upstream._CROWD", request.param)


def error_of(event: bytes) -> dict[str, Any]:
    """The error object in the last event of a stream."""
    data = event.rstrip(b"\n").split(b"\n")[-1]
    assert data.startswith(b"data: ")
    payload: dict[str, Any] = json.loads(data[6:])
    error: dict[str, Any] = payload.get("error", payload)
    return error


@on_loop
async def test_each_event_arrives_when_it_was_sent(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        step = asyncio.Event()

        async def stepwise(call: Call) -> None:
            await call.begin_events()
            for number in range(5):
                await call.event(str(number))
                await step.wait()
                step.clear()
            await call.send(b"0\r\n\r\n")

        run.engine.script = stepwise
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await client.reader.readuntil(b"\r\n\r\n")
        for number in range(5):
            expected = f"data: {number}\n\n".encode()
            raw = b"%x\r\n%b\r\n" % (len(expected), expected)
            assert await client.reader.readexactly(len(raw)) == raw
            step.set()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 64, 1000])
@on_loop
async def test_a_stream_cut_into_any_reads_keeps_its_content(tmp_path: Path, size: int) -> None:
    events = [f"data: event {n} {'x' * n}\n\n".encode() for n in range(12)]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"

    async with bench(tmp_path) as run:

        async def dripping(call: Call) -> None:
            await call.begin_events()
            for at in range(0, len(wire), size):
                await call.send(wire[at : at + size])
                await asyncio.sleep(0)

        run.engine.script = dripping
        client = await run.client()
        for _ in range(2):
            assert (await client.chat()).body == b"".join(events)


@on_loop
async def test_a_half_event_waits_for_its_other_half(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        step = asyncio.Event()

        async def halves(call: Call) -> None:
            await call.begin_events()
            await call.send(b"8\r\ndata: on\r\n")
            await step.wait()
            await call.send(b"3\r\ne\n\n\r\n0\r\n\r\n")

        run.engine.script = halves
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await client.reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)
        step.set()
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"b\r\ndata: one\n\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [b"+d", b"0xd", b" d", b"d ", b"0_d", b"d;x=1", b"000d", b"-d", b"D"])
@on_loop
async def test_odd_sizes_of_chunks_are_refused_or_understood(tmp_path: Path, size: bytes) -> None:
    proper = size.lower() in (b"d", b"000d", b"d;x=1")
    async with bench(tmp_path) as run:

        async def odd(call: Call) -> None:
            await call.begin_events()
            for _ in range(3):
                await call.send(size + b"\r\ndata: hello\n\n\r\n")
                await asyncio.sleep(0.002)
            await call.send(b"0\r\n\r\n")

        run.engine.script = odd
        client = await run.client()
        for _ in range(2):
            answer = await client.chat()
            if proper:
                assert answer.body == b"data: hello\n\n" * 3
            else:
                assert error_of(answer.body)["code"] == "engine_cut"
                client = await run.client()


async def cut_stream(run: Bench, path: str, last: bytes) -> tuple[list[bytes], Client]:
    async def dying(call: Call) -> None:
        await call.begin_events()
        await call.event("one")
        await call.send(last)
        call.writer.transport.abort() if len(last) % 2 else call.writer.close()

    run.engine.script = dying
    client = await run.client()
    answer = await client.ask("POST", path, b"{}")
    assert answer.status == 200
    assert answer.chunks is not None
    return answer.chunks, client


@pytest.mark.parametrize("last", [b"", b"5", b'20\r\ndata: {"half', b"6\r\ndata: \r\n", b"6\r\ndata: \r\n7\r\nabc"])
@on_loop
async def test_an_engine_that_dies_leaves_a_valid_stream_that_says_so(tmp_path: Path, last: bytes) -> None:
    async with bench(tmp_path) as run:
        chunks, client = await cut_stream(run, CHAT, last)
        assert chunks[0] == b"data: one\n\n"
        assert len(chunks) == 2
        assert error_of(chunks[1])["code"] == "engine_cut"
        assert await client.closed()


@pytest.mark.parametrize(("path", "start"), [("/v1/messages", b"event: error\n"), ("/v1/responses", b"event: error\n")])
@on_loop
async def test_the_error_event_has_the_shape_of_its_path(tmp_path: Path, path: str, start: bytes) -> None:
    async with bench(tmp_path) as run:
        chunks, _ = await cut_stream(run, path, b"")
        assert chunks[-1].startswith(start)
        assert error_of(chunks[-1])["code"] == "engine_cut"


@pytest.mark.parametrize("begun", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
@on_loop
async def test_a_cut_body_that_is_no_stream_looks_cut(tmp_path: Path, begun: bytes) -> None:
    async with bench(tmp_path) as run:

        async def short(call: Call) -> None:
            await call.send(b"HTTP/1.1 200 OK\r\n" + begun)
            call.writer.close()

        run.engine.script = short
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await client.reader.readuntil(b"\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reader.readexactly(100)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "engine_closed"),
        (b"HTTP/1.1 200 OK\r\nContent-", "engine_closed"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "bad_engine_response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "bad_engine_response"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "bad_engine_response"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "bad_engine_response"),
    ],
)
@on_loop
async def test_a_failure_before_the_answer_is_one_clean_502(tmp_path: Path, answer: bytes, code: str) -> None:
    async with bench(tmp_path) as run:

        async def failing(call: Call) -> None:
            await call.send(answer)
            await asyncio.sleep(0.01)
            call.writer.close()

        run.engine.script = failing
        client = await run.client()
        got = await client.chat()
        assert (got.status, got.json["error"]["code"]) == (502, code)
        assert got.json["error"]["type"] == "upstream_error"
        # the client's connection is as good as before
        assert (await client.ask("GET", "/health")).status == 200


@on_loop
async def test_no_engine_is_a_502_that_names_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        await run.engine.kill()
        client = await run.client()
        answer = await client.chat()
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_unreachable")
        assert run.engine.url in answer.json["error"]["message"]
        status = (await client.ask("GET", "/status")).json
        assert (status["ok"], status["engine"]["reachable"]) == (False, False)


@on_loop
async def test_a_silent_engine_is_given_up(tmp_path: Path) -> None:
    limits = {"max_active_generations": 2, "queue_timeout_s": 0, "backend_timeout_s": 0.3}
    async with bench(tmp_path, state={"limits": limits}) as run:

        async def silent(call: Call) -> None:
            await call.gone.wait()

        run.engine.script = silent
        client = await run.client()
        answer = await client.chat()
        assert (answer.status, answer.json["error"]["code"]) == (504, "engine_timeout")

        async def stalls(call: Call) -> None:
            await call.begin_events()
            await call.event("one")
            await call.gone.wait()

        run.engine.script = stalls
        with run.nobody_late():
            client.request("POST", CHAT, b"{}")
            await client.reader.readuntil(b"data: one\n\n\r\n")
        chunks = await read_chunks(client.reader)
        assert error_of(chunks[-1])["message"] == "the engine sent nothing for 0.3 s"


@pytest.mark.parametrize("moment", ["prefill", "stream"])
@on_loop
async def test_a_client_that_leaves_is_gone_from_the_engine_at_once(tmp_path: Path, moment: str) -> None:
    async with bench(tmp_path) as run:
        # what is looked at now and then is not at once
        for name in list(run.app._timers):
            run.stop(name)
        seen, gone = asyncio.Event(), asyncio.Event()

        async def endless(call: Call) -> None:
            if moment == "stream":
                await call.begin_events()
                await call.event("one")
            seen.set()
            assert await call.reader.read() == b""
            gone.set()

        run.engine.script = endless
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        await seen.wait()
        if moment == "stream":
            await client.reader.readuntil(b"one")
        client.leave()
        await gone.wait()
        await run.settled()
        assert run.outcomes() == {"client_closed": 1}


@pytest.mark.interpreted
@on_loop
async def test_a_slow_client_does_not_fill_memory(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        sent, link = 0, list[asyncio.StreamWriter]()

        async def firehose(call: Call) -> None:
            nonlocal sent
            link.append(call.writer)
            await call.begin_events()
            text = "x" * 65536
            while not call.writer.transport.is_closing() and sent < 600:
                await call.event(text)
                sent += 1
            await call.send(b"0\r\n\r\n")

        run.engine.script = firehose
        client = await run.client()
        client.pause()
        client.request("POST", CHAT, b"{}")
        # until the engine can send no more: all buffers on the way are full
        await until(lambda: sent == 600 or (link and link[0].transport.get_write_buffer_size() > 65536))
        (exchange,) = run.app.running
        await until(lambda: exchange._paused)
        assert sent < 500, "the engine was not held back"
        client.resume()
        answer = await client.answer()
        assert len(answer.body) == 600 * (65536 + 8)
        assert (await client.ask("GET", "/health")).status == 200


@pytest.mark.interpreted
@on_loop
async def test_a_client_that_never_reads_loses_its_slot(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"write_timeout_s": 0.2}) as run:

        async def firehose(call: Call) -> None:
            await call.begin_events()
            while not call.writer.transport.is_closing():
                await call.event("x" * 65536)

        run.engine.script = firehose
        client = await run.client()
        client.pause()
        client.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active)
        await run.settled()
        assert run.outcomes() == {"client_stalled": 1}


@on_loop
async def test_an_engine_that_reads_nothing_holds_one_copy_of_the_body(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        links: list[asyncio.StreamWriter] = []

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            cast(asyncio.Transport, writer.transport).pause_reading()
            links.append(writer)

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1000)
        run.write_state(backend_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        client = await run.client()
        client.request("POST", CHAT, b"x" * 30_000_000)
        await until(lambda: run.app.first.limiter.active)
        client.request("POST", CHAT, b"x" * 10_000_000)
        (connection,) = run.app.connections
        await until(lambda: connection._close_after and not client.writer.transport.get_write_buffer_size())
        # the body under way, and nothing of what was sent ahead
        assert run.app.memory.held == 30_000_000
        assert len(connection._buffer) < 512 * 1024
        client.leave()
        await until(lambda: not (run.app.first.limiter.active or run.app.memory.held or run.app.connections))
        for link in links:
            link.transport.abort()
        server.close()
