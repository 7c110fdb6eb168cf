# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request bodies on their way in: of announced length, or in chunks."""

from __future__ import annotations

from typing import Protocol

import httptools


class BrokenBody(ValueError):
    """The chunked coding cannot be understood."""


# what size lines, their extensions and trailers may add to a body: so much, and so many times its size
_OVERHEAD_BYTES = 64 * 1024
_OVERHEAD_TIMES = 16


class Body(Protocol):
    """Takes what is received until the body is complete."""

    @property
    def pieces(self) -> list[bytes]:
        """What was received of the body itself."""

    @property
    def size(self) -> int:
        """Bytes in the pieces."""

    @property
    def complete(self) -> bool:
        """Whether the end was there."""

    @property
    def rest(self) -> bytes | None:
        """What came behind the end; None where something did, but what cannot be told."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raise BrokenBody."""


class LengthBody:
    """A body of announced length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.pieces: list[bytes] = []
        self.size = 0
        self.complete = False
        self.rest: bytes = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if len(data) > self._left:
            self.rest = data[self._left :]
            data = data[: self._left]
        self.pieces.append(data)
        self.size += len(data)
        self._left -= len(data)
        self.complete = not self._left


class _Marks:
    """Callbacks of the parser."""

    __slots__ = ("begun", "complete", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.complete = False
        self.begun = 0

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_body(self, data: bytes) -> None:
        self.size += len(data)
        self.pieces.append(data)

    def on_message_complete(self) -> None:
        self.complete = True


class ChunkedBody:
    """Takes a chunked body apart."""

    def __init__(self) -> None:
        self._marks = _Marks()
        self._parser = httptools.HttpRequestParser(self._marks)
        self._parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        self._raw = 0
        self.pieces = self._marks.pieces
        # where the body ended within a read is not known, so what was sent behind it cannot be served
        self.rest: bytes | None = b""

    @property
    def size(self) -> int:
        """Bytes in the chunks."""
        return self._marks.size

    @property
    def complete(self) -> bool:
        """Whether the last chunk was there."""
        return self._marks.complete

    def feed(self, data: bytes) -> None:
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
        elif self._raw > _OVERHEAD_BYTES + _OVERHEAD_TIMES * self._marks.size:
            raise BrokenBody("chunk extensions or trailers exceed what a body may carry")
