# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Large bodies: nobody's bytes may be another's, on any number of connections and in any order of sizes."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import ssl
from pathlib import Path

import pytest
from kit import Call, bench, on_uvloop
from test_auth import certificate as certificate

COMPLETIONS = "/v1/completions"
SIZE = 1_000_000


async def digest_of(call: Call) -> None:
    await call.json({"sha256": hashlib.sha256(call.request.body).hexdigest()})


@on_uvloop
async def test_bodies_at_the_same_time_and_one_after_the_other_stay_apart(tmp_path: Path) -> None:
    limits = {"max_active_generations": 8, "queue_timeout_s": 0, "backend_timeout_s": 60}
    async with bench(tmp_path, {"limits": limits}) as run:
        run.engine.script = digest_of

        async def sender(number: int) -> None:
            client = await run.client()
            for turn in range(6):
                body = b"%02d%02d" % (number, turn) * (SIZE // 4 + (turn % 3 == 2) * number)
                answer = await client.ask("POST", COMPLETIONS, body)
                assert answer.json["sha256"] == hashlib.sha256(body).hexdigest()
            client.leave()

        await asyncio.gather(*(sender(number) for number in range(4)))


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
@on_uvloop
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


@on_uvloop
async def test_others_have_their_turn_while_a_body_comes_in(tmp_path: Path) -> None:
    """The loop would read 8 MB of one connection before it turns to the next one."""
    async with bench(tmp_path) as run:
        loop, held, client = asyncio.get_running_loop(), [0], await run.client()

        def note() -> None:
            held.append(run.app.memory.held)
            if len(held) < 100_000:
                loop.call_soon(note)

        body = b'{"prompt":"%b"}' % (b"x" * 30_000_000)
        head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (COMPLETIONS.encode(), len(body))
        client.send(head + body)
        note()
        assert (await client.answer()).status == 200
        assert max(after - before for before, after in itertools.pairwise(held)) < 2_000_000
        held.extend([0] * 100_000)
