# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passing a response body on and finding its end.

The engine's bytes go to the client as they are wherever possible; they are parsed only to know where the body ends.
An event stream is cut only between events, so that it can always be ended validly.
"""

from __future__ import annotations

from typing import Protocol

from frontdoor.http.chunks import LAST_CHUNK, ChunkError, ChunkScanner, chunk, is_one_chunk
from frontdoor.http.head import ResponseError, ResponseHead

# how a read ends that holds the last chunk and no trailer
_NO_TRAILER = b"\r\n" + LAST_CHUNK
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
# an event longer than this is not held back until it is complete
_MAX_HELD = 1024 * 1024


def _last_event_end(data: bytes) -> int:
    """Offset behind the last complete event, 0 when there is none."""
    # engines write line feeds; the other spellings of a line end are looked for only where one can be
    marks = _EVENT_ENDS if b"\r" in data else _EVENT_ENDS[:1]
    return max((found + len(mark) for mark in marks if (found := data.rfind(mark)) >= 0), default=0)


class Relay(Protocol):
    """Takes the engine's bytes after the response head."""

    complete: bool
    #: whether the connection may carry another request
    reusable: bool

    @property
    def whole(self) -> bool:
        """Whether the body may end with the engine's connection."""

    def feed(self, data: bytes) -> bytes:
        """Return what the client is sent now; sets `complete` at the end. Raises ResponseError."""

    def end(self, last_words: bytes = b"") -> bytes | None:
        """The engine's connection ended: return what ends the client's response validly, or None if nothing does."""


class LengthRelay:
    """A body of known length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0
        self.reusable = True
        self.whole = False

    def feed(self, data: bytes) -> bytes:
        """Pass on up to the announced length."""
        data, rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.complete = not self._left
        self.reusable = not rest
        return data

    def end(self, last_words: bytes = b"") -> bytes | None:
        """A shorter body cannot be repaired."""
        return None


class _Events:
    """Holds an event back until it is complete; one that is too long for that passes in parts."""

    __slots__ = ("held", "partly")

    def __init__(self) -> None:
        self.held = b""
        #: the client has a part of an event, and nothing but the rest of it may follow
        self.partly = False

    @property
    def between(self) -> bool:
        """Whether the client has whole events only, and nothing waits."""
        return not self.held and not self.partly

    def take(self, data: bytes) -> bytes:
        """What may leave now."""
        data = self.held + data
        end = _last_event_end(data)
        if end:
            self.partly = False
        if len(data) - end >= _MAX_HELD:
            # but for line ends, which may be the first half of the event's end
            end = len(data.rstrip(b"\r\n"))
            self.partly = True
        self.held = data[end:]
        return data[:end]


class StreamRelay:
    """A chunked body, or one that ends with the engine's connection.

    Reads of whole chunks (and whole events, in an event stream) pass untouched; anything else is wrapped anew.
    """

    def __init__(self, *, chunked: bool, events: bool, client_chunks: bool) -> None:
        self._scanner = ChunkScanner() if chunked else None
        self._events = _Events() if events else None
        self._client_chunks = client_chunks
        # nothing is held back, nothing that was begun lacks its end, and how such a read ends
        self._between = chunked and client_chunks
        self._ends = tuple(end + b"\r\n" for end in _EVENT_ENDS) if events else b"\r\n"
        self.complete = False
        self.reusable = chunked

    @property
    def whole(self) -> bool:
        """Whether the body may end with the connection: a chunked one may not, nor any within an event."""
        return self._scanner is None and (self._events is None or self._events.between)

    def feed(self, data: bytes) -> bytes:
        """Pass on, see the class."""
        untouched = self._between
        if untouched and data.endswith(self._ends) and is_one_chunk(data):
            return data
        scanner, events = self._scanner, self._events
        if scanner is None:
            return self._wrap(data if events is None else events.take(data))
        try:
            payload = scanner.feed(data)
        except ChunkError as exc:
            raise ResponseError(f"broken chunked coding: {exc}") from exc
        if scanner.complete:
            self.complete = True
            self.reusable = not scanner.rest
            if untouched and self.reusable and (data == LAST_CHUNK or data.endswith(_NO_TRAILER)):
                return data
            # trailers are discarded (RFC 9110 6.5.1), and so is what came behind the end
            return self._wrap(payload if events is None else events.held + payload, LAST_CHUNK)
        if untouched and scanner.between and data.endswith(self._ends):
            return data
        payload = payload if events is None else events.take(payload)
        self._between = self._client_chunks and scanner.between and (events is None or events.between)
        return self._wrap(payload)

    def end(self, last_words: bytes = b"") -> bytes | None:
        """Without last words, the end of a body that is whole. Only between events a stream can have last words.

        The event that was begun is not passed on.
        """
        if last_words and (self._events is None or self._events.partly):
            return None
        return self._wrap(last_words, LAST_CHUNK)

    def _wrap(self, data: bytes, end: bytes = b"") -> bytes:
        return chunk(data) + end if self._client_chunks else data


def relay_for(head: ResponseHead, *, client_chunks: bool) -> Relay:
    """Choose the relay for a response; `client_chunks` tells whether the client understands chunks (HTTP/1.1)."""
    if head.length is not None:
        return LengthRelay(head.length)
    return StreamRelay(chunked=head.chunked, events=head.event_stream, client_chunks=client_chunks)
