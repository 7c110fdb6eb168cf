# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changing a JSON request body by splicing bytes: what is not meant stays as the client wrote it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import orjson

# What follows is matched in windows of so many bytes: no match takes long, or needs memory for more than its window.
_WINDOW = 16 * 1024
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[^\s,{}\[\]\":]*")
# Groups are atomic, not possessive: CPython before 3.11.5 ends a possessive repeat behind an iteration that failed.
# what may stand between two brackets; long strings are found faster by themselves, those with escapes need more care
_PLAIN = re.compile(rb'(?>(?:[^"{}\[\]]++|"[^"\\]{0,200}+")*)')
_ESCAPED = re.compile(rb'(?>[^"\\]*+(?:\\.[^"\\]*+)*)', re.DOTALL)

# What one body may cost, in steps: one for what is looked at in Python, and one for each 32 bytes that a pattern is
# matched against. About a tenth of a second, in which nobody else is served.
_MAX_MARKS = 200_000
_BYTES_PER_MARK = 32
_MARKS_PER_MEMBER = 4
# longer ones, as they stand in the body, are none that matter here
_MAX_NAME = 1024
# a member that matters and stands there more often is no mistake
_MAX_FOUND = 100
_QUOTE, _BACKSLASH, _OPEN, _CLOSE = ord('"'), ord("\\"), b"{[", b"}]"
# bodies below this many bytes are cheaper to copy than to handle in pieces
_SMALL = 4096


# so often a character is looked for by itself before it is taken for common
_RARE = 100


# what is written to the engine, in order
Pieces = tuple[bytes | bytearray | memoryview, ...]
# how a body is held
Body = bytes | bytearray


class NotAnObject(ValueError):
    """The body is not a JSON object (or not JSON at all)."""


class TooIntricate(NotAnObject):
    """The body holds more strings and brackets than are looked at."""


class Member(NamedTuple):
    """A member of an object: its name and where its value stands, as byte offsets."""

    name: str
    start: int
    end: int


class Scanner:
    """Walks over JSON without decoding it; raises NotAnObject where it is none, and TooIntricate.

    `members` and `containers` are walked with `at` on the value that is looked at. What the caller walks through by
    itself, and leaves `at` behind of, is not walked through again.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self._size = len(body)
        self._left = _MAX_MARKS
        self.at = 0

    def _spend(self, marks: int) -> None:
        self._left -= marks
        if self._left < 0:
            raise TooIntricate

    def _through(self, pattern: re.Pattern[bytes], at: int) -> int:
        """Where that pattern, which always matches, ends in the window at an offset."""
        match = pattern.match(self._body, at, at + _WINDOW)
        assert match is not None
        end = match.end()
        self._spend(1 + (end - at) // _BYTES_PER_MARK)
        return end

    def space(self, at: int) -> int:
        """Where the white space at an offset ends."""
        while at < self._size and self._body[at] <= 0x20:
            end = self._through(_SPACE, at)
            if end == at:
                break
            at = end
        return at

    def string(self, at: int) -> int:
        """Where the string at an offset ends."""
        body = self._body
        quote = body.find(b'"', at + 1)
        if quote > 0 and body[quote - 1] != _BACKSLASH:
            self._spend(1)
            return quote + 1
        at += 1
        while quote > 0:
            end = self._through(_ESCAPED, at)
            if end < self._size and body[end] == _QUOTE:
                return end + 1
            if end == at:
                break
            at = end
        raise NotAnObject

    def skip(self, at: int) -> int:
        """Where the value at an offset ends."""
        body, size = self._body, self._size
        if at >= size:
            raise NotAnObject
        if body[at] == _QUOTE:
            return self.string(at)
        if body[at] not in _OPEN:
            end = self._through(_SCALAR, at)
            if end == at:
                raise NotAnObject
            while end > at:
                at, end = end, self._through(_SCALAR, end)
            return end
        depth = 1
        at += 1
        while True:
            at = self._through(_PLAIN, at)
            if at >= size:
                raise NotAnObject
            mark = body[at]
            if mark == _QUOTE:
                at = self.string(at)
            elif mark in _OPEN:
                depth += 1
                at += 1
            elif mark in _CLOSE:
                depth -= 1
                at += 1
                if not depth:
                    return at

    def _name(self, at: int, end: int) -> str | None:
        """The string there; None for what is too long or holds what cannot be decoded: a name like any other."""
        if end - at > _MAX_NAME:
            return None
        try:
            return str(orjson.loads(self._body[at:end]))
        except orjson.JSONDecodeError:
            return None

    def text(self, at: int) -> str | None:
        """The value there where it is a short string."""
        return self._name(at, self.string(at)) if self._body[at : at + 1] == b'"' else None

    def is_null(self, at: int) -> bool:
        """Whether the value there is null."""
        return self._body[at : at + 4] == b"null"

    def members(self, at: int) -> Iterator[tuple[str | None, int]]:
        """The members of the object there, duplicates included: the name, and where the value begins."""
        body = self._body
        if body[at : at + 1] != b"{":
            raise NotAnObject
        at = self.space(at + 1)
        if body[at : at + 1] == b"}":
            self.at = at + 1
            return
        while True:
            self._spend(_MARKS_PER_MEMBER)
            if body[at : at + 1] != b'"':
                raise NotAnObject
            end = self.string(at)
            colon = self.space(end)
            if body[colon : colon + 1] != b":":
                raise NotAnObject
            start = self.at = self.space(colon + 1)
            yield self._name(at, end), start
            at = self.space(self.at if self.at > start else self.skip(start))
            separator = body[at : at + 1]
            if separator == b"}":
                self.at = at + 1
                return
            if separator != b",":
                raise NotAnObject
            at = self.space(at + 1)

    def containers(self, at: int) -> Iterator[int]:
        """Where objects and arrays begin in the array there; what else is in it is passed over."""
        body, size = self._body, self._size
        at += 1
        while True:
            at = self._through(_PLAIN, at)
            if at >= size:
                raise NotAnObject
            mark = body[at]
            if mark == _QUOTE:
                at = self.string(at)
            elif mark in _OPEN:
                self.at = at
                yield at
                at = self.at if self.at > at else self.skip(at)
            elif mark in _CLOSE:
                self.at = at + 1
                return

    def found(self, at: int, names: Collection[str]) -> list[Member]:
        """The members of those names of the object there."""
        members = []
        for name, start in self.members(at):
            if name in names:
                assert name is not None
                end = self.at = self.skip(start)
                members.append(Member(name, start, end))
                if len(members) > _MAX_FOUND:
                    raise TooIntricate
        return members


def members(body: Body, names: Collection[str]) -> list[Member]:
    """The top-level members of those names, duplicates included; raise NotAnObject."""
    scanner = Scanner(body)
    return scanner.found(scanner.space(0), names)


def _skip(body: Body, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


class Edits:
    """Changes to the top-level members of a JSON object: members put in front, and values replaced in place."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._inserted: list[bytes] = []
        self._replaced: list[tuple[int, int, bytes]] = []

    def insert(self, name: str, value: Any) -> None:
        """Put a member before all others."""
        self._inserted.append(b"%b:%b" % (orjson.dumps(name), orjson.dumps(value)))

    def replace(self, member: Member, value: Any) -> None:
        """Give a member another value."""
        self._replaced.append((member.start, member.end, orjson.dumps(value)))

    def prepend(self, member: Member, inner: bytes) -> None:
        """Put members (without braces) first into the object that is a member's value."""
        self._replaced.append((member.start, member.start + 1, b"{" + inner + _comma(self._body, member.start)))

    def pieces(self) -> Pieces:
        """The changed body."""
        body = self._body
        if not self._inserted and not self._replaced:
            return (body,)
        view = memoryview(body)
        parts: list[bytes | memoryview] = []
        at = 0
        if self._inserted:
            at = _skip(body, 0) + 1
            parts += [view[:at], b",".join(self._inserted), _comma(body, at - 1)]
        for start, end, value in sorted(self._replaced):
            parts += [view[at:start], value]
            at = end
        parts.append(view[at:])
        return tuple(part for part in parts if part)


