# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a request that uploads a file: its fields, as rules read and change them.

Only its marks are looked for, while it comes in, so a recording of any size passes unread. What one reader could take
for another field than the next one is not understood here either, and refused where a rule reads it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from frontdoor.errors import Refusal
from frontdoor.policy.document import Document

# of a part of a form
_MOST_PARTS = 64
_MOST_HEAD = 4096
_MOST_VALUE = 512
_END = 64
# the field that rules read
_MODEL = "model"
_BOUNDARY = re.compile(r'(?i)multipart/form-data[ \t]*;[ \t]*boundary=(?:"([^"\\]{1,70})"|([^\s";,]{1,70}))')
_NAMED = re.compile(
    rb'(?i)content-disposition:[ \t]*form-data[ \t]*;[ \t]*name=(?:"([^"\\]*)"|([\w\[\]-]+))'
    rb'(?:[ \t]*;[ \t]*filename\*?=(?:"[^"]*"|[^";]*))*[ \t]*',
)

INVALID_FORM = Refusal(400, "invalid_form", "the fields of the form cannot be told for certain")


def boundary_of(content_type: bytes) -> bytes:
    """Return the boundary between the parts of a body of this type; empty where it is no form."""
    found = _BOUNDARY.fullmatch(content_type.strip().decode("latin-1"))
    return (found[1] or found[2]).encode("latin-1") if found else b""


class Marks:
    """Takes a form as it comes, and notes where its boundaries stand."""

    def __init__(self, boundary: bytes, body: bytes | bytearray = b"") -> None:
        self._line = b"\r\n--" + boundary
        # a form begins as if an empty line stood before it
        self._end, self._size = b"\r\n", 0
        self.found: list[int] = []
        self.feed(body)

    @property
    def length(self) -> int:
        """The length of a boundary with its line."""
        return len(self._line)

    def feed(self, data: bytes | bytearray) -> None:
        """Take the bytes that come next."""
        start = self._size - len(self._end)
        self._size += len(data)
        data = self._end + data
        at = data.find(self._line)
        while at >= 0 and len(self.found) <= _MOST_PARTS:
            self.found.append(start + at)
            at = data.find(self._line, at + len(self._line))
        self._end = bytes(data[1 - len(self._line) :])


class Form(Document):
    """A form in the place of a JSON body; `content` has the model that it names."""

    __slots__ = ("_boundary", "_marks", "_model")

    def __init__(self, body: bytes | bytearray, boundary: bytes, marks: Marks | None = None) -> None:
        super().__init__(body)
        self.foreign = False
        self._boundary = boundary
        self._marks = Marks(boundary, body) if marks is None else marks
        # where the name of the model stands
        self._model = (0, 0)

    def _read(self) -> dict[str, Any] | Refusal:
        body, marks, length = self.body, self._marks.found, self._marks.length
        last = body[marks[-1] + length :][:_END] if marks and len(body) - marks[-1] < length + _END else b""
        if not marks or marks[0] != -2 or len(marks) > _MOST_PARTS or last.strip() != b"--":
            return INVALID_FORM
        content: dict[str, Any] = {}
        for begun, ended in itertools.pairwise(marks):
            begun += length
            end = body.find(b"\r\n\r\n", begun, min(ended, begun + _MOST_HEAD))
            lines = bytes(body[begun:end]).split(b"\r\n")
            found = [one for one in map(_NAMED.fullmatch, lines) if one]
            if end < 0 or lines[0] or len(found) != 1 or b"transfer-encoding" in body[begun:end].lower():
                return INVALID_FORM
            if (found[0][1] or found[0][2] or b"").decode(errors="replace") != _MODEL:
                continue
            if content:
                return INVALID_FORM
            self._model = end + 4, ended
            content[_MODEL] = bytes(body[end + 4 : min(ended, end + 4 + _MOST_VALUE)]).decode(errors="replace")
        return content

    def written(self, content: dict[str, Any]) -> bytes | Refusal:
        """Return the form with another model."""
        self.sent = content
        view, (begun, ended) = memoryview(self.body), self._model
        name = str(content[_MODEL]).encode()
        if not ended:
            name = b'--%b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n' % (self._boundary, name)
        return b"".join((view[:begun], name, view[ended:]))
