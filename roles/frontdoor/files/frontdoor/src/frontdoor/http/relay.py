# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passing a response body on and finding its end.

The engine's bytes go to the client as they are wherever possible; they are parsed only to know where the body ends.
An event stream is cut only between events, so that it can always be ended validly.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

import httptools

from frontdoor.http.head import Framing, ResponseError, ResponseHead
from frontdoor.observability.ledger import KEPT
from frontdoor.observability.metrics import SHORT

LAST_CHUNK = b"0\r\n\r\n"
# how a read ends that holds the last chunk and no trailer
_NO_TRAILER = b"\r\n" + LAST_CHUNK
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
# a chunk whose content ends with an event
_ALIGNED_ENDS = tuple(end + b"\r\n" for end in _EVENT_ENDS)
# an event longer than this is not held back until it is complete
_MAX_HELD = 1024 * 1024


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked transfer coding; nothing for no data, since an empty chunk means the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


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

    def feed(self, data: bytes) -> bytes:
        """Return what the client is sent now; sets `complete` at the end. Raises ResponseError."""

    def cut(self, last_words: bytes) -> bytes | None:
        """The engine's connection ended: return what ends the client's response validly, or None if nothing does."""


class EmptyRelay:
    """No body."""

    complete = True
    reusable = True

    def feed(self, data: bytes) -> bytes:
        """Anything that comes does not belong here."""
        self.reusable = not data
        return b""

    def cut(self, last_words: bytes) -> bytes | None:
        """Nothing was missing."""
        return b""


class LengthRelay:
    """A body of known length."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0
        self.reusable = True

    def feed(self, data: bytes) -> bytes:
        """Pass on up to the announced length."""
        left = self._left - len(data)
        if left <= 0:
            self.complete = True
            if left < 0:
                self.reusable = False
                data = data[: self._left]
        self._left = left
        return data

    def cut(self, last_words: bytes) -> bytes | None:
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


class CloseRelay:
    """A body that ends with the engine's connection; `end` is what the client is sent then."""

    def __init__(self, *, events: bool, client_chunks: bool) -> None:
        self.complete = False
        self.reusable = False
        self._events = _Events() if events else None
        self._wrap: Callable[[bytes], bytes] = chunk if client_chunks else bytes
        self.end = LAST_CHUNK if client_chunks else b""

    def feed(self, data: bytes) -> bytes:
        """Pass on with the client's framing."""
        return self._wrap(data if self._events is None else self._events.take(data))

    @property
    def whole(self) -> bool:
        """Whether the body may end here: an event stream may not within an event."""
        return self._events is None or self._events.between

    def cut(self, last_words: bytes) -> bytes | None:
        """The connection broke: only an event stream can say so, and only between events."""
        if self._events is None or self._events.partly:
            return None
        return self._wrap(last_words) + self.end


def _unparsed(data: bytes) -> None:
    """In the place of a parser while there is none."""


class _Marks:
    """Callbacks of the parser on a chunked body."""

    __slots__ = ("aligned", "begun", "complete", "on_body", "pieces")

    def __init__(self) -> None:
        self.aligned = True
        self.complete = False
        self.begun = 0
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_chunk_header(self) -> None:
        self.aligned = False

    def on_chunk_complete(self) -> None:
        self.aligned = True

    def on_message_complete(self) -> None:
        self.complete = True


# How reads began that were one whole chunk, and their length: a size line fits into so many bytes, with some of what
# follows. One that is no plain hexadecimal number is never among them, nor is the end of a body.
_BEGIN = 6
_WHOLE: dict[bytes, int] = {}
_WHOLE_KEPT = 4096
_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,4})\r\n")


def _learn_size(data: bytes) -> None:
    line = _SIZE_LINE.match(data)
    if line is not None and (size := int(line[1], 16)):
        if len(_WHOLE) >= _WHOLE_KEPT:
            _WHOLE.clear()
        _WHOLE[data[:_BEGIN]] = line.end() + size + 2


