# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request's body on its way in: put together, counted, limited and timed."""

from __future__ import annotations

from frontdoor.admission.bounds import MemoryBudget
from frontdoor.config import Limits
from frontdoor.errors import Refusal
from frontdoor.http.chunks import ChunkError, ChunkScanner
from frontdoor.http.head import RequestHead
from frontdoor.policy.document import Document
from frontdoor.policy.form import Form, Marks
from frontdoor.policy.outline import SHORT, Outline
from frontdoor.policy.routes import Kind

# requests that are not for the engine have no use for a larger one
_OWN_LIMIT = 64 * 1024
# limits of what size lines, their extensions and trailers add to a body: bytes, and a multiple of its size
_OVERHEAD_BYTES = 64 * 1024
_OVERHEAD_TIMES = 16


def too_large(limit: int) -> Refusal:
    """Return the refusal of a body over the limit."""
    return Refusal(413, "body_too_large", f"the request body exceeds {limit} bytes")


def limit_of(limits: Limits, head: RequestHead) -> int:
    """Return how large the body of a request may be."""
    own = head.method == b"OPTIONS" or head.route.kind is not Kind.ENGINE
    return min(limits.max_body_bytes, _OWN_LIMIT) if own else limits.max_body_bytes


def document_of(
    head: RequestHead, body: bytes | bytearray, outline: Outline | None = None, marks: Marks | None = None
) -> Document:
    """Return a complete body for reading; what was made of it as it came is not made again."""
    return Form(body, head.boundary, marks) if head.boundary else Document(body, outline)


class BodyReader:
    """Takes a body of announced length, or in chunks. What is held counts in the memory budget until `release`."""

    def __init__(self, head: RequestHead, limits: Limits, memory: MemoryBudget, client_key: str, now: float) -> None:
        """Take the head of a request. `now` is the loop's time."""
        self._length = head.content_length
        self._scanner = ChunkScanner() if self._length is None else None
        self._raw = 0
        self._limit = limit_of(limits, head)
        self._memory = memory
        self._client_key = client_key
        self._idle_s = limits.body_idle_timeout_s
        self._last_deadline = now + limits.body_timeout_s
        self.content = bytearray()
        long = head.content_length is None or head.content_length > SHORT
        self._head = head
        self._marks = Marks(head.boundary) if head.boundary else None
        reads = long and head.route.kind is Kind.ENGINE and not (head.coded or head.boundary)
        self._outline = Outline() if reads else None
        self._held = 0
        self.complete = False
        #: what came behind the body
        self.rest = b""

    def deadline(self, now: float) -> float:
        """Return when the next bytes have to be there."""
        return min(self._last_deadline, now + self._idle_s)

    def feed(self, data: bytes) -> Refusal | None:
        """Take what was read; return why the body is refused."""
        if self._scanner is not None:
            try:
                piece = self._scanner.feed(data)
            except ChunkError as exc:
                return Refusal(400, "bad_request", f"broken chunked coding: {exc}")
            self._raw += len(data)
            if self._raw > _OVERHEAD_BYTES + _OVERHEAD_TIMES * (len(self.content) + len(piece)):
                return Refusal(400, "bad_request", "chunk extensions or trailers exceed what a body may carry")
            self.complete, self.rest = self._scanner.complete, self._scanner.rest
        else:
            assert self._length is not None
            left = self._length - len(self.content)
            piece, self.rest = data[:left], data[left:]
            self.complete = len(piece) == left
        self.content += piece
        held = len(self.content)
        if self._marks is not None:
            self._marks.feed(piece)
        elif self._outline is not None:
            self._outline.feed(piece)
            held += len(self._outline.text)
        self._memory.add(self._client_key, held - self._held)
        self._held = held
        if len(self.content) > self._limit:
            return too_large(self._limit)
        excess = self._memory.excess(self._client_key)
        return Refusal(503, "overloaded", excess, 5) if excess else None

    def release(self) -> Document:
        """Hold nothing any more: what came is the caller's."""
        self._memory.add(self._client_key, -self._held)
        document = document_of(self._head, self.content, self._outline, self._marks)
        self.content, self._outline, self._held = bytearray(), None, 0
        return document
