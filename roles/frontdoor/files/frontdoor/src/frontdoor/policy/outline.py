# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outline of a JSON body: all of it but the middles of long texts, which nobody here reads.

It is made while the body comes in, in pieces that take a millisecond at most, whatever they hold. So a picture of 40 MB
is a few hundred bytes to whoever reads the request, and what it costs to read one has a limit: in bytes, members and
values. The middles are put back where a body is written anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import re

import orjson

#: bodies up to this size are read as they are
SHORT = 64 * 1024
_PIECE = 64 * 1024
# Texts that are longer are cut after so many bytes. No name or type that matters is as long, spelt with escapes.
_LONG = 512
_KEPT = 128
_RUN = re.compile(rb'[^"]{%d,}' % (_LONG + 1))
# Limits that take 10 to 20 ms to read: more texts than any prompt, more tokens than any context.
_MAX_BYTES = 4 * 1024 * 1024
_MAX_MEMBERS = 50_000
_MAX_VALUES = 500_000
# The mark in place of a middle. No client knows it, and a body that has it too often all the same is refused.
_MARK = f"<cut {os.urandom(12).hex()} ".encode()
#: the same in texts that were parsed
MARK = _MARK.decode()
_CUT = re.compile(MARK + "([0-9]+)>")
# the longest escape, which no text may be cut in
_ESCAPE_BYTES = 6
_FIRST_HALF = re.compile(rb"\\u[dD][89abAB]..")
# UTF-8: bytes from which on they continue a character, and lead one of two, three and four
_CONTINUES, _LEADS, _LEADS_THREE, _LEADS_FOUR = 0x80, 0xC0, 0xE0, 0xF0
_CHARACTER_BYTES = 4
# like an engine that is generous with control characters
_DECODER = json.JSONDecoder(strict=False)


