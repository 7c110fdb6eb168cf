# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens are counted however the bytes of an answer fall into reads."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import Call, bench, on_loop

CHAT = "/v1/chat/completions"
USAGE = b'"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}'


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def head(kind: bytes, framing: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (kind, framing)


STREAM = head(b"text/event-stream", b"Transfer-Encoding: chunked")
PLAIN = b'{"choices":[{"message":{"content":"%b"}}],%b,"more":{"list":[1,2,3]}}' % (b"word " * 90, USAGE)
EVENTS = [b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % word for word in (b"one", b"two", b"three")]
REPORT = b'data: {"choices":[],%b}\n\n' % USAGE
ANSWERS = {
    "stream": STREAM + chunked(*EVENTS, REPORT, b"data: [DONE]\n\n"),
    "messages": STREAM
    + chunked(
        *EVENTS,
        b'event: message_delta\ndata: {"usage":{"input_tokens":7,"output_tokens":5}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
    "whole": head(b"application/json", b"Content-Length: %d" % len(PLAIN)) + PLAIN,
    "whole, in chunks": head(b"application/json", b"Transfer-Encoding: chunked") + chunked(PLAIN[:300], PLAIN[300:]),
}


def ways_to_cut(size: int) -> Iterator[list[int]]:
    """Where an answer is cut into reads: once, anywhere; into pieces of one size; at random, mostly near the end."""
    yield from ([at] for at in range(1, size))
    yield from (list(range(step, size, step)) for step in (1, 2, 3, 5, 8, 13, 40, 100))
    chance = random.Random(size)
    for _ in range(300):
        near = {max(1, size - round(chance.expovariate(0.02))) for _ in range(chance.randrange(1, 6))}
        yield sorted(at for at in near if at < size)


@pytest.mark.interpreted
@pytest.mark.parametrize(("kind", "asks"), [*((kind, True) for kind in ANSWERS), ("stream", False)])
@on_loop
async def test_any_split_into_reads_counts_the_same(tmp_path: Path, kind: str, asks: bool) -> None:
    wire = ANSWERS[kind]
    asked = b'{"stream":true%b}' % (b',"stream_options":{"include_usage":true}' if asks else b"")
    async with bench(tmp_path) as run:

        async def silent(call: Call) -> None:
            while await call.reader.read(65536):
                pass

        run.engine.script = silent
        client, metrics = await run.client(), run.app.ledger.metrics
        bodies = set()
        for counted, cuts in enumerate(ways_to_cut(len(wire)), 1):
            client.request("POST", CHAT, asked)
            while not any(exchange._connection for exchange in run.app.running):
                await asyncio.sleep(0)
            (exchange,) = run.app.running
            connection = exchange._connection
            assert connection is not None
            # as the socket would hand them over
            for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
                connection.data_received(wire[start:end])
            bodies.add((await client.answer()).body)
            run.app.ledger.settle()
            assert metrics.slots["main"].tokens == {"prompt": 7 * counted, "completion": 5 * counted}, cuts
        (body,) = bodies
        if kind == "stream":
            # a report that the client did not ask for is not passed on
            assert body == b"".join([*EVENTS, *[REPORT] * asks, b"data: [DONE]\n\n"])
        run.app.first.replicas.all[0].pool.drop_idle()


@on_loop
async def test_what_is_kept_for_it_is_bounded(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        event = b"data: " + b"x" * 700 + b"\n\n"
        wire = STREAM + chunked(*[event] * 2000)

        async def dripping(call: Call) -> None:
            for at in range(0, len(wire), 501):
                await call.send(wire[at : at + 501])
                if at % 8 == 0:
                    await asyncio.sleep(0)

        run.engine.script = dripping
        client, kept = await run.client(), 0
        client.request("POST", CHAT, b"{}")
        answer = asyncio.create_task(client.answer())
        while not answer.done():
            for exchange in run.app.running:
                kept = max(kept, len(exchange._tail))
            await asyncio.sleep(0)
        assert answer.result().body == event * 2000
        # what is looked at, or what one read brings
        assert 0 < kept <= 256 * 1024


REPORTING = {"include_usage": True}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b' { "stream":true, "seed": 1.0}', b' {"stream_options":{"include_usage":true}, "stream":true, "seed": 1.0}'),
        ({"stream": True, "stream_options": None}, REPORTING),
        ({"stream": True, "stream_options": {}}, REPORTING),
        (
            {"stream": True, "stream_options": {"include_usage": False, "continuous_usage_stats": True, "x": 1}},
            {"include_usage": True, "continuous_usage_stats": False, "x": 1},
        ),
        # these report already, are no streams, or are the engine's to refuse
        (b'{"stream":true, "stream_options":{"include_usage":true}}', None),
        (b'{"stream":false }', None),
        (b'{"stream":null }', None),
        (b'{"stream":true, "stream_options":7}', None),
    ],
)
@on_loop
async def test_a_stream_is_asked_for_its_tokens(tmp_path: Path, path: str, body: object, sent: object) -> None:
    async with bench(tmp_path) as run:
        asked = body if isinstance(body, bytes) else json.dumps(body).encode()
        await (await run.client()).ask("POST", path, asked)
        got = run.engine.requests[0].body
        if isinstance(sent, dict):
            assert isinstance(body, dict)
            options = json.loads(got).pop("stream_options")
            assert {"continuous_usage_stats": False, **sent} == options
        else:
            assert got == (sent or asked)


@on_loop
async def test_long_bodies_and_changed_ones_are_asked_too(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"request": {"max_tokens_default": 9}}) as run:
        client = await run.client()
        text = "x" * 300_000
        for asked in ({"stream": True, "prompt": text}, {"stream": True, "prompt": text, "max_tokens": 5}):
            await client.ask("POST", "/v1/completions", json.dumps(asked).encode())
            got = json.loads(run.engine.requests[-1].body)
            assert got.pop("stream_options")["include_usage"] is True
            assert got == {"max_tokens": 9, **asked}


@pytest.mark.parametrize("closes", [False, True])
@on_loop
async def test_what_only_looks_like_a_report_passes(tmp_path: Path, closes: bool) -> None:
    """And one that ends with the connection is found as well."""
    events = [
        *EVENTS,
        b'data: {"choices":[{"delta":{}}],%b}\n\n' % USAGE,
        b'data: {"choices":[{"delta":{"content":"\\"usage\\":{"}}]}\n\n',
        b': a word \xff "usage":{ \n\n',
        b'data: "usage":{\n\n',
        b'data: ["usage",{"usage":{}}]\n\n',
    ]
    async with bench(tmp_path) as run:

        async def stream(call: Call) -> None:
            if closes:
                await call.send(head(b"text/event-stream", b"Connection: close") + b"".join([*events, REPORT]))
                call.writer.close()
            else:
                await call.send(STREAM + chunked(*events, REPORT))

        run.engine.script = stream
        answer = await (await run.client()).ask("POST", CHAT, b'{"stream":true}')
        assert answer.body == b"".join(events)
