# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what a model thinks from its answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.profile import Reasoning

CUT = "the answer was cut off inside its reasoning"
_ALOUD = "it thinks in the answer; engine.reasoning of the profile says how a model thinks"


def thought_of(message: Mapping[str, Any]) -> str:
    """Return what the engine gives beside the answer: `reasoning` since vLLM 0.12, `reasoning_content` before."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def answer_of(message: Mapping[str, Any], finish_reason: str, reasoning: Reasoning | None) -> tuple[str, str]:
    """Return the answer without the thoughts, and why there is none or an empty text.

    A call of a tool is an answer without a text. A template may have written the opening tag itself: the text before a
    closing tag is a thought also without it.
    """
    text, how = str(message.get("content") or ""), "" if reasoning is None else reasoning.how
    opening, closing = Reasoning.tags if reasoning is None else reasoning.tags
    called, thought = bool(message.get("tool_calls")), thought_of(message)
    if how == "inline":
        _thought, tag, after = text.partition(closing)
        if tag:
            return after, ""
        if opening in text or (finish_reason == "length" and not called):
            return "", _cut(reasoning, finish_reason)
        return text, ""
    if text.lstrip().startswith(opening):
        return text, "" if text.strip() == opening + closing else _ALOUD
    if not text.strip() and not called and thought:
        return "", _cut(reasoning, finish_reason) if finish_reason == "length" else "it thought and answered nothing"
    return text, ""


def _cut(reasoning: Reasoning | None, finish_reason: str) -> str:
    if finish_reason != "length":
        return "its reasoning ends without an answer"
    room = 0 if reasoning is None else reasoning.room
    hint = f"engine.reasoning.budget_tokens is {room}" if room else "engine.reasoning of the profile gives it no room"
    return f"{CUT}; {hint}"
