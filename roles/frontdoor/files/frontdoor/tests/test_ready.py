# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What balancers and people are told: whether to come, when to come again, and how much was asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kit import Call, bench, on_loop, until

from frontdoor.slot.state import utc_now

CHAT = "/v1/chat/completions"
MOVE = {"from": "tiny-a", "to": "tiny-b"}


@pytest.mark.parametrize(
    "state",
    [
        {"phase": "switching", "switch": {**MOVE, "eta_s": 41.2}},
        {"phase": "switching", "switch": MOVE, "retry_after_s": 33},
        {"phase": "verifying", "switch": {**MOVE, "eta_s": 12}},
        {"phase": "failed", "reason": "the canary failed"},
        {"phase": "stopped"},
    ],
)
@on_loop
async def test_everybody_is_told_the_same_time_to_come_again(tmp_path: Path, state: dict[str, Any]) -> None:
    now = utc_now()
    state = {**state, "open": False, "verified": False, "updated_at": now}
    if "switch" in state:
        state["switch"] = {**state["switch"], "started_at": now}
    async with bench(tmp_path, state=state) as run:
        # the time runs down each second
        run.stop("sample")
        client = await run.client()
        refused = await client.ask("POST", CHAT, b"{}")
        ready = await client.ask("GET", "/ready")
        status = (await client.ask("GET", "/status")).json
        assert ready.status == refused.status == 503
        assert ready.header("Retry-After") == refused.header("Retry-After") == str(status["retry_after_s"])
        assert status["retry_after_s"] > 1


@on_loop
async def test_who_need_not_wait_is_told_no_time(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).json["retry_after_s"] is None
        run.write_state(verified=False)
        ready = await client.ask("GET", "/ready")
        assert (ready.status, ready.header("Retry-After")) == (503, "5")


@pytest.mark.parametrize(("gate", "expected"), [("verified", 503), ("healthy", 200), ("none", 200)])
@on_loop
async def test_ready_asks_for_what_the_operator_asked_for(tmp_path: Path, gate: str, expected: int) -> None:
    async with bench(tmp_path, state={"verified": False, "verified_at": None, "gate": gate}) as run:
        client = await run.client()
        answer = await client.ask("GET", "/ready")
        assert answer.status == expected
        # it is never called verified
        assert (answer.json["verified"], answer.json["gate"]) == (False, gate)
        status = (await client.ask("GET", "/status")).json
        assert (status["ok"], status["verified"], status["gate"]) == (expected == 200, False, gate)
        if expected == 503:
            assert status["reason"] == answer.json["reason"] == "the engine is not verified"
        run.write_state(verified=False, gate=gate, phase="stopped", open=False)
        assert (await client.ask("GET", "/ready")).status == 503


@on_loop
async def test_generations_are_counted_from_their_arrival(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    async with bench(tmp_path, state={"limits": limits}, admission={"max_queued": 1}) as run:
        free = asyncio.Event()

        async def held(call: Call) -> None:
            if len(run.engine.requests) > 1:
                await free.wait()
            await call.json({})

        run.engine.script = held
        clients = [await run.client() for _ in range(3)]
        assert (await clients[0].chat()).status == 200
        clients[0].request("POST", CHAT, b"{}")
        clients[1].request("POST", CHAT, b"{}")
        await run.arrived(2)
        assert (await clients[2].chat()).status == 503

        async def totals() -> tuple[int, int]:
            rows = (await clients[2].ask("GET", "/metrics")).body.decode()
            (row,) = [line for line in rows.splitlines() if line.startswith("b70_frontdoor_generation_requests_total ")]
            status = (await clients[2].ask("GET", "/status")).json["frontdoor"]
            return status["total_generation_requests"], int(row.split()[1])

        # one that ended, one that runs, one that waits, one that was refused
        assert await totals() == (4, 4)
        free.set()
        for client in clients[:2]:
            assert (await client.answer()).status == 200
        assert await totals() == (4, 4)


@on_loop
async def test_of_several_engines_the_fullest_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontdoor.slot.engine._TIMEOUT_S", 60)
    async with bench(tmp_path) as run:
        rows = "".join(
            f'vllm:kv_cache_usage_perc{{engine="{number}"}} 0.8\n'
            f'vllm:generation_tokens_total{{engine="{number}"}} 100.0\n'
            for number in range(2)
        )

        async def engine(call: Call) -> None:
            await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(rows)}\r\n\r\n{rows}".encode())

        run.engine.script = engine
        client = await run.client()
        await client.chat()
        run.app.first.replicas.all[0].vitals.run()
        await until(lambda: run.app.first.replicas.all[0].vitals.cache_used is not None)
        assert (await client.ask("GET", "/status")).json["engine"]["cache_used"] == 0.8


@on_loop
async def test_a_balancer_asks_for_one_model(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"request": {"model_aliases": ["house-model"]}}) as run:
        client = await run.client()
        for name, status in (("tiny-a", 200), ("house-model", 200), ("tiny-b", 503), ("", 200)):
            answer = await client.ask("GET", f"/ready?model={name}")
            assert (answer.status, answer.json["ready"]) == (status, status == 200)
        refused = await client.ask("GET", "/ready?model=tiny-b")
        assert refused.json["reason"] == "the model 'tiny-b' is not served here"
        # a name as a query writes it
        assert (await client.ask("GET", "/ready?model=tiny%2Da")).status == 200


@on_loop
async def test_a_balancer_chooses_the_status(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("GET", "/ready?unready_status=404")).status == 200
        run.write_state(open=False, phase="stopped", verified=False)
        answer = await client.ask("GET", "/ready?unready_status=404")
        assert (answer.status, answer.json["ready"]) == (404, False)
        # 200 for what is not ready would be a lie
        assert (await client.ask("GET", "/ready?unready_status=200")).status == 503
        run.app.drain()
        assert (await (await run.client()).ask("GET", "/ready?unready_status=404")).status == 404
