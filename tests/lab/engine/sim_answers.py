# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the simulated engine says: texts, calls, answers after a schema, thoughts. Standard library only."""

from __future__ import annotations

import json
from typing import Any

CANARY_SEED = 20260607
ANSWERS = {
    "letters OK": "OK",
    "three words": "satin cobalt orbit",
    "red and 4 blue blocks. How many": "7",
    "red and 4 blue blocks. Give": '{"red": 3, "blue": 4, "all": 7}',
    "key word orbit": "orbit",
    "colour of this picture": "Red",
    "Who are you": "I am {name}.",
    "Count to ten": "one, two, three, four, five, six, seven, eight, nine, ten.",
}
CALL = ("order_cloth", '{"cloth": "satin", "pieces": 7}')
PROSE = "That makes three red ones, four blue ones and seven in all."  # without a schema
THOUGHT = "I am asked something and think about it before I answer."
ENDLESS = "Wait, " * 4096


def prompt_of(body: dict[str, Any]) -> str:
    given = body.get("prompt")
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return " ".join(map(str, given))  # tokens
    content = (body.get("messages") or [{}])[-1].get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def right_answer(body: dict[str, Any], prompt: str, name: str) -> str:
    """Return what a sound engine says."""
    text = next((text for words, text in ANSWERS.items() if words in prompt), "{name} heard: " + prompt[:1000])
    if text.startswith("{") and not text.startswith("{name}") and "response_format" not in body:
        return PROSE
    return text.replace("{name}", name)


def tokens_of(text: str) -> list[str]:
    """One token per word with the space before it."""
    words = text.split(" ")
    return [word if number == 0 else f" {word}" for number, word in enumerate(words)]


def thinks(body: dict[str, Any]) -> bool:
    """Does the template leave thinking on?"""
    return (body.get("chat_template_kwargs") or {}).get("enable_thinking") is not False


def calls(body: dict[str, Any], prompt: str) -> bool:
    """Is the tool there that is to be used?"""
    names = [tool["function"]["name"] for tool in body.get("tools") or []]
    return CALL[0] in names and "Use the tool" in prompt


def message_of(
    tokens: list[str], limit: int, *, thought: str, parsed: bool, call: str
) -> tuple[dict[str, Any], str, int]:
    """Return (the message, why it ended, its tokens).

    thought: what comes before the answer; parsed: whether it is parted from it. call: arguments in place of an answer.
    """
    before = tokens_of(thought) if thought else []
    said, why = [*before, *tokens], "stop"
    if len(said) > limit:
        said, why = said[:limit], "length"
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said[len(before) :])}
    if thought and parsed:
        message["reasoning"] = "".join(said[: len(before)])
        message["content"] = message["content"] or None
    elif thought:
        end = "</think>\n\n" if len(said) > len(before) else ""
        message["content"] = "<think>" + "".join(said[: len(before)]) + end + message["content"]
    if call and why == "stop":
        function = {"name": CALL[0], "arguments": call}
        message |= {"content": None, "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}
        why = "tool_calls"
    return message, why, len(said)


def deltas_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the message in the pieces in which a stream brings it: tokens, and a call a few characters at a time."""
    deltas: list[dict[str, Any]] = [
        {key: token}
        for key in ("reasoning", "content")
        if message.get(key) is not None
        for token in tokens_of(message[key])
    ]
    for index, call in enumerate(message.get("tool_calls") or []):
        arguments, empty = call["function"]["arguments"], {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": empty}]})
        pieces = (arguments[begin : begin + 5] for begin in range(0, len(arguments), 5))
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
    return deltas


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def broken(arguments: str) -> str:
    return json.dumps(json.loads(arguments))[:-4]
