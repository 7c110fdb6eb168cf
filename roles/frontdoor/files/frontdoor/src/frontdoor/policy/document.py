# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON body of a request: parsed at most once, and written anew only where something in it changes.

orjson reads what it can write again as it was. Spaces do not count: where both texts are the same without theirs, they
have the same tokens, so that no member and no digit was lost. All else `json` parses, which keeps whole numbers exact
and shows NaN and repeated names, where orjson rounds, refuses or drops them; orjson writes it, ten times faster, and
refuses what it cannot write exactly. So a body never changes silently: repeated names, NaN and numbers beyond a double
are refused where a rule reads the body, whole numbers beyond 64 bits, halves of surrogate pairs and nesting beyond 250
levels where one changes it. A body that no rule changes goes to the engine byte for byte. Of a longer one the outline
is read; what has too many members, values or short texts for that is refused.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from typing import Any, Final

import orjson

from frontdoor.errors import Refusal
from frontdoor.policy.outline import MARK, SHORT, Outline

_MAX_TOLD = 100
_SPACES: Final = b" \t\r\n"
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

ENCODING = Refusal(400, "encoding_unsupported", "the request body must be JSON in UTF-8, without a byte order mark")
INTRICATE = Refusal(
    400, "body_too_intricate", "the request body holds too many values, or is nested too deep, to be read"
)
_NO_OBJECT = "the request body must be a JSON object"
#: what does not even begin like one; no engine reads more in it
NOT_AN_OBJECT: Final = Refusal(400, "invalid_json", _NO_OBJECT)
BROKEN: Final = Refusal(400, "invalid_json", f"{_NO_OBJECT}, and cannot be parsed")
# where it has to begin
_BEGINNING: Final = 1024


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


def _decimal(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise _Ambiguous(f"it holds the number {digits[:_MAX_TOLD]}, which is beyond a double")
    return value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant, parse_float=_decimal)


def _read(body: bytes | bytearray) -> dict[str, Any] | Refusal:
    """Return the parsed body, or why it cannot be read."""
    try:
        content = orjson.loads(body)
        written = orjson.dumps(content)
        exact = written == body or written.translate(None, _SPACES) == body.translate(None, _SPACES)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        exact = False
    try:
        if not exact:
            content = _DECODER.decode(body.decode())
    except _Ambiguous as exc:
        return _ambiguous(str(exc))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return BROKEN
    except ValueError:
        # Python reads no number of more digits: that takes time that grows with their square
        return _ambiguous("it holds a number of very many digits")
    except RecursionError:
        return INTRICATE
    return content if isinstance(content, dict) else BROKEN


class Document:
    """One body. `content` is a JSON object, or why it cannot be read; nobody changes it.

    Long texts in it may be without their middle, which `whole` and `written` put back.
    """

    __slots__ = ("_content", "_outline", "body", "foreign", "hides_usage", "measured", "sent")

    def __init__(self, body: bytes | bytearray, outline: Outline | None = None) -> None:
        """Take the body and, where it was made as the body came, its `outline`."""
        self.body = body
        #: whether it is not plain UTF-8: engines that guess the encoding would read past what is looked for here
        self.foreign = body[:2] != b'{"' and (b"\0" in body[:4] or body.startswith(_BOMS))
        self._outline = outline if len(body) > SHORT else None
        self._content: dict[str, Any] | Refusal | None = None
        #: what the engine is sent, where that is written anew
        self.sent: dict[str, Any] | None = None
        #: whether the answer is to say how long it took; set by the rules of its path
        self.measured = False
        #: whether the engine is asked for a report of tokens that the client did not ask for; set by them, too
        self.hides_usage = False

    @property
    def content(self) -> dict[str, Any] | Refusal:
        """The parsed body."""
        if self._content is None:
            self._content = ENCODING if self.foreign else self._read()
        return self._content

    def _read(self) -> dict[str, Any] | Refusal:
        begins = self.body[:_BEGINNING].lstrip(_SPACES)
        if not begins.startswith(b"{") and (begins or len(self.body) <= _BEGINNING):
            return NOT_AN_OBJECT
        if len(self.body) <= SHORT:
            return _read(self.body)
        if self._outline is None:
            self._outline = Outline(self.body)
        text = self._outline.end()
        return INTRICATE if self._outline.intricate else _read(text)

    @property
    def streams(self) -> bool:
        """True if the request asks for an answer in parts."""
        return not isinstance(self.content, Refusal) and self.content.get("stream") is True

    def model(self, *, coded: bool) -> str:
        """Return the model that the request names; empty without one, or where the body is `coded` or foreign."""
        content = None if coded or self.foreign else self.content
        name = content.get("model") if isinstance(content, dict) else None
        return name if isinstance(name, str) else ""

    def whole(self, text: str, most: int) -> str:
        """Return a text of the content as the client sent it; of a long one at least the first so many bytes."""
        return text if self._outline is None or MARK not in text else self._outline.whole(text, self.body, most)

    def written(self, content: dict[str, Any]) -> bytes | Refusal:
        """Return the body with other content, or why that cannot be written as it was meant."""
        self.sent = content
        try:
            text = orjson.dumps(content)
        except orjson.JSONEncodeError as exc:
            return _ambiguous(str(exc))
        return self.restored(text)

    def begun_with(self, member: bytes) -> bytes | bytearray:
        """Return the body with one more member, which it does not have, and else byte for byte as it is."""
        self.sent = None if isinstance(self._content, Refusal) else self._content
        at = self.body.index(b"{") + 1
        return self.body[:at] + member + b"," + self.body[at:]

    def restored(self, text: bytes) -> bytes:
        """Return JSON of any part of the content, with the middles of its long texts."""
        return text if self._outline is None else self._outline.restored(text, self.body)

    def spelt(self, text: bytes, most: int) -> bytes:
        """Return JSON of any part of the content, the same however the client spelt it; of a long one the beginning."""
        return text if self._outline is None else self._outline.spelt(text, self.body, most)

    def forget(self) -> None:
        """Hold no more than the body and its outline."""
        self._content = self.sent = None
