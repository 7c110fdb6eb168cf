# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A frontdoor and a fake engine on loopback, and raw sockets to talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast
from unittest import mock

import uvloop
from fake_engine import Call as Call
from fake_engine import Engine as Engine
from fake_engine import Hold as Hold
from fake_engine import Received as Received
from fake_engine import Script as Script
from fake_engine import echo as echo
from fake_engine import moody as moody
from fake_engine import read_chunks as read_chunks
from fake_engine import read_head as read_head
from virtual import VirtualLoop

from frontdoor.app import _SWEEP_S, App
from frontdoor.config import Config, from_table
from frontdoor.errors import CODES, ENGINE_CODES
from frontdoor.http.listener import Listener
from frontdoor.http.tls import server_context
from frontdoor.observability.events import EventLog
from machine import LIMIT_S as LIMIT_S
from machine import free_port as free_port

# What ends a test that hangs by the clock of a virtual loop, which makes hours of such a time.
VIRTUAL_LIMIT_S = 3000.0
# For what must happen by a limit that a test sets, and would happen later by the one that is set by default (60 s).
SOON_S = 45.0


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on uvloop and by the real clock, as the frontdoor runs, with a limit on its time.

    For what other processes take part in, or what a loop is needed for that production has.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LIMIT_S):
                await test(*args, **kwargs)

        uvloop.run(limited())

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop whose clock jumps, so that no time is waited for; FRONTDOOR_UVLOOP=1 means uvloop."""
    return on_uvloop(test) if os.environ.get("FRONTDOOR_UVLOOP") == "1" else on_virtual_loop(test)


def on_virtual_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on such a loop whatever the environment says: by the real clock it would take minutes."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with loop.limit(LIMIT_S, VIRTUAL_LIMIT_S):
                await test(*args, **kwargs)

        loop = VirtualLoop()
        with mock.patch.object(time, "time", loop.wall_time), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(limited())

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


async def until(done: Callable[[], object], seconds: float = SOON_S) -> None:
    """Wait until something is so."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        if isinstance(loop, VirtualLoop):
            await loop.until(done)
        while not done():
            await asyncio.sleep(0.001)


class Single:
    """A waiter of a slot with one replica."""

    replica = 0

    def choose(self, room: int) -> int:
        raise AssertionError(f"there is nothing to choose: {room:b}")


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


def in_two_events(step: asyncio.Event) -> Callable[[Call], Awaitable[None]]:
    """Return an engine's script that streams one event, and another one after the step."""

    async def stream(call: Call) -> None:
        await call.begin_events()
        await call.event("one")
        await step.wait()
        await call.event("two")
        await call.send(b"0\r\n\r\n")

    return stream


