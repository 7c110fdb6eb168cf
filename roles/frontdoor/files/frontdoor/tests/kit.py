# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor and a fake engine on loopback, and raw sockets to talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import json
import os
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import uvloop

from frontdoor.accept import Listener
from frontdoor.auth import tls_context
from frontdoor.config import Config, from_table
from frontdoor.door import Door
from frontdoor.events import EventLog

LIMIT_S = 10.0


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on uvloop, as the frontdoor runs, with a limit on its time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(*args, **kwargs)

        uvloop.run(limited())

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


@dataclasses.dataclass
class Received:
    """A request as the engine saw it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, f"{name} was sent {len(found)} times"
        return found[0] if found else None


async def read_head(reader: asyncio.StreamReader) -> tuple[str, list[tuple[str, str]]]:
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = raw[:-4].split("\r\n")
    return line, [(f.partition(": ")[0], f.partition(": ")[2]) for f in fields]


async def read_chunks(reader: asyncio.StreamReader) -> list[bytes]:
    chunks: list[bytes] = []
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        if not size:
            return chunks
        chunks.append(data[:-2])


Script = Callable[["Call"], Awaitable[None]]


@dataclasses.dataclass
class Call:
    """One request in the hands of an engine script."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def json(self, payload: Any, status: str = "200 OK", extra: str = "") -> None:
        body = json.dumps(payload).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
        await self.send(head.encode() + (b"" if self.request.line.startswith("HEAD") else body))

    async def begin_events(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    async def event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))


class Engine:
    """Serves requests by a script; remembers what it saw."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.script: Script = echo
        self.connections = 0
        self.active = 0
        self.most_active = 0
        self.lost = 0
        self.port = 0
        #: what /health answers, and whether it does
        self.health = "200 OK"
        self.wedged = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                line, headers = await read_head(reader)
                request = Received(line, headers, b"")
                if request.header("transfer-encoding"):
                    request.body = b"".join(await read_chunks(reader))
                else:
                    request.body = await reader.readexactly(int(request.header("content-length") or 0))
                if line.startswith("GET /health "):
                    if not self.wedged.is_set():
                        writer.write(f"HTTP/1.1 {self.health}\r\nContent-Length: 0\r\n\r\n".encode())
                    continue
                self.requests.append(request)
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                try:
                    await self._run(Call(request, reader, writer, asyncio.Event()))
                finally:
                    self.active -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except RuntimeError:
            # uvloop's word for writing to a connection that is closed
            assert writer.transport.is_closing()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _run(self, call: Call) -> None:
        async def watch() -> None:
            while not call.reader.at_eof() and not call.writer.transport.is_closing():
                await asyncio.sleep(0.001)
            self.lost += 1
            call.gone.set()

        watcher = asyncio.create_task(watch())
        try:
            await self.script(call)
        finally:
            watcher.cancel()


async def echo(call: Call) -> None:
    """Answer with what was asked."""
    await call.json({"line": call.request.line, "body": call.request.body.decode("utf-8", "replace")})


async def moody(call: Call, rng: random.Random) -> None:
    """An engine that ends requests in every way there is."""
    mood = rng.randrange(24)
    if mood == 0:
        call.writer.transport.abort()
    elif mood == 1:
        await call.send(b"garbage\r\n\r\n")
        call.writer.close()
    elif mood == 2:
        await call.begin_events()
        await call.event("x")
        await call.send(b"9\r\nabc")
        call.writer.transport.abort()
    elif mood == 3:
        await call.gone.wait()
    elif mood == 4:
        await call.begin_events()
        await call.event("x")
        await call.gone.wait()
    elif mood == 5:
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        call.writer.close()
    elif mood == 6:
        await call.json({"error": {"message": "no"}}, status="400 Bad Request")
    elif mood == 7:
        await call.begin_events()
        for _ in range(3):
            await call.event("x")
        await call.send(b"0\r\n\r\n")
    else:
        await call.json({"ok": 1})


class Answer:
    """A response as the client saw it."""

    def __init__(self, line: str, headers: list[tuple[str, str]], body: bytes, chunks: list[bytes] | None) -> None:
        self.status = int(line.split()[1])
        self.headers = headers
        self.body = body
        self.chunks = chunks

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, f"{name} was sent {len(found)} times"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Hold:
    """An engine script that answers when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await self.go.wait()
        await call.json({"body": call.request.body.decode()})


