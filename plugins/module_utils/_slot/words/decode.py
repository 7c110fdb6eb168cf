# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dataclasses out of JSON: their annotations are the contract of a document, and every error names the key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .types import SlotFault

_T = TypeVar("_T")


class ShapeError(ValueError):
    """A value that a document can't have. path: of its key, in the record whose `check` raises it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the document'} {problem}")
        self.path, self.problem = path, problem


def decode(kind: type[_T], data: Any) -> _T:
    """Return the value of this type in JSON data. Raise ShapeError naming the key that has another shape.

    Types are those of JSON, dataclasses, enumerations, literals, tuples, mappings and unions of them. A key without a
    value takes the default of its field, and keys that the dataclass does not have are left out. A dataclass may have a
    method `check`, which raises ShapeError for what its annotations can't say.
    """
    found: _T = _decoded(kind, data, "")
    return found


def decode_document(kind: type[_T], text: str, where: str, schema: int) -> _T:
    """Return what the role rendered to the file `where`. Raise SlotFault naming the file and the key."""
    again = "render it again with the role slot"
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SlotFault(f"{where} is not JSON ({error}); {again}") from error
    try:
        written = _decoded(int, _member(data, "schema", ""), "schema")
        if written != schema:
            raise ShapeError("schema", f"is {written}, this version reads {schema}")
        return decode(kind, data)
    except ShapeError as error:
        raise SlotFault(f"{where}: {error}; {again}") from error


def _member(data: Any, key: str, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ShapeError(path, f"is {type(data).__name__}, not a mapping")
    if data.get(key) is None:
        raise ShapeError(_below(path, key), "is missing")
    return data[key]


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _decoded(kind: Any, data: Any, path: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if is_dataclass(kind):
        return _record(kind, data, path)
    if origin in (Union, UnionType):
        return _any_of(inner, data, path)
    if origin is Literal:
        return _one_of(inner, data, path)
    if origin is tuple and isinstance(data, list):
        several = inner[-1] is Ellipsis
        if not several and len(data) != len(inner):
            raise ShapeError(path, f"has {len(data)} members, wanted {len(inner)}")
        kinds = inner[:1] * len(data) if several else inner
        pairs = enumerate(zip(kinds, data, strict=True))
        return tuple(_decoded(one, value, f"{path}[{place}]") for place, (one, value) in pairs)
    if origin is Sequence and isinstance(data, list):
        return [_decoded(inner[0], value, f"{path}[{place}]") for place, value in enumerate(data)]
    if origin is Mapping and isinstance(data, Mapping):
        return {key: _decoded(inner[1], value, _below(path, key)) for key, value in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(_one_of([one.value for one in kind], data, path))
    if kind is float and type(data) is int:
        return float(data)
    if origin is None and type(data) is kind:
        return data
    raise ShapeError(path, f"is {data!r}, wanted {_name(kind)}")


def _name(kind: Any) -> str:
    return {Mapping: "a mapping", tuple: "a list", Sequence: "a list"}.get(
        get_origin(kind), getattr(kind, "__name__", str(kind))
    )


def _one_of(values: Any, data: Any, path: str) -> Any:
    if data not in values:
        raise ShapeError(path, f"is {data!r}, wanted one of {', '.join(map(str, values))}")
    return data


def _any_of(kinds: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not NoneType)
    for kind in others:
        try:
            return _decoded(kind, data, path)
        except ShapeError:
            continue
    return _decoded(last, data, path)


def _record(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ShapeError(path, f"is {type(data).__name__}, not a mapping")
    hints, found = _hints(kind), {}
    for field in fields(kind):
        if data.get(field.name) is not None:
            found[field.name] = _decoded(hints[field.name], data[field.name], _below(path, field.name))
        elif field.default is MISSING and field.default_factory is MISSING:
            if NoneType not in get_args(hints[field.name]):
                raise ShapeError(_below(path, field.name), "is missing")
            found[field.name] = None
    record = kind(**found)
    if hasattr(record, "check"):
        try:
            record.check()
        except ShapeError as error:
            raise ShapeError(_below(path, error.path), error.problem) from error
    return record
