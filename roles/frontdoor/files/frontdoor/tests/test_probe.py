# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the engine is there: what counts as a sign of life, and what the frontdoor says meanwhile."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from fake_engine import echo
from kit import Bench, Call, Client, bench, on_loop, until
from several import several

from frontdoor.slot import engine

SILENT = {"probe_interval_s": 0.1, "silence_limit_s": 3600.0}


async def reachable(run: Bench, wanted: bool) -> None:
    await until(lambda: run.app.first.replicas.all[0].health.reachable is wanted)


def give_up_after(run: Bench, seconds: float) -> None:
    """Change after how long a silent engine is taken for hung."""
    run.app.first.replicas.all[0].probe._limit_s = seconds


async def ready(client: Client) -> tuple[int, str, str | None]:
    answer = await client.ask("GET", "/ready")
    return answer.status, answer.json["reason"], answer.header("Retry-After")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_TIMEOUT_S", 0.1)


@on_loop
async def test_an_open_slot_is_ready_at_once(tmp_path: Path) -> None:
    # nobody would ask again by itself in the time of this test
    async with bench(tmp_path, backend={"probe_interval_s": 3600}) as run:
        client = await run.client()
        await reachable(run, True)
        run.write_state(phase="switching", open=False, switch={"from": "tiny-a", "to": "tiny-b"})
        await run.engine.kill()
        # the switch writes this when the process of the new engine runs: there is nobody yet
        run.write_state(phase="verifying", open=False)
        await reachable(run, False)
        await run.engine.start()
        run.write_state()
        assert await ready(client) == (200, "", None)
        status = (await client.ask("GET", "/status")).json
        assert (status["ok"], status["engine"]["error"]) == (True, "")
        await reachable(run, True)


@on_loop
async def test_an_engine_that_was_started_anew_is_asked_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, backend={"probe_interval_s": 3600}) as run:
        await reachable(run, True)
        await run.engine.kill()
        run.write_state(engine=None)
        await reachable(run, False)
        assert "refused" in run.app.first.replicas.all[0].health.error
        # nothing about the engine changed, so nothing is asked
        run.write_state(engine=None, sequence=9)
        assert run.app.first.replicas.all[0].health.reachable is False


@on_loop
async def test_a_wedged_engine_is_not_ready_for_ever(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, backend=dict(SILENT)) as run:
        client = await run.client()

        async def silent_s() -> Any:
            return (await client.ask("GET", "/status")).json["engine"]["silent_s"]

        await reachable(run, True)
        run.engine.wedged.set()
        # for a while it may just be busy, and how long it has been is told
        while not await silent_s():
            await asyncio.sleep(0.01)
        assert (await ready(client))[0] == 200
        give_up_after(run, 1.0)
        await reachable(run, False)
        status, reason, after = await ready(client)
        assert (status, after) == (503, "1")
        assert re.search(r"the engine does not answer: it has sent nothing for [1-9]\d* s", reason)
        assert await silent_s() >= 1
        metrics = (await client.ask("GET", "/metrics")).body.decode()
        assert re.search(r"\nb70_frontdoor_engine_silent_seconds [1-9]\d*[.\n]", metrics)
        # and it answers in time from now on, however slow this machine is
        monkeypatch.setattr(engine, "_TIMEOUT_S", 60)
        run.engine.wedged.clear()
        await reachable(run, True)
        while await silent_s() is not None:
            await asyncio.sleep(0.01)
        assert await ready(client) == (200, "", None)


@on_loop
@pytest.mark.parametrize("head", [False, True], ids=["no answer", "the head of a stream"])
async def test_a_request_without_any_of_its_answer_does_not_wait_for_a_hung_engine(
    tmp_path: Path, impatient: None, head: bool
) -> None:
    """The limit on the silence of an answer is two hours, for engines that compute."""
    async with several(tmp_path, 2, permits=1, backend=dict(SILENT)) as slot:
        run, never = slot.run, asyncio.Event()

        async def hang(call: Call) -> None:
            if head:
                await call.begin_events()
            await never.wait()

        for one in slot.engines:
            one.script = hang
        slot.tell(limits={"max_active_generations": 2, "queue_timeout_s": 60, "backend_timeout_s": 7200})
        waiting, other = await run.client(), await run.client()
        waiting.request("POST", "/v1/chat/completions", b"{}")
        await until(lambda: sum(slot.active) == 1)
        (hung,) = (index for index, count in enumerate(slot.active) if count)
        slot.engines[hung].wedged.set()
        slot.engines[1 - hung].script = echo
        replica = run.app.first.replicas.all[hung]
        await until(lambda: replica.probe.silent_s)
        assert run.app.first.limiter.held[hung] == 1, "it may only be busy"
        replica.probe._limit_s = 1.0
        if head:
            text = await waiting.reader.read()
            assert b"is taken for hung" in text.partition(b"\r\n\r\n")[2]
        else:
            answer = await waiting.answer()
            assert (answer.status, answer.json["error"]["code"]) == (504, "engine_timeout")
            assert "is taken for hung" in answer.json["error"]["message"]
        assert run.app.first.limiter.held[hung] == 0
        assert (await other.chat()).status == 200


