# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request on its way through: slot, engine connection, response, and exactly one ending."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING

from frontdoor import errors
from frontdoor.admission import Verdict
from frontdoor.errors import Refusal
from frontdoor.httphead import END, RequestHead, ResponseError, ResponseHead, parse_response_head
from frontdoor.relay import CloseRelay, Relay, relay_for
from frontdoor.splice import default_object
from frontdoor.upstream import UpstreamConnection

if TYPE_CHECKING:
    from frontdoor.client import ClientConnection
    from frontdoor.door import Door

_MAX_RESPONSE_HEAD = 64 * 1024
_CHAT = "/v1/chat/completions"


class Outcome(enum.Enum):
    """How an exchange ended."""

    OK = "ok"
    REFUSED = "refused"
    CLIENT_CLOSED = "client_closed"
    CLIENT_STALLED = "client_stalled"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_CUT = "upstream_cut"
    UPSTREAM_TIMEOUT = "upstream_timeout"


class Exchange:
    """Created for each request that goes to the engine; `start` begins, `finish` ends it once."""

    __slots__ = (
        "_body",
        "_client",
        "_connecting",
        "_connection",
        "_done",
        "_door",
        "_head",
        "_head_bytes",
        "_keep_client",
        "_queue_timer",
        "_received",
        "_relay",
        "_response",
        "_started",
        "_timeout_s",
        "_url",
        "_waited",
        "last_activity",
    )

    def __init__(self, door: Door, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        self._door = door
        self._client = client
        self._head = head
        self._body: bytes = body
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue_timer: asyncio.TimerHandle | None = None
        self._response: ResponseHead | None = None
        self._relay: Relay | None = None
        self._head_bytes = b""
        self._received = 0
        self._done = False
        self._keep_client = head.keep_alive
        self._url = ""
        self._waited = 0.0
        self._timeout_s = door.state.backend_timeout_s
        self._started = self.last_activity = door.loop.time()

    # --- admission -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for a slot where the path needs one, and go on."""
        door = self._door
        door.exchanges.add(self)
        if not (self._head.route.gated and self._head.method == b"POST"):
            self._forward()
            return
        timeout = door.state.queue_timeout_s
        verdict = door.gate.enter(self, self._client.key, may_wait=timeout > 0)
        if verdict is Verdict.ADMITTED:
            self._forward()
        elif verdict is Verdict.QUEUED:
            self._queue_timer = door.loop.call_later(timeout, self._queue_expired, timeout)
        elif verdict is Verdict.BUSY:
            self.refuse(errors.busy(door.gate.limit))
        else:
            self.refuse(errors.queue_full(door.gate.queued))

    def granted(self) -> None:
        """The gate gave a slot after a wait."""
        self._stop_timer()
        self._waited = self._door.loop.time() - self._started
        self.last_activity = self._door.loop.time()
        self._forward()

    def _queue_expired(self, timeout: float) -> None:
        self._queue_timer = None
        self._waited = timeout
        self.refuse(errors.queue_timeout(self._door.gate.limit, timeout))

    def _stop_timer(self) -> None:
        if self._queue_timer is not None:
            self._queue_timer.cancel()
            self._queue_timer = None

    # --- towards the engine ----------------------------------------------------------------------------------------

    def _forward(self) -> None:
        defaults = self._door.state.chat_template_kwargs
        if defaults and self._head.route.path == _CHAT and self._head.json and self._head.method == b"POST":
            self._replace_body(default_object(self._body, "chat_template_kwargs", defaults))
        pool = self._door.pool
        self._url = pool.url
        connection = pool.take()
        if connection is None:
            self._connecting = pool.connect(self)
        else:
            self._send(connection)

    def _replace_body(self, body: bytes) -> None:
        self._door.buffered += len(body) - len(self._body)
        self._body = body

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """A fresh connection was made for this exchange."""
        self._connecting = None
        self._send(connection)

    def upstream_failed(self, reason: str) -> None:
        """No connection could be made."""
        self._connecting = None
        self._door.note_engine(False, reason)
        self._fail(Refusal(502, "engine_unreachable", f"the engine cannot be reached: {reason}"))

    def _send(self, connection: UpstreamConnection) -> None:
        head, body = self._head, self._body
        self._connection = connection
        connection.owner = self
        connection.receiver = self._on_head
        announced = body or head.content_length != 0 or head.method in (b"POST", b"PUT", b"PATCH")
        length = b"Content-Length: %d\r\n\r\n" % len(body) if announced else b"\r\n"
        top = b"".join((head.line, self._door.pool.host_line, head.fields, self._client.forwarded(head), length))
        if len(body) < 4096:
            connection.transport.write(top + body)
        else:
            connection.transport.writelines((top, body))

    # --- from the engine -------------------------------------------------------------------------------------------

    def _on_head(self, data: bytes) -> None:
        if self._head_bytes:
            data = self._head_bytes + data
        end = data.find(END)
        if end < 0:
            self._head_bytes = data
            if len(data) > _MAX_RESPONSE_HEAD:
                self._broken("the response head is too long")
            return
        end += 4
        try:
            response = parse_response_head(data[:end], self._head.method, drop_cors=self._door.cors_on)
        except ResponseError as exc:
            self._broken(str(exc))
            return
        rest = data[end:]
        self._head_bytes = b""
        if response.status < 200:
            if response.status == 101:
                self._broken("it wants to switch protocols")
            elif rest:
                self._on_head(rest)
            return
        self._begin(response, rest)

    def _begin(self, response: ResponseHead, rest: bytes) -> None:
        self._release_body()
        self._door.note_response()
        self._response = response
        client, http11 = self._client, self._head.http11
        relay = self._relay = relay_for(response, client_chunks=http11)
        chunked = http11 and response.framing.value in ("chunked", "close")
        unbounded = not http11 and response.framing.value in ("chunked", "close")
        self._keep_client = self._keep_client and not unbounded and not self._door.draining
        parts = [response.line, response.fields]
        if chunked:
            parts.append(b"Transfer-Encoding: chunked\r\n")
        parts.append(self._door.response_fields(self._head))
        if not self._keep_client:
            parts.append(b"Connection: close\r\n")
        elif not http11:
            parts.append(b"Connection: keep-alive\r\n")
        parts.append(b"\r\n")
        client.write(b"".join(parts))
        assert self._connection is not None
        self._connection.receiver = self._on_body
        if rest or relay.complete:
            self._on_body(rest)
        else:
            self.last_activity = self._door.loop.time()

    def _on_body(self, data: bytes) -> None:
        relay = self._relay
        assert relay is not None
        try:
            out = relay.feed(data)
        except ResponseError as exc:
            self._broken(str(exc))
            return
        if out:
            self._client.write(out)
        self._received += len(data)
        self.last_activity = self._door.loop.time()
        if relay.complete:
            connection, self._connection = self._connection, None
            assert connection is not None
            assert self._response is not None
            if relay.reusable and self._response.keep_alive:
                # harmless where it was never paused
                connection.transport.resume_reading()
                self._door.pool.put(connection, self._url)
            else:
                connection.abort()
            self.finish(Outcome.OK, keep=self._keep_client)

    def upstream_lost(self, exc: Exception | None) -> None:
        """The engine's connection ended by itself."""
        connection, self._connection = self._connection, None
        if self._response is None:
            assert connection is not None
            if connection.served and not self._head_bytes:
                # it was closed while idle, before the engine saw the request: once more on a fresh one
                self._connecting = self._door.pool.connect(self)
                return
            self._fail(Refusal(502, "engine_closed", "the engine closed the connection before it answered"))
        elif exc is None and isinstance(self._relay, CloseRelay):
            self._client.write(self._relay.end)
            self.finish(Outcome.OK, keep=self._keep_client)
        else:
            self._cut(Outcome.UPSTREAM_CUT, "the engine ended the connection in the middle of the response")

    def _broken(self, why: str) -> None:
        self._drop_connection()
        if self._response is None:
            self._fail(Refusal(502, "bad_engine_response", f"the engine's answer cannot be passed on: {why}"))
        else:
            self._cut(Outcome.UPSTREAM_CUT, f"the engine's answer cannot be passed on: {why}")

    # --- endings ---------------------------------------------------------------------------------------------------

    def _fail(self, refusal: Refusal, outcome: Outcome = Outcome.UPSTREAM_ERROR) -> None:
        """One clean error instead of a response."""
        self._client.refuse(refusal, self._head)
        self.finish(outcome, status=refusal.status, code=refusal.code, keep=self._keep_client)

    def refuse(self, refusal: Refusal) -> None:
        """Answer without having asked the engine."""
        self._fail(refusal, Outcome.REFUSED)

    def _cut(self, outcome: Outcome, why: str) -> None:
        """The response was begun and cannot be completed."""
        assert self._relay is not None
        event = errors.stream_event(Refusal(502, "engine_cut", why), self._head.route.style)
        last = self._relay.cut(event)
        if last is None:
            # no length or chunk can be made true any more: the client must see a broken transfer
            self._client.abort()
        elif last:
            self._client.write(last)
        self.finish(outcome, keep=False)

    def timed_out(self, now: float) -> bool:
        """Whether the engine has been silent for too long; a waiting request has its own timer."""
        return self._queue_timer is None and now - self.last_activity > self._timeout_s

    def expire(self) -> None:
        """Give up on a silent engine."""
        self._drop_connection()
        why = f"the engine sent nothing for {self._timeout_s:g} s"
        if self._response is None:
            self._fail(Refusal(504, "engine_timeout", why), Outcome.UPSTREAM_TIMEOUT)
        else:
            self._cut(Outcome.UPSTREAM_TIMEOUT, why)

    def client_gone(self, outcome: Outcome = Outcome.CLIENT_CLOSED) -> None:
        """Nobody waits for the answer any more: the engine is told at once."""
        self._drop_connection()
        self.finish(outcome, keep=False)

    def pause(self) -> None:
        """The client is slower than the engine."""
        if self._connection is not None:
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        """The client caught up."""
        if self._connection is not None:
            self._connection.transport.resume_reading()

    def _drop_connection(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _release_body(self) -> None:
        self._door.buffered -= len(self._body)
        self._body = b""

    def finish(self, outcome: Outcome, *, keep: bool, status: int | None = None, code: str | None = None) -> None:
        """The one ending: frees the slot, counts, logs, and hands the client connection back."""
        if self._done:
            return
        self._done = True
        self._stop_timer()
        self._release_body()
        door = self._door
        door.exchanges.discard(self)
        door.gate.leave(self)
        if status is None and self._response is not None:
            status = self._response.status
        door.note_end(self._head, outcome, status)
        if door.events.requests and self._head.route.gated:
            now = door.loop.time()
            door.events.emit(
                "generation_request",
                client=self._client.address,
                path=self._head.route.path,
                status=status,
                outcome=outcome.value,
                error=code,
                queued=self._waited > 0,
                queue_wait_s=round(self._waited, 3),
                elapsed_s=round(now - self._started, 3),
                bytes=self._received,
            )
        self._client.exchange_done(keep)
