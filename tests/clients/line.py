# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two ears on a connection: what went in and what came out, byte by byte, on both sides of the frontdoor."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httptools

from machine import LIMIT_S, free_port

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor" / "src"


def wait_for(port: int, what: str) -> None:
    """Wait until somebody listens on this machine."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} does not listen on port {port} after {LIMIT_S:g} s") from error
            time.sleep(0.05)


@dataclass
class Heard:
    """One message, without its framing."""

    start: bytes = b""
    kind: str = ""
    body: bytes = b""


class _Messages:
    """Callbacks of the parser: complete messages go to `sink`."""

    def __init__(self, sink: list[Heard]) -> None:
        self._sink = sink
        self._now: Heard | None = None

    def on_message_begin(self) -> None:
        self._now = Heard()

    def on_url(self, url: bytes) -> None:
        assert self._now is not None
        self._now.start += url

    def on_status(self, status: bytes) -> None:
        assert self._now is not None
        self._now.start += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type" and self._now is not None:
            self._now.kind = value.decode()

    def on_body(self, body: bytes) -> None:
        assert self._now is not None
        self._now.body += body

    def on_message_complete(self) -> None:
        if self._now is not None:
            self._sink.append(self._now)
        self._now = None

    # a client that has all it wants of a stream leaves before the very last bytes, which are no part of the body
    on_connection_lost = on_message_complete


@dataclass
class Ear:
    """Listens on a port of this machine and passes everything on, hearing requests and answers."""

    to: int
    requests: list[Heard] = field(default_factory=list)
    answers: list[Heard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._server.accept()
                engine = socket.create_connection(("127.0.0.1", self.to))
                asked, given = _Messages(self.requests), _Messages(self.answers)
                ways = (
                    (client, engine, httptools.HttpRequestParser(asked), asked),
                    (engine, client, httptools.HttpResponseParser(given), given),
                )
                for way in ways:
                    threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    @staticmethod
    def _pass_on(
        source: socket.socket,
        sink: socket.socket,
        parser: httptools.HttpRequestParser | httptools.HttpResponseParser,
        messages: _Messages,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                # heard first: whoever has the answer may ask what was heard
                parser.feed_data(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        messages.on_connection_lost()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()


@dataclass(frozen=True)
class Line:
    """Client - ear - frontdoor - ear - engine."""

    client: Ear
    engine: Ear

    @property
    def url(self) -> str:
        return self.client.url

    def _ended(self) -> None:
        """Wait for the end of each answer: a client has all that it wants of a stream before the last bytes come."""
        deadline = time.monotonic() + LIMIT_S
        while any(len(ear.answers) < len(ear.requests) for ear in (self.client, self.engine)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"an answer did not end within {LIMIT_S:g} s")
            time.sleep(0.01)

    def last(self, path: str) -> tuple[Heard, Heard]:
        """The last answer as the engine gave it and as the client got it, and forgets all; for requests to `path`."""
        self._ended()
        assert self.client.requests[-1].start.decode() == path, self.client.requests[-1].start
        given = [
            heard
            for asked, heard in zip(self.engine.requests, self.engine.answers, strict=True)
            if path in asked.start.decode()
        ]
        pair = given[-1], self.client.answers[-1]
        for ear in (self.client, self.engine):
            ear.requests.clear()
            ear.answers.clear()
        return pair


@contextlib.contextmanager
def process(argv: Sequence[str], port: int, what: str) -> Iterator[None]:
    """Something that listens on a port while it is needed."""
    started = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_for(port, what)
        yield
    finally:
        started.terminate()
        started.wait(LIMIT_S)


@contextlib.contextmanager
def line(folder: Path, engine_port: int) -> Iterator[Line]:
    """A frontdoor of its own between two ears, in front of an engine that listens on a port of this machine."""
    port = free_port()
    config = folder / "frontdoor.toml"
    # the status page's and the probe's questions are not those of a client
    quiet = "probe_interval_s = 3600\nmetrics_interval_s = 3600"
    listen = f'[listen]\nhost = "127.0.0.1"\nport = {port}'
    argv = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import frontdoor.cli as c; c.main()",
    ]
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(contextlib.closing(Ear(engine_port)))
        config.write_text(f'{listen}\n[slot]\nstate_file = ""\n[backend]\nurl = "{engine.url}"\n{quiet}\n')
        stack.enter_context(process([*argv, "--config", str(config)], port, "the frontdoor"))
        client = stack.enter_context(contextlib.closing(Ear(port)))
        yield Line(client, engine)


def same(between: Line, url: str, path: str, *, counted: bool = False) -> bytes:
    """Return what the client got, having made sure that it is what the engine gave, byte by byte.

    A stream is `counted` where the client did not ask for its tokens: the frontdoor does, and keeps that one event.
    """
    if url != between.url:
        return b""
    given, got = between.last(path)
    events = given.body.split(b"\n\n")
    reports = [event for event in events if counted and b'"choices":[]' in event and b'"usage":{' in event]
    assert len(reports) == counted, given.body
    assert got.body == b"\n\n".join(event for event in events if event not in reports)
    assert (got.start, got.kind) == (given.start, given.kind)
    assert got.body
    return got.body