class ChunkedRelay:
    """A chunked body.

    Reads that consist of whole chunks (of whole events, in an event stream) pass untouched; anything else is taken
    apart and wrapped anew. `on_data` is the way of nearly every read of a stream: one whole chunk, written at once.
    """

    __slots__ = (
        *("_clean", "_client_chunks", "_ends", "_events", "_gaps", "_marks", "_otherwise", "_parse", "_time"),
        *("_write", "begun", "complete", "last", "last_activity", "previous", "received", "reusable"),
    )

    def __init__(self, *, events: bool, client_chunks: bool) -> None:
        self._events = _Events() if events else None
        self._client_chunks = client_chunks
        self._ends = _ALIGNED_ENDS if events else (b"\r\n",)
        self._marks: _Marks | None = None
        self._parse: Callable[[bytes], None] = _unparsed
        # nothing is held back, and the next read begins with a chunk
        self._clean = client_chunks
        self.complete = False
        self.reusable = True
        #: the last of what came: two reads that were one whole chunk each, or more that were anything else
        self.previous = b""
        self.last = b""
        #: what came in reads of one whole chunk, and when the last read came
        self.received = 0
        self.begun = self.last_activity = 0.0

    def attach(
        self,
        write: Callable[[bytes], None],
        time: Callable[[], float],
        gaps: list[int],
        otherwise: Callable[[bytes], None],
    ) -> Callable[[bytes], None]:
        """Return the receiver of reads: it writes to the client, counts gaps, and leaves the rest to `otherwise`."""
        self._write = write
        self._time = time
        self._gaps = gaps
        self._otherwise = otherwise
        self.begun = self.last_activity = time()
        return self.on_data

    def on_first(self, data: bytes) -> None:
        """Take the first read, before which there was no other and so no gap."""
        gaps, self._gaps = self._gaps, [0] * len(self._gaps)
        self.begun = self.last_activity = self._time()
        self.on_data(data)
        self._gaps = gaps

    def on_data(self, data: bytes) -> None:
        """Take one read."""
        size = len(data)
        if _WHOLE.get(data[:_BEGIN]) == size and self._clean and data.endswith(self._ends):
            self._write(data)
            now = self._time()
            self._gaps[bisect_left(SHORT, now - self.last_activity)] += 1
            self.last_activity = now
            self.received += size
            self.previous, self.last = self.last, data
        else:
            self._otherwise(data)

    def detach(self) -> None:
        """Forget where reads were sent, at the end: it would keep the exchange, and the exchange keeps this."""
        self._write = self._otherwise = _unparsed

    @property
    def lasted(self) -> float:
        """Seconds from the first read to the last: the sum of all gaps, which are counted and not added up."""
        return self.last_activity - self.begun

    def count_gap(self, now: float) -> None:
        """Count the time since the last read."""
        self._gaps[bisect_left(SHORT, now - self.last_activity)] += 1
        self.last_activity = now

    def feed(self, data: bytes) -> bytes:
        """Pass on, see the class."""
        # reads may be a few bytes each
        if len(self.last) < KEPT:
            self.last += data
        else:
            self.previous, self.last = self.last, data
        marks = self._marks
        if marks is None:
            # at the start of a chunk, so a parser may begin here
            _learn_size(data)
            marks = self._marks = _Marks()
            parser = httptools.HttpResponseParser(marks)
            self._parse = parser.feed_data
            self._parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        clean = self._clean
        try:
            self._parse(data)
        except httptools.HttpParserError as exc:
            if not marks.complete:
                raise ResponseError(f"broken chunked coding: {exc}") from exc
            marks.begun += 1
        if marks.complete:
            return self._last(data, clean, marks)
        if marks.aligned and data.endswith(b"\r\n"):
            # that is the end of a chunk and not a size line cut short: the next parser may begin at the next read
            self._marks = None
            if clean and data.endswith(self._ends):
                return data
        return self._rewrap(marks)

    def _rewrap(self, marks: _Marks) -> bytes:
        payload = b"".join(marks.pieces)
        marks.pieces.clear()
        events = self._events
        if events is not None:
            payload = events.take(payload)
        # what is held back must leave, and what was begun must end, before anything passes untouched again
        self._clean = self._client_chunks and self._marks is None and (events is None or events.between)
        return chunk(payload) if self._client_chunks else payload

    def _last(self, data: bytes, clean: bool, marks: _Marks) -> bytes:
        self.complete = True
        self.reusable = marks.begun == 1
        if clean and self.reusable and (data == LAST_CHUNK or data.endswith(_NO_TRAILER)):
            return data
        # trailers are discarded (RFC 9110 6.5.1), and so is what came behind the end
        payload = (self._events.held if self._events is not None else b"") + b"".join(marks.pieces)
        return chunk(payload) + LAST_CHUNK if self._client_chunks else payload

    def cut(self, last_words: bytes) -> bytes | None:
        """An event stream ends with an event that says so; the event that was begun is not passed on."""
        if self._events is None or self._events.partly:
            return None
        return chunk(last_words) + LAST_CHUNK if self._client_chunks else last_words


def relay_for(head: ResponseHead, *, client_chunks: bool) -> Relay:
    """Choose the relay for a response; `client_chunks` tells whether the client understands chunks (HTTP/1.1)."""
    if head.framing is Framing.EMPTY:
        return EmptyRelay()
    if head.framing is Framing.LENGTH:
        return LengthRelay(head.length)
    if head.framing is Framing.CHUNKED:
        return ChunkedRelay(events=head.event_stream, client_chunks=client_chunks)
    return CloseRelay(events=head.event_stream, client_chunks=client_chunks)
