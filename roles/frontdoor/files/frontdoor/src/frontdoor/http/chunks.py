# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chunked transfer coding (RFC 9112 7.1), taken apart strictly: what is ambiguous is an error."""

from __future__ import annotations

import re

LAST_CHUNK = b"0\r\n\r\n"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_TRAILER = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)?\r\n")
# of one size line with its extensions, or one trailer field
_MAX_LINE = 16 * 1024


class ChunkError(ValueError):
    """The chunked coding cannot be understood."""


def chunk(data: bytes) -> bytes:
    """One chunk; nothing for no data, since an empty chunk means the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def is_one_chunk(data: bytes) -> bool:
    """Whether a read that begins with a chunk is all of it, and no more: as nearly all reads of a stream are."""
    line = _SIZE_LINE.match(data)
    return line is not None and len(data) == line.end() + int(line[1], 16) + 2 > line.end() + 2


class ChunkScanner:
    """Takes reads of any size. Extensions and trailers are discarded (RFC 9110 6.5.1)."""

    __slots__ = ("_behind", "_left", "_line", "_trailers", "complete", "rest")

    def __init__(self) -> None:
        # content that the current chunk lacks, and whether the line end behind it is awaited
        self._left = 0
        self._behind = False
        self._trailers = False
        # the part of a line that is not complete
        self._line = b""
        self.complete = False
        #: what came behind the end of the body
        self.rest = b""

    @property
    def between(self) -> bool:
        """Whether the next byte begins a chunk."""
        return not (self._left or self._behind or self._line or self._trailers)

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
                self._behind = not self._left
                continue
            if self._behind:
                if data.startswith(b"\r\n", at):
                    self._behind = False
                    at += 2
                    continue
                if data[at:] != b"\r":
                    raise ChunkError("a chunk is longer than its size")
                self._line = b"\r"
                break
            line = (_TRAILER if self._trailers else _SIZE_LINE).match(data, at)
            if line is None:
                if data.find(b"\n", at) >= 0 or end - at > _MAX_LINE:
                    raise ChunkError("invalid trailer" if self._trailers else "invalid chunk size")
                self._line = data[at:]
                break
            at = line.end()
            if self._trailers:
                self.complete = line.end() - line.start() == 2
            else:
                self._left = int(line[1], 16)
                self._trailers = not self._left
        if self.complete:
            self.rest = data[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)
