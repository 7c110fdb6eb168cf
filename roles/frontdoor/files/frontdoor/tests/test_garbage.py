# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done is gone: nothing is left to a garbage collector, whose runs are pauses for everybody."""

from __future__ import annotations

import asyncio
import gc
import types
from pathlib import Path
from typing import Any

import pytest
from kit import Bench, Call, bench, on_uvloop, until

CHAT = "/v1/chat/completions"


def ours(thing: Any) -> bool:
    """Whether the frontdoor made it: one of its classes, or a method of one."""
    owner = thing.__self__ if isinstance(thing, types.MethodType) else thing
    return type(owner).__module__.startswith("frontdoor")


async def left_behind(run: Bench) -> list[str]:
    """What only a garbage collector would find, of what is the frontdoor's."""
    run.app.ledger.settle()
    await asyncio.sleep(0.05)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = [repr(thing)[:200] for thing in gc.garbage if ours(thing)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()
    return found


async def streaming(call: Call) -> None:
    await call.begin_events()
    for number in range(3):
        await call.event(str(number))
        await asyncio.sleep(0)
    await call.send(b"0\r\n\r\n")


async def dying(call: Call) -> None:
    await call.begin_events()
    await call.event("one")
    call.writer.close()


async def silent(call: Call) -> None:
    await call.begin_events()
    await call.event("one")
    await call.gone.wait()


async def plain(call: Call) -> None:
    await call.json({"ok": 1})


async def until_close(call: Call) -> None:
    await call.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
    call.writer.close()


@pytest.mark.parametrize("script", [streaming, dying, silent, plain, until_close])
@pytest.mark.parametrize("size", [2, 400_000])
@on_uvloop
async def test_requests_and_connections_leave_nothing_behind(tmp_path: Path, script: Any, size: int) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = script
        # what there is already is not looked at
        gc.freeze()
        gc.disable()
        try:
            for _ in range(100 if size == 2 else 5):
                client = await run.client()
                client.request("POST", CHAT, b"x" * size)
                if script is silent:
                    await client.reader.readuntil(b"one")
                else:
                    await client.answer()
                    # a list of models, an answer of the frontdoor's own, and nobody there
                    if script is plain:
                        assert (await client.ask("GET", "/v1/models")).status == 200
                        assert (await client.ask("GET", "/status")).status == 200
                client.leave()
            await run.settled()
            await until(lambda: not run.app.connections)
            run.app.first.replicas.all[0].pool.drop_idle()
            assert await left_behind(run) == []
        finally:
            gc.unfreeze()
            gc.enable()


@on_uvloop
async def test_an_engine_that_is_not_there_leaves_nothing_behind(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        await run.engine.kill()
        # what there is already is not looked at
        gc.freeze()
        gc.disable()
        try:
            client = await run.client()
            for _ in range(20):
                assert (await client.chat()).status == 502
            client.leave()
            await until(lambda: not run.app.connections)
            assert await left_behind(run) == []
        finally:
            gc.unfreeze()
            gc.enable()
