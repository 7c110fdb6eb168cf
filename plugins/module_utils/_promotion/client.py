# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client like any other: it sends a key, reads streams as they arrive, and may leave in the middle.

`_slot.host.http` returns whole answers only. Here each request has its own thread and a connection that can be cut.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .._slot.host.http import connection_to
from .._slot.words.types import Reply

CONNECT_S = 5.0
_LOOK_S = 0.05
_AT_ONCE_S = 5.0  # how long the first requests wait for the last
_MAX_BODY = 16 * 2**20


@dataclass
class Stream:
    """One streamed answer. Times are seconds of the client's clock; status 0 means that no answer came.

    begun: whether any piece of it came. first_s, last_s: when the first and the last non-empty text came, as in
    `_evidence.streams`. error: empty if the answer is complete.
    """

    status: int = 0
    started_s: float = 0.0
    begun: bool = False
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    text: str = ""
    error: str = ""
    code: str = ""
    retry_after: str = ""

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.started_s


@dataclass(frozen=True)
class Client:
    """Sends requests to one address of this host, so it checks no certificate. limit_s: how long an answer may take."""

    base: str
    key: str = ""
    limit_s: float = 600.0

    def get(self, path: str) -> Reply:
        return self._whole("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        return self._whole("POST", path, body)

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.base)
        return connection_to(parts.scheme, parts.hostname or "127.0.0.1", parts.port, CONNECT_S)

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> None:
        connection.connect()
        connection.sock.settimeout(self.limit_s)
        headers = {"Connection": "close", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers | ({"Content-Type": "application/json"} if data else {}))

    def _whole(self, method: str, path: str, body: Mapping[str, Any] | None) -> Reply:
        connection = self._connect()
        try:
            self._send(connection, method, path, body)
            response = connection.getresponse()
            return Reply(response.status, response.read(_MAX_BODY).decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException) as error:
            return Reply(0, error=_words(error))
        finally:
            connection.close()

    def together(self, path: str, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        """Post all requests at once and return their streams in the same order.

        :param look: is called repeatedly with whether every request has its first piece or has ended. If it returns
            True or raises, all connections are cut.
        """
        jobs = [_Job(self, path, body) for body in bodies]
        gate = threading.Barrier(len(jobs))
        for job in jobs:
            threading.Thread(target=job.run, args=(gate,), daemon=True).start()
        ends = time.monotonic() + self.limit_s
        try:
            while not all(job.done.is_set() for job in jobs):
                if look(all(job.begun.is_set() for job in jobs)) or time.monotonic() > ends:
                    break
                next((job for job in jobs if not job.done.is_set()), jobs[0]).done.wait(_LOOK_S)
        finally:
            for job in jobs:
                job.cut()
        for job in jobs:
            job.done.wait(CONNECT_S)
        return [job.stream for job in jobs]


@dataclass
class _Job:
    client: Client
    path: str
    body: Mapping[str, Any]
    stream: Stream = field(default_factory=Stream)
    begun: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    _cut: bool = False
    _socket: socket.socket | None = None

    def cut(self) -> None:
        """Close the connection, even while a thread waits for its next byte."""
        if not self.done.is_set():
            self._cut = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def run(self, gate: threading.Barrier) -> None:
        stream, connection = self.stream, self.client._connect()
        try:
            with suppress(threading.BrokenBarrierError):
                gate.wait(_AT_ONCE_S)
            stream.started_s = time.monotonic()
            self.client._send(connection, "POST", self.path, self.body)
            self._socket = connection.sock
            response = connection.getresponse()
            stream.status = response.status
            stream.retry_after = response.getheader("Retry-After") or ""
            if response.status == 200:
                self._read(response)
            else:
                _refused(stream, response.read(_MAX_BODY).decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            stream.error = _words(error)
        finally:
            stream.ended_s = time.monotonic()
            if self._cut:
                stream.error = "left"
            connection.close()
            self.begun.set()
            self.done.set()

    def _read(self, response: http.client.HTTPResponse) -> None:
        stream, complete = self.stream, False
        for line in response:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                complete = True
                break
            event = json.loads(data)
            if event.get("error"):
                _refused(stream, data.decode("utf-8", "replace"))
                return
            if event.get("choices"):
                text = str(event["choices"][0].get("text") or "")
                if text:
                    stream.last_s = time.monotonic()
                    stream.first_s = stream.last_s if stream.first_s is None else stream.first_s
                stream.text += text
                stream.begun = True
                self.begun.set()
            usage = event.get("usage")
            if usage:
                stream.prompt_tokens = usage.get("prompt_tokens")
                stream.completion_tokens = usage.get("completion_tokens")
        if not complete:
            stream.error = "the stream ended before its end"


def _refused(stream: Stream, text: str) -> None:
    error = error_of(text)
    stream.code, stream.error = str(error.get("code") or ""), str(error.get("message") or text)[:200] or "refused"


def error_of(text: str) -> Mapping[str, Any]:
    """Return the error in an answer; empty if there is none."""
    try:
        found = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
