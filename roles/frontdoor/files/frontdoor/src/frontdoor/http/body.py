# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request bodies on their way in: of announced length, or in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import httptools

# a large body: when so much of it is there and so much is missing, the rest is read right to where it is kept
LARGE = 128 * 1024
# how many times what is there, or came before, may be reserved for what is announced
_TRUST = 8


# Buffers of large bodies that were sent, for those to come: to fill fresh ones with zeros costs as much as a copy. At
# most so many bytes are kept.
_KEPT_BYTES = 4 * 1024 * 1024
_spare: list[bytearray] = []


def recycle(body: bytes | bytearray) -> None:
    """Keep the buffer of a body that nobody uses any more."""
    if isinstance(body, bytearray) and sum(map(len, _spare)) + len(body) <= _KEPT_BYTES:
        _spare.append(body)


def _reserve(size: int) -> bytearray:
    """A buffer of exactly that size."""
    for at, kept in enumerate(_spare):
        if len(kept) == size:
            return _spare.pop(at)
    # of sizes that do not come again
    _spare.clear()
    return bytearray(size)


def _nobody() -> None:
    """Where no body is read."""


class BrokenBody(ValueError):
    """The chunked coding cannot be understood."""


# what size lines, their extensions and trailers may add to a body: so much, and so many times its size
_OVERHEAD_BYTES = 64 * 1024
_OVERHEAD_TIMES = 16


class Body(Protocol):
    """Takes what is received until the body is complete."""

    @property
    def size(self) -> int:
        """Bytes of the body itself that were received."""

    @property
    def complete(self) -> bool:
        """Whether the end was there."""

    @property
    def rest(self) -> bytes | None:
        """What came behind the end; None where something did, but what cannot be told."""

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes; raise BrokenBody."""

    def content(self) -> bytes | bytearray:
        """The complete body."""


class LengthBody:
    """A body of announced length.

    A large one is not taken in pieces: `room` is where its next bytes are to be written, `written` says that they are.
    Room is reserved as the body comes in, not as it is announced; what came before on the same connection counts too.
    """

    def __init__(self, length: int, proven: int = 0) -> None:
        """`proven` is the size of the largest body that came whole on the same connection, 0 if none was large."""
        self._length = length
        self._proven = proven
        self._pieces: list[bytes | memoryview] = []
        self._whole = bytearray()
        self.size = 0
        self.rest: bytes = b""

    @property
    def complete(self) -> bool:
        """Whether the end was there."""
        return self.size == self._length

    @property
    def large(self) -> bool:
        """Whether the rest should be written to `room`."""
        return (self._proven or self.size) >= LARGE and self._length - self.size >= LARGE

    @property
    def held(self) -> int:
        """Bytes of memory that are taken."""
        return max(self.size, len(self._whole))

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        left = self._length - self.size
        if len(data) > left:
            self.rest = bytes(data[left:])
            data = data[:left]
        self._pieces.append(data)
        self.size += len(data)

    def room(self) -> memoryview:
        """Where the next bytes of a large body belong."""
        if self.size >= len(self._whole):
            reserved, at = _reserve(min(self._length, max(self.size, self._proven) * _TRUST)), 0
            for piece in [self._whole, *self._pieces]:
                reserved[at : at + len(piece)] = piece
                at += len(piece)
            self._whole = reserved
            self._pieces.clear()
        return memoryview(self._whole)[self.size :]

    def written(self, size: int) -> None:
        """Note that so many bytes were written to `room`."""
        self.size += size

    def content(self) -> bytes | bytearray:
        """The complete body."""
        if self._whole:
            return self._whole
        first = self._pieces[0]
        return first if len(self._pieces) == 1 and isinstance(first, bytes) else b"".join(self._pieces)


# where a connection that is read directly puts what belongs to no large body; it is taken from there at once
_BETWEEN = memoryview(bytearray(32 * 1024))


class DirectReader(asyncio.BufferedProtocol):
    """Stands in for the protocol of a connection on which large bodies come, and spares two copies of each.

    It stays: who sent an image is likely to send another, and then nearly all of it is read to where it is kept.
    """

    def __init__(self, owner: asyncio.Protocol) -> None:
        """What belongs to no large body, and everything else that happens, is the owner's business."""
        self._owner = owner
        self._body: LengthBody | None = None
        self._grown: Callable[[], None] = _nobody
        #: the size of the largest body that came whole
        self.proven = 0

    def begin(self, body: LengthBody, grown: Callable[[], None]) -> None:
        """Read this body from now on; `grown` is called after each read."""
        self._body, self._grown = body, grown

    def end(self) -> None:
        """Read no body any more."""
        body, self._body, self._grown = self._body, None, _nobody
        if body is not None and body.complete:
            self.proven = max(self.proven, body.size)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BETWEEN if self._body is None else self._body.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is None:
            self._owner.data_received(bytes(_BETWEEN[:nbytes]))
        else:
            self._body.written(nbytes)
            self._grown()

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()


class _Marks:
    """Callbacks of the parser. Into one buffer: a chunk may be one byte, and an object for each takes 40 times it."""

    __slots__ = ("begun", "complete", "whole")

    def __init__(self) -> None:
        self.whole = bytearray()
        self.complete = False
        self.begun = 0

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_body(self, data: bytes) -> None:
        self.whole += data

    def on_message_complete(self) -> None:
        self.complete = True


class ChunkedBody:
    """Takes a chunked body apart."""

    def __init__(self) -> None:
        self._marks = _Marks()
        self._parser = httptools.HttpRequestParser(self._marks)
        self._parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        self._raw = 0
        # where the body ended within a read is not known, so what was sent behind it cannot be served
        self.rest: bytes | None = b""

    @property
    def size(self) -> int:
        """Bytes in the chunks."""
        return len(self._marks.whole)

    @property
    def complete(self) -> bool:
        """Whether the last chunk was there."""
        return self._marks.complete

    def content(self) -> bytes | bytearray:
        """The complete body."""
        return self._marks.whole

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes; raise BrokenBody, also where there is hardly a body in all that is sent."""
        self._raw += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            if not self._marks.complete:
                raise BrokenBody(f"broken chunked coding: {exc}") from exc
            self.rest = None
        if self._marks.begun > 1:
            self.rest = None
        elif self._raw > _OVERHEAD_BYTES + _OVERHEAD_TIMES * len(self._marks.whole):
            raise BrokenBody("chunk extensions or trailers exceed what a body may carry")
