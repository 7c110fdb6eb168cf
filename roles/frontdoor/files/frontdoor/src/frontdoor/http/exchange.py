# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request on its way through: permits, engine connection, response, and exactly one ending."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from frontdoor import errors
from frontdoor.admission.permits import Permit
from frontdoor.admission.router import Wish
from frontdoor.errors import Refusal
from frontdoor.http.chunks import LAST_CHUNK, chunk
from frontdoor.http.client import ClientConnection, Target
from frontdoor.http.head import END, FAILURE, RequestHead, ResponseError, ResponseHead, response_head
from frontdoor.http.relay import Relay, relay_for, without_usage
from frontdoor.http.upstream import UpstreamConnection
from frontdoor.observability.activity import Entry
from frontdoor.observability.ledger import KEPT
from frontdoor.observability.metrics import (
    CLIENT_CLOSED,
    INTERRUPTED,
    REFUSED,
    UPSTREAM_CUT,
    UPSTREAM_ERROR,
    UPSTREAM_TIMEOUT,
    Histogram,
    outcome_of,
)
from frontdoor.observability.sentinel import LOOK_EVERY, WATCHED, sign_in
from frontdoor.policy.document import Document
from frontdoor.policy.routes import STREAMING_PATHS
from frontdoor.slot.replicas import Replica

_MAX_RESPONSE_HEAD = 64 * 1024
# Seconds after a request on a kept connection in which its end can be taken for that of an idle connection.
_STALE_S = 0.5
# methods that may be repeated (RFC 9110 9.2.2)
_IDEMPOTENT = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))
# methods whose requests say the length of their body even if it is 0
_WITH_BODY: Final = (b"POST", b"PUT", b"PATCH")
# bodies below this size are sent in one piece with their head, and what they take is not worth counting
_SMALL: Final = 16 * 1024
#: bytes of an answer that is collected, to be told in another form
MAX_COLLECTED = 8 * 1024 * 1024
# what the engine says about bytes that the client does not get
_ABOUT_BYTES = re.compile(rb"(?im)^(?:content-length|etag|last-modified|[a-z-]*digest|content-md5|accept-ranges):.*\n")
_TOO_LONG = "it is too long to be told in another form"
_CLOSED = Refusal(502, "engine_closed", "the engine closed the connection before it answered")