@on_loop
async def test_an_engine_that_streams_is_alive_however_silent_its_health_is(tmp_path: Path, impatient: None) -> None:
    async with bench(tmp_path, backend=dict(SILENT)) as run:
        client, other = await run.client(), await run.client()
        go_on, end = asyncio.Event(), False

        async def stream(call: Call) -> None:
            await call.begin_events()
            while not end:
                await call.event("token")
                await go_on.wait()
                go_on.clear()
            await call.send(b"0\r\n\r\n")

        run.engine.script = stream
        await reachable(run, True)
        client.request("POST", "/v1/chat/completions", b"{}")
        await client.reader.readuntil(b"token")
        run.engine.wedged.set()
        for _ in range(2):
            # nothing is heard for a while, until there is another token: that is a sign of life
            await until(lambda: run.app.first.replicas.all[0].probe.silent_s)
            go_on.set()
            await client.reader.readuntil(b"token")
            await until(lambda: run.app.first.replicas.all[0].probe.silent_s is None)
            assert run.app.first.replicas.all[0].health.reachable
        assert (await ready(other))[0] == 200
        end = True
        go_on.set()
        give_up_after(run, 1.0)
        await reachable(run, False)


@on_loop
async def test_an_engine_whose_health_is_bad_is_not_ready(tmp_path: Path) -> None:
    async with bench(tmp_path, backend={"probe_interval_s": 0.1}) as run:
        client = await run.client()
        await reachable(run, True)
        run.engine.health = "503 Service Unavailable"
        await reachable(run, False)
        assert "/health answered 503" in (await ready(client))[1]
        run.engine.health = "200 OK"
        await reachable(run, True)


@pytest.mark.parametrize("form", ["whole", "chunked", "until the end", "in two parts"])
@on_loop
async def test_an_engine_that_fails_whatever_it_is_asked_is_not_well(tmp_path: Path, form: str) -> None:
    async with bench(tmp_path, backend={"probe_interval_s": 0.1}) as run:

        async def failing(call: Call) -> None:
            top = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
            if form == "chunked":
                await call.send(top + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            elif form == "until the end":
                await call.send(top + b"\r\n{}")
                call.writer.close()
            elif form == "in two parts":
                await call.send(top + b"Content-Length: 2\r\n\r\n")
                await asyncio.sleep(0.01)
                await call.send(b"{}")
            else:
                await call.send(top + b"Content-Length: 2\r\n\r\n{}")

        client, other = await run.client(), await run.client()
        await reachable(run, True)
        run.engine.script = failing
        run.engine.health = "503 Service Unavailable"
        asked = 0
        while run.app.first.replicas.all[0].health.reachable:
            answer = await client.chat()
            assert (answer.status, answer.body) == (500, b"{}")
            asked += 1
            await asyncio.sleep(0.01)
        # and it is not taken for well again because it answers that
        for _ in range(20):
            assert (await client.chat()).status == 500
            asked += 1
            assert run.app.first.replicas.all[0].health.reachable is False
        assert run.outcomes() == {"engine_5xx": asked}
        rows = (await other.ask("GET", "/metrics")).body.decode()
        assert f'\nb70_frontdoor_engine_errors_total{{code="http_500"}} {asked}\n' in rows
        assert f'requests_total{{path="/v1/chat/completions",outcome="engine_5xx"}} {asked}\n' in rows
        # a client's own mistake is no failure of the engine's, as far as nobody asks for its health meanwhile
        run.stop("probe")
        run.app.first.replicas.all[0].probe.stop()
        run.engine.script = lambda call: call.json({"error": 1}, "400 Bad Request")
        assert (await client.chat()).status == 400
        assert run.app.first.replicas.all[0].health.reachable is True
        assert run.outcomes() == {"engine_5xx": asked, "ok": 1}
