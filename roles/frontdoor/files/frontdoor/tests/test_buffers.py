# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Buffers of large bodies are used again: nobody's bytes may be another's, and they do not pile up."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

import pytest
from kit import Call, bench, on_loop
from test_auth import certificate as certificate

from frontdoor.http import body as bodies

COMPLETIONS = "/v1/completions"
SIZE = 1_000_000


async def digest_of(call: Call) -> None:
    await call.json({"sha256": hashlib.sha256(call.request.body).hexdigest()})


@on_loop
async def test_bodies_at_the_same_time_and_one_after_the_other_stay_apart(tmp_path: Path) -> None:
    bodies._spare.clear()
    limits = {"max_active_generations": 8, "queue_timeout_s": 0, "backend_timeout_s": 60}
    async with bench(tmp_path, {"limits": limits}) as run:
        run.engine.script = digest_of

        async def sender(number: int) -> None:
            client = await run.client()
            for turn in range(6):
                # of one size most of the time, as buffers fit again then
                body = b"%02d%02d" % (number, turn) * (SIZE // 4 + (turn % 3 == 2) * number)
                answer = await client.ask("POST", COMPLETIONS, body)
                assert answer.json["sha256"] == hashlib.sha256(body).hexdigest()
            client.leave()

        await asyncio.gather(*(sender(number) for number in range(4)))
    assert bodies._spare
    assert sum(map(len, bodies._spare)) <= 4 * 1024 * 1024


@on_loop
async def test_a_body_that_is_still_being_sent_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies._spare.clear()
    # more than the kernel takes at once
    monkeypatch.setattr(bodies, "_KEPT_BYTES", 100 * SIZE)
    limits = {"max_active_generations": 8, "queue_timeout_s": 0, "backend_timeout_s": 60}
    async with bench(tmp_path, {"limits": limits}) as run:
        answered = asyncio.Event()

        async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # answers what it has not read
            head = b"GET /health"
            while head.startswith(b"GET /health"):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await answered.wait()
            writer.close()

        server = await asyncio.start_server(hasty, "127.0.0.1", 0, limit=2**12)
        run.write_state(backend_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", limits=limits)
        run.door.reload()
        client = await run.client()
        assert (await client.ask("POST", COMPLETIONS, b"x" * 30 * SIZE)).status == 200
        assert bodies._spare == []
        answered.set()
        client.leave()
        server.close()


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
@on_loop
async def test_one_connection_carries_bodies_of_all_sizes(
    tmp_path: Path, certificate: tuple[str, str], secured: bool
) -> None:
    tls = dict(zip(("cert_file", "key_file"), certificate, strict=True)) if secured else {}
    async with bench(tmp_path, tls=tls) as run:
        run.engine.script = digest_of
        client = await run.client(ssl.create_default_context(cafile=certificate[0]) if secured else None)
        sizes = (10, 300_000, 5, SIZE, SIZE, 0, 200_000, 4 * SIZE, 30_000, 32 * 1024, 140_000, 9 * SIZE, 2)
        for turn, size in enumerate(sizes):
            body = bytes([65 + turn]) * size
            digest = {"sha256": hashlib.sha256(body).hexdigest()}
            # the next request is there before this one is answered
            client.request("POST", COMPLETIONS, body)
            client.request("GET", "/health")
            client.request("POST", COMPLETIONS, b"ahead")
            assert (await client.answer()).json == digest, size
            assert (await client.answer()).json == {"status": "ok"}
            assert (await client.answer()).json == {"sha256": hashlib.sha256(b"ahead").hexdigest()}
            client.send(b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % COMPLETIONS.encode())
            client.send((b"%x\r\n%b\r\n" % (size, body) if size else b"") + b"0\r\n\r\n")
            assert (await client.answer()).json == digest, size
        client.leave()


@pytest.mark.parametrize("proven", [0, SIZE])
def test_room_is_reserved_for_what_came_and_not_for_what_is_announced(proven: int) -> None:
    bodies._spare.clear()
    body = bodies.LengthBody(1000 * SIZE, proven)
    body.feed(b"x" * (bodies.LARGE - 1))
    assert body.large is bool(proven)
    body.feed(b"x")
    assert body.large
    for _read in range(40):
        room = body.room()
        assert len(room) > 0
        assert body.size + len(room) <= 8 * max(body.size, proven)
        body.written(min(len(room), SIZE))
