# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event streams tell a proxy in front, which may hold answers back, to pass each event when it comes."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from kit import Answer, Call, bench, on_uvloop
from test_auth import certificate as certificate

CHAT = "/v1/chat/completions"
NAME = "X-Accel-Buffering"
EVENTS = b"Content-Type: text/event-stream; charset=utf-8\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


async def asked(
    tmp_path: Path, head: bytes, *body: bytes, line: str = f"POST {CHAT} HTTP/1.1", at_once: bool = False
) -> Answer:
    """The answer to a request when the engine says this head and these pieces of a body, and ends there."""
    async with bench(tmp_path) as run:

        async def script(call: Call) -> None:
            pieces = (b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", *body)
            for piece in (b"".join(pieces),) if at_once else pieces:
                await call.send(piece)
            call.writer.close()

        run.engine.script = script
        client = await run.client()
        content = b"{}" if line.startswith("POST") else b""
        client.send(f"{line}\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        return await client.answer(line.split()[0])


CHUNKS = (b"9\r\ndata: x\n\n\r\n", b"0\r\n\r\n")
# by how the engine says where its stream ends
STREAMS = {
    "chunked": (EVENTS + CHUNKED, *CHUNKS),
    "until its end": (EVENTS, b"data: x\n\n"),
    "of known length": (EVENTS + b"Content-Length: 9\r\n", b"data: x\n\n"),
    "compressed": (EVENTS + CHUNKED + b"Content-Encoding: br\r\n", *CHUNKS),
    "rewritten": (EVENTS + CHUNKED + b"Keep-Alive: timeout=5\r\n", *CHUNKS),
    "in other letters": (b"content-type: Text/Event-Stream\r\n" + CHUNKED, *CHUNKS),
}


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("name", STREAMS)
@on_uvloop
async def test_a_stream_is_not_to_be_held_back(tmp_path: Path, name: str, version: str) -> None:
    answer = await asked(tmp_path, *STREAMS[name], line=f"POST {CHAT} HTTP/{version}")
    assert (answer.header(NAME), answer.body) == ("no", b"data: x\n\n")


@on_uvloop
async def test_what_comes_in_one_read_says_it_too(tmp_path: Path) -> None:
    answer = await asked(tmp_path, *STREAMS["of known length"], at_once=True)
    assert (answer.header(NAME), answer.body) == ("no", b"data: x\n\n")


@on_uvloop
async def test_what_the_engine_says_itself_is_left_alone(tmp_path: Path) -> None:
    answer = await asked(tmp_path, EVENTS + CHUNKED + b"x-accel-buffering: yes\r\n", *CHUNKS)
    assert answer.header(NAME) == "yes"


@on_uvloop
async def test_other_answers_say_nothing_of_it(tmp_path: Path) -> None:
    for head in (b"Content-Type: application/json\r\nContent-Length: 2\r\n", b"Content-Type: text/plain\r\n"):
        assert (await asked(tmp_path, head, b"{}")).header(NAME) is None


@on_uvloop
async def test_over_tls(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    async with bench(tmp_path, tls={"cert_file": cert, "key_file": key}) as run:

        async def stream(call: Call) -> None:
            await call.begin_events()
            await call.event("x")
            await call.send(b"0\r\n\r\n")

        run.engine.script = stream
        client = await run.client(ssl.create_default_context(cafile=cert))
        # the second is one whose head was seen before
        for _ in range(2):
            answer = await client.chat()
            assert (answer.header(NAME), answer.body) == ("no", b"data: x\n\n")
