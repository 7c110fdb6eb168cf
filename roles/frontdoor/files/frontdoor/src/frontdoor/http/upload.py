# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request's body that did not come with its head: read, counted, limited and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontdoor.errors import Refusal
from frontdoor.http.body import Body, BrokenBody, ChunkedBody, DirectReader, LengthBody
from frontdoor.http.head import RequestHead
from frontdoor.policy.routes import Kind

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection

# what is not for the engine has no use for a larger one
_OWN_LIMIT = 64 * 1024
# bodies from this size on stand in the account of whoever sent them until the engine has them
ACCOUNTED = 16 * 1024


class Holdings:
    """How much each client has the frontdoor hold: bodies that come in, and those the engine does not have yet."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._lent: dict[object, tuple[str, int]] = {}

    def add(self, key: str, size: int) -> int:
        """Note bytes; return what that client holds then."""
        held = self._held[key] = self._held.get(key, 0) + size
        if not held:
            del self._held[key]
        return held

    def lend(self, work: object, key: str, size: int) -> None:
        """Note bytes until the work releases them."""
        self._lent[work] = (key, size)
        self.add(key, size)

    def release(self, work: object) -> None:
        """The work holds its body no more."""
        key, size = self._lent.pop(work, ("", 0))
        if size:
            self.add(key, -size)

    def __len__(self) -> int:
        return len(self._held) + len(self._lent)


def too_large(limit: int) -> Refusal:
    """A body over the limit."""
    return Refusal(413, "body_too_large", f"the request body exceeds {limit} bytes")


def limit_of(door: Door, head: RequestHead) -> int:
    """How large the body of a request may be."""
    own = head.method == b"OPTIONS" or head.route.kind is not Kind.ENGINE
    return min(door.max_body, _OWN_LIMIT) if own else door.max_body


class Upload:
    """One such body. The client is told by `received` when it is complete, and by `reject` when it is refused."""

    __slots__ = ("_body", "_client", "_counted", "_deadline", "_direct", "_door", "_head", "_key", "_limit")

    def __init__(self, door: Door, client: ClientConnection, head: RequestHead) -> None:
        self._door = door
        self._client = client
        self._head = head
        self._key = client.key
        self._limit = limit_of(door, head)
        self._deadline = door.loop.time() + door.config.limits.body_timeout_s
        reader, length = client.reader, head.content_length
        proven = 0 if reader is None else reader.proven
        self._body: Body = ChunkedBody() if length is None else LengthBody(length, proven)
        # whether its own reader reads the connection
        self._direct = False
        # bytes that stand in the account
        self._counted = 0

    def next_deadline(self) -> float:
        """When the next bytes have to be there."""
        return min(self._deadline, self._door.loop.time() + self._door.config.limits.body_idle_timeout_s)

    def feed(self, data: bytes | memoryview) -> None:
        """Take what was read."""
        body = self._body
        before = body.size
        try:
            body.feed(data)
        except BrokenBody as exc:
            self._client.reject(Refusal(400, "bad_request", str(exc)), self._head)
            return
        if body.size > self._limit:
            self._client.reject(too_large(self._limit), self._head)
        elif self._count(body.size - before):
            if body.complete:
                self._complete()
            elif isinstance(body, LengthBody) and body.large:
                self._direct = True
                self._reader().begin(body, self._grown)

    def _grown(self) -> None:
        body = self._body
        assert isinstance(body, LengthBody)
        if self._count(body.held - self._counted) and body.complete:
            self._complete()

    def _count(self, size: int) -> bool:
        """Note received bytes; False when too many are held already."""
        door, limits = self._door, self._door.config.limits
        door.buffered += size
        self._counted += size
        of_client = door.holdings.add(self._key, size)
        self._client.deadline = self.next_deadline()
        if door.buffered > limits.max_buffered_bytes:
            why = "too many large requests are being received"
        elif of_client > max(limits.max_buffered_bytes_per_client, door.max_body):
            why = "too many large requests of yours are being received"
        else:
            return True
        self._client.reject(Refusal(503, "overloaded", why, 5), self._head)
        return False

    def _complete(self) -> None:
        content, rest = self._body.content(), self._body.rest
        door, client = self._door, self._client
        # from here on it is the answer's to account for
        self.drop()
        work = client.received(self._head, content, rest)
        if work is not None and len(content) >= ACCOUNTED:
            door.holdings.lend(work, self._key, len(content))

    def drop(self) -> None:
        """Hold nothing any more."""
        self._door.buffered -= self._counted
        self._door.holdings.add(self._key, -self._counted)
        self._counted = 0
        reader = self._client.reader
        if self._direct and reader is not None:
            self._direct = False
            reader.end()

    def _reader(self) -> DirectReader:
        """What reads the connection directly, from now on if it did not before."""
        client = self._client
        if client.reader is None:
            client.reader = DirectReader(client)
            transport = client.transport
            if not transport.is_closing():
                # a transport looks at how its protocol wants to read when it begins to read
                transport.pause_reading()
                transport.set_protocol(client.reader)
                transport.resume_reading()
        return client.reader
