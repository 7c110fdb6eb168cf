# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GGUF files: the parts of a split one, what its head says of the model, and how long that makes it.

Shards of safetensors are numbered in the same way, so `parts` knows them too.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, BinaryIO

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf|\.safetensors)")
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
# Bounds of a sound head: a length beyond them is damage, not a model.
_MOST_KEYS, _MOST_TEXT, _MOST_ENTRIES = 10_000, 2**24, 2**24
_MOST_TENSORS, _MOST_DIMENSIONS = 1_000_000, 8
_ALIGNMENT = 32  # of the tensors, in bytes, where the head names no other
# Elements and bytes of one block, by the type of a tensor (ggml_type in ggml.h). Others only count by where they begin.
_BLOCKS = {
    **dict.fromkeys((0, 26), (1, 4)),
    **dict.fromkeys((1, 25, 30), (1, 2)),
    **dict.fromkeys((27, 28), (1, 8)),
    24: (1, 1),
    **dict.fromkeys((2, 20), (32, 18)),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    39: (32, 17),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    34: (256, 54),
    35: (256, 66),
}
KEPT_ENTRIES = 1024  # a list that is longer, such as the tokens, is read over


class GgufError(ValueError):
    """The file is no GGUF file, or its head is damaged."""


def parts(name: str) -> list[str]:
    """Return the files that one of a split model stands for, in order; the name itself where it is not split."""
    found = _SPLIT.fullmatch(name)
    if found is None:
        return [name]
    count = int(found["count"])
    return [f"{found['stem']}-{number:05d}-of-{found['count']}{found['suffix']}" for number in range(1, count + 1)]


def pattern(name: str) -> str:
    """Return the pattern, as for `fnmatch`, of a file with all of its parts."""
    found = _SPLIT.fullmatch(name)
    return name if found is None else f"{found['stem']}-*-of-{found['count']}{found['suffix']}"


def head(file: BinaryIO) -> dict[str, Any]:
    """Return the keys of a file's head and their values; lists of more than 1024 entries are left out.

    Raise GgufError with what is wrong.
    """
    return _head(file)[0]


def head_and_size(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return what `head` does, and the bytes that the file has at least if all tensors of its head are in it."""
    keys, tensors = _head(file)
    end = 0
    for _index in range(_within(tensors, _MOST_TENSORS, "tensors")):
        _text(file)
        dimensions = _within(_number(file, "I"), _MOST_DIMENSIONS, "dimensions of one tensor")
        elements = math.prod(_number(file, "Q") for _dimension in range(dimensions))
        block, size = _BLOCKS.get(_number(file, "I"), (1, 0))
        end = max(end, _number(file, "Q") + elements // block * size)
    alignment = keys.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise GgufError(f"its tensors are aligned to {alignment!r}")
    return keys, -(-file.tell() // alignment) * alignment + end


def _head(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the keys of a file's head, and the number of its tensors.

    The file then stands at the first of them.
    """
    if _read(file, 4) != _MAGIC:
        raise GgufError("it does not begin with GGUF")
    version = _number(file, "I")
    if version not in _VERSIONS:
        raise GgufError(f"its format has the version {version}, known are {', '.join(map(str, _VERSIONS))}")
    tensors = _number(file, "Q")
    count = _within(_number(file, "Q"), _MOST_KEYS, "keys")
    found = {}
    for _index in range(count):
        key = _text(file)
        value = _value(file, _number(file, "I"))
        if value is not None:
            found[key] = value
    return found, tensors


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
