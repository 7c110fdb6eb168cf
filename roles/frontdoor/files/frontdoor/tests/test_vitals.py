# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the engine is said to be ends with what it was said of: no pace of before is told as that of now."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit import Bench, Call, Client, bench, on_loop, serving_state, until

SILENT, BROKEN, GONE = "silent", "broken", "gone"


class Counting:
    """An engine that counts 50 tokens a request, until it has another mood about its metrics."""

    def __init__(self) -> None:
        self.tokens = 0
        self.mood = ""
        self.asked = 0

    async def __call__(self, call: Call) -> None:
        if not call.request.line.startswith("GET /metrics "):
            self.tokens += 50
            await call.json({})
            return
        self.asked += 1
        if self.mood == SILENT:
            await call.gone.wait()
        elif self.mood == BROKEN:
            await call.json({}, "500 Internal Server Error")
        elif self.mood == GONE:
            call.writer.transport.abort()
        else:
            rows = f"vllm:generation_tokens_total {self.tokens}\nvllm:kv_cache_usage_perc 0.25\n"
            await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(rows)}\r\n\r\n{rows}".encode())


async def ask_vitals(run: Bench) -> None:
    # the loop's clock counts milliseconds
    await asyncio.sleep(0.003)
    run.app.first.replicas.all[0].vitals.run()
    await until(lambda: run.app.first.replicas.all[0].vitals._task is None)


@contextlib.asynccontextmanager
async def generating(tmp_path: Path) -> AsyncIterator[tuple[Bench, Client, Counting]]:
    """An engine whose pace is known; nobody asks for it but the test."""
    async with bench(tmp_path, backend={"metrics_interval_s": 3600, "probe_interval_s": 3600}) as run:
        engine = run.engine.script = Counting()
        client = await run.client()
        await until(lambda: run.app.first.replicas.all[0].health.reachable)
        for _ in range(2):
            await client.chat()
            await ask_vitals(run)
        assert run.app.first.replicas.all[0].vitals.tokens_per_s
        yield run, client, engine


def told(run: Bench) -> tuple[object, object]:
    return run.app.first.replicas.all[0].vitals.tokens_per_s, run.app.first.replicas.all[0].vitals.cache_used


@pytest.mark.parametrize("mood", [SILENT, BROKEN, GONE])
@on_loop
async def test_a_question_without_an_answer_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mood: str
) -> None:
    async with generating(tmp_path) as (run, client, engine):
        monkeypatch.setattr("frontdoor.slot.engine._TIMEOUT_S", 0.05 if mood == SILENT else 60)
        engine.mood = mood
        await ask_vitals(run)
        assert told(run) == (None, None)
        # and it is asked again when it has something to do
        engine.mood = ""
        monkeypatch.setattr("frontdoor.slot.engine._TIMEOUT_S", 60)
        await client.chat()
        await ask_vitals(run)
        assert run.app.first.replicas.all[0].vitals.tokens_per_s


@on_loop
async def test_a_stop_ends_it_at_once(tmp_path: Path) -> None:
    async with generating(tmp_path) as (run, _, _engine):
        run.write_state(open=False, phase="stopped", profile=None, engine=None)
        assert told(run) == (None, None)


@on_loop
async def test_another_engine_is_not_said_to_have_the_pace_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontdoor.slot.engine._TIMEOUT_S", 60)
    async with generating(tmp_path) as (run, _, engine):
        # asked of the one before, and answered by nobody
        engine.mood, asked = SILENT, engine.asked
        run.app.first.replicas.all[0].vitals.run()
        await until(lambda: engine.asked > asked)
        run.write_state(engine={"unit": "b70-slot-main-tiny-b.service", "invocation_id": "1" * 32})
        assert told(run) == (None, None)
        assert run.app.first.replicas.all[0].vitals._task is None


@on_loop
async def test_a_closed_door_changes_nothing_about_the_engine_behind_it(tmp_path: Path) -> None:
    async with generating(tmp_path) as (run, _, _engine):
        before = told(run)
        run.write_state(open=False)
        assert told(run) == before


@on_loop
async def test_the_slot_says_how_the_engine_names_its_metrics(tmp_path: Path) -> None:
    captured = Path(__file__).parents[5] / "tests/unit/plugins/module_utils/_slot/llama_server/metrics.json"
    text = json.loads(captured.read_text())["said"][1]
    assert "llamacpp:tokens_predicted_total 9\n" in text
    told = {"tokens": "llamacpp:tokens_predicted_total", "cache": ""}
    engine = {**serving_state("")["engine"], "kind": "llama-server", "metrics": told}
    quiet = {"metrics_interval_s": 3600, "probe_interval_s": 3600}
    async with bench(tmp_path, {"engine": engine}, backend=quiet) as run:
        answers = iter([text, text.replace("tokens_predicted_total 9", "tokens_predicted_total 109")])

        async def script(call: Call) -> None:
            if call.request.line.startswith("GET /metrics "):
                rows = next(answers).encode()
                await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(rows), rows))
            else:
                await call.json({})

        run.engine.script = script
        client = await run.client()
        await until(lambda: run.app.first.replicas.all[0].health.reachable)
        for _ in range(2):
            await client.chat()
            await ask_vitals(run)
        assert run.app.first.replicas.all[0].vitals.tokens_per_s
        assert run.app.first.replicas.all[0].vitals.cache_used is None
