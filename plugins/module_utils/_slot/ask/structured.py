# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of tools and answers built after a schema: what is asked for, and what came. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..model.profile import CanaryCase


def asked(case: CanaryCase) -> dict[str, Any]:
    """Return what a case adds to the body of a request."""
    extra: dict[str, Any] = {}
    if case.tool is not None:
        extra["tools"] = [{"type": "function", "function": dict(case.tool)}]
        extra["tool_choice"] = "auto"
    if case.schema is not None:
        schema = {"name": case.name, "schema": dict(case.schema), "strict": True}
        extra["response_format"] = {"type": "json_schema", "json_schema": schema}
    return extra


def call_of(case: CanaryCase, message: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Return the arguments of the one call as text, and why it is not the wanted call or an empty text."""
    name = str((case.tool or {}).get("name"))
    calls = message.get("tool_calls") or []
    if not calls:
        return text, f"the tool {name} was not called: an answer came as text, which the tool parser did not take apart"
    try:
        functions = [call["function"] for call in calls]
        found = [(str(function["name"]), str(function["arguments"])) for function in functions]
    except (LookupError, TypeError) as error:
        return str(calls), f"the call has no {error}"
    shown = "; ".join(f"{called}({given})" for called, given in found)
    if len(found) != 1:
        return shown, f"{len(found)} calls in place of one"
    if found[0][0] != name:
        return shown, f"the tool {found[0][0]} was called, not {name}"
    return found[0][1], ""


def alike(expected: Any, got: Any) -> bool:
    """Tell whether two JSON values are equal; unlike in Python, true is not equal to 1."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(alike(expected[key], got[key]) for key in expected)
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(alike, expected, got))
    return isinstance(expected, bool) == isinstance(got, bool) and bool(expected == got)


def wrong(case: CanaryCase, text: str) -> str:
    """Return why a text is not the wanted JSON, or ""."""
    what = "the arguments of the call are" if case.tool is not None else "the answer is"
    try:
        got = json.loads(text)
    except ValueError as error:
        return f"{what} no JSON ({error})"
    return "" if alike(json.loads(case.expected), got) else f"{what} JSON of other values"
