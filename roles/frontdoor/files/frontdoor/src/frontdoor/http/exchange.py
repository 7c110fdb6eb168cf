# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request on its way through: slot, engine connection, response, and exactly one ending."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from frontdoor import errors
from frontdoor.admission.queue import Waiting
from frontdoor.errors import Refusal
from frontdoor.http.body import LARGE, recycle
from frontdoor.http.head import END, FAILURE, Framing, RequestHead, ResponseError, ResponseHead, without_coding
from frontdoor.http.relay import ChunkedRelay, CloseRelay, Relay, relay_for
from frontdoor.http.upload import ACCOUNTED
from frontdoor.http.upstream import UpstreamConnection
from frontdoor.observability.ledger import outcome_of
from frontdoor.observability.metrics import (
    CLIENT_CLOSED,
    INTERRUPTED,
    OK,
    REFUSED,
    UPSTREAM_CUT,
    UPSTREAM_ERROR,
    UPSTREAM_TIMEOUT,
)
from frontdoor.observability.usage import rolled

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection

_MAX_RESPONSE_HEAD = 64 * 1024
# How soon after a request was sent on a kept connection its end can be taken for that of an idle connection.
_STALE_S = 0.5
# what may be asked twice (RFC 9110 9.2.2)
_IDEMPOTENT = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))
# bodies up to this size are sent in one piece with their head
_SMALL = 16 * 1024