class Bench:
    """A running frontdoor with its engine."""

    def __init__(self, app: App, engine: Engine, listener: Listener, state_path: str, log_fd: int) -> None:
        self.app = app
        self.engine = engine
        self.listener = listener
        self.port = listener.sockets[0].getsockname()[1]
        self.state_path = state_path
        self._log_fd = log_fd
        #: by which refused clients are spread over time
        self.spread: Callable[[], float] = lambda: 0.0
        self._clients: list[Client] = []

    async def client(self, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Client:
        where = {"ssl": tls, "local_addr": (address, 0)}
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20, **where))  # type: ignore[arg-type]
        self._clients.append(client)
        return client

    def write_state(self, **changes: Any) -> None:
        """Write a serving state, changed as told, and have it applied."""
        state = changed_state(self.engine.url, changes)
        with open(self.state_path + ".new", "w") as handle:
            json.dump(state, handle)
        os.replace(self.state_path + ".new", self.state_path)
        self.app.poll_state()

    def events(self) -> list[dict[str, Any]]:
        """What was logged since the last call."""
        self.app.ledger.sweep()
        try:
            text = os.read(self._log_fd, 2**20)
        except BlockingIOError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def outcomes(self) -> dict[str, int]:
        """How the requests ended so far."""
        self.app.ledger.settle()
        return self.app.ledger.metrics.outcomes()

    async def settled(self) -> None:
        """Wait until nothing is under way and all slots are free."""
        app = self.app
        await until(
            lambda: not (app.running or app.first.limiter.active or app.first.limiter.queued or self.engine.active)
        )

    async def arrived(self, count: int) -> None:
        """Wait until so many generations are in the gate."""
        await until(lambda: self.app.first.limiter.active + self.app.first.limiter.queued == count)

    async def queued(self, count: int) -> None:
        """Wait until so many wait for a slot."""
        await until(lambda: self.app.first.limiter.queued == count)

    async def in_turn(self, *clients: Client, path: str = "/v1/chat/completions") -> None:
        """Let clients ask, each when the one before it has arrived."""
        gate = self.app.first.limiter
        for client in clients:
            before = gate.active + gate.queued
            client.request("POST", path, b"{}")
            await self.arrived(before + 1)

    def stop(self, name: str) -> None:
        """End a periodic work of the frontdoor, where it would come in between."""
        self.app._timers.pop(name).cancel()

    @contextlib.contextmanager
    def nobody_late(self) -> Iterator[None]:
        """Let no limit of a connection pass while something is prepared, however long that takes here."""
        self.stop("sweep")
        yield
        self.app._every("sweep", _SWEEP_S, self.app._sweep)

    def look(self) -> None:
        """Look who is late, as the frontdoor does now and then; after a stall the first look is for nobody."""
        for _ in range(2):
            self.app._sweep()

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
        | {"served_model_name": "tiny-a", "max_model_len": 512, "fingerprint": "sha256:00", "examined": "sha256:01"},
        "backend_url": url,
        "limits": {"max_active_generations": 2, "queue_timeout_s": 0, "backend_timeout_s": 60},
        "request": {},
        "event_log": True,
        "engine": {
            "unit": "b70-slot-main-tiny-a.service",
            "invocation_id": "0" * 32,
            "started_at": "2026-06-07T09:08:44Z",
            "directives": [],
        },
        "gate": "verified",
    }


def changed_state(url: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The serving state with changes; what they do not say of a part is as empty as the slot would write it."""
    state: dict[str, Any] = serving_state(url)
    empty = {part: state[part] for part in ("limits", "request")}
    empty["profile"] = {**dict.fromkeys(state["profile"], ""), "modalities": [], "max_model_len": None}
    empty["profile"]["status"] = "candidate"
    empty["engine"] = {**dict.fromkeys(state["engine"], ""), "directives": None}
    empty["switch"] = {"id": "1", "from": None, "to": None, "started_at": "", "eta_s": None, "loading": False}
    for part, told in changes.items():
        state[part] = {**empty[part], **told} if part in empty and isinstance(told, dict) else told
    return state


@contextlib.asynccontextmanager
async def bench(tmp_path: Any, state: dict[str, Any] | None = None, **sections: Any) -> AsyncIterator[Bench]:
    """Start an engine and a frontdoor; `state` changes the serving state, `sections` the configuration."""
    engine = Engine()
    await engine.start()
    state_path = str(tmp_path / "state.json")
    if state is None or state:
        with open(state_path, "w") as handle:
            json.dump(changed_state(engine.url, state or {}), handle)
    backend = sections.setdefault("backend", {})
    backend.setdefault("url", engine.url)
    # a connection that was used is used again, however much later
    backend.setdefault("pool_idle_timeout_s", 600)
    # and the engine is asked only what a test asks it
    backend.setdefault("metrics_interval_s", 3600)
    sections.setdefault("slot", {}).setdefault("state_file", state_path)
    sections["slot"].setdefault("units_dir", str(tmp_path))
    start_unit(tmp_path)
    config: Config = from_table(sections)
    log_read, log_write = os.pipe()
    os.set_blocking(log_read, False)
    loop = asyncio.get_running_loop()
    app = App(config, loop, EventLog(log_write), spread=lambda: running.spread())
    tls, protocol = server_context(*config.tls), config.listen.proxy_protocol
    server = Listener(app.server, tls, proxy_protocol=protocol)
    await server.open("127.0.0.1", 0)
    app.start()
    running = Bench(app, engine, server, state_path, log_read)
    try:
        yield running
        running.leave()
        await running.settled()
        await until(lambda: not app.connections)
        assert app.memory.held == 0
        metrics = app.ledger.metrics
        assert {*metrics.refusals, *metrics.engine_errors, *metrics.errors} <= {*CODES, *ENGINE_CODES}
    finally:
        running.leave()
        server.close()
        app.stop()
        await engine.kill()
        os.close(log_read)
        os.close(log_write)
        await asyncio.sleep(0)
