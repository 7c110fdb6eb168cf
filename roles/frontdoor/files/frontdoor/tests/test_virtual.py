# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of these tests: its clock jumps, but over nothing that still happens, and a test that hangs ends."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import kit
import pytest
from kit import on_loop, until
from virtual import VirtualLoop


def virtually(test: Callable[[], object]) -> None:
    """Run a test on a virtual loop also where the others run on uvloop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FRONTDOOR_UVLOOP", raising=False)
        on_loop(test)()  # type: ignore[arg-type]


def test_time_is_that_of_the_next_timer() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        began, day = loop.time(), time.time()
        for hours in (3, 1, 2):
            loop.call_later(hours * 100, order.append, hours)
        await until(lambda: order == [1, 2], seconds=250)
        assert (loop.time() - began, round(time.time() - day)) == (200, 200)
        with pytest.raises(TimeoutError):
            await until(lambda: order == [1, 2, 3], seconds=99)
        await asyncio.sleep(1)
        assert order == [1, 2, 3]

    virtually(scenario)


def test_bytes_on_their_way_are_not_overtaken() -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        began = asyncio.get_running_loop().time()
        for _ in range(50):
            writer.write(b"x" * 100_000)
            async with asyncio.timeout(0.001):
                await reader.readexactly(100_000)
        assert asyncio.get_running_loop().time() == began
        writer.close()
        server.close()

    virtually(scenario)


def test_a_thread_that_works_is_not_overtaken() -> None:
    async def scenario() -> None:
        go = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(go.wait, 60))
        timer = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0.001)
        go.set()
        assert await work
        assert not timer.done()
        await timer

    virtually(scenario)


def test_a_process_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="another clock"):
            await asyncio.create_subprocess_exec(sys.executable, "-V")

    virtually(scenario)


def test_a_condition_that_fails_says_so() -> None:
    async def scenario() -> None:
        found: dict[str, int] = {}
        with pytest.raises(KeyError):
            await until(lambda: found["nothing"])

    virtually(scenario)


def test_a_test_that_waits_for_nothing_ends() -> None:
    async def hangs() -> None:
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        virtually(hangs)


def test_a_test_that_is_never_done_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    async def waits() -> None:
        await asyncio.to_thread(held.wait, 60)

    held = threading.Event()
    monkeypatch.setattr(kit, "LIMIT_S", 0.05)
    with pytest.raises(TimeoutError):
        virtually(spins)
    # the thread is let go as the test is cancelled, or its end would be waited for
    release = threading.Timer(1, held.set)
    release.start()
    with pytest.raises(TimeoutError):
        virtually(waits)
    release.join()
