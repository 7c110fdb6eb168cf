# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of models: enriched, bounded, counted, and asked for with the client's own words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kit import Answer, Call, bench, on_loop, until

MODELS = "/v1/models"
LIST = {"object": "list", "data": [{"id": "tiny-a", "object": "model"}, {"id": "org/adapter", "object": "model"}]}


async def models(call: Call) -> None:
    await call.json(LIST, extra='ETag: "1"\r\nX-Request-Id: 7\r\n')


async def silent(call: Call) -> None:
    await call.gone.wait()


@on_loop
async def test_requests_for_the_list_are_bounded_and_counted(tmp_path: Path) -> None:
    async with bench(tmp_path, admission={"max_passthrough": 1}) as run:
        run.engine.script = silent
        clients = [await run.client() for _ in range(20)]
        for client in clients:
            client.request("GET", MODELS)
        refused = 0

        async def answered(one: Any) -> None:
            nonlocal refused
            answer = await one.answer()
            assert (answer.status, answer.json["error"]["code"]) == (503, "too_many_requests")
            refused += 1

        waiting = [asyncio.ensure_future(answered(client)) for client in clients]
        await until(lambda: refused == 19 and run.engine.active)
        assert len(run.engine.requests) == run.engine.most_active == 1
        other = await run.client()
        assert (await other.ask("GET", "/status")).json["frontdoor"]["active_requests"] == 1
        for task, client in zip(waiting, clients, strict=True):
            task.cancel()
            client.leave()
        await run.settled()
        run.engine.script = models
        assert (await other.ask("GET", MODELS)).status == 200
        assert run.outcomes() == {"client_closed": 1, "ok": 1}
        rows = (await other.ask("GET", "/metrics")).body.decode()
        assert '\nb70_frontdoor_requests_total{path="/v1/models",outcome="ok"} 1\n' in rows


@pytest.mark.parametrize("path", [MODELS + "?limit=2", MODELS + "/tiny-a?limit=2"])
@on_loop
async def test_the_engine_is_asked_as_the_client_asks(tmp_path: Path, path: str) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = models
        client = await run.client()
        fields = ("Authorization: Bearer sk-engine", "OpenAI-Beta: x", "Accept-Encoding: gzip", 'If-None-Match: "1"')
        answer = await client.ask("GET", path, None, *fields)
        asked = run.engine.requests[0]
        assert asked.line == "GET /v1/models?limit=2 HTTP/1.1"
        assert asked.header("Host") == run.engine.url.removeprefix("http://")
        assert asked.header("Authorization") == "Bearer sk-engine"
        assert asked.header("OpenAI-Beta") == "x"
        assert asked.header("X-Forwarded-For") == "127.0.0.1"
        # the answer is read and changed, so it must be plain and whole
        assert asked.header("Accept-Encoding") is asked.header("If-None-Match") is None
        assert (answer.status, answer.header("ETag")) == (200, None)
        # the request's name, not what the engine calls it
        assert answer.header("X-Request-Id") == asked.header("X-Request-Id") != "7"


@on_loop
async def test_what_the_engine_says_to_a_key_is_said_to_the_client(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def strict(call: Call) -> None:
            if call.request.header("Authorization") == "Bearer right":
                await models(call)
            else:
                await call.json({"error": "Unauthorized"}, "401 Unauthorized", "WWW-Authenticate: Bearer\r\n")

        run.engine.script = strict
        client = await run.client()
        for path in (MODELS, MODELS + "/tiny-a"):
            answer = await client.ask("GET", path)
            assert (answer.status, answer.json) == (401, {"error": "Unauthorized"})
            assert answer.header("WWW-Authenticate") == "Bearer"
            assert (await client.ask("GET", path, None, "Authorization: Bearer right")).status == 200


@on_loop
async def test_head_has_the_length_of_get(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = models
        client = await run.client()
        for path in (MODELS, MODELS + "/tiny-a", MODELS + "/no-such"):
            whole, bare = await client.ask("GET", path), await client.ask("HEAD", path)
            assert bare.status == whole.status
            assert bare.header("Content-Length") == whole.header("Content-Length") == str(len(whole.body))


@on_loop
async def test_what_is_listed_can_be_retrieved(tmp_path: Path) -> None:
    async with bench(tmp_path, request={"model_aliases": ["gpt", "org/gpt"]}) as run:
        run.engine.script = models
        client = await run.client()

        async def retrieve(name: str) -> Answer:
            return await client.ask("GET", f"{MODELS}/{name}")

        listed = (await client.ask("GET", MODELS)).json["data"]
        assert [model["id"] for model in listed] == ["tiny-a", "org/adapter", "gpt", "org/gpt"]
        for model in listed:
            answer = await retrieve(model["id"])
            assert (answer.status, answer.json) == (200, model)
        assert (await retrieve("org%2Fgpt")).json["b70"]["alias_of"] == "tiny-a"
        answer = await retrieve("no-such")
        error = answer.json["error"]
        assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert error["models"] == [model["id"] for model in listed]
        await run.settled()
        assert [row["status"] for row in run.events() if row["event"] == "request"][-2:] == [200, 404]


@pytest.mark.interpreted
@on_loop
async def test_an_engine_that_does_not_answer_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontdoor.http.listing._TIMEOUT_S", 0.1)
    async with bench(tmp_path, backend={"probe_interval_s": 3600}) as run:
        run.engine.script = silent
        client = await run.client()
        answer = await client.ask("GET", MODELS)
        assert (answer.status, answer.json["error"]["code"]) == (504, "engine_timeout")
        monkeypatch.setattr("frontdoor.http.listing._TIMEOUT_S", 60)
        await run.engine.kill()
        answer = await client.ask("GET", MODELS)
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_unreachable")
        assert run.app.first.replicas.all[0].health.reachable is False
        assert run.outcomes() == {"upstream_timeout": 1, "upstream_error": 1}


@pytest.mark.interpreted
@on_loop
async def test_a_frontdoor_that_stops_does_not_leave_who_waits(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = silent
        client = await run.client()
        client.request("GET", MODELS)
        await until(lambda: run.engine.active)
        run.app.drain()
        assert run.app.interrupt() == 1
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "stopping")
