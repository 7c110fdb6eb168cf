# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors on the paths of Anthropic's API have Anthropic's shape; methods that a path does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_kit import write_keys
from kit import Answer, bench, on_loop

from frontdoor import errors
from frontdoor.errors import Refusal
from frontdoor.policy.routes import Style

POST = b"POST /v1/messages HTTP/1.1\r\n"


def told(answer: Answer) -> tuple[int, str, str]:
    """Status, type and code of an error in Anthropic's shape."""
    assert (set(answer.json), answer.json["type"]) == ({"type", "error"}, "error")
    error = answer.json["error"]
    assert error["message"]
    return answer.status, error["type"], error["code"]


@on_loop
async def test_what_is_not_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path in ("/v1/messages/batches", "/v1/messages/batches/msgbatch_1", "/v1//messages/x?beta=true"):
            assert told(await client.ask("GET", path)) == (404, "not_found_error", "unknown_path")
        assert told(await client.ask("POST", "/v1/messages/batches", b"{}"))[0] == 404
        # what only begins alike is another path
        answer = await client.ask("GET", "/v1/messagesx")
        assert (answer.status, answer.json["error"]["code"], "type" in answer.json) == (404, "unknown_path", False)
        assert not run.engine.requests


@on_loop
async def test_methods_that_are_not_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            for method in ("GET", "PUT", "DELETE"):
                answer = await client.ask(method, path)
                assert told(answer) == (405, "invalid_request_error", "method_not_allowed")
                assert answer.header("Allow") == "POST, OPTIONS"
            assert (await client.ask("HEAD", path)).status == 405
            assert (await client.ask("OPTIONS", path)).status == 204
        assert not run.engine.requests


@on_loop
async def test_while_nothing_is_served(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"open": False, "phase": "stopped"}) as run:
        client = await run.client()
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            assert told(await client.ask("POST", path, b"{}")) == (503, "overloaded_error", "stopped")


@on_loop
async def test_without_a_key(tmp_path: Path) -> None:
    async with bench(tmp_path, auth={"keys_file": write_keys(tmp_path / "keys.toml", alice="s")}) as run:
        client = await run.client()
        for path in ("/v1/messages", "/v1/messages/batches"):
            assert told(await client.ask("POST", path, b"{}")) == (401, "authentication_error", "invalid_api_key")


# requests that are refused before they are understood
UNREAD = [
    (POST + b"\r\n", 400, "missing_host"),
    (POST + b"Host: x\r\nHost: y\r\n\r\n", 400, "duplicate_header"),
    (POST + b"Host: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_request"),
    (POST + b"Host: x\r\nExpect: more\r\n\r\n", 417, "bad_expectation"),
    (POST + b"Host: x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431, "headers_too_large"),
    (b"TRACE /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n", 501, "method_not_supported"),
]


@pytest.mark.parametrize(("raw", "status", "code"), UNREAD)
@on_loop
async def test_what_is_not_understood(tmp_path: Path, raw: bytes, status: int, code: str) -> None:
    async with bench(tmp_path) as run:
        for sent, anthropic in ((raw, True), (raw.replace(b"/v1/messages", b"/v1/completions"), False)):
            client = await run.client()
            client.send(sent)
            answer = await client.answer()
            if anthropic:
                kind = "api_error" if status >= 500 else "invalid_request_error"
                assert told(answer) == (status, kind, code)
            else:
                assert (answer.status, answer.json["error"]["code"], "type" in answer.json) == (status, code, False)


def test_types_are_those_of_their_documentation() -> None:
    def kind(status: int) -> bytes:
        return errors.body(Refusal(status, "x", "y"), Style.ANTHROPIC).split(b'"')[9]

    assert kind(504) == b"timeout_error"
    assert {kind(status) for status in (400, 405, 408, 415, 417, 431)} == {b"invalid_request_error"}
    assert {kind(status) for status in (500, 501, 502)} == {b"api_error"}


@on_loop
async def test_the_engines_metrics_are_only_read(tmp_path: Path) -> None:
    async with bench(tmp_path, cors={"allow_origins": []}) as run:
        client = await run.client()
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = await client.ask(method, "/engine/metrics", b"{}" if method != "DELETE" else None)
            assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")
            assert answer.header("Allow") == "GET, HEAD, OPTIONS"
            assert "/engine/metrics" in answer.json["error"]["message"]
        assert (await client.ask("OPTIONS", "/engine/metrics")).status == 204
        assert not run.engine.requests
        assert (await client.ask("GET", "/engine/metrics")).status == 200
        assert (await client.ask("HEAD", "/engine/metrics")).status == 200
        assert [request.line for request in run.engine.requests] == [
            "GET /metrics HTTP/1.1",
            "HEAD /metrics HTTP/1.1",
        ]
