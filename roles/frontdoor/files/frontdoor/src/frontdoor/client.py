# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's side of a connection: requests in, one at a time; responses out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from frontdoor.body import Body, BrokenBody, ChunkedBody, DirectReader, LengthBody
from frontdoor.errors import Refusal
from frontdoor.events import request_fields
from frontdoor.exchange import Work
from frontdoor.httphead import END, HeadError, RequestHead
from frontdoor.ledger import CLIENT_STALLED
from frontdoor.routes import Style

if TYPE_CHECKING:
    from frontdoor.door import Door

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


class ClientConnection(asyncio.Protocol):
    """One accepted connection. Requests that were sent ahead wait until the one before is answered."""

    __slots__ = (
        "_body",
        "_body_deadline",
        "_buffer",
        "_close_after",
        "_counted",
        "_direct",
        "_door",
        "_engine_head",
        "_engine_head_for",
        "_exchange",
        "_head",
        "_heads",
        "_linger_left",
        "_logged",
        "_logged_head",
        "_processing",
        "_reading",
        "_stage",
        "_writable",
        "address",
        "deadline",
        "from_this_host",
        "key",
        "key_name",
        "transport",
        "write",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._heads = door.heads
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = lambda data: None
        self.address = ""
        self._logged_head: RequestHead | None = None
        self._logged = ""
        #: whose turn it is where clients compete, and the name of the API key
        self.key = ""
        self.key_name: str | None = None
        self.from_this_host = False
        self.deadline: float | None = None
        self._stage = HEAD
        self._buffer = b""
        self._head: RequestHead = cast(RequestHead, None)
        self._body: Body | None = None
        # whether somebody else reads the body under way
        self._direct = False
        # bytes of the body under way that stand in the door's account
        self._counted = 0
        self._body_deadline = 0.0
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
        self.address = self.key = str(peer[0]) if peer else "local"
        own = transport.get_extra_info("sockname")
        self.from_this_host = bool(peer and own and peer[0] == own[0])
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH)
        door = self._door
        self.deadline = door.loop.time() + door.config.limits.header_timeout_s
        refusal = door.welcome(self)
        if refusal is not None:
            self.refuse(refusal)
            self._linger()

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage == HEAD:
            if self._writable and not self._buffer:
                # the usual case: one whole request, whose head was seen before
                end = data.find(END) + 4
                head = self._heads.get(data[:end])
                if head is not None and head.content_length == len(data) - end:
                    self._dispatch(head, data[end:])
                    return
            self._process(self._buffer + data if self._buffer else data)
        elif stage == ANSWER:
            self._ahead(data)
        elif stage == BODY:
            self._on_body(data)
        elif stage == DISCARD:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self.transport.abort()

    def _ahead(self, data: bytes) -> None:
        """Keep requests that are sent ahead; of too many none is served.

        They are read all the same: that a client left is only heard behind all that it sent.
        """
        self._buffer += data
        if len(self._buffer) > _MAX_AHEAD:
            self._close_after = True
        if self._close_after:
            self._buffer = b""

    def eof_received(self) -> bool:
        # a client that stops sending has left; half-closed connections are not served
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stage = CLOSED
        self._drop_body()
        self._door.farewell(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    def pause_writing(self) -> None:
        self._writable = False
        self.deadline = self._door.loop.time() + self._door.config.limits.write_timeout_s
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        self._writable = True
        self.deadline = None
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
                self._reject(Refusal(exc.status, exc.code, exc.message), None)
                break
            self._head = head
            length = head.content_length
            if length is not None and length > door.max_body:
                self._reject(self._too_large(), head)
                break
            if length is not None and len(data) - end >= length:
                stop = end + length
                self._buffer = data[stop:]
                self._dispatch(head, data[end:stop])
            else:
                self._buffer = b""
                # of a large one not a copy
                many = len(data) - end >= _MANY_BYTES
                self._begin_body(head, memoryview(data)[end:] if many else data[end:])
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
            self._reject(Refusal(431, "headers_too_large", f"the request head exceeds {limit} bytes"), None)
            return
        if data and not self._buffer and self._writable:
            # counts from the first byte: a head that drips in is not given more time for each drop
            self.deadline = self._door.loop.time() + self._door.config.limits.header_timeout_s
        self._buffer = data

    def _begin_body(self, head: RequestHead, rest: bytes | memoryview) -> None:
        door = self._door
        limits = door.config.limits
        refusal = door.refusal_before_body(self, head)
        if refusal is not None:
            self._reject(refusal, head)
            return
        if head.expects_continue and not rest:
            self.write(CONTINUE)
        now = door.loop.time()
        self._body_deadline = now + limits.body_timeout_s
        self.deadline = now + limits.body_idle_timeout_s
        self._stage = BODY
        self._body = ChunkedBody() if head.content_length is None else LengthBody(head.content_length)
        if rest:
            self._on_body(rest)

    def _too_large(self) -> Refusal:
        limit = self._door.max_body
        return Refusal(413, "body_too_large", f"the request body exceeds {limit} bytes")

    def _count_body(self, size: int) -> bool:
        """Note received bytes of a body; False when the frontdoor holds too much already."""
        door = self._door
        limits = door.config.limits
        door.buffered += size
        self._counted += size
        self.deadline = min(self._body_deadline, door.loop.time() + limits.body_idle_timeout_s)
        if door.buffered <= limits.max_buffered_bytes:
            return True
        self._reject(Refusal(503, "overloaded", "too many large requests are being received", 5), self._head)
        return False

    def _on_body(self, data: bytes | memoryview) -> None:
        body = self._body
        assert body is not None
        before = body.size
        try:
            body.feed(data)
        except BrokenBody as exc:
            self._reject(Refusal(400, "bad_request", str(exc)), self._head)
            return
        if body.size > self._door.max_body:
            self._reject(self._too_large(), self._head)
        elif self._count_body(body.size - before):
            if body.complete:
                self._body_complete(body)
            elif isinstance(body, LengthBody) and body.large:
                self._read_directly(body)

    def _read_directly(self, body: LengthBody) -> None:
        def grown() -> None:
            if self._count_body(body.held - self._counted) and body.complete:
                self._body_complete(body)

        self._direct = True
        self._let_read(DirectReader(body, self, grown))

    def _let_read(self, protocol: asyncio.BaseProtocol) -> None:
        if not self.transport.is_closing():
            # a transport looks at how its protocol wants to read when it begins to read
            self.transport.pause_reading()
            self.transport.set_protocol(protocol)
            self.transport.resume_reading()

    def _body_complete(self, body: Body) -> None:
        content = body.content()
        if body.rest is None:
            self._close_after = True
        else:
            self._buffer = body.rest
        # from here on it is the answer's to account for
        self._drop_body()
        processing, self._processing = self._processing, True
        self._dispatch(self._head, content)
        self._processing = processing
        if not processing and self._stage == HEAD and self._buffer:
            self._process(b"")

    def _drop_body(self) -> None:
        self._door.buffered -= self._counted
        self._counted = 0
        self._body = None
        if self._direct:
            self._direct = False
            self._let_read(self)

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
            forwarded += b"X-Forwarded-Proto: %b\r\n" % self._door.scheme
            self._engine_head = b"".join((head.line, host_line, head.fields, forwarded))
        return self._engine_head

    def log_fields(self, head: RequestHead) -> str:
        """What the log says of a request that went well, made once while a client repeats itself."""
        if self._logged_head is not head:
            self._logged_head = head
            self._logged = request_fields(self.address, head.route.path, "ok", None, 0.0)
        return self._logged

    def turn_away(self, refusal: Refusal, head: RequestHead) -> None:
        """Write an error of the frontdoor's own, and leave it to the caller to note it."""
        shut = not head.keep_alive or self._close_after or self._door.draining
        self.write(refusal.render(head.route.style, self._door.cors_fields(head), shut, False))

    def refuse(self, refusal: Refusal, head: RequestHead | None = None, *, close: bool = False) -> None:
        """Write an error of the frontdoor's own."""
        if head is None:
            self.write(refusal.render(Style.OPENAI, b"", True, False))
        else:
            shut = close or not head.keep_alive or self._close_after or self._door.draining
            extra = self._door.cors_fields(head)
            self.write(refusal.render(head.route.style, extra, shut, head.method == b"HEAD"))
        self._door.ledger.refused(refusal)

    def reply(self, head: RequestHead, response: Callable[[bool], bytes]) -> None:
        """Write a local answer; `response` is told whether the connection will be closed."""
        self.write(response(not head.keep_alive or self._close_after or self._door.draining))

    def _reject(self, refusal: Refusal, head: RequestHead | None) -> None:
        """Refuse a request whose bytes are not all read, or not understood: nothing after it is served."""
        self._drop_body()
        self.refuse(refusal, head, close=True)
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
                self.transport.close()
            return
        self._stage = HEAD
        if self._writable:
            self._await_next(now)
        if self._buffer and not self._processing:
            self._process(b"")

    def _await_next(self, now: float | None = None) -> None:
        door = self._door
        self.deadline = (door.loop.time() if now is None else now) + door.keepalive_s
        if not self._reading:
            self._set_reading(True)

    def _linger(self) -> None:
        """Close without losing the answer: a reset because of unread bytes would overtake it."""
        self._stage = DISCARD
        self._buffer = b""
        self._linger_left = _LINGER_BYTES
        self._set_reading(True)
        self.deadline = self._door.loop.time() + _LINGER_S
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
            self._reject(Refusal(408, "request_timeout", "the request was not complete in time"), head)
        else:
            self.abort()
