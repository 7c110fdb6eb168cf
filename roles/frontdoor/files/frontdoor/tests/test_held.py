# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nobody holds a connection, memory or a place for longer than they are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kit import Bench, Call, Client, bench, on_loop, on_uvloop, until
from test_auth import certificate as certificate

from frontdoor.http.chunks import ChunkScanner
from frontdoor.http.listener import Listener

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


async def tight(run: Bench) -> Client:
    """A client between which and the frontdoor next to nothing fits, and that does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", run.port))
    client = Client(*await asyncio.open_connection(sock=sock, limit=2**20))
    client.pause()
    await until(lambda: run.app.connections)
    (connection,) = run.app.connections
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return client


def answering(size: int) -> Callable[[Call], Awaitable[None]]:
    async def script(call: Call) -> None:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    return script


@on_loop
async def test_an_answer_that_is_not_taken_does_not_hold_a_connection_that_closes(tmp_path: Path) -> None:
    async with bench(tmp_path, limits={"write_timeout_s": 0.3}) as run:
        run.engine.script = answering(150_000)
        with run.nobody_late():
            client = await tight(run)
            client.send(CHAT + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
            await until(lambda: run.outcomes() == {"ok": 1})
            (connection,) = run.app.connections
            assert connection.transport.get_write_buffer_size() > 50_000
        await until(lambda: not run.app.connections)
        client.leave()


@pytest.mark.interpreted
@on_loop
async def test_who_takes_a_part_of_an_answer_has_no_longer_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontdoor.http.client._LINGER_S", 0.3)
    async with bench(tmp_path, limits={"write_timeout_s": 0.5}) as run:
        run.engine.script = answering(400_000)
        with run.nobody_late():
            client = await tight(run)
            (connection,) = run.app.connections
            # However slowly it comes from the engine, all of it is to wait for this client.
            connection.transport.set_write_buffer_limits(high=10**6)
            # what is behind the body cannot be told, so that the connection is closed after the answer
            client.send(CHAT + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /x")
            await until(lambda: run.outcomes() == {"ok": 1})
            connection.transport.set_write_buffer_limits()
            assert not connection._writable
            client.resume()
            while not connection._writable:
                await asyncio.sleep(0)
            client.pause()
            given = connection.deadline
        await until(lambda: not run.app.connections)
        assert connection.deadline == given
        client.leave()


@on_loop
async def test_silent_connections_count_and_end_with_tls_too(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    trust = ssl.create_default_context(cafile=cert)
    limits = {"max_connections": 10, "header_timeout_s": 60}
    async with bench(tmp_path, tls={"cert_file": cert, "key_file": key}, limits=limits) as run:
        silent = [await run.client(address="127.0.0.2") for _ in range(40)]
        ends = [asyncio.create_task(client.closed()) for client in silent]
        # long before the time of those that are let in ends
        await until(lambda: sum(task.done() for task in ends) >= 30)
        assert sum(task.done() for task in ends) == 30
        # this host is let in all the same
        assert (await (await run.client(trust)).ask("GET", "/health")).status == 200
        for client in silent:
            client.leave()
        await until(lambda: not run.app.connection_limiter.handshakes)
        # and when nobody else of them leaves, their time ends
        patient = run.app.server.limits
        run.app.server.limits = patient._replace(header_timeout_s=0.3)
        silent = [await run.client(address="127.0.0.2") for _ in range(10)]
        for client in silent:
            assert await client.closed()
        run.app.server.limits = patient
        assert (await (await run.client(trust, address="127.0.0.3")).ask("GET", "/health")).status == 200
        await until(lambda: not run.app.connection_limiter.handshakes)


@pytest.mark.parametrize("body", [300_000, 20_000_000])
@on_loop
async def test_a_body_the_engine_leaves_unread_does_not_stand_before_the_next_request(
    tmp_path: Path, body: int
) -> None:
    async with bench(tmp_path, limits={"max_body_bytes": 30_000_000}) as run:
        seen = 0

        async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal seen
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen += head.startswith(b"POST")
                if b"Content-Length: %d" % body in head:
                    writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
                    await asyncio.Event().wait()
                await reader.readexactly(2 if head.startswith(b"POST") else 0)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        server = await asyncio.start_server(hasty, "127.0.0.1", 0, limit=2**12)
        run.write_state(backend_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        first, second = await run.client(), await run.client()
        assert (await first.ask("POST", "/v1/completions", b"x" * body)).status == 413
        assert run.app.memory.held == 0
        assert (await second.ask("POST", "/v1/completions", b"{}")).status == 200
        assert seen == 2
        server.close()


@pytest.mark.parametrize("start", [b"POST /health", b"POST /nothing", b"OPTIONS /v1/completions", b"POST /status"])
@on_loop
async def test_large_bodies_are_read_only_where_somebody_wants_them(tmp_path: Path, start: bytes) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        client.send(start + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 1000)
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")
        client = await run.client()
        client.send(start + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(9):
            client.send(b"2000\r\n" + b"x" * 8192 + b"\r\n")
            await asyncio.sleep(0.001)
        assert (await client.answer()).status == 413
        assert run.app.memory.held == 0


@on_loop
async def test_one_client_s_bodies_leave_room_for_those_of_others(tmp_path: Path) -> None:
    limits = {"max_body_bytes": 1_000_000, "max_buffered_bytes_per_client": 3_000_000}
    state = {"limits": {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}}
    async with bench(tmp_path, state, limits=limits) as run:
        go = asyncio.Event()

        async def hold(call: Call) -> None:
            await go.wait()
            await call.json({})

        run.engine.script = hold
        # one that comes in, one whose body the engine has, and those that wait with theirs
        held = [await run.client(address="127.0.0.2") for _ in range(3)]
        for number, client in enumerate(held, 1):
            client.request("POST", "/v1/completions", b"x" * 900_000)
            await run.arrived(number)
        last = await run.client(address="127.0.0.2")
        last.request("POST", "/v1/completions", b"x" * 900_000)
        answer = await last.answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
        assert "of yours" in answer.json["error"]["message"]
        other = await run.client(address="127.0.0.3")
        other.request("POST", "/v1/completions", b"x" * 900_000)
        await run.queued(3)
        go.set()
        for client in (*held, other):
            assert (await client.answer()).status == 200
        assert len(run.app.memory) == 0


def test_a_body_in_tiny_chunks_takes_the_memory_of_a_body() -> None:
    data = b"2\r\nab\r\n" * 10_000
    tracemalloc.start()
    try:
        scanner, content = ChunkScanner(), bytearray()
        for _ in range(10):
            content += scanner.feed(data)
        content += scanner.feed(b"0\r\n\r\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scanner.complete
    assert bytes(content) == b"ab" * 100_000
    assert peak < 2_000_000


@pytest.mark.parametrize("secured", [False, True])
@on_uvloop
async def test_the_kernel_looks_after_clients_that_vanish(
    tmp_path: Path, secured: bool, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    sections = {"tls": {"cert_file": cert, "key_file": key}} if secured else {}
    async with bench(tmp_path, limits={"dead_peer_timeout_s": 30}, **sections) as run:
        trust = ssl.create_default_context(cafile=cert) if secured else None
        assert (await (await run.client(trust)).ask("GET", "/health")).status == 200
        (connection,) = run.app.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        wanted = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
        for name, value in wanted.items():
            assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@on_loop
async def test_the_address_of_everything_is_reached_by_ipv4_too(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        everywhere = Listener(run.app.server, None)
        await everywhere.open("::", 0)
        port = everywhere.sockets[0].getsockname()[1]
        for address, known in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
            client = Client(*await asyncio.open_connection(address, port))
            assert (await client.ask("GET", "/health")).status == 200
            assert [c.address for c in run.app.connections] == [known]
            assert all(c.from_this_host for c in run.app.connections)
            client.leave()
            await until(lambda: not run.app.connections)
        everywhere.close()
