# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who did what: a request has one name in its answer, at the engine and in the journal, and one line there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Call
from kit import Bench, Hold, bench, on_loop, until
from several import several
from test_auth import write_keys

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MADE = r"[0-9a-f]{16}-[0-9a-f]+"
USAGE = '{"choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}}'


def lines(run: Bench) -> list[dict[str, Any]]:
    return [event for event in run.events() if event["event"] == "request"]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (["X-Request-Id: req_01.A-b:c/d+e=@~"], re.escape("req_01.A-b:c/d+e=@~")),
        ([f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01"], TRACE),
        ([f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id: mine"], "mine"),
        # what may not stand in a log, and what is none
        ([f"X-Request-Id: {'x' * 129}", f"traceparent: cc-{TRACE}-00f067aa0ba902b7-01-more"], TRACE),
        (['X-Request-Id: a"b'], MADE),
        (["X-Request-Id: a", "X-Request-Id: b"], MADE),
        (["X-Request-Id:"], MADE),
        (["traceparent: 00-" + "0" * 32 + "-00f067aa0ba902b7-01"], MADE),
        (["traceparent: nonsense"], MADE),
        ([], MADE),
    ],
)
@on_loop
async def test_a_request_has_one_name_everywhere(tmp_path: Path, fields: list[str], name: str) -> None:
    async with bench(tmp_path) as run:
        # an engine that has a name of its own for it
        run.engine.script = lambda call: call.json({}, extra="X-Request-Id: engine\r\n")
        client = await run.client()
        for method, path, body in (("POST", CHAT, b"{}"), ("POST", "/tokenize", b"{}"), ("GET", MODELS, None)):
            told = (await client.ask(method, path, body, *fields)).header("X-Request-Id") or ""
            assert re.fullmatch(name, told)
            assert run.engine.requests[-1].header("X-Request-Id") == told
            assert [line["request_id"] for line in lines(run)] == [told]


@on_loop
async def test_a_made_name_is_that_of_one_request(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        names = [(await client.chat()).header("X-Request-Id") for _ in range(5)]
        assert len({*names}) == 5


@on_loop
async def test_every_answer_has_the_name(tmp_path: Path) -> None:
    named = "X-Request-Id: mine"
    async with bench(tmp_path, auth={"keys_file": write_keys(tmp_path, alice="secret-a")}) as run:
        client = await run.client()
        key = "Authorization: Bearer secret-a"
        for method, path, fields, status in (
            ("GET", "/health", [], 200),
            ("GET", "/status", [key], 200),
            ("GET", "/nowhere", [key], 404),
            ("POST", CHAT, [], 401),
            ("OPTIONS", CHAT, ["Origin: http://page"], 204),
        ):
            body = b"{}" if method == "POST" else None
            answer = await client.ask(method, path, body, named, *fields)
            assert (answer.status, answer.header("X-Request-Id")) == (status, "mine")
        assert "X-Request-Id" in (answer.header("Access-Control-Expose-Headers") or "")
        client.send(b"garbage\r\n\r\n")
        broken = await client.answer()
        assert broken.status == 400
        assert re.fullmatch(MADE, broken.header("X-Request-Id") or "")
        told = [(line["path"], line["status"], line["error"], line["key"], line["request_id"]) for line in lines(run)]
        assert told == [
            ("/nowhere", 404, "unknown_path", "alice", "mine"),
            (CHAT, 401, "invalid_api_key", None, "mine"),
            ("", 400, "bad_request", None, broken.header("X-Request-Id")),
        ]


@on_loop
async def test_refusals_of_one_kind_have_each_their_name(tmp_path: Path) -> None:
    """They are rendered once."""
    async with bench(tmp_path, state={"limits": {"max_active_generations": 1, "queue_timeout_s": 0}}) as run:
        run.engine.script = hold = Hold()
        running, other = await run.client(), await run.client()
        running.request("POST", CHAT, b"{}")
        await until(lambda: run.engine.active == 1)
        for name in ("a", "b"):
            refused = await other.ask("POST", CHAT, b"{}", f"X-Request-Id: {name}")
            assert (refused.status, refused.header("X-Request-Id")) == (503, name)
        assert [(line["request_id"], line["slot"]) for line in lines(run)] == [("a", "main"), ("b", "main")]
        hold.go.set()
        assert (await running.answer()).status == 200


@on_loop
async def test_a_line_says_who_asked_whom_for_how_much(tmp_path: Path) -> None:
    async def stream(call: Call) -> None:
        await call.begin_events()
        await call.event('{"choices":[{"delta":{"content":"x"}}]}')
        await call.event(USAGE)
        await call.send(b"0\r\n\r\n")

    auth = {"keys_file": write_keys(tmp_path, alice="secret-a")}
    async with several(tmp_path, count=2, auth=auth) as slot:
        for engine in slot.engines:
            engine.script = stream
        client = await slot.run.client()
        answer = await client.ask("POST", CHAT, b'{"stream":true}', "Authorization: Bearer secret-a")
        (line,) = lines(slot.run)
        assert (line["key"], line["model"], line["slot"], line["path"]) == ("alice", "tiny-a", "main", CHAT)
        assert (line["status"], line["outcome"], line["error"]) == (200, "ok", None)
        assert (line["prompt_tokens"], line["completion_tokens"]) == (7, 5)
        assert line["replica"] in (0, 1)
        assert line["request_id"] == answer.header("X-Request-Id")
        assert 0 <= line["first_token_s"] <= line["elapsed_s"]


@on_loop
async def test_what_watches_is_not_logged(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path in ("/health", "/status", "/metrics", "/ready", "/engine/metrics"):
            assert (await client.ask("GET", path)).status == 200
        assert not lines(run)
