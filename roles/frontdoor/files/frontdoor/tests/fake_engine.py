# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine on loopback that answers as a test wants it to."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from machine import keep_port


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


class _Connection(asyncio.StreamReaderProtocol):
    """A connection to the engine, which tells the call in hand when the client is gone."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(asyncio.StreamReader(limit=2**20), engine.serve)
        self._engine = engine
        self._call: Call | None = None
        self._over = False

    def hand(self, call: Call | None) -> None:
        """Take the call that is in hand from now on."""
        self._call = call
        self._tell()

    def eof_received(self) -> bool | None:
        self._over = True
        self._tell()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._tell()
        super().connection_lost(exc)

    def _tell(self) -> None:
        if self._over and self._call is not None and not self._call.gone.is_set():
            self._engine.lost += 1
            self._call.gone.set()


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
        self._kept: socket.socket | None = None
        #: what /health answers, and whether it does
        self.health = "200 OK"
        self.wedged = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        if not self.port:
            # While the engine lives: one that was killed comes back on its port.
            self._kept = keep_port()
            self.port = self._kept.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.transport.get_protocol()
        assert isinstance(connection, _Connection)
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
                call = Call(request, reader, writer, asyncio.Event())
                connection.hand(call)
                try:
                    await self.script(call)
                finally:
                    self.active -= 1
                    connection.hand(None)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except RuntimeError:
            # uvloop's word for writing to a connection that is closed
            assert writer.transport.is_closing()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


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


class Hold:
    """An engine script that answers when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await self.go.wait()
        await call.json({"body": call.request.body.decode()})
