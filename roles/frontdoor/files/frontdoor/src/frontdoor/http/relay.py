# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passing a response body on and finding its end.

The engine's bytes go to the client as they are wherever possible; they are parsed only to know where the body ends.
An event stream is cut only between events, so that it can always be ended validly.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from frontdoor.http.chunks import LAST_CHUNK, ChunkError, ChunkScanner, chunk, is_one_chunk
from frontdoor.http.head import ResponseError, ResponseHead

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_EVENT = re.compile(rb".+?(?:\n\n|\r\n\r\n|\r\r|\Z)", re.DOTALL)
# an event longer than this is not held back until it is complete
_MAX_HELD = 1024 * 1024


def _tells_usage(events: bytes) -> bool:
    """Tell whether there may be a report of tokens."""
    return events.find(b'"usage":{') >= 0 or events.find(b'"usage": {') >= 0


def without_usage(events: bytes) -> bytes:
    """Return the whole events of a chat or a completion without those that only report tokens."""
    if not _tells_usage(events):
        return events
    return b"".join([event for event in _EVENT.findall(events) if not (_tells_usage(event) and _only_reports(event))])


def _only_reports(event: bytes) -> bool:
    try:
        told = orjson.loads(event.strip().removeprefix(b"data:"))
    except orjson.JSONDecodeError:
        return False
    return isinstance(told, dict) and told.get("choices") == []


class LengthRelay:
    """A body of known length."""

    #: whether the body may end with the engine's connection
    whole = False

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0
        #: whether the connection may carry another request
        self.reusable = True

    def feed(self, data: bytes) -> bytes:
        """Return what the client is sent of what was read, up to the announced length; sets `complete` there."""
        data, rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.complete = not self._left
        self.reusable = not rest
        return data

    def end(self, last_words: bytes = b"") -> bytes | None:
        """Return nothing: no words can make the announced length true where the engine's answer broke off."""
        return None


class StreamRelay:
    """A chunked body, or one that ends with the engine's connection.

    A read that is one chunk (and whole events, in an event stream) passes untouched; anything else is wrapped anew. An
    event is held back until it is complete; one that is too long for that passes in parts.
    """

    def __init__(self, head: ResponseHead, client_chunks: bool, edit: Callable[[bytes], bytes] | None = None) -> None:
        """Take the head of an answer.

        The `edit` of an event stream gets whole events in order, and parts of those too long to be held. It returns
        what is sent.
        """
        self._edit = edit if head.event_stream else None
        # a read without a report of tokens has nothing to hide
        self._hides = self._edit is without_usage
        self._scanner = ChunkScanner() if head.chunked else None
        self._events = head.event_stream
        self._client_chunks = client_chunks
        self._held = b""
        # the client has a part of an event, and nothing but the rest of it may follow
        self._partly = False
        # nothing is held back, nothing that was begun lacks its end, and how such a read ends
        self._between = head.chunked and client_chunks
        self._ends = tuple(end + b"\r\n" for end in _EVENT_ENDS) if self._events else b"\r\n"
        self.complete = False
        self.reusable = head.chunked

    @property
    def whole(self) -> bool:
        """True if the body may end with the connection: a chunked one may not, nor any within an event."""
        return self._scanner is None and not self._held and not self._partly

    def feed(self, data: bytes) -> bytes:
        """Return what the client is sent of what was read; sets `complete` at the end. Raises ResponseError."""
        scanner = self._scanner
        passes = self._between and data.endswith(self._ends) and is_one_chunk(data)
        if passes and (self._edit is None or (self._hides and not _tells_usage(data))):
            return data
        if scanner is None:
            return self._wrap(self._edited(self._events_in(data)))
        try:
            payload = scanner.feed(data)
        except ChunkError as exc:
            raise ResponseError(f"broken chunked coding: {exc}") from exc
        if scanner.complete:
            self.complete = True
            self.reusable = not scanner.rest
            # trailers are discarded (RFC 9110 6.5.1), and so is what came behind the end
            return self._wrap(self._edited(self._held + payload), LAST_CHUNK)
        payload = self._events_in(payload)
        self._between = self._client_chunks and scanner.between and not self._held and not self._partly
        return self._wrap(self._edited(payload))

    def _edited(self, data: bytes) -> bytes:
        return data if self._edit is None or not data else self._edit(data)

    def _events_in(self, data: bytes) -> bytes:
        """Return the bytes that may leave now."""
        if not self._events:
            return data
        data = self._held + data
        # engines write line feeds; the other spellings of a line end are looked for only where one can be
        marks = _EVENT_ENDS if b"\r" in data else _EVENT_ENDS[:1]
        end = max((found + len(mark) for mark in marks if (found := data.rfind(mark)) >= 0), default=0)
        if end:
            self._partly = False
        if len(data) - end >= _MAX_HELD:
            # but for line ends, which may be the first half of the event's end
            end = len(data.rstrip(b"\r\n"))
            self._partly = True
        self._held = data[end:]
        return data[:end]

    def end(self, last_words: bytes = b"") -> bytes | None:
        """Return the end of a body that is whole, after the last words of a stream, which it may have between events.

        The event that was begun is not passed on.
        """
        if last_words and (not self._events or self._partly):
            return None
        return self._wrap(last_words, LAST_CHUNK)

    def _wrap(self, data: bytes, end: bytes = b"") -> bytes:
        """Return the client's form of these bytes, and of the end of the body."""
        return chunk(data) + end if self._client_chunks else data


Relay = LengthRelay | StreamRelay


def relay_for(head: ResponseHead, *, client_chunks: bool, edit: Callable[[bytes], bytes] | None = None) -> Relay:
    """Choose the relay for a response; `client_chunks` tells whether the client understands chunks (HTTP/1.1)."""
    return StreamRelay(head, client_chunks, edit) if head.length is None else LengthRelay(head.length)
