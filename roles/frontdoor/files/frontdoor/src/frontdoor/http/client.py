# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's side of a connection: requests in, one at a time; responses out."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from frontdoor.errors import CLOSE, KEPT, Refusal
from frontdoor.http.body import DirectReader
from frontdoor.http.exchange import Exchange
from frontdoor.http.head import END, HeadError, RequestHead
from frontdoor.http.upload import Upload, limit_of, too_large
from frontdoor.http.work import Work
from frontdoor.networks import client_key, plain
from frontdoor.observability.metrics import CLIENT_STALLED
from frontdoor.policy.routes import style_of

if TYPE_CHECKING:
    from frontdoor.app import Door

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# bytes of following requests that are kept while one is being answered
_MAX_AHEAD = 256 * 1024
_WRITE_HIGH = 256 * 1024
_MANY_BYTES = 16 * 1024
# after a refusal with the upload still under way: how long and how much is read and thrown away
_LINGER_S = 5.0
_LINGER_BYTES = 256 * 1024 * 1024


# What a connection expects next: plain numbers, they are compared several times for each request.
HEAD, BODY, ANSWER, DISCARD, CLOSED = range(5)


def _unwritten(data: bytes) -> None:
    """Where nobody reads any more."""


class ClientConnection(asyncio.Protocol):
    """One accepted connection. Requests that were sent ahead wait until the one before is answered."""

    __slots__ = (
        "_buffer",
        "_close_after",
        "_door",
        "_engine_head",
        "_engine_head_for",
        "_exchange",
        "_head",
        "_heads",
        "_latest_head",
        "_linger_left",
        "_processing",
        "_reading",
        "_stage",
        "_upload",
        "_writable",
        "address",
        "deadline",
        "from_this_host",
        "key",
        "key_name",
        "network",
        "reader",
        "transport",
        "write",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._heads = door.heads
        # what the next request is likely to begin with, as it is on the wire
        self._latest_head: tuple[bytes, RequestHead | None] = (b"\0", None)
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = _unwritten
        self.address = ""
        #: whose turn it is where clients compete (a key, or the network), and the name of the API key
        self.key = self.network = ""
        self.key_name: str | None = None
        self.from_this_host = False
        self.deadline: float | None = None
        self._stage = HEAD
        self._buffer = b""
        self._head: RequestHead = cast(RequestHead, None)
        self._upload: Upload | None = None
        #: reads the connection where large bodies came on it
        self.reader: DirectReader | None = None
        self._linger_left = 0
        self._exchange: Work | None = None
        self._processing = False
        self._close_after = False
        self._reading = True
        self._writable = True
        self._engine_head = b""
        self._engine_head_for: tuple[RequestHead | None, bytes] = (None, b"")

    # --- transport callbacks ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        self.address = plain(str(peer[0])) if peer else "local"
        self.network = self.key = client_key(self.address)
        self.from_this_host = bool(peer and own and peer[0] == own[0])
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH)
        door = self._door
        self.deadline = door.loop.time() + door.config.limits.header_timeout_s
        refusal = door.welcome(self)
        if refusal is not None and door.crowd.may_linger:
            self.refuse(refusal)
            self._linger()
        elif refusal is not None:
            self.abort()

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage == HEAD:
            if self._writable and not self._buffer:
                # the usual case: one whole request, whose head was seen before
                raw, head = self._latest_head
                if not data.startswith(raw):
                    raw = data[: data.find(END) + 4]
                    head = self._heads.get(raw)
                    if head is not None:
                        self._latest_head = raw, head
                if head is not None and head.content_length == len(data) - len(raw):
                    self._dispatch(head, data[len(raw) :])
                    return
            self._process(self._buffer + data if self._buffer else data)
        elif stage == ANSWER:
            self._ahead(data)
        elif stage == BODY:
            upload = self._upload
            assert upload is not None
            upload.feed(data)
        elif stage == DISCARD:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self.transport.abort()

    def _ahead(self, data: bytes) -> None:
        """Keep requests that are sent ahead; of too many none is served.

        They are read all the same: that a client left is only heard behind all that it sent.
        """
        self._buffer += data
        if len(self._buffer) > _MAX_AHEAD and not self._close_after:
            self._close_after = True
            if isinstance(self._exchange, Exchange):
                self._exchange.last_of_connection()
        if self._close_after:
            self._buffer = b""

    def eof_received(self) -> bool:
        # a client that stops sending has left; half-closed connections are not served
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stage = CLOSED
        # it would keep the transport, and the transport this
        self.write = _unwritten
        self._drop_upload()
        self.reader = None
        self._door.farewell(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    def pause_writing(self) -> None:
        self._writable = False
        if self._stage in (HEAD, ANSWER):
            # a body that is read, and a connection that is closed, have limits that this must not prolong
            self.deadline = self._write_deadline()
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        self._writable = True
        if self._stage == ANSWER:
            self.deadline = None
        elif self._stage == DISCARD:
            self.deadline = self._door.loop.time() + _LINGER_S
        if self._exchange is not None:
            self._exchange.resume()
        elif self._stage == HEAD:
            self._await_next()
            if self._buffer and not self._processing:
                self._process(b"")

    # --- requests --------------------------------------------------------------------------------------------------

    def _process(self, data: bytes) -> None:
        """Serve the requests that are complete in the buffer, as far as answers are complete at once."""
        if not data:
            data, self._buffer = self._buffer, b""
        door = self._door
        self._processing = True
        while True:
            if not self._writable:
                self._buffer = data
                self._set_reading(False)
                break
            end = data.find(END) + 4
            if end < 4 or end > door.max_head:
                self._partial_head(data)
                break
            if data.startswith(b"\r\n"):
                # RFC 9112 2.2: empty lines before a request are ignored
                data = data.lstrip(b"\r\n")
                continue
            try:
                head = door.request_head(data[:end])
            except HeadError as exc:
                self.reject(Refusal(exc.status, exc.code, exc.message), None, data[:end])
                break
            self._head = head
            length = head.content_length
            if length is not None and length > door.max_body:
                self.reject(too_large(door.max_body), head)
                break
            if length is not None and len(data) - end >= length:
                stop = end + length
                self._buffer = data[stop:]
                self._dispatch(head, data[end:stop])
            else:
                self._buffer = b""
                # of a large one not a copy
                many = len(data) - end >= _MANY_BYTES
                self._begin_upload(head, memoryview(data)[end:] if many else data[end:])
            if self._stage != HEAD:
                break
            data, self._buffer = self._buffer, b""
            if not data:
                break
        self._processing = False

    def _partial_head(self, data: bytes) -> None:
        limit = self._door.config.limits.max_header_bytes
        data = data.lstrip(b"\r\n") if data.startswith(b"\r\n") else data
        if len(data) > limit:
            self.reject(Refusal(431, "headers_too_large", f"the request head exceeds {limit} bytes"), None, data)
            return
        if data and not self._buffer and self._writable:
            # counts from the first byte: a head that drips in is not given more time for each drop
            self.deadline = self._door.loop.time() + self._door.config.limits.header_timeout_s
        self._buffer = data

    def _begin_upload(self, head: RequestHead, rest: bytes | memoryview) -> None:
        door = self._door
        refusal = door.refusal_before_body(self, head)
        if refusal is None and (head.content_length or 0) > limit_of(door, head):
            refusal = too_large(limit_of(door, head))
        if refusal is not None:
            self.reject(refusal, head)
            return
        if head.expects_continue and not rest and self.transport.get_write_buffer_size() < _WRITE_HIGH // 2:
            # a client that reads nothing has no use for it
            self.write(CONTINUE)
        self._stage = BODY
        upload = self._upload = Upload(door, self, head)
        self.deadline = upload.next_deadline()
        if rest:
            upload.feed(rest)

    def received(self, head: RequestHead, content: bytes | bytearray, rest: bytes | None) -> Exchange | None:
        """A body is complete; `rest` came behind it, None where that cannot be told. Returns the answer under way."""
        self._upload = None
        if rest is None:
            self._close_after = True
            head = dataclasses.replace(head, keep_alive=False, plain=False)
        else:
            self._buffer = rest
        processing, self._processing = self._processing, True
        self._dispatch(head, content)
        self._processing = processing
        work = self._exchange
        if not processing and self._stage == HEAD and self._buffer:
            self._process(b"")
        return work if isinstance(work, Exchange) else None

    def _drop_upload(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.drop()

    # --- answers ---------------------------------------------------------------------------------------------------

    def _dispatch(self, head: RequestHead, body: bytes | bytearray) -> None:
        door = self._door
        self._stage = ANSWER
        work = door.handle(self, head, body)
        if work is None:
            # answered already
            self.exchange_done(head.keep_alive)
            return
        self.deadline = None
        self._exchange = work
        work.start()

    def engine_head(self, head: RequestHead, host_line: bytes) -> bytes:
        """What the engine is sent of a head but the length of its body; made once while a client repeats itself."""
        known, known_host = self._engine_head_for
        if known is not head or known_host is not host_line:
            self._engine_head_for = (head, host_line)
            forwarded = b"X-Forwarded-For: %b\r\n" % self.address.encode()
            if head.host:
                forwarded += b"X-Forwarded-Host: %b\r\n" % head.host
            version = b"1.1" if head.http11 else b"1.0"
            forwarded += b"X-Forwarded-Proto: %b\r\nVia: %b b70-frontdoor\r\n" % (self._door.scheme, version)
            self._engine_head = b"".join((head.line, host_line, head.fields, forwarded))
        return self._engine_head

    def turn_away(self, refusal: Refusal, head: RequestHead) -> None:
        """Write an error of the frontdoor's own, and leave it to the caller to note it."""
        extra, connection = self._door.cors_fields(head), self._connection(head)
        self.write(refusal.render(head.route.style, extra, connection, False, self._door.spread()))

    def refuse(
        self, refusal: Refusal, head: RequestHead | None = None, raw: bytes = b"", *, close: bool = False
    ) -> None:
        """Write an error of the frontdoor's own; `raw` is a head that was not understood."""
        if head is None:
            self.write(refusal.render(style_of(raw), b"", CLOSE, False, self._door.spread()))
        else:
            extra, connection = self._door.cors_fields(head), CLOSE if close else self._connection(head)
            head_only = head.method == b"HEAD"
            self.write(refusal.render(head.route.style, extra, connection, head_only, self._door.spread()))
        self._door.ledger.metrics.answered(refusal.code, refusal.status)

    def reply(self, head: RequestHead, response: Callable[[bytes], bytes]) -> None:
        """Write a local answer; `response` is given the line about the connection."""
        self.write(response(self._connection(head)))

    def _connection(self, head: RequestHead) -> bytes:
        """What an answer says of the connection."""
        if not head.keep_alive or self._close_after or self._door.draining:
            return CLOSE
        return b"" if head.http11 else KEPT

    def reject(self, refusal: Refusal, head: RequestHead | None, raw: bytes = b"") -> None:
        """Refuse a request whose bytes are not all read, or not understood: nothing after it is served."""
        self._drop_upload()
        self.refuse(refusal, head, raw, close=True)
        self._linger()

    def exchange_done(self, keep: bool, now: float | None = None) -> None:
        """The answer is written; go on with the next request or close. `now` is the loop's time."""
        self._exchange = None
        if self._stage == CLOSED:
            return
        if not keep or self._close_after or self._door.draining:
            if self._buffer or self._close_after:
                self._linger()
            else:
                self._stage = CLOSED
                # what is not sent yet is sent first, to a client that takes it
                self.deadline = self._write_deadline()
                self.transport.close()
            return
        self._stage = HEAD
        if self._writable and self._reading and now is not None:
            self.deadline = now + self._door.keepalive_s
        elif self._writable:
            self._await_next()
        if self._buffer and not self._processing:
            self._process(b"")

    def _write_deadline(self) -> float:
        return self._door.loop.time() + self._door.config.limits.write_timeout_s

    def _await_next(self) -> None:
        door = self._door
        self.deadline = door.loop.time() + door.keepalive_s
        if not self._reading:
            self._set_reading(True)

    def _linger(self) -> None:
        """Close without losing the answer: a reset because of unread bytes would overtake it."""
        self._stage = DISCARD
        self._buffer = b""
        self._linger_left = _LINGER_BYTES
        self._set_reading(True)
        unsent = self.transport.get_write_buffer_size()
        self.deadline = max(self._door.loop.time() + _LINGER_S, self._write_deadline() if unsent else 0.0)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _set_reading(self, on: bool) -> None:
        if on is not self._reading:
            self._reading = on
            if on:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def abort(self) -> None:
        """End the connection so that the client sees a broken transfer."""
        self._stage = CLOSED
        self.transport.abort()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._stage == HEAD and not self._buffer

    def expired(self) -> None:
        """The deadline passed."""
        if not self._writable:
            exchange, self._exchange = self._exchange, None
            if exchange is not None:
                exchange.client_gone(CLIENT_STALLED)
            self.abort()
        elif self._stage == BODY or (self._stage == HEAD and self._buffer):
            head = self._head if self._stage != HEAD else None
            self.reject(Refusal(408, "request_timeout", "the request was not complete in time"), head, self._buffer)
        else:
            self.abort()
