# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chunked transfer coding (RFC 9112 7.1), taken apart strictly: what is ambiguous is an error."""

from __future__ import annotations

import re

LAST_CHUNK = b"0\r\n\r\n"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)?\r\n")
_CHUNK_END = re.compile(rb"\r\n")
_WRONG = {
    _SIZE_LINE: "invalid chunk size",
    _CHUNK_END: "a chunk is longer than its size",
    _TRAILER: "invalid trailer",
}
# of one size line with its extensions, or one trailer field
_MAX_LINE = 16 * 1024


class ChunkError(ValueError):
    """The chunked coding cannot be understood."""


def chunk(data: bytes) -> bytes:
    """Return one chunk; nothing for no data, since an empty chunk means the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def is_one_chunk(data: bytes) -> bool:
    """Tell whether a read that begins with a chunk is exactly that, as nearly all reads of a stream are."""
    line = _SIZE_LINE.match(data)
    return line is not None and len(data) == line.end() + int(line[1], 16) + 2 > line.end() + 2


class ChunkScanner:
    """Takes reads of any size. Extensions and trailers are discarded (RFC 9110 6.5.1)."""

    def __init__(self) -> None:
        # content that the current chunk lacks, the line that is next, and the part of it that is there
        self._left = 0
        self._next = _SIZE_LINE
        self._line = b""
        self.complete = False
        #: what came behind the end of the body
        self.rest = b""

    @property
    def between(self) -> bool:
        """True if the next byte begins a chunk."""
        return not self._left and self._next is _SIZE_LINE and not self._line

    def feed(self, data: bytes) -> bytes:
        """Return the content in the next bytes; raise ChunkError."""
        if self._line:
            data, self._line = self._line + data, b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.complete:
            if self._left:
                parts.append(data[at : at + self._left])
                at += len(parts[-1])
                self._left -= len(parts[-1])
                continue
            line = self._next.match(data, at)
            if line is None:
                rest = self._line = data[at:]
                if rest != b"\r" and (self._next is _CHUNK_END or b"\n" in rest or len(rest) > _MAX_LINE):
                    raise ChunkError(_WRONG[self._next])
                break
            at = line.end()
            if self._next is _SIZE_LINE:
                self._left = int(line[1], 16)
                self._next = _CHUNK_END if self._left else _TRAILER
            elif self._next is _CHUNK_END:
                self._next = _SIZE_LINE
            else:
                self.complete = line[0] == b"\r\n"
        if self.complete:
            self.rest = data[at:]
        return b"".join(parts)
