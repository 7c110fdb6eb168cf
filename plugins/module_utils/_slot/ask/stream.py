# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A chat completion that comes as a stream of events, joined as clients join it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Members of a request whose answer is a stream that ends with the number of its tokens.
STREAMED: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
DONE = "[DONE]"
_TEXTS = ("content", "reasoning", "reasoning_content")


def joined(text: str) -> tuple[dict[str, Any], str]:
    """Return (the completion as one document, why no client can rely on the stream or "").

    Raise ValueError, LookupError, TypeError or AttributeError if an event is no chunk of a chat completion.
    """
    parts: dict[str, list[str]] = {key: [] for key in _TEXTS}
    calls: dict[int, dict[str, str]] = {}
    usage: Mapping[str, Any] = {}
    finish, events, done = "", 0, False
    # Not splitlines: JSON may hold characters that it takes for the end of a line.
    for line in text.split("\n"):
        data = line[5:].strip() if line.startswith("data:") else ""
        if not data:
            continue
        if data == DONE:
            done = True
            break
        event = json.loads(data)
        if event.get("error"):
            return {}, f"the stream ended in an error: {json.dumps(event['error'])[:200]}"
        events += 1
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            for key in _TEXTS:
                parts[key].append(delta.get(key) or "")
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(int(part["index"]), {"name": "", "arguments": ""})
                for key, value in (part.get("function") or {}).items():
                    call[key] = call.get(key, "") + (value or "")
    message: dict[str, Any] = {key: "".join(texts) for key, texts in parts.items() if any(texts)}
    if calls:
        message["tool_calls"] = [{"type": "function", "function": calls[index]} for index in sorted(calls)]
    whole = {"choices": [{"message": message, "finish_reason": finish}], "usage": dict(usage)}
    if not events:
        return {}, "the answer did not come as the stream that was asked for"
    return whole, _lacks(done, finish, usage)


def _lacks(done: bool, finish: str, usage: Mapping[str, Any]) -> str:
    if not done:
        return f"the stream ended without {DONE}"
    if not finish:
        return "the stream ended without a finish_reason"
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
    if not all(isinstance(count, int) and count > 0 for count in counts):
        return "the stream did not tell its usage, which stream_options.include_usage asks for"
    return ""
