# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON body of a request: parsed at most once, and written anew only where something in it changes.

orjson reads what it can write again as it was. Spaces do not count: where both texts are the same without theirs, they
have the same tokens, so that no member and no digit was lost. All else `json` parses, which keeps whole numbers exact
and shows NaN and repeated names, where orjson rounds, refuses or drops them; orjson writes it, ten times faster, and
refuses what it cannot write exactly. So a body never changes silently: repeated names, NaN and numbers beyond a double
are refused where a rule reads the body, whole numbers beyond 64 bits, halves of surrogate pairs and nesting beyond 250
levels where one changes it. A body that no rule changes goes to the engine byte for byte. All of that takes about 4
microseconds for a short chat, and 1 to 2 milliseconds for a picture of 1 MB. Bodies with very many values, or very
large and not in ASCII, are refused before they are parsed.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from typing import Any

import orjson

from frontdoor.errors import Refusal

# More containers and members, or plain values such as the tokens of a prompt, take more than a fraction of a second, in
# which nobody else is served, and more than some 60 MB.
_MAX_MEMBERS = 200_000
_MAX_VALUES = 500_000
# One character beyond Latin-1 makes a decoded body take up to four times the memory, and the time that goes with it.
_MAX_WIDE_BYTES = 32 * 1024 * 1024
# converting takes time that grows with the square of the digits
_MAX_DIGITS = 400
_MAX_TOLD = 100
# `json` reads a larger body faster than the spaces are left out of it
_MOST_SPACED = 64 * 1024
_SPACES = b" \t\r\n"
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

ENCODING = Refusal(400, "encoding_unsupported", "the request body must be JSON in UTF-8, without a byte order mark")
INTRICATE = Refusal(
    400, "body_too_intricate", "the request body holds too many values, or is nested too deep, to be read"
)
NOT_AN_OBJECT = Refusal(400, "invalid_json", "the request body must be a JSON object")


class _Ambiguous(Exception):
    """The body means different things to different readers; the text says why."""


def _ambiguous(why: str) -> Refusal:
    return Refusal(400, "ambiguous_json", f"the request body cannot be passed on with its meaning kept: {why}")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        ((name, _times),) = Counter(name for name, _value in pairs).most_common(1)
        raise _Ambiguous(f"it names {name[:_MAX_TOLD]!r} twice in one object")
    return members


def _constant(name: str) -> Any:
    raise _Ambiguous(f"{name} is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _Ambiguous(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _decimal(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise _Ambiguous(f"it holds the number {digits[:_MAX_TOLD]}, which is beyond a double")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members, parse_constant=_constant, parse_int=_integer, parse_float=_decimal
)


def _read(body: bytes | bytearray) -> dict[str, Any] | Refusal:
    """Return the parsed body, or why it cannot be read."""
    if len(body) > _MAX_MEMBERS and (
        sum(map(body.count, (b":", b"[", b"{"))) > _MAX_MEMBERS or body.count(b",") > _MAX_VALUES
    ):
        return INTRICATE
    if len(body) > _MAX_WIDE_BYTES and not body.isascii():
        return INTRICATE
    try:
        content = orjson.loads(body)
        written = orjson.dumps(content)
        exact = written == body or (
            len(body) < _MOST_SPACED and written.translate(None, _SPACES) == body.translate(None, _SPACES)
        )
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        exact = False
    try:
        if not exact:
            content = _DECODER.decode(body.decode())
    except _Ambiguous as exc:
        return _ambiguous(str(exc))
    except ValueError:
        return NOT_AN_OBJECT
    except RecursionError:
        return INTRICATE
    return content if isinstance(content, dict) else NOT_AN_OBJECT


class Document:
    """One body. `content` is a JSON object, or why it cannot be read; nobody changes it."""

    __slots__ = ("_content", "body", "foreign", "measured")

    def __init__(self, body: bytes | bytearray) -> None:
        self.body = body
        #: whether it is not plain UTF-8: engines that guess the encoding would read past what is looked for here
        self.foreign = body[:2] != b'{"' and (b"\0" in body[:4] or body.startswith(_BOMS))
        self._content: dict[str, Any] | Refusal | None = None
        #: whether the answer is to say how long it took; set by the rules of its path
        self.measured = False

    @property
    def content(self) -> dict[str, Any] | Refusal:
        """The parsed body."""
        if self._content is None:
            self._content = ENCODING if self.foreign else _read(self.body)
        return self._content


def written(content: dict[str, Any]) -> bytes | Refusal:
    """The text of a parsed body, or why it cannot be written as it was meant."""
    try:
        return orjson.dumps(content)
    except orjson.JSONEncodeError as exc:
        return _ambiguous(str(exc))
