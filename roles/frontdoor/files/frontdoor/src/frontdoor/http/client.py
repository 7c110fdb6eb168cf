# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's side of a connection: requests in, one at a time; responses out."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from frontdoor import errors
from frontdoor.admission.bounds import ConnectionLimiter, MemoryBudget
from frontdoor.admission.permits import Permits
from frontdoor.config import Limits
from frontdoor.errors import CLOSE, KEPT, Refusal
from frontdoor.http.body import BodyReader, document_of, limit_of, too_large
from frontdoor.http.chunks import LAST_CHUNK, chunk
from frontdoor.http.head import END, EVENT_STREAM, HeadError, RequestHead, request_head
from frontdoor.networks import client_key, is_address, plain
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.metrics import CLIENT_CLOSED, CLIENT_STALLED
from frontdoor.observability.sentinel import Sentinel
from frontdoor.policy.document import Document
from frontdoor.policy.origins import Origins
from frontdoor.policy.routes import style_of
from frontdoor.slot.current import Slot
from frontdoor.slot.replicas import Replicas

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# bytes of following requests that are kept while one is being answered
_MAX_AHEAD = 256 * 1024
_WRITE_HIGH = 256 * 1024
# after so many bytes of a body, as a power of two, others have their turn: libuv reads up to 8 MB in one
_TURN_BITS = 20
# after a refusal with the upload still under way: how long and how much is read and thrown away
_LINGER_S = 5.0
_LINGER_BYTES = 256 * 1024 * 1024

# The next thing that a connection expects: plain numbers, they are compared several times for each request.
HEAD: Final = 0
BODY: Final = 1
ANSWER: Final = 2
DISCARD: Final = 3
CLOSED: Final = 4


class Work(Protocol):
    """Whatever makes an answer that is not there at once. It ends with the connection's `exchange_done`."""

    def start(self) -> None:
        """Begin."""

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        """End the work: nobody waits for the answer any more."""

    def pause(self) -> None:
        """Pause the answer: the client is slower."""

    def resume(self) -> None:
        """Resume the answer: the client caught up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One slot, as the requests for its model see it."""

    #: its number; what names no model that is served goes to number 0
    index: int
    name: str
    slot: Slot
    replicas: Replicas
    permits: Permits
    sentinel: Sentinel


@dataclasses.dataclass(slots=True)
class Server:
    """The parts that all connections and requests share. A reload replaces `limits`, `cors` and `queue_keepalive_s`."""

    loop: asyncio.AbstractEventLoop
    limits: Limits
    #: answers a complete request at once (None), or returns what will
    route: Callable[[ClientConnection, RequestHead, Document], Work | None]
    #: what is known to be refused before the client sends its body
    refusal_before_body: Callable[[ClientConnection, RequestHead], Refusal | None]
    connections: ConnectionLimiter[ClientConnection]
    #: at least one
    targets: tuple[Target, ...]
    #: where each model is or was served, by its name and its aliases
    by_model: dict[str, Target]
    memory: MemoryBudget
    ledger: Ledger
    #: exchanges with the engine that are under way
    running: set[Any]
    #: how often a client that waits for a stream hears of it; 0: never
    queue_keepalive_s: float
    #: gives numbers from 0 to 1, by which refused clients are spread over time
    spread: Callable[[], float]
    scheme: bytes
    cors: Origins
    #: whether the credentials of a request are the engine's business
    keep_secrets: bool
    #: makes names for requests that have none
    make_id: Callable[[], bytes]
    #: what a client may have loaded, as rows of the list of models, by name
    offers: Callable[[ClientConnection], dict[str, dict[str, Any]]]


def maker_of_ids() -> Callable[[], bytes]:
    """Return a maker of names for requests: no other process makes the same, nor this one twice."""
    prefix, numbers = os.urandom(8).hex().encode(), itertools.count(1)
    return lambda: b"%b-%x" % (prefix, next(numbers))


def _unwritten(data: bytes) -> None:
    """Drop the data: nobody reads it any more."""


