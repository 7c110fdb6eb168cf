# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check data against the subset of JSON Schema that the catalogue's schema files use, with messages for people.

Understood: type, const, enum, properties, required, additionalProperties and unevaluatedProperties, propertyNames,
items, minItems, uniqueItems, pattern, minLength, maxLength, minimum, maximum, exclusiveMinimum, if with then and else,
and the annotations default (see `completed`), x-hint (a pattern in words) and x-unknown (where a key goes that the
mapping does not have).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from .problems import did_you_mean

Fault = tuple[str, str]

_LARGEST = 1e300  # larger numbers become infinite in calculations
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def type_name(value: Any) -> str:
    """Return the JSON Schema type of a parsed value, or the Python type for what JSON does not have (a date, say)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((int, "integer"), (float, "number"), (str, "string"), (list, "array"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def _type_fault(value: Any, allowed: list[str]) -> str | None:
    actual = type_name(value)
    if actual in allowed or (actual == "integer" and "number" in allowed):
        return None
    wanted = " or ".join(_WORDS[kind] for kind in allowed if kind != "null")
    shown = repr(value) if actual not in ("array", "object") else _WORDS[actual]
    if actual == "string" and allowed[0] in ("integer", "number", "boolean"):
        return f"must be {wanted}, not the text {shown} (write it without quotes)"
    if "string" in allowed and actual not in ("array", "object"):
        return f"must be {wanted}, not {shown} (put it in quotes)"
    return f"must be {wanted}, not {shown}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def faults(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[Fault]:
    """Yield ``(dotted path, message)`` for every rule of ``schema`` that ``value`` breaks."""
    if "type" in schema:
        allowed = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
        wrong = _type_fault(value, allowed)
        if wrong:
            yield path, wrong
            return
    if "const" in schema and value != schema["const"]:
        yield path, f"{value!r} must be {schema['const']!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        known = [str(item) for item in schema["enum"] if item is not None]
        yield path, f"{value!r} is none of {', '.join(known)}{did_you_mean(str(value), known)}"
        return
    if isinstance(value, str):
        yield from _text_faults(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_faults(value, schema, path)
    elif isinstance(value, list):
        yield from _list_faults(value, schema, path)
    elif isinstance(value, Mapping):
        yield from _mapping_faults(value, schema, path)
    if "if" in schema:
        choice = "else" if any(faults(value, schema["if"])) else "then"
        yield from faults(value, schema.get(choice, {}), path)


def completed(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with every key of its schema: its own value, else the schema's default, else None.

    A default that is a mapping is also what a given mapping lacks.
    """
    found = {}
    for key, part in schema["properties"].items():
        default, value = deepcopy(part.get("default")), given.get(key)
        found[key] = default if value is None else value
        if isinstance(default, Mapping):
            found[key] = {**default, **found[key]}
    return found


def _text_faults(value: str, schema: Mapping[str, Any], path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minLength", 0):
        yield path, "must not be empty"
    if len(value) > schema.get("maxLength", len(value)):
        yield path, f"is longer than {schema['maxLength']} characters"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield path, f"{value!r} must be {schema.get('x-hint', 'of the form ' + schema['pattern'])}"
    if any(ord(char) < 32 and char not in "\n\t" for char in value):
        yield path, "holds a control character"


def _number_faults(value: float, schema: Mapping[str, Any], path: str) -> Iterator[Fault]:
    if not abs(value) <= _LARGEST:  # true of NaN, too, which is neither more nor less than anything
        yield path, "is no finite number"
        return
    if "minimum" in schema and value < schema["minimum"]:
        yield path, f"{value} is below the smallest allowed value {schema['minimum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield path, f"{value} must be above {schema['exclusiveMinimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield path, f"{value} is above the largest allowed value {schema['maximum']}"


def _list_faults(value: list[Any], schema: Mapping[str, Any], path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minItems", 0):
        yield path, f"needs at least {schema['minItems']} entry"
    if schema.get("uniqueItems") and len({repr(item) for item in value}) < len(value):
        yield path, "holds an entry twice"
    for index, item in enumerate(value):
        yield from faults(item, schema.get("items", {}), f"{path}[{index}]")


def _mapping_faults(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[Fault]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
    for key in schema.get("required", []):
        if key not in value:
            yield _join(path, key), "is missing"
    for key, item in value.items():
        if key in properties:
            yield from faults(item, properties[key], _join(path, key))
        elif others is False:
            beside = f"; {schema['x-unknown']}" if "x-unknown" in schema else ""
            yield _join(path, key), f'unknown key "{key}"{did_you_mean(key, properties)}{beside}'
        else:
            names = schema.get("propertyNames", {})
            for _where, message in faults(key, names, ""):
                yield _join(path, key), f"as a name: {message}"
            if isinstance(others, Mapping):
                yield from faults(item, others, _join(path, key))
