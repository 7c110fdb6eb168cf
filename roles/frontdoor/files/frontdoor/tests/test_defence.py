# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is not a proper request never reaches the engine, and never confuses where a request begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit import Call, Client, bench, on_loop, until
from smuggling import CHAT, SMUGGLING

from frontdoor.http.client import BODY


@pytest.mark.parametrize("name", SMUGGLING)
@on_loop
async def test_ambiguous_requests_are_refused_and_nothing_after_them_is_served(tmp_path: Path, name: str) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(SMUGGLING[name] + b"GET /v1/models?smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await client.answer()
        assert 400 <= answer.status < 502
        assert answer.header("Connection") == "close"
        assert await client.closed()
        assert run.engine.requests == []


@pytest.mark.parametrize(
    "path",
    [
        *("/docs", "/openapi.json", "/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc"),
        *("/server_info", "/v1/load_lora_adapter", "/invocations", "/pause", "/v1/models/../../sleep", "/v1"),
        *("/v1/chat/completions/x", "/v1/responses/a/b", "/%2e%2e/sleep", "/v1/models/a/b/c", "/tokenizer_info"),
        *("/load", "/ping"),
    ],
)
@on_loop
async def test_paths_of_the_engine_that_are_not_listed_stay_inside(tmp_path: Path, path: str) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for method in ("GET", "POST"):
            answer = await client.ask(method, path, b"{}" if method == "POST" else None)
            assert answer.status == 404, path
        assert run.engine.requests == []


@on_loop
async def test_names_in_paths_reach_the_engine_quoted(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        for path in ("/v1/responses/a%2Fcancel", "/v1/responses/caf%C3%A9%20x"):
            assert (await client.ask("GET", path)).status == 200
        lines = [r.line.split()[1] for r in run.engine.requests]
        assert lines == ["/v1/responses/a/cancel", "/v1/responses/caf%C3%A9%20x"]


@pytest.mark.interpreted
@on_loop
async def test_a_body_over_the_limit_is_413(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_body_bytes": 1000}) as run:
        client = await run.client()
        client.send(CHAT + b"Content-Length: 5000000\r\n\r\n" + b"x" * 200_000)
        # the upload is still under way when the answer comes, and must not break it
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")
        client = await run.client()
        client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n" + b"200\r\n" + b"x" * 512 + b"\r\n")
        client.send(b"200\r\n" + b"x" * 512 + b"\r\n")
        assert (await client.answer()).status == 413
        assert (await (await run.client()).ask("POST", "/v1/completions", b"x" * 1000)).status == 200
        assert len(run.engine.requests) == 1


@on_loop
async def test_all_bodies_together_are_limited(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_body_bytes": 1000, "max_buffered_bytes": 2000}) as run:
        clients = [await run.client() for _ in range(3)]
        for number, client in enumerate(clients[:2], 1):
            client.send(CHAT + b"Content-Length: 1000\r\n\r\n" + b"x" * 900)
            await until(lambda number=number: run.app.memory.held == 900 * number)  # type: ignore[misc]
        clients[2].send(CHAT + b"Content-Length: 1000\r\n\r\n" + b"x" * 900)
        answer = await clients[2].answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
        clients[0].send(b"x" * 100)
        assert (await clients[0].answer()).status == 200


@pytest.mark.interpreted
@on_loop
async def test_a_body_that_breaks_off_leaves_the_account_even(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: run.app.memory.held == 3)
        client.send(b"3\r\ndef\r\nnonsense\r\n")
        assert (await client.answer()).status == 400
        assert run.app.memory.held == 0


@pytest.mark.interpreted
@on_loop
async def test_heads_are_limited(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_header_bytes": 2000, "max_headers": 10}) as run:
        client = await run.client()
        client.send(CHAT + b"X: " + b"y" * 3000)
        assert (await client.answer()).status == 431
        client = await run.client()
        client.send(CHAT + b"X: y\r\n" * 20 + b"\r\n")
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (431, "too_many_headers")
        assert await client.closed()


@pytest.mark.parametrize(
    "start",
    [b"", b"GET /v1/mod", CHAT + b"Content-Length: 10\r\n\r\n{", CHAT + b"Transfer-Encoding: chunked\r\n\r\n5\r\n"],
)
@on_loop
async def test_a_client_that_does_not_go_on_is_sent_away(tmp_path: Path, start: bytes) -> None:
    limits = {"header_timeout_s": 0.1, "body_idle_timeout_s": 0.1, "keepalive_timeout_s": 0.1}
    async with bench(tmp_path, limits=limits) as run:
        with run.nobody_late():
            client = await run.client()
            client.send(start)
            await until(lambda: [one for one in run.app.connections if one.idle == (not start)])
            # none of its bytes is still on its way
            (connection,) = run.app.connections
            await until(lambda: connection._stage == BODY or connection._buffer == start)
        if start:
            assert (await client.answer()).status == 408
        assert await client.closed()


@pytest.mark.interpreted
@on_loop
async def test_a_dripping_head_or_body_gets_no_more_time(tmp_path: Path) -> None:
    limits = {"header_timeout_s": 0.3, "body_idle_timeout_s": 60, "body_timeout_s": 0.5}
    async with bench(tmp_path, limits=limits) as run:
        for start in (b"GET /v1/models HTTP/1.1\r\nX: ", CHAT + b"Content-Length: 100000\r\n\r\n"):
            with run.nobody_late():
                client = await run.client()
                client.send(start)
                await until(lambda: any(not one.idle for one in run.app.connections))

            async def drip(client: Client = client) -> None:
                while True:
                    client.send(b"x")
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip())
            assert (await client.answer()).status == 408
            dripping.cancel()
            client.leave()
            await until(lambda: not run.app.connections)


@on_loop
async def test_connections_are_limited(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_connections": 2}) as run:
        first, second = await run.client(address="127.0.0.2"), await run.client(address="127.0.0.3")
        assert (await first.ask("GET", "/health")).status == 200
        assert (await second.ask("GET", "/health")).status == 200
        # one who was refused and does not go takes nobody's place
        lingering = [await run.client(address="127.0.0.4") for _ in range(3)]
        for client in lingering:
            assert (await client.answer()).json["error"]["code"] == "too_many_connections"
        first.leave()
        await until(lambda: "127.0.0.2" not in run.app.connection_limiter._of_network)
        third = await run.client(address="127.0.0.5")
        assert (await third.ask("GET", "/health")).status == 200
        # the host itself is always let in, within bounds
        assert (await (await run.client()).ask("GET", "/health")).status == 200


@on_loop
async def test_connections_from_one_address_leave_room_for_others(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_connections": 8, "max_connections_per_address": 3}) as run:
        greedy = [await run.client(address="127.0.0.2") for _ in range(20)]
        for number, client in enumerate(greedy):
            client.request("GET", "/health")
            answer = await client.answer()
            assert (answer.status == 200) is (number < 3)
        assert (await (await run.client(address="127.0.0.3")).ask("GET", "/health")).status == 200
        greedy[0].leave()
        await until(lambda: run.app.connection_limiter._of_network["127.0.0.2"] == 2)
        assert (await (await run.client(address="127.0.0.2")).ask("GET", "/health")).status == 200


@on_loop
async def test_refusals_at_the_door_are_bounded_too(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"max_connections": 1}) as run:
        assert (await (await run.client(address="127.0.0.2")).ask("GET", "/health")).status == 200
        for _ in range(400):
            await run.client(address="127.0.0.3")
        # who came last is let in last
        assert (await (await run.client()).ask("GET", "/health")).status == 200
        assert len(run.app.connections) < 300


@on_loop
async def test_upgrades_are_ignored(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        answer = await client.ask(
            "POST", "/v1/completions", b"{}", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"
        )
        assert answer.status == 200
        assert run.engine.requests[0].header("Upgrade") is None
        assert (await client.ask("GET", "/v1/models")).status == 200


@on_loop
async def test_nothing_is_served_after_a_chunked_body_with_more_behind_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.answer()).status == 200
        assert await client.closed()
        assert len(run.engine.requests) == 1


@on_loop
async def test_bytes_after_an_answer_do_not_become_the_next_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def chatty(call: Call) -> None:
            await call.send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"
            )

        run.engine.script = chatty
        client = await run.client()
        for _ in range(3):
            assert (await client.ask("GET", "/v1/models")).body == b"{}"
        assert len(run.engine.requests) == 3


@pytest.mark.parametrize("start", [b"2;", b"2\r\n{}\r\n0\r\nX: "])
@on_loop
async def test_chunk_extensions_and_trailers_without_end_are_cut_off(tmp_path: Path, start: bytes) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n" + start)
        for _ in range(20):
            client.send(b"x" * 10_000)
            await asyncio.sleep(0)
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")
        assert await client.closed()
        assert run.engine.requests == []


@on_loop
async def test_small_chunks_are_a_body_all_the_same(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
        assert (await client.answer()).status == 200
        assert run.engine.requests[0].body == b"x" * 100_000


@on_loop
async def test_empty_lines_without_end_get_no_more_time(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"header_timeout_s": 0.2, "keepalive_timeout_s": 0.2}) as run:
        client = await run.client()

        async def drip() -> None:
            while True:
                client.send(b"\r\n")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await client.closed()
        dripping.cancel()


@pytest.mark.parametrize("before", [0, 500_000], ids=["first", "second"])
@pytest.mark.parametrize("way", ["leaves", "stops", "overloads", "goes on"])
@on_loop
async def test_a_large_body_may_end_in_any_way(tmp_path: Path, way: str, before: int) -> None:
    size = 3_000_000
    limits: dict[str, float] = {"max_body_bytes": size, "max_buffered_bytes": size + 500_000}
    limits["body_idle_timeout_s"] = 0.3 if way == "stops" else 60
    async with bench(tmp_path, limits=limits) as run:
        client, other = await run.client(), await run.client()
        if before:
            assert (await client.ask("POST", "/v1/completions", b"x" * before)).status == 200
            await until(lambda: not run.app.memory.held)
        with run.nobody_late():
            client.send(CHAT + b"Content-Length: %d\r\n\r\n" % size)
            client.send(b"x" * 1_000_000)
            await until(lambda: run.app.memory.held >= 1_000_000)
        if way == "leaves":
            client.leave()
        elif way == "stops":
            answer = await client.answer()
            assert (answer.status, answer.json["error"]["code"]) == (408, "request_timeout")
            client.send(b"x" * 500_000)
            assert await client.closed()
        elif way == "overloads":
            other.send(CHAT + b"Content-Length: %d\r\n\r\n" % size + b"x" * 2_900_000)
            answer = await other.answer()
            assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
            assert await other.closed()
            client.leave()
        else:
            body = b"x" * (size - 3) + b"end"
            client.send(body[1_000_000:] + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.answer()).status == 200
            assert (await client.answer()).json == {"status": "ok"}
            assert run.engine.requests[-1].body == body
        await until(lambda: not run.app.memory.held)


@on_loop
async def test_after_a_stall_what_came_meanwhile_is_read_before_anybody_is_late(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        assert (await client.chat()).status == 200
        (connection,) = run.app.connections
        run.stop("sweep")
        # as if this process had not been let run for two seconds, in which the client's time ended
        run.app._swept -= 2
        connection.deadline = run.app.loop.time() - 1
        client.request("POST", "/v1/chat/completions", b"{}")
        run.app._sweep()
        assert (await client.answer()).status == 200
        # who is late at the next look goes
        connection.deadline = run.app.loop.time() - 1
        run.look()
        assert await client.closed()
        client.leave()
