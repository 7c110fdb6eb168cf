# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The missing part of a measurement: a measurement that lacks something has failed. Pure.

A figure that can be had for nothing is worse than none, because later figures are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# A tokenizer's own marks, and a prompt that is cut from tokens, written as text and counted again.
_PROMPT_SHARE, _PROMPT_TOKENS = 0.1, 8


def lack(asked: tuple[int, int], counted: tuple[int, int], times: Sequence[float | None]) -> str:
    """Return what an answer lacks; empty if it lacks nothing.

    :param asked: tokens of the prompt and of the answer.
    :param counted: the same as the engine counted them, or the tokenizer where the engine does not.
    :param times: the start, the first text, the last text and the end, of one clock.
    """
    moments = [moment for moment in times if moment is not None]
    if len(moments) < len(times):
        return "no first text"
    if moments != sorted(moments) or moments[0] == moments[-1]:
        return "times that do not follow each other"
    if abs(counted[0] - asked[0]) > max(_PROMPT_TOKENS, _PROMPT_SHARE * asked[0]) or counted[0] < 1:
        return f"{counted[0]} tokens in the prompt, not {asked[0]}"
    return "" if counted[1] == asked[1] else f"{counted[1]} tokens in the answer, not {asked[1]}"


def others(found: Mapping[str, Any] | None) -> str:
    """Return why requests of other clients make figures worthless, or "".

    :param found: their generations before (`active`), and their requests meanwhile (`requests`).
    """
    if not found or not all(isinstance(found.get(key), int) for key in ("active", "requests")):
        return "the frontdoor's /status did not tell whether other clients use the host"
    if found["active"] or found["requests"]:
        return (
            f"other clients use the host ({found['active']} generations before, {found['requests']} requests "
            "meanwhile), so this can't be judged: measure when no other client sends requests"
        )
    return ""


def between(before: Mapping[str, Any], after: Mapping[str, Any], sent: int) -> dict[str, Any]:
    """Return what `others` reads, from two parts `frontdoor` of /status and the number of own requests between them."""
    first, last = (door.get("total_generation_requests") for door in (before, after))
    counted = last - first - sent if isinstance(first, int) and isinstance(last, int) else None
    # A frontdoor that was restarted counts anew.
    again = before.get("started_at") != after.get("started_at")
    return {"active": before.get("active_generations"), "requests": None if again else counted}


def lacks(name: str, asked: int, figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the figures of one scenario lack, a sentence each. asked: the number of requests."""
    total, failed = figures["requests"], figures["failed"]
    if failed:
        reasons = "; ".join(f"{count} x {text}" for text, count in figures["errors"].items())
        yield f"{name}: {failed} of {total} requests failed ({reasons})"
    if total != asked:
        yield f"{name}: {total} of {asked} requests are in the report"
    for what, count in figures["lacking"].items():
        yield f"{name}: {count} of {total} answers have {what}"
