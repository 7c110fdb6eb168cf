# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks command lines with the vLLM of the running Python. Starts no engine and needs no card.

It runs inside the engine's own environment, so it needs nothing but the standard library and that vLLM. A question is
one JSON document on standard input, the answer one line of JSON at the end of standard output:

    {"argv": {NAME: [the arguments after "vllm serve"]}}  ->  {"complaints": {NAME: the engine's words, or ""}}
    {"describe": true}  ->  {"described": {"version", "options", "environment"}}
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import sys
from typing import Any

MARK = "b70-answer: "


def serve_command() -> tuple[Any, Any, Any]:
    """Return the parser of ``vllm``, that of ``vllm serve`` and the command, exactly as the engine makes them."""
    import vllm.entrypoints.cli.serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    subparsers = parser.add_subparsers(required=False, dest="subparser")
    (command,) = vllm.entrypoints.cli.serve.cmd_init()
    return parser, command.subparser_init(subparsers), command


def complaint(parser: Any, command: Any, arguments: list[str]) -> str:
    """Return the engine's error for ``vllm serve ARGUMENTS``, or an empty string."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            command.validate(parser.parse_args(["serve", *arguments]))
    except SystemExit as stop:
        lines = [line.strip() for line in said.getvalue().splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with {stop.code}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _accepts(action: Any) -> list[str]:
    """Return the kinds of values that an option accepts, by trying one of each."""
    convert = action.type or str
    found = []
    for kind, word, wanted in (
        ("text", "some-text", str),
        ("integer", "7", int),
        ("number", "1.5", float),
        ("array", "[]", (list, tuple, set)),
    ):
        with contextlib.suppress(Exception):
            if isinstance(convert(word), wanted):
                found.append(kind)
    with contextlib.suppress(Exception):
        if not isinstance(convert("{}"), (str, int, float, list)):
            found.append("object")
    return found


def _option(action: Any) -> dict[str, Any]:
    if isinstance(action, argparse.BooleanOptionalAction):
        return {"form": "switch"}
    if action.nargs == 0:
        return {"form": "flag"}
    form = "values" if action.nargs in ("*", "+") else "value"
    if isinstance(action, argparse._AppendAction):
        form = "repeated"
    option: dict[str, Any] = {"form": form, "accepts": _accepts(action)}
    if action.nargs == "?":
        option["optional"] = True
    if action.choices:
        option["choices"] = sorted(str(choice) for choice in action.choices)
    return option


def describe(serve: Any) -> dict[str, Any]:
    """Return the options of ``vllm serve`` by snake_case name, and the environment variables that vLLM declares."""
    import vllm.envs

    options = {}
    for action in serve._actions:
        names = [name[2:] for name in action.option_strings if name.startswith("--")]
        if names and not isinstance(action, argparse._HelpAction):
            positive = [name for name in names if not (name.startswith("no-") and name[3:] in names)]
            entry = _option(action)
            for index, name in enumerate(positive):
                key = name.replace("-", "_")
                options[key] = entry if index == 0 else {**entry, "same_as": positive[0].replace("-", "_")}
    version = importlib.metadata.version("vllm")
    return {"version": version, "options": options, "environment": sorted(vllm.envs.environment_variables)}


def main() -> None:
    """Answer the question on standard input."""
    question = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    parser, serve, command = serve_command()
    if "argv" in question:
        argv = question["argv"]
        answer["complaints"] = {name: complaint(parser, command, arguments) for name, arguments in argv.items()}
    if question.get("describe"):
        answer["described"] = describe(serve)
    sys.stdout.write(f"\n{MARK}{json.dumps(answer, sort_keys=True)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