class ClientConnection(asyncio.Protocol):
    """One accepted connection. Requests that were sent ahead wait until the one before is answered.

    A client that stops sending has left: half-closed connections are not served.
    """

    def __init__(self, server: Server, source: str = "") -> None:
        """Take the server; `source` is the client's address, where a trusted proxy said it before the first byte."""
        self.server = server
        self._source = source
        self._time = server.loop.time
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = _unwritten
        #: who connected
        self.peer = ""
        #: who asks: the same, unless the proxy is trusted
        self.address = ""
        self._of_proxy = False
        #: what the engine is told of this connection, in header lines
        self.forwarded = b""
        #: who competes with others (a key, or the network), and the name of the API key
        self.client_key = self.network = ""
        self.key_name: str | None = None
        self.from_this_host = False
        #: the name of the request under way, and the header line with it, for the engine and the client alike
        self.request_id = self.id_line = b""
        #: whether the client has the head of an event stream whose request waits, or waited, for permits
        self.opened = False
        self.deadline: float | None = None
        self._stage = HEAD
        self._buffer = b""
        self._head: RequestHead | None = None
        self._body: BodyReader | None = None
        self._linger_left = 0
        self._work: Work | None = None
        self._processing = False
        self._close_after = False
        self._reading = True
        self._writable = True

    @property
    def _limits(self) -> Limits:
        return self.server.limits

    # --- transport callbacks ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        self.peer = self._source or (plain(str(peer[0])) if peer else "local")
        self.network = client_key(self.peer)
        self._asked_by(self.peer)
        # a path is that of a Unix socket
        unix = isinstance(own, str)
        self.from_this_host = unix or bool(peer and own and peer[0] == own[0])
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH)
        self.deadline = self._time() + self._limits.header_timeout_s
        connections = self.server.connections
        self._of_proxy = unix or connections.is_proxy(self.peer)
        refusal = connections.add(self)
        if refusal is not None and connections.may_linger:
            self.refuse(refusal)
            self._linger()
        elif refusal is not None:
            self.abort()

    def _asked_by(self, address: str) -> None:
        """Note who asks: who connected, or for whom a trusted proxy asks."""
        self.address = address
        self.client_key = client_key(address)
        said = address.encode(), self.server.scheme
        self.forwarded = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\n" % said

    def _forwarded_for(self, head: RequestHead) -> Refusal | None:
        """Note for whom the proxy asks; one that names nobody asks for itself."""
        if not is_address(head.forwarded_for):
            self._asked_by(self.peer)
            return None
        self._asked_by(plain(head.forwarded_for))
        return self.server.connections.refusal_of(self.address)

    def data_received(self, data: bytes) -> None:
        stage = self._stage
        if stage == HEAD:
            self._process(self._buffer + data if self._buffer else data)
        elif stage == ANSWER:
            self._keep_ahead(data)
        elif stage == BODY:
            self._read_body(data)
        elif stage == DISCARD:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self.transport.abort()

    def _keep_ahead(self, data: bytes) -> None:
        """Keep requests that are sent ahead; of too many none is served.

        They are read all the same: that a client left is only heard behind all that it sent.
        """
        self._buffer += data
        if len(self._buffer) > _MAX_AHEAD and not self._close_after:
            self._close_after = True
        if self._close_after:
            self._buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._stage = CLOSED
        # it would keep the transport, and the transport this
        self.write = _unwritten
        self._drop_body()
        self.server.connections.remove(self)
        work, self._work = self._work, None
        if work is not None:
            work.client_gone()

    def pause_writing(self) -> None:
        self._writable = False
        if self._stage in (HEAD, ANSWER):
            # a body that is read, and a connection that is closed, have limits that this must not prolong
            self.deadline = self._write_deadline()
        if self._work is not None:
            self._work.pause()

    def resume_writing(self) -> None:
        self._writable = True
        if self._stage == ANSWER:
            self.deadline = None
        elif self._stage == DISCARD:
            self.deadline = self._time() + _LINGER_S
        if self._work is not None:
            self._work.resume()
        elif self._stage == HEAD:
            self._await_next()
            self._process_buffer()

    # --- requests --------------------------------------------------------------------------------------------------

    def _process(self, data: bytes) -> None:
        """Serve the requests that are complete in the buffer, as far as answers are complete at once."""
        self._processing = True
        while data and self._stage == HEAD:
            if not self._writable:
                self._buffer = data
                self._set_reading(False)
                break
            end = data.find(END) + 4
            if end < 4 or end > self._limits.max_header_bytes:
                self._partial_head(data)
                break
            if data.startswith(b"\r\n"):
                # RFC 9112 2.2: empty lines before a request are ignored
                data = data.lstrip(b"\r\n")
                continue
            try:
                head = request_head(data[:end], self._limits.max_headers, self.server.keep_secrets)
            except HeadError as exc:
                self.reject(exc.refusal, None, data[:end])
                break
            self._head, self.key_name = head, None
            self._identify(head.request_id)
            if self._of_proxy and (refusal := self._forwarded_for(head)) is not None:
                self.reject(refusal, head)
                break
            length, most = head.content_length, self._limits.max_body_bytes
            if length is not None and length > most:
                self.reject(too_large(most), head)
            elif length is not None and len(data) - end >= length:
                self._buffer = data[end + length :]
                self.dispatch(head, document_of(head, data[end : end + length]))
            else:
                self._buffer = b""
                self._begin_body(head, data[end:])
            data = self._buffer
            if self._stage == HEAD:
                self._buffer = b""
        self._processing = False

    def _identify(self, given: bytes = b"") -> None:
        """Note what the request is called; one that has no name gets one."""
        self.request_id = given or self.server.make_id()
        self.id_line = b"X-Request-Id: %b\r\n" % self.request_id

    def _process_buffer(self) -> None:
        if self._buffer and not self._processing:
            data, self._buffer = self._buffer, b""
            self._process(data)

    def _partial_head(self, data: bytes) -> None:
        limit = self._limits.max_header_bytes
        data = data.lstrip(b"\r\n") if data.startswith(b"\r\n") else data
        if len(data) > limit:
            self.reject(Refusal(431, "headers_too_large", f"the request head exceeds {limit} bytes"), None, data)
            return
        if data and not self._buffer and self._writable:
            # counts from the first byte: a head that drips in is not given more time for each drop
            self.deadline = self._time() + self._limits.header_timeout_s
        self._buffer = data

    def _begin_body(self, head: RequestHead, start: bytes) -> None:
        refusal = self.server.refusal_before_body(self, head)
        limit = limit_of(self._limits, head)
        if refusal is None and (head.content_length or 0) > limit:
            refusal = too_large(limit)
        if refusal is not None:
            self.reject(refusal, head)
            return
        if head.expects_continue and not start and self.transport.get_write_buffer_size() < _WRITE_HIGH // 2:
            # a client that reads nothing has no use for it
            self.write(CONTINUE)
        self._stage = BODY
        now = self._time()
        self._body = BodyReader(head, self._limits, self.server.memory, self.client_key, now)
        self.deadline = self._body.deadline(now)
        if start:
            self._read_body(start)

    def _read_body(self, data: bytes) -> None:
        body, head = self._body, self._head
        assert body is not None
        assert head is not None
        turn = len(body.content) >> _TURN_BITS
        refusal = body.feed(data)
        self.deadline = body.deadline(self._time())
        if refusal is not None:
            self.reject(refusal, head)
        elif body.complete:
            self._body_complete(body, head)
        elif len(body.content) >> _TURN_BITS != turn:
            self._set_reading(False)
            self.server.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._stage == BODY:
            self._set_reading(True)

    def _body_complete(self, body: BodyReader, head: RequestHead) -> None:
        self._buffer = body.rest
        # from here on it is the answer's to account for
        document, self._body = body.release(), None
        if head.content_length is None and self._buffer:
            # two readers may see the end of a chunked body in different places: nothing behind it is served
            self._close_after = True
            self._buffer = b""
        processing, self._processing = self._processing, True
        self.dispatch(head, document)
        self._processing = processing
        if self._stage == HEAD:
            self._process_buffer()

    def _drop_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.release()

    # --- answers ---------------------------------------------------------------------------------------------------

    def dispatch(self, head: RequestHead, document: Document) -> None:
        """Have a complete request answered, which no engine has seen."""
        self._stage = ANSWER
        work = self.server.route(self, head, document)
        if work is None:
            # answered already
            self.exchange_done(head.keep_alive)
            return
        self.deadline = None
        self._work = work
        work.start()

    def own_fields(self, head: RequestHead) -> bytes:
        """Return header lines of each answer: the request's name, and those for the browser that sent it."""
        return self.id_line + self.server.cors.fields(head.origin) if head.origin else self.id_line

    def say_waiting(self, head: RequestHead, silent_s: float) -> bool:
        """Keep a client that asked for a stream, and all proxies before it, from giving up while its request waits.

        Return False where the client was told less than a while ago.
        """
        if not 0 < self.server.queue_keepalive_s <= silent_s:
            return False
        # what is told already stands before what the engine sends
        head.uncoded()
        top = b""
        if not self.opened:
            self.opened = True
            # nothing but the end of the connection tells an older client where the body ends
            self._close_after = self._close_after or not head.http11
            coding = b"Transfer-Encoding: chunked\r\n" if head.http11 else b""
            fields = EVENT_STREAM + coding + self.own_fields(head) + self.connection_field(head)
            top = errors.response(200, None, fields)
        said = errors.waiting(head.route.style)
        self.write(top + (chunk(said) if head.http11 else said))
        return True

    def turn_away(self, refusal: Refusal, head: RequestHead | None, raw: bytes = b"") -> None:
        """Write an error of the frontdoor's own, which the caller notes; `raw` is a head that was not understood."""
        if self.opened and head is not None:
            event = errors.stream_event(refusal, head.route.style)
            self.write(chunk(event) + LAST_CHUNK if head.http11 else event)
            return
        if head is None:
            self._identify()
            style, fields, bare = style_of(raw), CLOSE, False
        else:
            style, fields, bare = head.route.style, self.connection_field(head), head.method == b"HEAD"
            if head.origin:
                fields = self.server.cors.fields(head.origin) + fields
        top, rest = refusal.render(style, fields, bare, self.server.spread())
        self.write(b"".join((top, self.id_line, rest)))

    def refuse(self, refusal: Refusal, head: RequestHead | None = None, raw: bytes = b"", slot: int = -1) -> None:
        """Write an error of the frontdoor's own, and note it; `slot` is the one whose permits were asked for."""
        self.turn_away(refusal, head, raw)
        route, key_name = (None, None) if head is None else (head.route, self.key_name)
        self.server.ledger.refused(self.address, key_name, route, refusal, slot, self.request_id)

    def connection_field(self, head: RequestHead) -> bytes:
        """Return the header line of an answer about the connection."""
        if not head.keep_alive or self._close_after or self.server.targets[0].slot.draining:
            return CLOSE
        return b"" if head.http11 else KEPT

    def reject(self, refusal: Refusal, head: RequestHead | None, raw: bytes = b"") -> None:
        """Refuse a request whose bytes are not all read, or not understood: nothing after it is served."""
        self._drop_body()
        self._close_after = True
        self.refuse(refusal, head, raw)
        self._linger()

    def exchange_done(self, keep: bool) -> None:
        """Go on with the next request after a written answer, or close."""
        self._work = None
        self.opened = False
        if self._stage == CLOSED:
            return
        if not keep or self._close_after or self.server.targets[0].slot.draining:
            if self._buffer or self._close_after:
                self._linger()
            else:
                self._stage = CLOSED
                # unsent bytes are sent first, to a client that takes them
                self.deadline = self._write_deadline()
                self.transport.close()
            return
        self._stage = HEAD
        if self._writable:
            self._await_next()
        if self._buffer:
            self._process_buffer()

    def _await_next(self) -> None:
        self.deadline = self._time() + self._limits.keepalive_timeout_s
        if not self._reading:
            self._set_reading(True)

    def _write_deadline(self) -> float:
        return self._time() + self._limits.write_timeout_s

    def _linger(self) -> None:
        """Close without losing the answer: a reset because of unread bytes would overtake it."""
        self._stage = DISCARD
        self._buffer = b""
        self._linger_left = _LINGER_BYTES
        self._set_reading(True)
        unsent = self.transport.get_write_buffer_size()
        self.deadline = max(self._time() + _LINGER_S, self._write_deadline() if unsent else 0.0)
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

    def hand_over(self, keep: Callable[[socket.socket], None]) -> None:
        """Leave an idle connection to the next process; what the client sends meanwhile waits in it."""
        self._stage = CLOSED
        keep(socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())))
        self.transport.abort()

    @property
    def unknown(self) -> bool:
        """True for a distant client whose connection is in clear text and has nothing unsent."""
        known = self.from_this_host or self._of_proxy or self.server.scheme != b"http"
        return not known and not self.transport.get_write_buffer_size()

    @property
    def idle(self) -> bool:
        """True while nothing is under way."""
        return self._stage == HEAD and not self._buffer

    def expired(self) -> None:
        if not self._writable:
            work, self._work = self._work, None
            if work is not None:
                work.client_gone(CLIENT_STALLED)
            self.abort()
        elif self._stage == BODY or (self._stage == HEAD and self._buffer):
            head = self._head if self._stage != HEAD else None
            self.reject(Refusal(408, "request_timeout", "the request was not complete in time"), head, self._buffer)
        else:
            self.abort()
