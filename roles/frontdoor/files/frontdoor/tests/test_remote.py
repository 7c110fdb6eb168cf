# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine on another host: its one model alone is asked, and only what is looked at, and allowed, leaves this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit import Call, bench, on_loop, serving_state

from frontdoor.policy.dialect import PLAIN
from frontdoor.policy.routes import GENERATION_PATHS, JSON_PATHS

CHAT = "/v1/chat/completions"
NAME, ALIAS = "gemma4-12b-it", "assistant"


def state(**request: Any) -> dict[str, Any]:
    """As the slot writes it for a profile of an engine elsewhere."""
    return {
        "profile": {"name": "gpu2", "served_model_name": NAME, "modalities": ["text"], "remote": True},
        "engine": {**serving_state("")["engine"], "metrics": {"tokens": "", "cache": ""}, "dialect": PLAIN._asdict()},
        "request": {"model_policy": "reject", "model_aliases": [ALIAS], "allowed_media_domains": [], **request},
    }


@pytest.mark.parametrize("path", [*GENERATION_PATHS, *JSON_PATHS])
@on_loop
async def test_only_the_model_of_the_profile_is_asked_for(tmp_path: Path, path: str) -> None:
    async with bench(tmp_path, state=state()) as run:
        client = await run.client()
        for body in (b'{"model":"expensive"}', b"{}", b'{"model":["gemma4-12b-it"]}'):
            refused = await client.ask("POST", path, body)
            assert (refused.status, refused.json["error"].get("code")) in ((404, "model_not_found"), (404, None)), body
        # who reads it otherwise than it is read here may find another model in it
        for body in (b'{"model":"gemma4-12b-it","model":"expensive"}', b"model=expensive", b"", b'{model:"expensive"}'):
            assert (await client.ask("POST", path, body)).status == 400, body
        packed = await client.ask("POST", path, b"{}", "Content-Encoding: gzip")
        assert packed.status == 415
        assert not run.engine.requests
        assert (await client.ask("POST", path, b'{"model":"assistant"}')).status == 200
        assert json.loads(run.engine.requests[0].body)["model"] == NAME


@on_loop
async def test_a_name_that_is_rewritten_is_so_in_every_body_that_leaves(tmp_path: Path) -> None:
    async with bench(tmp_path, state=state(model_policy="rewrite")) as run:
        client = await run.client()
        for body in (b'{"model":"expensive"}', b"{}"):
            assert (await client.ask("POST", CHAT, body)).status == 200
        assert [json.loads(one.body)["model"] for one in run.engine.requests] == [NAME, NAME]
        assert (await client.ask("POST", CHAT, b"model=expensive")).status == 400
        assert len(run.engine.requests) == 2


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/audio/transcriptions", 404),
        ("POST", "/v1/audio/translations", 404),
        ("GET", "/v1/responses/resp_of_somebody", 404),
        ("DELETE", "/v1/responses/resp_of_somebody", 404),
        ("POST", "/v1/responses/resp_of_somebody/cancel", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/embeddings", 405),
        ("DELETE", "/v1/models/gemma4-12b-it", 404),
    ],
)
@on_loop
async def test_what_is_not_looked_at_does_not_leave(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with bench(tmp_path, state=state()) as run:
        refused = await (await run.client()).ask(method, path, b'{"model":"gemma4-12b-it"}')
        assert refused.status == status
        assert not run.engine.requests
        # an engine of this host is asked
        run.write_state(sequence=9)
        assert (await (await run.client()).ask(method, path, b"{}")).status == 200


@pytest.mark.interpreted
@on_loop
async def test_what_else_the_remote_serves_is_not_listed(tmp_path: Path) -> None:
    async with bench(tmp_path, state=state()) as run:

        async def listed(call: Call) -> None:
            await call.json({"object": "list", "data": [{"id": "expensive"}, {"id": NAME}, 5]})

        run.engine.script = listed
        client = await run.client()
        found = (await client.ask("GET", "/v1/models")).json["data"]
        assert [one["id"] for one in found] == [NAME, ALIAS]
        assert (await client.ask("GET", "/v1/models/expensive")).status == 404


@pytest.mark.parametrize("path", [*GENERATION_PATHS, "/v1/embeddings"])
@pytest.mark.parametrize(
    ("setting", "allowed", "status"),
    [
        ("allow", None, 200),
        ("allow", True, 200),
        ("allow", False, 403),
        ("allow", "yes", 422),
        ("ask", None, 403),
        ("ask", True, 200),
        ("ask", False, 403),
        ("ask", "yes", 422),
    ],
)
@on_loop
async def test_a_site_may_want_each_request_to_allow_it(
    tmp_path: Path, path: str, setting: str, allowed: Any, status: int
) -> None:
    async with bench(tmp_path, state=state(), request={"remote": setting}) as run:
        body = {"model": ALIAS} if allowed is None else {"model": ALIAS, "allow_remote": allowed}
        client = await run.client()
        answer = await client.ask("POST", path, json.dumps(body).encode())
        assert answer.status == status
        assert [json.loads(one.body) for one in run.engine.requests] == [{"model": NAME}] * (status == 200)
        if status == 403 and path == CHAT:
            assert answer.json["error"]["code"] == "remote_execution_disallowed"
            assert "send allow_remote: true" in answer.json["error"]["message"]


@on_loop
async def test_the_setting_is_nothing_to_an_engine_of_this_host(tmp_path: Path) -> None:
    async with bench(tmp_path, request={"remote": "ask"}) as run:
        client = await run.client()
        for body in (b"{}", b'{"allow_remote":false}'):
            assert (await client.ask("POST", CHAT, body)).status == 200
        assert (await client.ask("GET", "/status")).json["model_slot"]["remote"] is False


@on_loop
async def test_the_status_says_where_the_model_runs(tmp_path: Path) -> None:
    async with bench(tmp_path, state=state(), request={"remote": "ask"}) as run:
        told = (await (await run.client()).ask("GET", "/status")).json
        assert told["model_slot"]["remote"] is True
        assert told["frontdoor"]["request"]["remote"] == "ask"


@on_loop
async def test_a_state_that_does_not_say_it_rightly_closes_the_slot(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.write_state(sequence=8, profile={"remote": "far"})
        refused = await (await run.client()).chat()
        assert (refused.status, "profile.remote: expected bool" in refused.json["error"]["message"]) == (503, True)