class Exchange:
    """Created for each request that may go to the engine; `start` begins, `finish` ends it once."""

    # slots: CPython 3.11 reads attributes that only the class has ten times slower
    __slots__ = (
        *("_asked", "_awaits_first", "_body", "_client", "_collected", "_connecting", "_connection", "_content"),
        *("_done", "_first_byte_s", "_gaps", "_head", "_head_bytes", "_hides", "_last_activity", "_look_at", "_looked"),
        *("_only", "_paused", "_permit", "_reads", "_received", "_relay", "_replica", "_response", "_server"),
        *("_shut_client", "_sign", "_size", "_started", "_streams", "_tail", "_target", "_tried", "_unread"),
    )

    def __init__(
        self,
        client: ClientConnection,
        target: Target,
        head: RequestHead,
        size: int,
        body: bytes | bytearray,
        permits: int = 0,
        wish: Wish | None = None,
        only: int = -1,
        asked: Document | None = None,
    ) -> None:
        """Take one request.

        `size` is what the client sent, `body` is what the engine is sent, `permits` are its permits, or 0.

        `wish` says to which replica a request with permits should go, `only` to which one any other has to. `asked` is
        the body as the client sent it, to be judged anew where what is served changes as long as the request waits.
        """
        self._server = server = client.server
        self._client, self._target = client, target
        self._head = head
        self._size, self._body, self._asked = size, body, asked
        self._hides = asked is not None and asked.hides_usage
        # whether a client that waits for permits hears of it
        self._streams = asked is not None and head.route.path in STREAMING_PATHS and asked.streams
        # when the request was complete, and when the engine was asked or last heard of, or a waiting client last told
        self._started = self._last_activity = now = server.loop.time()
        self._permit = (
            Permit(target.permits, self, id(client), client.client_key, permits, now, wish) if permits else None
        )
        # the replica that gets it, the one that must get it, and those that could not be reached, as bits
        self._replica: Replica | None = None
        self._only = only
        self._tried = 0
        # whether one ended before it had read the request
        self._unread = False
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._response: ResponseHead | None = None
        self._relay: Relay | None = None
        self._gaps: Histogram | None = None
        self._head_bytes = b""
        # of an answer that is collected: the engine's head, and what came of the body
        self._collected: ResponseHead | None = None
        self._content = bytearray()
        # the last bytes of the body
        self._tail: bytes | bytearray = b""
        self._received = self._reads = 0
        # of an answer that is watched: where the next look is due, whether there was one, and the sign that it found
        self._look_at = 0
        self._looked = False
        self._sign = ""
        self._first_byte_s = -1.0
        # a stream whose head came alone, as engines send it before they have a token
        self._awaits_first = False
        self._paused = self._done = self._shut_client = False

    def start(self) -> None:
        """Ask for permits where the path needs some, and go on."""
        server, size = self._server, self._size
        server.running.add(self)
        server.ledger.metrics.request_bytes += size
        if size >= _SMALL:
            server.memory.add(self._client.client_key, size)
        self._count_request()
        if self._permit is None or self._permit.acquire():
            self._asked = None
            self._forward()
        elif self._asked is not None and not self._done:
            self._asked.forget()
            if size < _SMALL or self._asked.body is self._body:
                return
            # both are held while it waits
            server.memory.add(self._client.client_key, size)
            self._size += size

    def _count_request(self, number: int = 1) -> None:
        """Count work that an API key asks for, or take that back."""
        key = self._client.key_name
        if self._permit is not None and key is not None:
            self._server.ledger.quotas.requested(key, time.time(), number)

    def admitted(self, waited: float) -> None:
        """Forward the request: the permits are there, after a wait of so many seconds."""
        self._last_activity = self._started + waited
        asked, self._asked = self._asked, None
        if asked is not None and self._size > (size := len(asked.body)):
            self._server.memory.add(self._client.client_key, size - self._size)
            self._size = size
        self._forward()

    def dismissed(self) -> None:
        """Begin anew in the slot that serves the model now; if there is only one, and that is closed, be refused."""
        asked, server, closed = self._asked, self._server, self._target.slot.closed
        if closed is not None and len(server.targets) == 1:
            self.refuse(closed)
            return
        assert asked is not None
        server.ledger.metrics.request_bytes -= len(asked.body)
        self._count_request(-1)
        self._let_go()
        self._client.dispatch(self._head, asked)

    # --- towards the engine ----------------------------------------------------------------------------------------

    def _forward(self) -> None:
        replicas = self._target.replicas
        if self._permit is not None:
            replica = replicas.all[self._permit.replica]
        else:
            replica = replicas.next(self._tried) if self._only < 0 else replicas.all[self._only]
            replica.passing += 1
        self._replica = replica
        pool = replica.pool
        if pool.idle:
            self.upstream_ready(pool.idle.pop())
        else:
            self._connecting = pool.connect(self)

    def upstream_failed(self, reason: str) -> None:
        """Ask another replica: this one has read nothing of the request, or not all of it."""
        self._connecting = None
        replica = self._replica
        assert replica is not None
        replica.health.note(False, reason)
        self._tried |= 1 << replica.index
        closed = self._target.slot.closed
        if closed is not None and not self._head.route.always:
            # the replica that would get it now was not verified, or is being closed
            self.refuse(closed)
            return
        if self._permit is not None:
            moved = self._permit.move(self._tried)
            if moved:
                self._forward()
            if moved is not None:
                return
        elif self._only < 0 and self._target.replicas.usable & ~self._tried:
            replica.passing -= 1
            self._forward()
            return
        self._fail(Refusal(502, "engine_unreachable", f"the engine cannot be reached: {reason}"))

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """Send the request."""
        head, body = self._head, self._body
        self._connecting = None
        self._connection = connection
        connection.owner = self
        connection.receiver = self._on_head
        size = len(body)
        said = size or head.content_length != 0 or head.method in _WITH_BODY
        end = b"Content-Length: %d\r\n\r\n" % size if said else b"\r\n"
        client = self._client
        top = head.line, connection.pool.host_line, head.fields, client.forwarded, client.id_line, end
        if size < _SMALL:
            connection.transport.write(b"".join((*top, body)))
        else:
            connection.transport.writelines((*top, body))

    # --- from the engine -------------------------------------------------------------------------------------------

    def _on_head(self, data: bytes) -> None:
        if self._head_bytes:
            data, self._head_bytes = self._head_bytes + data, b""
        while True:
            end = data.find(END) + 4
            if end < 4:
                self._head_bytes = data
                if len(data) > _MAX_RESPONSE_HEAD:
                    self._broken("the response head is too long")
                return
            try:
                response = self._parsed(data[:end])
            except ResponseError as exc:
                self._broken(str(exc))
                return
            if response.status >= 200:
                self._begin(response, data[end:])
                return
            if response.status == 101:
                self._broken("it wants to switch protocols")
                return
            # answers before the answer are passed on, but for 100, which the frontdoor gives itself (RFC 9110 15.2)
            if response.status != 100 and self._head.http11 and not self._client.opened:
                self._client.write(response.wire + b"\r\n")
            data = data[end:]

    def _parsed(self, raw: bytes) -> ResponseHead:
        return response_head(raw, self._head.method == b"HEAD", self._server.cors.on)

    def _heard(self, response: ResponseHead) -> None:
        """Note that the engine begins to answer."""
        self._first_byte_s = self._server.loop.time() - self._last_activity
        # one that fails whatever it is asked is no engine that is well: the probe asks it
        if response.status < FAILURE:
            assert self._replica is not None
            health = self._replica.health
            health.heard += 1
            if health.reachable is not True:
                health.note(True)

    def _begin(self, response: ResponseHead, rest: bytes) -> None:
        """Begin the client's answer: the head is there, and maybe some of its body."""
        client, head, connection = self._client, self._head, self._connection
        assert connection is not None
        self._heard(response)
        http11, self._last_activity = head.http11, self._last_activity + self._first_byte_s
        if self._size >= _SMALL and self._body_unread(response):
            # bytes that it leaves unread would stand before the next request on that connection
            response.keep_alive = False
        opened = client.opened
        if opened and response.status == 200 and not response.event_stream:
            self._broken("a stream was asked for, and it is none")
            return
        if self._collects(response):
            if (response.length or 0) > MAX_COLLECTED:
                self._broken(_TOO_LONG)
                return
            self._collected, self._relay = response, relay_for(response, client_chunks=False)
            connection.receiver = self._collect
            self._collect(rest)
            return
        self._accept(response)
        length, wire, said = response.length, response.wire, client.connection_field(head)
        if length is None:
            if http11:
                wire += b"Transfer-Encoding: chunked\r\n"
            else:
                # nothing but the end of the connection tells such a client where the body ends
                said = errors.CLOSE
        # one write for the head and what came with it: two would be two packets
        if length == len(rest) and not opened:
            # the whole answer in one read
            client.write(b"".join((wire, client.own_fields(head), said, b"\r\n", rest)))
            self._received = length
            self._tail = rest[-KEPT:]
            self._give_back(response.keep_alive)
            self.finish(outcome_of(response.status), said is not errors.CLOSE)
            return
        self._shut_client = said is errors.CLOSE
        top = b"" if opened else b"".join((wire, client.own_fields(head), said, b"\r\n"))
        self._tail = bytearray()
        self._relay = self._relay_of(response)
        self._awaits_first = response.chunked and not rest
        if response.chunked and head.gated:
            self._gaps = self._server.ledger.metrics.slots[self._target.name].gaps
        connection.receiver = self._on_body
        connection.streams = response.event_stream and not self._awaits_first
        self._on_body(rest, top)

    def _accept(self, response: ResponseHead) -> None:
        """Take an answer whose head the client gets."""
        self._response = response
        if response.status == 200 and self._head.route.path in WATCHED and self._target.sentinel.watches:
            self._look_at = LOOK_EVERY

    def _relay_of(self, response: ResponseHead) -> Relay:
        edit = without_usage if self._hides else None
        return relay_for(response, client_chunks=self._head.http11, edit=edit)

    def _collects(self, response: ResponseHead) -> bool:
        """Tell whether the client gets the answer only when all of it is there, in another form."""
        # one that was promised an event stream, and has its head
        return self._client.opened and (response.status != 200 or response.length is not None)

    def _collect(self, data: bytes) -> None:
        response, relay, replica = self._collected, self._relay, self._replica
        assert response is not None
        assert relay is not None
        self._received += len(data)
        # a list has one limit for all of it
        if self._permit is not None and replica is not None:
            self._last_activity = self._server.loop.time()
            replica.health.heard += 1
        try:
            self._content += relay.feed(data)
        except ResponseError as exc:
            self._broken(str(exc))
            return
        if len(self._content) > MAX_COLLECTED:
            self._broken(_TOO_LONG)
        elif relay.complete:
            self._give_back(relay.reusable and response.keep_alive)
            self._tell_collected()

    def _tell_collected(self) -> None:
        assert self._collected is not None
        content, self._content = bytes(self._content), bytearray()
        self._accept(self._collected)
        self._tail = content[-KEPT:]
        self._tell(self._collected, content)

    def _tell(self, response: ResponseHead, content: bytes) -> None:
        """Tell the client the whole answer, which it was promised as a stream."""
        if response.status != 200:
            content = errors.stream_event(errors.told_by_engine(response.status, content), self._head.route.style)
        self._client.write(chunk(content) + LAST_CHUNK if self._head.http11 else content)
        self.finish(outcome_of(response.status), self._head.keep_alive)

    def _tell_whole(self, response: ResponseHead, content: bytes) -> None:
        """Send the engine's head with another body."""
        client, head = self._client, self._head
        top = _ABOUT_BYTES.sub(b"", response.wire) + b"Content-Length: %d\r\n" % len(content)
        body = b"" if head.method == b"HEAD" else content
        client.write(b"".join((top, client.own_fields(head), client.connection_field(head), b"\r\n", body)))
        self.finish(outcome_of(response.status), head.keep_alive)

    def _body_unread(self, response: ResponseHead) -> bool:
        """Tell whether the engine answers without having read the body; a body that it has is released."""
        assert self._connection is not None
        if self._connection.transport.get_write_buffer_size():
            return True
        self._release_body()
        return response.status >= 400

    def _on_body(self, data: bytes, head: bytes | None = None) -> None:
        """Pass on a part of the body; with the first comes the head, as far as the client has none."""
        relay = self._relay
        assert relay is not None
        try:
            out = relay.feed(data)
        except ResponseError as exc:
            self._client.write(head or b"")
            self._broken(str(exc))
            return
        if head:
            out = head + out
        if out:
            self._client.write(out)
        now = self._server.loop.time()
        if head is None:
            self._note_read(now)
        self._last_activity = now
        self._received += len(data)
        self._tail += data
        if len(self._tail) > 2 * KEPT:
            self._tail = self._tail[-KEPT:]
            if 0 < self._look_at <= self._received and self._response is not None and self._response.event_stream:
                self._look()
        if relay.complete:
            assert self._response is not None
            self._give_back(relay.reusable and self._response.keep_alive)
            self.finish(outcome_of(self._response.status), not self._shut_client)

    def _look(self) -> None:
        """Look at the end of the answer; one sign is enough."""
        assert self._response is not None
        self._looked = True
        self._sign = sign_in(self._head.route.path, self._tail, not self._response.event_stream)
        self._look_at = 0 if self._sign else self._received + LOOK_EVERY

    def _note_read(self, now: float) -> None:
        """Count the time since the read before."""
        assert self._response is not None
        if self._response.status < FAILURE:
            assert self._replica is not None
            self._replica.health.heard += 1
        if self._awaits_first:
            self._awaits_first = False
            if self._connection is not None:
                self._connection.streams = self._response.event_stream
            self._first_byte_s += now - self._last_activity
        elif self._gaps is not None:
            self._reads += 1
            self._gaps.observe(now - self._last_activity)

    def _give_back(self, reusable: bool) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        if reusable:
            if self._paused:
                connection.transport.resume_reading()
            connection.pool.put(connection, self._last_activity)
        else:
            connection.abort()

    def upstream_lost(self, exc: Exception | None) -> None:
        connection, self._connection = self._connection, None
        relay = self._relay
        if relay is None:
            assert connection is not None
            if not self._head_bytes:
                unread = connection.unread(exc)
                if connection.served and (unread or self._unseen(connection)):
                    # once more on a fresh one, which has not served
                    self._connecting = connection.pool.connect(self)
                    return
                if unread and not self._unread:
                    # only once: should such a request be what ends an engine, the others go on
                    self._unread = True
                    self.upstream_failed("it ended before it had read the request")
                    return
            self._fail(_CLOSED)
        elif self._response is None:
            if exc is None and relay.whole:
                self._tell_collected()
            else:
                self._fail(_CLOSED)
        elif exc is None and relay.whole:
            self._client.write(relay.end() or b"")
            self.finish(outcome_of(self._response.status), not self._shut_client)
        else:
            self._cut(UPSTREAM_CUT, "the engine ended the connection in the middle of the response")

    def _unseen(self, connection: UpstreamConnection) -> bool:
        """Tell whether the request may be sent again: the kept connection was closed before the engine could act on it.

        A generation may not be asked for twice (RFC 9110 9.2.2): it is only repeated where the engine's host did not
        even acknowledge all of it.
        """
        if self._server.loop.time() - self._last_activity >= _STALE_S:
            return False
        return self._head.method in _IDEMPOTENT or not connection.heard_all()

    def _broken(self, why: str) -> None:
        message = f"the engine's answer cannot be passed on: {why}"
        self._give_up(Refusal(502, "bad_engine_response", message), UPSTREAM_ERROR, UPSTREAM_CUT)

    # --- endings ---------------------------------------------------------------------------------------------------

    def _fail(self, refusal: Refusal, outcome: str = UPSTREAM_ERROR) -> None:
        """Answer with one clean error instead of a response."""
        self._client.turn_away(refusal, self._head)
        self._server.ledger.metrics.answered(refusal.code, refusal.status)
        self.finish(outcome, self._head.keep_alive, refusal)

    def refuse(self, refusal: Refusal) -> None:
        """Answer without having asked the engine."""
        self._fail(refusal, REFUSED)

    def _give_up(self, refusal: Refusal, outcome: str, cut: str, code: str = "engine_cut") -> None:
        """Leave the engine; `cut` is the outcome, and `code` the client's, where the response was begun."""
        self._drop_connection()
        if self._response is None:
            self._fail(refusal, outcome)
        else:
            self._cut(cut, refusal.message, code)

    def _cut(self, outcome: str, why: str, code: str = "engine_cut") -> None:
        """Break off a response that was begun and cannot be completed."""
        assert self._relay is not None
        event = errors.stream_event(Refusal(502, code, why), self._head.route.style, bytes(self._tail))
        last = self._relay.end(event)
        if last is None:
            # no length or chunk can be made true any more: the client must see a broken transfer
            self._client.abort()
        elif last:
            self._client.write(last)
        self.finish(outcome, False)

    @property
    def _limit_s(self) -> float:
        """For how long the engine may be silent."""
        return self._target.slot.state.backend_timeout_s

    def expire(self, now: float) -> None:
        """Give up if the engine has been silent for too long; a request that waits for permits has its own timer.

        An engine that is taken for hung is not waited for by a request that has not had any of its answer.
        """
        limit_s = self._limit_s
        if self._permit is not None and self._permit.waiting:
            if self._streams and self._client.say_waiting(self._head, now - self._last_activity):
                self._last_activity = now
            return
        if self._paused:
            return
        begun = self._response is not None and not self._awaits_first
        hung_s = None if begun or self._replica is None else self._replica.probe.hung_s
        if hung_s is not None:
            words = f"the engine has sent nothing to anybody for {hung_s:.0f} s and is taken for hung"
        elif now - self._last_activity > limit_s:
            words = f"the engine sent nothing for {limit_s:g} s"
        else:
            return
        refusal = Refusal(504, "engine_timeout", words)
        self._give_up(refusal, UPSTREAM_TIMEOUT, UPSTREAM_TIMEOUT)

    def interrupt(self, refusal: Refusal) -> None:
        """Give up because the frontdoor stops: an answer that was begun is ended as validly as it can be."""
        self._give_up(refusal, REFUSED, INTERRUPTED, refusal.code)

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        """Drop the engine's connection at once: nobody waits for the answer any more."""
        self._drop_connection()
        self.finish(outcome, False)

    def pause(self) -> None:
        if self._connection is not None:
            self._paused = True
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        if self._connection is not None:
            self._paused = False
            # the engine was silent because it was not listened to
            self._last_activity = self._server.loop.time()
            self._connection.transport.resume_reading()

    def _drop_connection(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def _release_body(self) -> None:
        self._server.memory.add(self._client.client_key, -self._size)
        self._size, self._body = 0, b""

    def _let_go(self) -> None:
        """Release everything that is held."""
        self._done = True
        if self._size >= _SMALL:
            self._release_body()
        self._server.running.discard(self)
        if self._permit is not None:
            self._permit.release()

    def finish(self, outcome: str, keep: bool, refusal: Refusal | None = None) -> None:
        """End the exchange, once: free the permits, count, log, and hand the client connection back."""
        if self._done:
            return
        server, client, target, response = self._server, self._client, self._target, self._response
        waited, replica = 0.0, self._replica
        if self._look_at == LOOK_EVERY and replica is not None and target.sentinel.sample(replica.index):
            self._look()
        if self._looked:
            assert replica is not None
            target.sentinel.note(replica.index, self._sign)
        if self._permit is None and replica is not None:
            replica.passing -= 1
        self._let_go()
        if self._permit is not None:
            waited = self._permit.waited
        server.ledger.note(
            Entry(
                client.address,
                client.key_name,
                self._head.route,
                self._head.gated,
                outcome,
                refusal.status if refusal is not None else response.status if response is not None else 0,
                None if refusal is None else refusal.code,
                self._started,
                server.loop.time(),
                waited,
                self._first_byte_s,
                self._received,
                bytes(self._tail[-KEPT:]),
                response is not None and response.event_stream and response.status == 200,
                replica.index if replica is not None and target.replicas.several else -1,
                target.index,
                client.request_id,
                self._reads,
            )
        )
        client.exchange_done(keep)
