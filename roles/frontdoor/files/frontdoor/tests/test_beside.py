# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients are moved from one engine to another: what was begun ends where it began, all else goes to the new one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kit import Client, Hold, bench, in_two_events, on_loop, until
from several import Engine, rows, start_replica

CHAT = "/v1/chat/completions"
NEW = {"name": "tiny-b", "served_model_name": "tiny-b", "max_model_len": 512}


class Move:
    """Two engines: a slot that serves the first, and what its state says on the way to the second."""

    def __init__(self, engines: list[Engine]) -> None:
        self.rows: list[Any] = rows(engines, permits=1)

    def alone(self, place: int, **changes: Any) -> dict[str, Any]:
        row = self.rows[place]
        told = {"replicas": None, "routing": None, "open": True, "backend_url": row["backend_url"]}
        limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
        return {**told, "engine": row["engine"], "limits": limits, **changes}

    def both(self, **changes: Any) -> dict[str, Any]:
        old = {**self.rows[0], "open": False, "verified": False, "reason": "clients were moved to another engine"}
        return self.alone(1, replicas=[old, self.rows[1]], **changes)


async def ask(run: Any, **body: Any) -> Client:
    client: Client = await run.client()
    client.request("POST", CHAT, json.dumps(body).encode())
    return client


def rules(cap: int) -> dict[str, Any]:
    """Rules of a profile, so that what waited has to be edited anew."""
    return {"max_tokens_cap": cap}


@pytest.mark.interpreted
@on_loop
async def test_a_stream_ends_where_it_began_and_what_waited_goes_to_the_new_engine(tmp_path: Path) -> None:
    engines = [Engine(), Engine()]
    for index, engine in enumerate(engines):
        await engine.start()
        start_replica(tmp_path, index)
    move, step = Move(engines), asyncio.Event()
    engines[0].script = in_two_events(step)
    hold = Hold()
    engines[1].script = hold
    async with bench(tmp_path, state=move.alone(0, request=rules(100))) as run:
        app = run.app.first
        stream = await ask(run, stream=True, max_tokens=900)
        await until(lambda: engines[0].active == 1)
        waiting = [await ask(run, max_tokens=900) for _ in range(2)]
        await run.queued(2)
        run.write_state(**move.both(request=rules(50), profile=NEW))
        await until(lambda: engines[1].active == 1)
        assert app.limiter.held[:2] == [1, 1]
        late = await ask(run, max_tokens=900)
        await run.queued(2)
        step.set()
        answer = await stream.answer()
        assert (answer.status, answer.body.count(b"one"), answer.body.count(b"two")) == (200, 1, 1)
        await until(lambda: app.limiter.held[0] == 0)
        # The old one has ended; what the new one has under way counts on.
        run.write_state(**move.alone(1, request=rules(50), profile=NEW))
        await until(lambda: not app.replicas.several)
        assert (app.limiter.held[0], app.replicas.all[0].health.reachable) == (1, True)
        assert engines[1].active == 1
        hold.go.set()
        assert [(await client.answer()).status for client in (*waiting, late)] == [200] * 3
        assert (len(engines[0].requests), len(engines[1].requests)) == (1, 3)
        assert [json.loads(one.body)["max_tokens"] for one in engines[1].requests] == [50] * 3
        assert json.loads(engines[0].requests[0].body)["max_tokens"] == 100
    for engine in engines:
        await engine.kill()