def _comma(body: Body, brace: int) -> bytes:
    """What must follow members that are put first into the object whose brace stands at an offset."""
    follower = _skip(body, brace + 1)
    return b"" if body[follower : follower + 1] == b"}" else b","


def _holds(body: Body, quoted: bytes) -> bool:
    """Whether a quoted name stands in a body; quick where its underscore is rare, as in images and prose."""
    if (offset := quoted.find(b"_")) >= 0:
        at = body.find(b"_")
        for _try in range(_RARE):
            if at < 0:
                return False
            if at >= offset and body.startswith(quoted, at - offset):
                return True
            at = body.find(b"_", at + 1)
    # from behind: on a large body that is several times faster in CPython than from the front
    return body.rfind(quoted) >= 0


class ObjectDefaults:
    """Gives the member `name` of a JSON object defaults; what the client set wins, key by key.

    Absent or null: the defaults become its value. An object: the defaults are put before the client's keys, of which
    the later one counts. Any other value, and any body that is not a JSON object, is left alone. Two things are not
    looked for, since that would cost every body: a name spelt with escapes, where the client's member stands after
    ours and counts alone, and faults of a body in braces, which the engine refuses with the defaults in it as well.
    """

    def __init__(self, name: str, defaults: dict[str, Any]) -> None:
        encoded = orjson.dumps(defaults)
        self._name = name
        self._defaults = defaults
        self._quoted = orjson.dumps(name)
        self._inner = encoded[1:-1]
        self._opening = b"{%b:%b," % (self._quoted, encoded)

    def pieces(self, body: Body) -> Pieces:
        """The changed body, to be written piece by piece: a large one is not copied. Raises TooIntricate."""
        if len(body) < _SMALL:
            # sent in one piece anyway
            if body.rfind(self._quoted) < 0 and body.startswith(b'{"') and body.endswith(b"}"):
                return (self._opening + body[1:],)
        elif not _holds(body, self._quoted) and body.startswith(b'{"') and body.endswith(b"}"):
            return self._opening, memoryview(body)[1:]
        try:
            found = members(body, (self._name,))
        except TooIntricate:
            raise
        except NotAnObject:
            return (body,)
        edits = Edits(body)
        self.edit(body, found, edits)
        return edits.pieces()

    def edit(self, body: Body, found: list[Member], edits: Edits) -> None:
        """Note the change, given the members of that name."""
        if not found:
            edits.insert(self._name, self._defaults)
            return
        # of members with the same name the last one counts
        member = found[-1]
        value = body[member.start : member.end]
        if value == b"null":
            edits.replace(member, self._defaults)
        elif value.startswith(b"{"):
            edits.prepend(member, self._inner)
