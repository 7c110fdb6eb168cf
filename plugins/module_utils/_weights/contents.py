# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the files of a model directory by their own contents, where nobody knows their digests.

Only heads are read, so this costs nothing beside a digest. It finds what interrupted copies, clones without Git LFS and
sign-in pages leave behind, and nothing that has the right length.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, BinaryIO

from .._slot.kinds import gguf
from .._slot.kinds.kind import WEIGHTS
from .manifest import TOKENIZERS, Stat, index_of

_HEAD = 1024
_POINTER = b"version https://git-lfs.github.com/spec/"
PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
# The longest header that the reference implementation of safetensors reads, in bytes.
_MOST_HEADER = 100_000_000
_TOKENIZER_FILES = {name for group in TOKENIZERS for name in group}
# Values of general.type in GGUF files that are no model by themselves.
_NO_MODEL = {"mmproj": "a projector", "adapter": "an adapter", "imatrix": "an importance matrix"}
_SPLIT_NUMBER, _SPLIT_COUNT = "split.no", "split.count"


class _Damage(Exception):
    """A file is not what its name says; the text completes a sentence that begins with the name."""


def faults(directory: str, present: Mapping[str, Stat], include: Iterable[str] = ()) -> dict[str, str]:
    """Return the files of a directory that cannot be right, each with what is wrong with it.

    :param present: the files below ``directory``.
    :param include: patterns of the files that are wanted of the source; with one of a GGUF file, any will do.
    """
    found: dict[str, str] = {}
    tensors: dict[str, set[str]] = {}
    heads: dict[str, dict[str, Any]] = {}
    for name, stat in sorted(present.items()):
        try:
            with open(os.path.join(directory, name), "rb") as file:
                _judge_start(name, file.read(_HEAD))
                file.seek(0)
                if name.endswith(".safetensors"):
                    tensors[name] = _tensors(file, stat.size)
                elif name.endswith(".gguf"):
                    heads[name] = _gguf_head(name, file, stat.size)
                elif name == "config.json" or (name in _TOKENIZER_FILES and name.endswith(".json")):
                    _judge_json(file)
        except _Damage as damage:
            found[name] = str(damage)
        except OSError as error:
            found[name] = f"cannot be read ({error.strerror or error})"
    index = index_of(present)
    if index is not None and not found:
        found.update(_judge_index(directory, index, set().union(*tensors.values())))
    if not tensors and heads and not found and not any(pattern.endswith(".gguf") for pattern in include):
        found.update(_judge_kinds(heads))
    return found


def _judge_start(name: str, start: bytes) -> None:
    if start.startswith(_POINTER):
        raise _Damage("is a pointer of Git LFS, not the file itself: run git lfs pull where it comes from")
    if not name.endswith((*WEIGHTS, ".json")) and name not in _TOKENIZER_FILES:
        return
    if not start:
        raise _Damage("is empty")
    if PAGE.match(start):
        raise _Damage("is a web page (of a sign-in or an error), not the file itself")


def _judge_json(file: BinaryIO) -> None:
    try:
        json.load(file)
    except (ValueError, RecursionError) as error:
        raise _Damage("cannot be read as JSON: it is cut off or damaged") from error


def _tensors(file: BinaryIO, size: int) -> set[str]:
    """Return the names of the tensors in a safetensors file, whose header must describe the file to its last byte."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(_MOST_HEADER, size - 8):
        raise _Damage(f"has {size} bytes, and the length of its header says {length}: it is cut off or no safetensors")
    try:
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        ranges = sorted((int(begin), int(end)) for begin, end in (one["data_offsets"] for one in header.values()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _Damage("has a header that is none of safetensors") from error
    at = 0
    for begin, end in ranges:
        if begin != at or end < begin:
            raise _Damage(f"has tensors with a gap or overlap at byte {at} of its data")
        at = end
    if 8 + length + at != size:
        raise _Damage(f"has {size} bytes, and its header describes {8 + length + at}: it is cut off or damaged")
    return set(header)


def _gguf_head(name: str, file: BinaryIO, size: int) -> dict[str, Any]:
    """Return the head of a GGUF file, after checking its size and that it is the part that its name says."""
    try:
        head, least = gguf.head_and_size(file)
    except gguf.GgufError as error:
        raise _Damage(f"is no whole GGUF file: {error}") from error
    if size < least:
        raise _Damage(f"has {size} bytes, and its head describes {least}: it is cut off")
    parts = gguf.parts(name)
    # A head counts parts from 0, a name from 1. What is not split says nothing, or that there are 0.
    number, count = head.get(_SPLIT_NUMBER, 0), head.get(_SPLIT_COUNT) or 1
    if count != len(parts) or name not in parts or parts.index(name) != number:
        raise _Damage(f"is not the part of {len(parts)} that its name says: its head says part {number} of {count}")
    return head


def _judge_index(directory: str, index: str, tensors: Collection[str]) -> dict[str, str]:
    with open(os.path.join(directory, index), encoding="utf-8") as stream:
        listed = json.load(stream)["weight_map"]
    lacking = sorted(set(listed) - set(tensors))
    if not lacking:
        return {}
    first, others = lacking[0], len(lacking) - 1
    more = f" and {others} more" if others else ""
    return {listed[first]: f"lacks the tensor {first}{more} that {index} says is in it: they are of two versions"}


def _judge_kinds(heads: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    kinds = {
        name: _NO_MODEL.get("mmproj" if head.get("general.architecture") == "clip" else head.get("general.type", ""))
        for name, head in heads.items()
    }
    if not all(kinds.values()):
        return {}
    return {name: f"is {kind} alone: the model that it belongs to is not there" for name, kind in kinds.items()}
