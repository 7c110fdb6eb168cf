# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of HTTP/1.0: a connection stays open only where they asked for it, and every answer says whether it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_kit import admin
from kit import Answer, Call, Client, bench, on_loop

CHAT = "POST /v1/chat/completions"
LIST = {"object": "list", "data": [{"id": "tiny-a", "object": "model"}]}


async def ask(client: Client, line: str, *fields: str) -> Answer:
    method = line.split()[0]
    body = b"{}" if method == "POST" else b""
    length = (f"Content-Length: {len(body)}",) if body else ()
    head = "".join(f"{field}\r\n" for field in (*length, "Content-Type: application/json", *fields))
    client.send(f"{line} HTTP/1.0\r\n{head}\r\n".encode() + body)
    return await client.answer(method)


async def models(call: Call) -> None:
    await call.json(LIST)


# what the frontdoor answers itself, what it refuses, and what it passes on: the request, the state, the status
ANSWERS = [
    ("GET /status", {}, 200),
    ("HEAD /status", {}, 200),
    ("GET /", {}, 200),
    ("GET /ready", {"open": False}, 503),
    ("GET /metrics", {}, 200),
    ("POST /status", {}, 405),
    ("OPTIONS /status", {}, 204),
    ("GET /nothing", {}, 404),
    ("GET /v1/models", {}, 200),
    ("GET /v1/models/nothing", {}, 404),
    ("GET /version", {}, 200),
    (CHAT, {}, 200),
    (CHAT, {"open": False, "phase": "stopped"}, 503),
    ("GET /version", {"open": False, "phase": "stopped"}, 503),
]


@pytest.mark.parametrize(("line", "state", "status"), ANSWERS)
@on_loop
async def test_what_is_kept_open_says_so(tmp_path: Path, line: str, state: dict[str, object], status: int) -> None:
    async with bench(tmp_path, state=state or None) as run:
        run.engine.script = models
        client = await run.client()
        for _ in range(2):
            answer = await ask(client, line, "Connection: keep-alive")
            assert (answer.status, answer.header("Connection")) == (status, "keep-alive")
        answer = await ask(client, line)
        assert (answer.status, answer.header("Connection")) == (status, "close")
        assert await client.closed()


@on_loop
async def test_the_administration_says_so_too(tmp_path: Path) -> None:
    async with admin(tmp_path) as (_, client, _helper):
        for key, status in (("Authorization: Bearer s-root", 200), ("Authorization: Bearer s-wrong", 401)):
            answer = await ask(client, "GET /v1/admin/models", "Connection: keep-alive", key)
            assert (answer.status, answer.header("Connection")) == (status, "keep-alive")


@on_loop
async def test_a_stream_ends_with_its_connection(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def stream(call: Call) -> None:
            await call.begin_events()
            await call.event("one")
            await call.send(b"0\r\n\r\n")

        run.engine.script = stream
        client = await run.client()
        answer = await ask(client, CHAT, "Connection: keep-alive")
        assert (answer.header("Connection"), answer.body) == ("close", b"data: one\n\n")


@on_loop
async def test_clients_of_http11_are_told_only_the_end(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.ask("GET", "/status")).header("Connection") is None
        assert (await client.ask("GET", "/status", None, "Connection: close")).header("Connection") == "close"
