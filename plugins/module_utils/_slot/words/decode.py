# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dataclasses out of JSON and into it: their annotations are the contract of a document. Every error names the key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .types import SlotFault

_T = TypeVar("_T")
_PLAIN = (str, int, float, bool, NoneType)


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
    read: Callable[[Any, str], _T] = _reader(cast("Any", kind))
    return read(data, "")


def decode_written(kind: type[_T], text: str | None, schema: int) -> _T | None:
    """Return the document that a program of this collection wrote; None if it is none that this version can read."""
    try:
        data = json.loads(text or "null")
        return decode(kind, data) if _member(data, "schema") == schema else None
    except ValueError:
        return None


def decode_document(
    kind: type[_T], text: str, where: str, schema: int, again: str = "render it again with the role slot"
) -> _T:
    """Return the document in the file `where`. Raise SlotFault naming the file and the key. again: the remedy."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SlotFault(f"{where} is not JSON ({error}); {again}") from error
    try:
        written = _reader(int)(_member(data, "schema"), "schema")
        if written != schema:
            raise ShapeError("schema", f"is {written}, this version reads {schema}")
        return decode(kind, data)
    except ShapeError as error:
        raise SlotFault(f"{where}: {error}; {again}") from error


def plain(value: Any) -> Any:
    """Return the JSON data from which `decode` makes this value."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in _names(value.__class__)}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def document(record: Any, schema: int) -> str:
    """Return the text from which `decode_written` and `decode_document` read this record."""
    return json.dumps({"schema": schema, **plain(record)}, ensure_ascii=False, indent=1) + "\n"


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _member(data: Any, key: str) -> Any:
    if not isinstance(data, Mapping):
        raise ShapeError("", f"is {type(data).__name__}, not a mapping")
    if data.get(key) is None:
        raise ShapeError(key, "is missing")
    return data[key]


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


@cache
def _reader(kind: Any) -> Callable[[Any, str], Any]:
    """Return the function that takes (data, path of its key) and returns the value of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda data, _path: data
    if is_dataclass(kind):
        return partial(_record, kind)
    if origin in (Union, UnionType):
        return partial(_any_of, inner)
    if origin is Literal:
        return partial(_one_of, str, inner)
    if origin is tuple:
        return partial(_tuple, inner)
    if origin is Sequence:
        return partial(_list, inner[0])
    if origin is Mapping:
        return partial(_mapping, inner[1])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_one_of, kind, tuple(one.value for one in kind))
    return partial(_plain, kind)


def _plain(kind: Any, data: Any, path: str) -> Any:
    truth = isinstance(data, bool)  # which Python takes for a number
    if isinstance(data, kind) and truth is (kind is bool):
        return data
    if kind is float and isinstance(data, int) and not truth:
        return float(data)
    raise ShapeError(path, f"is {data!r}, wanted {kind.__name__}")


def _list(kind: Any, data: Any, path: str) -> list[Any]:
    if not isinstance(data, list):
        raise ShapeError(path, f"is {data!r}, wanted a list")
    read = _reader(kind)
    return [read(value, f"{path}[{place}]") for place, value in enumerate(data)]


def _tuple(kinds: tuple[Any, ...], data: Any, path: str) -> tuple[Any, ...]:
    if kinds[-1] is Ellipsis:
        return tuple(_list(kinds[0], data, path))
    if len(_list(Any, data, path)) != len(kinds):
        raise ShapeError(path, f"has {len(data)} members, wanted {len(kinds)}")
    pairs = enumerate(zip(kinds, data, strict=True))
    return tuple(_reader(kind)(value, f"{path}[{place}]") for place, (kind, value) in pairs)


def _mapping(kind: Any, data: Any, path: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ShapeError(path, f"is {data!r}, wanted a mapping")
    read = _reader(kind)
    return {key: read(value, _below(path, key)) for key, value in data.items()}


def _one_of(kind: Any, values: tuple[Any, ...], data: Any, path: str) -> Any:
    if data not in values:
        raise ShapeError(path, f"is {data!r}, wanted one of {', '.join(map(str, values))}")
    return kind(data)


def _any_of(kinds: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not NoneType)
    for kind in others:
        with suppress(ShapeError):
            return _reader(kind)(data, path)
    return _reader(last)(data, path)


@cache
def _fields(kind: Any) -> tuple[tuple[str, Callable[[Any, str], Any], bool, bool], ...]:
    """Return (name, reader, whether it has a default, whether it may be None) of each field."""
    hints = get_type_hints(kind)
    return tuple(
        (
            field.name,
            _reader(hints[field.name]),
            not (field.default is MISSING and field.default_factory is MISSING),
            NoneType in get_args(hints[field.name]),
        )
        for field in fields(kind)
    )


def _record(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ShapeError(path, f"is {type(data).__name__}, not a mapping")
    found = {}
    for name, read, defaulted, nullable in _fields(kind):
        value = data.get(name)
        if value is not None:
            found[name] = read(value, _below(path, name))
        elif not defaulted:
            if not nullable:
                raise ShapeError(_below(path, name), "is missing")
            found[name] = None
    record = kind(**found)
    if hasattr(record, "check"):
        try:
            record.check()
        except ShapeError as error:
            raise ShapeError(_below(path, error.path), error.problem) from error
    return record
