# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GGUF files: the parts of a split one, and what its head says of the model."""

from __future__ import annotations

import re
import struct
from typing import Any, BinaryIO

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
# Bounds of a sound head: a length beyond them is damage, not a model.
_MOST_KEYS, _MOST_TEXT, _MOST_ENTRIES = 10_000, 2**24, 2**24
KEPT_ENTRIES = 1024  # a list that is longer, such as the tokens, is read over


class GgufError(ValueError):
    """The file is no GGUF file, or its head is damaged."""


def parts(name: str) -> list[str]:
    """Return the files that one of a split model stands for, in order; the name itself where it is not split."""
    found = _SPLIT.fullmatch(name)
    if found is None:
        return [name]
    count = int(found["count"])
    return [f"{found['stem']}-{number:05d}-of-{found['count']}.gguf" for number in range(1, count + 1)]


def pattern(name: str) -> str:
    """Return the pattern, as for `fnmatch`, of a file with all of its parts."""
    found = _SPLIT.fullmatch(name)
    return name if found is None else f"{found['stem']}-*-of-{found['count']}.gguf"


def head(file: BinaryIO) -> dict[str, Any]:
    """Return the keys of a file's head and their values; lists of more than 1024 entries are left out.

    Raises GgufError with what is wrong.
    """
    if _read(file, 4) != _MAGIC:
        raise GgufError("it does not begin with GGUF")
    version = _number(file, "I")
    if version not in _VERSIONS:
        raise GgufError(f"its format has the version {version}, known are {', '.join(map(str, _VERSIONS))}")
    _number(file, "Q")  # tensors
    count = _within(_number(file, "Q"), _MOST_KEYS, "keys")
    found = {}
    for _index in range(count):
        key = _text(file)
        value = _value(file, _number(file, "I"))
        if value is not None:
            found[key] = value
    return found


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise GgufError("it ends within its head")
    return data


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", _read(file, struct.calcsize(code)))[0]


def _within(count: int, most: int, what: str) -> int:
    if count > most:
        raise GgufError(f"its head claims {count} {what}")
    return count


def _text(file: BinaryIO) -> str:
    return _read(file, _within(_number(file, "Q"), _MOST_TEXT, "bytes of one text")).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _NUMBERS:
        return _number(file, _NUMBERS[kind])
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        raise GgufError(f"its head has a value of the unknown type {kind}")
    inner = _number(file, "I")
    count = _within(_number(file, "Q"), _MOST_ENTRIES, "entries of one list")
    if inner in _NUMBERS:
        data = _read(file, count * struct.calcsize(_NUMBERS[inner]))
        return list(struct.unpack(f"<{count}{_NUMBERS[inner]}", data)) if count <= KEPT_ENTRIES else None
    if inner != _TEXT:
        raise GgufError(f"its head has a list of the unknown type {inner}")
    texts = [_text(file) for _index in range(count)]
    return texts if count <= KEPT_ENTRIES else None
