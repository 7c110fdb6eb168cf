# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changing a JSON request body by splicing bytes: what is not meant stays as the client wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^\s,{}\[\]\":]+")


# strings and brackets that are looked at in one body: about a tenth of a second, in which nobody else is served
_MAX_MARKS = 200_000
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
    """A top-level member: its name and where its value stands, as byte offsets."""

    name: str
    start: int
    end: int


def _skip(body: Body, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _string_end(body: Body, at: int) -> int:
    quote = body.find(b'"', at + 1)
    while quote >= 0:
        before = quote - 1
        while body[before] == 0x5C:
            before -= 1
        if (quote - before) % 2:
            return quote + 1
        quote = body.find(b'"', quote + 1)
    raise NotAnObject


def _value_end(body: Body, at: int, marks: int) -> tuple[int, int]:
    """Where the value at an offset ends, and how many of the marks that may be looked at are left then."""
    first = body[at : at + 1]
    if first == b'"':
        return _string_end(body, at), marks
    if first not in (b"{", b"["):
        match = _SCALAR.match(body, at)
        if not match:
            raise NotAnObject
        return match.end(), marks
    depth = 0
    while marks:
        marks -= 1
        found = _STRUCTURE.search(body, at)
        if not found:
            raise NotAnObject
        mark = found.group()
        if mark == b'"':
            at = _string_end(body, found.start())
            continue
        depth += 1 if mark in b"{[" else -1
        at = found.end()
        if not depth:
            return at, marks
    raise TooIntricate


def members(body: Body) -> Iterator[Member]:
    """Walk over the top-level members of a JSON object, duplicates included; raise NotAnObject."""
    at = _skip(body, 0)
    if body[at : at + 1] != b"{":
        raise NotAnObject
    at = _skip(body, at + 1)
    if body[at : at + 1] == b"}":
        return
    marks = _MAX_MARKS
    while marks:
        marks -= 1
        if body[at : at + 1] != b'"':
            raise NotAnObject
        name_end = _string_end(body, at)
        try:
            name = orjson.loads(body[at:name_end])
        except orjson.JSONDecodeError as exc:
            raise NotAnObject from exc
        colon = _skip(body, name_end)
        if body[colon : colon + 1] != b":":
            raise NotAnObject
        start = _skip(body, colon + 1)
        end, marks = _value_end(body, start, marks)
        yield Member(name, start, end)
        at = _skip(body, end)
        separator = body[at : at + 1]
        if separator == b"}":
            return
        if separator != b",":
            raise NotAnObject
        at = _skip(body, at + 1)
    raise TooIntricate


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
    if len(body) >= _SMALL and (offset := quoted.find(b"_")) >= 0:
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
    the later one counts. Any other value, and any body that is not a JSON object, is left alone. A name that the client
    spelt with escapes is not seen: the client's member stands after ours then, and counts.
    """

    def __init__(self, name: str, defaults: dict[str, Any]) -> None:
        encoded = orjson.dumps(defaults)
        self._name = name
        self._defaults = defaults
        self._quoted = orjson.dumps(name)
        self._inner = encoded[1:-1]
        self._opening = b"{%b:%b," % (self._quoted, encoded)

    def pieces(self, body: Body) -> Pieces:
        """The changed body, to be written piece by piece: a large one is not copied."""
        if not _holds(body, self._quoted) and body.startswith(b'{"') and body.endswith(b"}"):
            # a small body is sent in one piece anyway
            return (self._opening + body[1:],) if len(body) < _SMALL else (self._opening, memoryview(body)[1:])
        try:
            found = [member for member in members(body) if member.name == self._name]
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