class Client:
    """A raw connection to the frontdoor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def request(self, method: str, path: str, body: bytes | None = None, *fields: str) -> None:
        head = "".join(f"{field}\r\n" for field in ("Host: door", *fields))
        if body is not None:
            head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
        self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b""))

    async def answer(self, method: str = "GET") -> Answer:
        line, headers = await read_head(self.reader)
        answer = Answer(line, headers, b"", None)
        if method == "HEAD" or answer.status in (204, 304) or answer.status < 200:
            return answer
        if answer.header("transfer-encoding"):
            answer.chunks = await read_chunks(self.reader)
            answer.body = b"".join(answer.chunks)
        elif answer.header("content-length") is not None:
            answer.body = await self.reader.readexactly(int(answer.header("content-length") or 0))
        else:
            answer.body = await self.reader.read()
        return answer

    async def ask(self, method: str, path: str, body: bytes | None = None, *fields: str) -> Answer:
        self.request(method, path, body, *fields)
        return await self.answer(method)

    async def chat(self, payload: Any = None) -> Answer:
        return await self.ask("POST", "/v1/chat/completions", json.dumps(payload or {"model": "m"}).encode())

    async def closed(self) -> bool:
        """Whether the other side closes, with nothing more to say."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def leave(self) -> None:
        self.writer.transport.abort()

    def pause(self) -> None:
        """Read no more."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def resume(self) -> None:
        """Read again."""
        cast(asyncio.Transport, self.writer.transport).resume_reading()


class Bench:
    """A running frontdoor with its engine."""

    def __init__(self, door: Door, engine: Engine, port: int, state_path: str, log_fd: int) -> None:
        self.door = door
        self.engine = engine
        self.port = port
        self.state_path = state_path
        self._log_fd = log_fd
        self._clients: list[Client] = []

    async def client(self, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Client:
        where = {"ssl": tls, "local_addr": (address, 0)}
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20, **where))  # type: ignore[arg-type]
        self._clients.append(client)
        return client

    def write_state(self, **changes: Any) -> None:
        """Write a serving state, changed as told, and have it applied."""
        state = {**serving_state(self.engine.url), **changes}
        with open(self.state_path + ".new", "w") as handle:
            json.dump(state, handle)
        os.replace(self.state_path + ".new", self.state_path)
        self.door.poll_state()

    def events(self) -> list[dict[str, Any]]:
        """What was logged since the last call."""
        self.door.ledger.sweep()
        try:
            text = os.read(self._log_fd, 2**20)
        except BlockingIOError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def outcomes(self) -> dict[str, int]:
        """How the requests ended so far."""
        self.door.ledger.settle()
        return self.door.ledger.metrics.outcomes()

    async def settled(self, seconds: float = 2.0) -> None:
        """Wait until nothing is under way and all slots are free."""
        async with asyncio.timeout(seconds):
            while self.door.exchanges or self.door.gate.active or self.door.gate.queued or self.engine.active:
                await asyncio.sleep(0.001)

    def leave(self) -> None:
        for client in self._clients:
            client.leave()


def start_unit(units_dir: Any, invocation_id: str = "0" * 32) -> None:
    """Note a running engine as systemd does."""
    link = os.path.join(units_dir, "invocation:b70-slot-main-tiny-a.service")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(invocation_id, link)


def serving_state(url: str) -> dict[str, Any]:
    """A state file of a verified, open slot with two generation slots."""
    return {
        "schema": 1,
        "slot": "main",
        "sequence": 7,
        "updated_at": "2026-06-07T09:08:44Z",
        "phase": "serving",
        "open": True,
        "verified": True,
        "verified_at": "2026-06-07T09:08:44Z",
        "reason": "",
        "retry_after_s": None,
        "switch": None,
        "profile": {"name": "tiny-a", "title": "Tiny A", "hf_id": "x/y", "modalities": ["text"], "status": "candidate"}
        | {"served_model_name": "tiny-a", "max_model_len": 512, "fingerprint": "sha256:00"},
        "backend_url": url,
        "limits": {"max_active_generations": 2, "queue_timeout_s": 0, "backend_timeout_s": 30},
        "request": {"chat_template_kwargs": None},
        "event_log": True,
        "engine": {
            "unit": "b70-slot-main-tiny-a.service",
            "invocation_id": "0" * 32,
            "started_at": "2026-06-07T09:08:44Z",
        },
    }


@contextlib.asynccontextmanager
async def bench(tmp_path: Any, state: dict[str, Any] | None = None, **sections: Any) -> AsyncIterator[Bench]:
    """Start an engine and a frontdoor; `state` changes the serving state, `sections` the configuration."""
    engine = Engine()
    await engine.start()
    state_path = str(tmp_path / "state.json")
    if state is None or state:
        with open(state_path, "w") as handle:
            json.dump({**serving_state(engine.url), **(state or {})}, handle)
    sections.setdefault("backend", {}).setdefault("url", engine.url)
    sections.setdefault("slot", {}).setdefault("state_file", state_path)
    sections["slot"].setdefault("units_dir", str(tmp_path))
    start_unit(tmp_path)
    config: Config = from_table(sections)
    log_read, log_write = os.pipe()
    os.set_blocking(log_read, False)
    loop = asyncio.get_running_loop()
    door = Door(config, loop, EventLog(log_write))
    server = Listener(door, tls_context(config.tls))
    await server.open("127.0.0.1", 0)
    door.start()
    running = Bench(door, engine, server.sockets[0].getsockname()[1], state_path, log_read)
    try:
        yield running
        running.leave()
        await running.settled()
        async with asyncio.timeout(2):
            while door.connections:
                await asyncio.sleep(0.001)
        assert door.buffered == 0
    finally:
        running.leave()
        server.close()
        door.stop()
        await engine.kill()
        os.close(log_read)
        os.close(log_write)
        await asyncio.sleep(0)
