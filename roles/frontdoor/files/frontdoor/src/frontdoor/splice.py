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


# bodies below this many bytes are cheaper to copy than to handle in pieces
_SMALL = 4096


class NotAnObject(ValueError):
    """The body is not a JSON object (or not JSON at all)."""


class Member(NamedTuple):
    """A top-level member: its name and where its value stands, as byte offsets."""

    name: str
    start: int
    end: int


def _skip(body: bytes, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _string_end(body: bytes, at: int) -> int:
    quote = body.find(b'"', at + 1)
    while quote >= 0:
        before = quote - 1
        while body[before] == 0x5C:
            before -= 1
        if (quote - before) % 2:
            return quote + 1
        quote = body.find(b'"', quote + 1)
    raise NotAnObject


def _value_end(body: bytes, at: int) -> int:
    first = body[at : at + 1]
    if first == b'"':
        return _string_end(body, at)
    if first not in (b"{", b"["):
        match = _SCALAR.match(body, at)
        if not match:
            raise NotAnObject
        return match.end()
    depth = 0
    while True:
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
            return at


def members(body: bytes) -> Iterator[Member]:
    """Walk over the top-level members of a JSON object, duplicates included; raise NotAnObject."""
    at = _skip(body, 0)
    if body[at : at + 1] != b"{":
        raise NotAnObject
    at = _skip(body, at + 1)
    if body[at : at + 1] == b"}":
        return
    while True:
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
        end = _value_end(body, start)
        yield Member(name, start, end)
        at = _skip(body, end)
        separator = body[at : at + 1]
        if separator == b"}":
            return
        if separator != b",":
            raise NotAnObject
        at = _skip(body, at + 1)


def _prepend(body: bytes, brace: int, inner: bytes) -> bytes:
    """Put members (without braces) first into the object whose brace stands at an offset."""
    follower = _skip(body, brace + 1)
    comma = b"" if body[follower : follower + 1] == b"}" else b","
    return b"".join((body[: brace + 1], inner, comma, body[brace + 1 :]))


class ObjectDefaults:
    """Gives the member `name` of a JSON object defaults; what the client set wins, key by key.

    Absent or null: the defaults become its value. An object: the defaults are put before the client's keys, of which
    the later one counts. Any other value, and any body that is not a JSON object, is left alone. A name that the client
    spelt with escapes is not seen: the client's member stands after ours then, and counts.
    """

    def __init__(self, name: str, defaults: dict[str, Any]) -> None:
        encoded = orjson.dumps(defaults)
        self._name = name
        self._quoted = orjson.dumps(name)
        self._value = encoded
        self._inner = encoded[1:-1]
        self._member = b"%b:%b" % (self._quoted, encoded)
        self._opening = b"{%b," % self._member

    def pieces(self, body: bytes) -> tuple[bytes | memoryview, ...]:
        """The changed body, to be written piece by piece: a large one is not copied."""
        if body.find(self._quoted) < 0:
            if body.startswith(b'{"') and body.endswith(b"}"):
                # a small body is sent in one piece anyway
                return (self._opening + body[1:],) if len(body) < _SMALL else (self._opening, memoryview(body)[1:])
            return (self._absent(body),)
        try:
            found = [member for member in members(body) if member.name == self._name]
        except NotAnObject:
            return (body,)
        if not found:
            return (self._absent(body),)
        member = found[-1]
        value = body[member.start : member.end]
        if value == b"null":
            return body[: member.start], self._value, body[member.end :]
        return (_prepend(body, member.start, self._inner),) if value.startswith(b"{") else (body,)

    def _absent(self, body: bytes) -> bytes:
        brace = _skip(body, 0)
        if body[brace : brace + 1] != b"{" or not body.rstrip(b" \t\r\n").endswith(b"}"):
            return body
        return _prepend(body, brace, self._member)