class Exchange(Waiting):
    """Created for each request that may go to the engine; `start` begins, `finish` ends it once."""

    __slots__ = (
        *("_body", "_connecting", "_connection", "_first_byte_s", "_head", "_head_bytes", "_last_activity", "_paused"),
        *("_received", "_relay", "_response", "_shut_client", "_size", "_tail", "_url"),
    )

    def __init__(
        self,
        door: Door,
        client: ClientConnection,
        head: RequestHead,
        size: int,
        body: bytes | bytearray,
        places: int = 1,
    ) -> None:
        """`size` is what the client sent; `body` is what the engine is sent; `places` are for a generation."""
        self._door = door
        self._client = client
        self._head = head
        self._size, self._body, self.places = size, body, places
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue_timer = None
        self._response: ResponseHead | None = None
        self._relay: Relay | None = None
        self._head_bytes = self._tail = b""
        self._received, self._waited = 0, 0.0
        self._first_byte_s = -1.0
        self._paused = self._done = self._shut_client = False
        self._url = ""
        # when the request was complete, and when the engine was asked or last heard of
        self._started = self._last_activity = door.loop.time()

    # --- admission -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for a slot where the path needs one, and go on."""
        door = self._door
        door.exchanges.add(self)
        door.ledger.metrics.request_bytes += self._size
        door.buffered += self._size
        if self._head.generates:
            gate, places = door.gate, self.places
            if gate.full or (places > 1 and not gate.fits(places)):
                self.wait(gate)
                return
            gate.take(self, self._client.key, places)
        self._forward()

    def go_on(self) -> None:
        """There is a slot, after a wait."""
        self._last_activity = self._started + self._waited
        self._forward()

    # --- towards the engine ----------------------------------------------------------------------------------------

    def _forward(self) -> None:
        pool = self._door.pool
        self._url = pool.url
        if pool.idle:
            self._send(pool.idle.pop())
        else:
            self._connecting = pool.connect(self)

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
        top = self._client.engine_head(head, self._door.pool.host_line)
        size = len(body)
        if size < _SMALL:
            if not size and head.content_length == 0 and head.method not in (b"POST", b"PUT", b"PATCH"):
                connection.transport.write(top + b"\r\n")
            else:
                connection.transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (top, size, bytes(body)))
        else:
            connection.transport.writelines((b"%bContent-Length: %d\r\n\r\n" % (top, size), body))

    # --- from the engine -------------------------------------------------------------------------------------------

    def _on_head(self, data: bytes) -> None:
        if self._head_bytes:
            data = self._head_bytes + data
        door, head = self._door, self._head
        raw, response = door.latest_head
        if not data.startswith(raw):
            raw = data[: data.find(END) + 4]
            if len(raw) < 4:
                self._head_bytes = data
                if len(data) > _MAX_RESPONSE_HEAD:
                    self._broken("the response head is too long")
                return
            response = door.response_heads.get(raw)
            door.latest_head = raw, response
        if response is None or head.method == b"HEAD":
            try:
                response = door.response_head(raw, head)
            except ResponseError as exc:
                self._broken(str(exc))
                return
            if response.status < 200:
                self._interim(data)
                return
        self._response = response
        now = door.loop.time()
        self._first_byte_s = now - self._last_activity
        self._last_activity = now
        if door.engine_reachable is not True and response.status < FAILURE:
            door.note_engine(True)
        if self._size >= ACCOUNTED:
            response = self._large_answered(response)
        elif self._size:
            door.buffered -= self._size
            self._size = 0
            self._body = b""
        if response.size == len(data) and head.plain and not door.draining:
            # the whole answer is here, is none of a failure, and nothing about it changes
            door.engine_responses += 1
            self._received = response.length
            self._client.write(data)
            self._tail = data
            self._complete(response.keep_alive)
        else:
            assert self._connection is not None
            # one that fails whatever it is asked is no engine that is well: the probe asks it
            if response.status < FAILURE:
                door.engine_responses += 1
            self._connection.receiver = self._on_body
            self._begin(response, data[len(raw) :])

    def _large_answered(self, response: ResponseHead) -> ResponseHead:
        """A large body is no longer held, unless the engine answered without having read it."""
        assert self._connection is not None
        if not self._connection.transport.get_write_buffer_size():
            self._release_body()
            if response.status < 400:
                return response
        # what it leaves unread would stand before the next request on that connection
        response = self._response = dataclasses.replace(response, keep_alive=False)
        return response

    def _interim(self, data: bytes) -> None:
        """Answers before the answer are passed on, but for 100, which the frontdoor gives itself (RFC 9110 15.2)."""
        self._head_bytes = b""
        while (end := data.find(END) + 4) >= 4:
            try:
                response = self._door.response_head(data[:end], self._head)
            except ResponseError:
                break
            if response.status >= 200:
                break
            if response.status == 101:
                self._broken("it wants to switch protocols")
                return
            if response.status != 100 and self._head.http11:
                self._client.write(response.wire + b"\r\n")
            data = data[end:]
        if data:
            self._on_head(data)

    def _begin(self, response: ResponseHead, rest: bytes) -> None:
        http11, client, door = self._head.http11, self._client, self._door
        relay = self._relay = relay_for(response, client_chunks=http11)
        if isinstance(relay, ChunkedRelay):
            assert self._connection is not None
            gaps = door.gaps if self._head.generates else door.other_gaps
            receiver = relay.attach(client.write, door.loop.time, gaps, self._on_body)
            self._connection.receiver = receiver if rest else self._on_first
        wire = response.wire
        if not http11 and response.framing in (Framing.CHUNKED, Framing.CLOSE):
            # nothing but the end of the connection tells such a client where the body ends
            wire = without_coding(wire)
            self._shut_client = True
        if door.draining or not self._head.keep_alive:
            self._shut_client = True
        parts = [wire, door.cors_fields(self._head)]
        if self._shut_client:
            parts.append(errors.CLOSE)
        elif not http11:
            parts.append(errors.KEPT)
        parts.append(b"\r\n")
        # one write for the head and what came with it: two would be two packets
        self._on_body(rest, b"".join(parts))

    def _on_first(self, data: bytes) -> None:
        """The first of a body whose head came alone, as engines send the head of a stream before they have a token."""
        relay, now = self._relay, self._door.loop.time()
        assert isinstance(relay, ChunkedRelay)
        assert self._connection is not None
        self._first_byte_s += now - self._last_activity
        self._last_activity = now
        self._connection.receiver = relay.on_data
        relay.on_first(data)

    def _on_body(self, data: bytes, head: bytes = b"") -> None:
        relay = self._relay
        assert relay is not None
        try:
            out = relay.feed(data) if data else b""
        except ResponseError as exc:
            self._client.write(head)
            self._broken(str(exc))
            return
        if head:
            out = head + out
        if out:
            self._client.write(out)
        now = self._door.loop.time()
        if isinstance(relay, ChunkedRelay):
            if not head:
                relay.count_gap(now)
        elif data:
            self._tail = rolled(self._tail, data)
        self._received += len(data)
        self._last_activity = now
        if relay.complete:
            assert self._response is not None
            if isinstance(relay, ChunkedRelay):
                self._tail = relay.previous + relay.last
            self._complete(relay.reusable and self._response.keep_alive, outcome_of(self._response))

    def _complete(self, reusable: bool, outcome: str = OK) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        if reusable:
            if self._paused:
                connection.transport.resume_reading()
            self._door.pool.put(connection, self._url, self._last_activity)
        else:
            connection.abort()
        self.finish(outcome, not self._shut_client)

    def upstream_lost(self, exc: Exception | None) -> None:
        """The engine's connection ended by itself."""
        connection, self._connection = self._connection, None
        if self._response is None:
            assert connection is not None
            if connection.served and not self._head_bytes and self._unseen(connection):
                # once more on a fresh one, which has not served and is therefore the last try
                self._connecting = self._door.pool.connect(self)
                return
            self._fail(Refusal(502, "engine_closed", "the engine closed the connection before it answered"))
        elif exc is None and isinstance(self._relay, CloseRelay) and self._relay.whole:
            self._client.write(self._relay.end)
            self.finish(outcome_of(self._response), not self._shut_client)
        else:
            self._cut(UPSTREAM_CUT, "the engine ended the connection in the middle of the response")

    def _unseen(self, connection: UpstreamConnection) -> bool:
        """Whether the request may be sent again: the kept connection was closed before the engine could act on it.

        A generation may not be asked for twice (RFC 9110 9.2.2): it is only repeated where the engine's host did not
        even acknowledge all of it.
        """
        if self._door.loop.time() - self._last_activity >= _STALE_S:
            return False
        return self._head.method in _IDEMPOTENT or not connection.heard_all()

    def _broken(self, why: str) -> None:
        self._drop_connection()
        if self._response is None:
            self._fail(Refusal(502, "bad_engine_response", f"the engine's answer cannot be passed on: {why}"))
        else:
            self._cut(UPSTREAM_CUT, f"the engine's answer cannot be passed on: {why}")

    # --- endings ---------------------------------------------------------------------------------------------------

    def _fail(self, refusal: Refusal, outcome: str = UPSTREAM_ERROR) -> None:
        """One clean error instead of a response."""
        self._client.refuse(refusal, self._head)
        self.finish(outcome, self._head.keep_alive, refusal)

    def refuse(self, refusal: Refusal) -> None:
        """Answer without having asked the engine."""
        self._fail(refusal, REFUSED)

    def _cut(self, outcome: str, why: str, code: str = "engine_cut") -> None:
        """The response was begun and cannot be completed."""
        relay = self._relay
        assert relay is not None
        sent = relay.previous + relay.last if isinstance(relay, ChunkedRelay) else self._tail
        last = relay.cut(errors.stream_event(Refusal(502, code, why), self._head.route.style, sent))
        if last is None:
            # no length or chunk can be made true any more: the client must see a broken transfer
            self._client.abort()
        elif last:
            self._client.write(last)
        self.finish(outcome, False)

    def timed_out(self, now: float) -> bool:
        """Whether the engine has been silent for too long; a waiting request has its own timer."""
        last = self._last_activity
        if isinstance(self._relay, ChunkedRelay):
            last = max(last, self._relay.last_activity)
        return self._queue_timer is None and not self._paused and now - last > self._door.state.backend_timeout_s

    def expire(self) -> None:
        """Give up on a silent engine."""
        self._drop_connection()
        why = f"the engine sent nothing for {self._door.state.backend_timeout_s:g} s"
        if self._response is None:
            self._fail(Refusal(504, "engine_timeout", why), UPSTREAM_TIMEOUT)
        else:
            self._cut(UPSTREAM_TIMEOUT, why)

    def interrupt(self, refusal: Refusal) -> None:
        """Give up because the frontdoor stops: an answer that was begun is ended as validly as it can be."""
        self._drop_connection()
        if self._response is None:
            self.refuse(refusal)
        else:
            self._cut(INTERRUPTED, refusal.message, refusal.code)

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        """Nobody waits for the answer any more: the engine is told at once."""
        self._drop_connection()
        self.finish(outcome, False)

    @property
    def streaming_s(self) -> float:
        """How long the stream of a generation has lasted: the sum of its gaps, which are counted as they come."""
        return self._relay.lasted if isinstance(self._relay, ChunkedRelay) and self._head.generates else 0.0

    def pause(self) -> None:
        """The client is slower than the engine."""
        if self._connection is not None:
            self._paused = True
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        """The client caught up."""
        if self._connection is not None:
            self._paused = False
            # the engine was silent because it was not listened to
            self._last_activity = self._door.loop.time()
            self._connection.transport.resume_reading()

    def last_of_connection(self) -> None:
        """The client's connection is closed after this answer: say so in it, where it is not begun."""
        if self._response is None:
            self._head = dataclasses.replace(self._head, keep_alive=False, plain=False)

    def _drop_connection(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _release_body(self) -> None:
        self._door.buffered -= self._size
        if self._size >= ACCOUNTED:
            self._door.holdings.release(self)
            connection = self._connection
            if self._size >= LARGE and connection is not None and not connection.transport.get_write_buffer_size():
                # all of it was sent
                recycle(self._body)
        self._size = 0
        self._body = b""

    def finish(self, outcome: str, keep: bool, refusal: Refusal | None = None) -> None:
        """The one ending: frees the slot, counts, logs, and hands the client connection back."""
        if self._done:
            return
        self._done = True
        door, head = self._door, self._head
        if self._queue_timer is not None:
            self.stop_timer()
        if self._size:
            self._release_body()
        door.exchanges.discard(self)
        if head.generates:
            door.gate.leave(self)
        client, now = self._client, door.loop.time()
        response, relay = self._response, self._relay
        received, streamed = self._received, False
        if relay is not None and response is not None:
            streamed = response.event_stream and response.status == 200
            if isinstance(relay, ChunkedRelay):
                received += relay.received
                door.ledger.metrics.gaps.total += self.streaming_s
                relay.detach()
        status = response.status if response is not None else refusal.status if refusal is not None else 0
        # a plain tuple, in the order of ledger.Entry: this runs for each request
        door.ledger.note(
            (
                client,
                client.key_name,
                head,
                outcome,
                status,
                refusal,
                self._started,
                now,
                self._waited,
                self._first_byte_s,
                received,
                self._tail,
                streamed,
            )
        )
        client.exchange_done(keep, now)
