# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streamed generations, and the figures of several at once. Pure.

The definitions are those of the lab's records: the first token is the first non-empty text, and the rate is the tokens
of all answers divided by the time from the first request to the last answer.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._slot.ask.canary import shown
from .._slot.words.types import Reply

_TEXTS = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True)
class Generated:
    """One generation. first_s: seconds to the first text; None if none came, although tokens were counted."""

    prompt_tokens: int
    output_tokens: int
    first_s: float | None


def generated(reply: Reply) -> Generated:
    """Return what a stream says; raise ValueError, with what came instead, if it is no generation with tokens."""
    usage: Mapping[str, Any] = {}
    first: int | None = None
    last = reply.text
    for end, event in _events(reply.text) if reply.status == 200 else ():
        last = json.dumps(event)
        usage = event.get("usage") or usage
        if first is None and any(_has_text(choice) for choice in event.get("choices") or ()):
            first = end
    tokens = usage.get("completion_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise ValueError(reply.error or f"{reply.status} {last}")
    return Generated(int(usage.get("prompt_tokens") or 0), tokens, None if first is None else _at(reply, first))


def _events(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each event of the stream, with the number of bytes up to its end."""
    end = 0
    for line in text.split("\n"):
        end += len(line.encode()) + 1
        try:
            event = json.loads(line.removeprefix("data:"))
        except ValueError:
            continue  # an empty line, [DONE] or a comment
        if isinstance(event, dict):
            yield end, event


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return any([choice.get("text"), *(delta.get(key) for key in _TEXTS)])


def _at(reply: Reply, end: int) -> float | None:
    """Return when this many bytes had arrived."""
    place = bisect_left([received for _seconds, received in reply.arrivals], end)
    return reply.arrivals[place][0] if place < len(reply.arrivals) else None


def figures(replies: Sequence[tuple[Reply, float]], wall_s: float) -> dict[str, Any]:
    """Return the figures of requests that were sent at once. A request fails if its answer has no tokens to count."""
    whole: list[tuple[Generated, float]] = []
    errors: list[str] = []
    for reply, took in replies:
        try:
            whole.append((generated(reply), took))
        except ValueError as error:
            errors.append(str(error))
    output = sum(one.output_tokens for one, _took in whole)
    first = [one.first_s for one, _took in whole if one.first_s is not None]
    return {
        "requests": len(replies),
        "failed": len(errors),
        "error": shown(errors[0]) if errors else "",
        "prompt_tokens": sum(one.prompt_tokens for one, _took in whole),
        "output_tokens": output,
        "mean_ttft_s": round(statistics.mean(first), 3) if first else None,
        "wall_s": round(wall_s, 3),
        "tok_s": round(output / wall_s, 2) if wall_s > 0 else 0.0,
        "slowest_s": round(max(took for _one, took in whole), 3) if whole else None,
    }