class Outline:
    """Takes a body as it comes; `text` is its outline. What is beyond the limits is `intricate` and read no further."""

    def __init__(self, body: bytes | bytearray = b"") -> None:
        self.text = bytearray()
        self.intricate = False
        # the middles, as positions in the body
        self._cuts: list[tuple[int, int]] = []
        # where the middle begins that is being passed over, and whether an escape is begun at the end of what came
        self._begun = -1
        self._escaped = False
        # bytes that came, and the last of them that are not in the outline: the beginning of a text
        self._size = 0
        self._rest = b""
        self._members = self._values = 0
        self.feed(body)

    def feed(self, data: bytes | bytearray) -> None:
        """Take the bytes that come next; of what begins like no object there is no outline."""
        if self._size == 0 and data[:1] != b"{" and data[:_LONG].strip()[:1] not in (b"", b"{"):
            self._give_up()
        if self._begun >= 0 and data and data.find(b'"') < 0 and data.find(b"\\") < 0:
            # the middle of a picture, at the speed of memory
            self._size, self._escaped = self._size + len(data), False
            return
        for at in range(0, len(data), _PIECE):
            if not self.intricate:
                self._take(bytes(data[at : at + _PIECE]))

    def end(self) -> bytearray:
        """Return the outline of all that came; a text without an end in the body has none here either."""
        self.text += self._rest
        self._rest = b""
        if self.text.count(_MARK) != len(self._cuts) + (self._begun >= 0):
            self._give_up()
        return self.text

    def _take(self, data: bytes) -> None:
        start = self._size - len(self._rest)
        data = self._rest + data
        self._size, self._rest = start + len(data), b""
        # the same without quotation marks that end nothing
        plain = b"_" + data[1:] if self._escaped else data
        if plain.find(b"\\") >= 0:
            plain = plain.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        at = 0
        if self._begun >= 0:
            at = plain.find(b'"')
            self._escaped = at < 0 and plain.endswith(b"\\")
            if at < 0:
                return
            self._cuts.append((self._begun, start + at))
            self._begun = -1
            self.text += b'"'
            at += 1
        # between two quotation marks is a text; the last one may go on
        pieces = plain[at:].split(b'"')
        self._count(b" ".join(pieces[::2]), len(pieces) // 2)
        copied = looked = at
        marks = 0
        for run in _RUN.finditer(plain, at):
            marks += plain.count(b'"', looked, run.start())
            looked = run.start()
            if marks % 2:
                kept = looked + _kept(data[looked : looked + _KEPT])
                self.text += data[copied:kept] + _MARK + b"%d>" % len(self._cuts)
                copied = run.end()
                if copied == len(plain):
                    self._begun, self._escaped = start + kept, plain.endswith(b"\\")
                else:
                    self._cuts.append((start + kept, start + copied))
        if len(pieces) % 2 == 0 and self._begun < 0:
            begun = plain.rfind(b'"')
            self._rest = data[begun:]
            self.text += data[copied:begun]
            copied = len(data)
        self.text += data[copied:]
        if self._members > _MAX_MEMBERS or self._values > _MAX_VALUES or len(self.text) > _MAX_BYTES:
            self._give_up()

    def _give_up(self) -> None:
        self.intricate, self.text, self._rest = True, bytearray(), b""

    def _count(self, marks: bytes, texts: int) -> None:
        """Count texts, and the marks between them."""
        self._members += marks.count(b":") + marks.count(b"[") + marks.count(b"{")
        self._values += marks.count(b",") + texts

    def restored(self, written: bytes, body: bytes | bytearray) -> bytes:
        """Return the text of a document that was read from the outline, with the middles of its body put back."""
        first, *others = written.split(_MARK)
        parts: list[bytes | memoryview] = [first]
        view = memoryview(body)
        for other in others:
            number, _end, rest = other.partition(b">")
            begun, ended = self._cuts[int(number)]
            parts += (view[begun:ended], rest)
        return b"".join(parts)

    def spelt(self, written: bytes, body: bytes | bytearray, most: int) -> bytes:
        """Return the text of `restored` with orjson's spelling; of a longer one the beginning, of about that size."""
        first, *others = written.split(_MARK)
        parts, left = [first], most - len(first)
        for other in others:
            if left <= 0:
                break
            number, _end, rest = other.partition(b">")
            begun, ended = self._cuts[int(number)]
            middle = self._middle(int(number), body, left)
            cut = len(middle) < ended - begun
            if b"\\" in middle:
                # no engine takes a wrong escape, or half a surrogate pair
                with contextlib.suppress(ValueError, orjson.JSONEncodeError):
                    middle = orjson.dumps(_decoded(middle))[1:-1]
            parts.append(middle)
            if cut:
                break
            parts.append(rest)
            left -= len(middle) + len(rest)
        return b"".join(parts)

    def whole(self, text: str, body: bytes | bytearray, most: int) -> str:
        """Return a text of the document with its middle, of which at most so many bytes are read."""

        def middle(found: re.Match[str]) -> str:
            try:
                return _decoded(self._middle(int(found[1]), body, most))
            except ValueError:
                # no escape, which no engine takes
                return ""

        return _CUT.sub(middle, text)

    def _middle(self, number: int, body: bytes | bytearray, most: int) -> bytes:
        """Return a middle as the client sent it; of a longer one whole characters of the first so many bytes."""
        begun, ended = self._cuts[number]
        raw = bytes(body[begun : min(ended, begun + most)])
        return raw[: _kept(raw)] if begun + most < ended else raw


def _decoded(raw: bytes) -> str:
    return str(_DECODER.decode(f'"{raw.decode(errors="replace")}"'))


def _kept(beginning: bytes) -> int:
    """Return how much of the beginning of a text ends with a whole character and a whole escape."""
    kept = len(beginning)
    # without those that are escaped, each backslash begins an escape
    last = beginning.replace(b"\\\\", b"__")[-2 * _ESCAPE_BYTES :]
    if (at := last.rfind(b"\\")) >= 0:
        size = _ESCAPE_BYTES if last[at + 1 : at + 2] == b"u" else 2
        if at + size > len(last):
            kept, last = kept - len(last) + at, last[:at]
        if _FIRST_HALF.fullmatch(last[-_ESCAPE_BYTES:]):
            kept -= _ESCAPE_BYTES
    for behind in range(1, min(_CHARACTER_BYTES, kept) + 1):
        byte = beginning[kept - behind]
        if byte < _CONTINUES or byte >= _LEADS:
            # the first byte of the last character: has it all of its bytes?
            whole = byte < _CONTINUES or behind == 2 + (byte >= _LEADS_THREE) + (byte >= _LEADS_FOUR)
            return kept if whole else kept - behind
    return kept
