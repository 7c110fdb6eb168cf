# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and answers pass through the frontdoor as they are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from kit import Call, bench, on_loop, until

from frontdoor.config import ConfigError, from_table

CHAT = "/v1/chat/completions"


@on_loop
async def test_a_request_passes_with_its_bytes_and_fields(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        body = b'{ "model":"m",\n "x": 1.50 }'
        answer = await client.ask("POST", CHAT + "?a=1&b=%20", body, "X-Custom: v", "Authorization: Bearer t")
        assert answer.status == 200
        seen = run.engine.requests[0]
        assert seen.line == f"POST {CHAT}?a=1&b=%20 HTTP/1.1"
        assert seen.body == body
        assert seen.header("X-Custom") == "v"
        assert seen.header("Authorization") == "Bearer t"
        assert seen.header("Host") == f"127.0.0.1:{run.engine.port}"
        assert seen.header("X-Forwarded-For") == "127.0.0.1"
        assert seen.header("X-Forwarded-Host") == "door"
        assert seen.header("X-Forwarded-Proto") == "http"


@on_loop
async def test_both_sides_keep_their_connection(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for _ in range(5):
            assert (await client.chat()).status == 200
        assert run.engine.connections <= 2  # one for requests, one for the probe
        assert len(run.engine.requests) == 5


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD"])
@on_loop
async def test_every_method_passes(tmp_path: Path, method: str) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        answer = await client.ask(method, "/version")
        assert answer.status == 200
        assert run.engine.requests[0].line == f"{method} /version HTTP/1.1"
        assert (await client.ask("GET", "/v1/models")).status == 200


@on_loop
async def test_hop_by_hop_fields_stay_behind(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        fields = ("Connection: x-private, keep-alive", "X-Private: 1", "TE: trailers", "Keep-Alive: timeout=5")
        await client.ask("POST", CHAT, b"{}", *fields, "X-Forwarded-For: 6.6.6.6", "Proxy-Authorization: x")
        names = {name.lower() for name, _ in run.engine.requests[0].headers}
        assert not names & {"connection", "x-private", "te", "keep-alive", "proxy-authorization"}
        assert run.engine.requests[0].header("X-Forwarded-For") == "127.0.0.1"


@pytest.mark.interpreted
@on_loop
async def test_a_chunked_request_body_arrives_whole(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(f"POST {CHAT} HTTP/1.1\r\nHost: door\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in (b'3\r\n{"a\r\n', b'5;ext=1\r\n":1', b" }\r\n0\r\nX-Trailer: t\r\n", b"\r\n"):
            client.send(piece)
            await asyncio.sleep(0.002)
        assert (await client.answer()).status == 200
        assert run.engine.requests[0].body == b'{"a":1 }'
        assert run.engine.requests[0].header("Content-Length") == "8"
        assert (await client.chat()).status == 200


@pytest.mark.interpreted
@on_loop
async def test_a_client_that_waits_for_continue_gets_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.request("POST", CHAT, None, "Expect: 100-continue", "Content-Length: 2")
        assert (await client.answer()).status == 100
        client.send(b"{}")
        assert (await client.answer()).status == 200
        assert run.engine.requests[0].header("Expect") is None


@on_loop
async def test_continue_is_not_given_where_the_answer_is_known(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"phase": "failed", "open": False}) as run:
        client = await run.client()
        client.request("POST", CHAT, None, "Expect: 100-continue", "Content-Length: 2")
        assert (await client.answer()).status == 503
        assert await client.closed()


@on_loop
async def test_requests_sent_ahead_are_answered_in_order(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for number in range(6):
            client.request("POST", CHAT, json.dumps({"at": number}).encode())
            client.request("GET", "/health")
        for number in range(6):
            assert json.loads((await client.answer()).json["body"]) == {"at": number}
            assert (await client.answer()).json == {"status": "ok"}


@on_loop
async def test_a_head_in_single_bytes_is_understood(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for byte in b"\r\nPOST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}":
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer()).status == 200


@on_loop
async def test_large_bodies_pass_both_ways(tmp_path: Path) -> None:
    body = b'{"x":"' + b"y" * 5_000_000 + b'"}'
    async with bench(tmp_path) as run:

        async def big(call: Call) -> None:
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(call.request.body))
            await call.send(call.request.body)

        run.engine.script = big
        client = await run.client()
        assert (await client.ask("POST", CHAT, body)).body == body


@on_loop
async def test_http_1_0_clients_are_served(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def stream(call: Call) -> None:
            await call.begin_events()
            await call.event("one")
            await call.event("two")
            await call.send(b"0\r\n\r\n")

        client = await run.client()
        client.send(b"GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.header("Connection")) == (200, "keep-alive")
        run.engine.script = stream
        client.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        answer = await client.answer()
        assert answer.header("Transfer-Encoding") is None
        assert answer.header("Connection") == "close"
        assert answer.body == b"data: one\n\ndata: two\n\n"


@on_loop
async def test_an_engine_that_ends_with_its_connection(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def until_close(call: Call) -> None:
            await call.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello ")
            await call.send(b"world")
            call.writer.close()

        run.engine.script = until_close
        client = await run.client()
        answer = await client.chat()
        assert (answer.body, answer.header("Transfer-Encoding")) == (b"hello world", "chunked")
        assert (await client.chat()).body == b"hello world"


@pytest.mark.interpreted
@on_loop
async def test_interim_answers_of_the_engine_are_passed_on_but_for_100(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def early(call: Call) -> None:
            await call.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await call.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n")
            await call.json({"a": 1}, extra="Connection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n")

        run.engine.script = early
        client = await run.client()
        answer = await client.chat()
        assert (answer.status, answer.header("Link"), answer.header("X-Hop")) == (103, "</x>", None)
        answer = await client.answer()
        assert answer.json == {"a": 1}
        assert (answer.header("X-Hop"), answer.header("X-End")) == (None, "2")
        # RFC 9110 15.2: not to a client that does not know them
        client.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        assert (await client.answer()).json == {"a": 1}


@on_loop
async def test_browsers_get_their_permission(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def own_cors(call: Call) -> None:
            await call.json({}, extra="Access-Control-Allow-Origin: https://engine\r\n")

        run.engine.script = own_cors
        client = await run.client()
        answer = await client.ask("OPTIONS", CHAT, None, "Origin: http://ui", "Access-Control-Request-Method: POST")
        assert (answer.status, answer.header("Access-Control-Allow-Origin")) == (204, "*")
        answer = await client.ask("POST", CHAT, b"{}", "Origin: http://ui")
        assert answer.header("Access-Control-Allow-Origin") == "*"
        assert (await client.ask("POST", CHAT, b"{}")).header("Access-Control-Allow-Origin") is None


@on_loop
async def test_each_of_several_origins_gets_its_own_permission(tmp_path: Path) -> None:
    allowed = ["https://ui.example", "http://10.0.0.7:3000"]
    async with bench(tmp_path, cors={"allow_origins": allowed}) as run:
        client = await run.client()
        for origin in (*allowed, "https://other.example", "https://ui.example:8443", "null"):
            expected = origin if origin in allowed else None
            fields = f"Origin: {origin}", "Access-Control-Request-Method: POST"
            for method, path, status in (
                ("OPTIONS", CHAT, 204),
                ("POST", CHAT, 200),
                ("GET", "/health", 200),
                ("GET", "/x", 404),
            ):
                answer = await client.ask(method, path, b"{}" if method == "POST" else None, *fields)
                assert answer.status == status
                assert answer.header("Access-Control-Allow-Origin") == expected
                # or a cache would give the permission of one to another
                assert answer.header("Vary") == "Origin"
        assert (await client.ask("POST", CHAT, b"{}")).header("Vary") is None


@pytest.mark.parametrize(
    "wrong", ["https://ui.example/", "ui.example", "https://u@ui.example", "", "https://a, https://b"]
)
def test_an_origin_that_no_browser_names_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"cors\.allow_origins: .* is no origin; write https://HOST"):
        from_table({"cors": {"allow_origins": ["*", wrong]}})


@on_loop
async def test_an_idle_connection_the_engine_closed_costs_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a machine may well need longer than that to tell of a connection's end
    monkeypatch.setattr("frontdoor.http.exchange._STALE_S", 60)
    async with bench(tmp_path) as run:

        async def answer_once(call: Call) -> None:
            await call.json({"n": len(run.engine.requests)})
            # closes without having announced it, in the moment the next request is on its way
            call.writer.close()

        run.engine.script = answer_once
        client = await run.client()
        for number in range(1, 20):
            client.request("POST", CHAT, b"{}")
            answer = await client.answer()
            assert (answer.status, answer.json) == (200, {"n": number})


@on_loop
async def test_no_continue_for_a_body_that_is_too_large(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_body_bytes": 1000}) as run:
        client = await run.client()
        client.request("POST", CHAT, None, "Expect: 100-continue", "Content-Length: 1001")
        assert (await client.answer()).status == 413
        assert await client.closed()


@pytest.mark.parametrize("path", ["/v1/models/a", "/version", "/health", "/status", "/nothing"])
@on_loop
async def test_an_answer_to_head_has_no_body_and_the_next_one_follows(tmp_path: Path, path: str) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        like = await client.ask("GET", path)
        head = await client.ask("HEAD", path)
        assert (head.status, head.header("Content-Type")) == (like.status, like.header("Content-Type"))
        assert int(head.header("Content-Length") or 0) > 0
        assert (await client.chat()).status == 200


@on_loop
async def test_64_mb_pass_and_a_byte_more_does_not(tmp_path: Path) -> None:
    limit = 64 * 1024 * 1024
    async with bench(tmp_path) as run:

        async def count(call: Call) -> None:
            await call.json({"size": len(call.request.body)})

        run.engine.script = count
        client = await run.client()
        body = b'{"x":"' + b"y" * (limit - 8) + b'"}'
        assert (await client.ask("POST", CHAT, body)).json == {"size": limit}
        answer = await client.ask("POST", CHAT, body + b" ")
        assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")


@on_loop
async def test_fields_between_engine_and_frontdoor_stay_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        extra = "Connection: keep-alive, x-private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: yes\r\n"

        async def talkative(call: Call) -> None:
            await call.json({}, extra=extra + "Proxy-Authenticate: Basic\r\nTrailer: X-Sum\r\n")

        run.engine.script = talkative
        answer = await (await run.client()).chat()
        names = {name.lower() for name, _ in answer.headers}
        assert not names & {"connection", "x-private", "keep-alive", "proxy-authenticate", "trailer"}
        assert answer.header("X-Kept") == "yes"


@pytest.mark.parametrize("trailer", [b"X-Sum: 1\r\n", b"X-Sum: 0\r\n", b"A: b\r\nC: 0\r\n", b""])
@pytest.mark.parametrize("together", [True, False])
@on_loop
async def test_trailers_of_the_engine_are_discarded(tmp_path: Path, trailer: bytes, together: bool) -> None:
    async with bench(tmp_path) as run:

        async def trailing(call: Call) -> None:
            await call.begin_events()
            chunk, end = b"b\r\ndata: one\n\n\r\n", b"0\r\n" + trailer + b"\r\n"
            for piece in [chunk + end] if together else [chunk, end]:
                await call.send(piece)
                await asyncio.sleep(0.002)

        run.engine.script = trailing
        client = await run.client()
        for _ in range(2):
            # the reader of the tests knows no trailers, and would take one for the next head
            assert (await client.chat()).body == b"data: one\n\n"


@on_loop
async def test_of_too_much_that_is_sent_ahead_nothing_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        go = asyncio.Event()

        async def hold(call: Call) -> None:
            await go.wait()
            await call.json({})

        run.engine.script = hold
        client = await run.client()
        client.request("POST", CHAT, b"{}")
        for _ in range(400):
            client.request("GET", "/health", None, "X: " + "y" * 20_000)
        (connection,) = run.app.connections
        await until(lambda: connection._close_after and not client.writer.transport.get_write_buffer_size())
        assert len(connection._buffer) < 512 * 1024
        go.set()
        assert (await client.answer()).status == 200
        assert await client.closed()
        assert len(run.engine.requests) == 1


@on_loop
async def test_a_request_the_engine_may_have_worked_on_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontdoor.http.exchange._STALE_S", 0.05)
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.chat()).status == 200

        async def dies_at_work(call: Call) -> None:
            await asyncio.sleep(0.1)
            call.writer.transport.abort()

        run.engine.script = dies_at_work
        answer = await client.chat()
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_closed")
        assert len(run.engine.requests) == 2
