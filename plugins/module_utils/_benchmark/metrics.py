# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures from the requests of a load generator, as docs/benchmarks.md defines them. Pure, for any generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .completeness import lack

_DECIMALS = 4


@dataclass(frozen=True)
class RequestRecord:
    """One request. Times are seconds of one clock of the client.

    :param first_text_s: when the first text came; None if none came.
    :param last_text_s: when the last text came.
    :param wanted_tokens: how many completion tokens were asked for.
    :param wanted_prompt: how many tokens the prompt should have.
    :param error: why it failed; empty for a complete answer.
    """

    started_s: float
    first_text_s: float | None
    last_text_s: float | None
    ended_s: float
    prompt_tokens: int
    completion_tokens: int
    wanted_tokens: int
    wanted_prompt: int
    error: str = ""

    @property
    def lack(self) -> str:
        """The part of the answer that was asked for and is missing."""
        return lack(
            (self.wanted_prompt, self.wanted_tokens),
            (self.prompt_tokens, self.completion_tokens),
            (self.started_s, self.first_text_s, self.last_text_s, self.ended_s),
        )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at a share of 0 to 1, interpolated between neighbours (numpy's and Excel's default)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return mean and percentiles; None if there is no value."""
    if not values:
        return None
    found = {"mean": sum(values) / len(values)}
    found.update({f"p{round(share * 100)}": percentile(values, share) for share in (0.5, 0.95, 0.99)})
    return {name: round(value, _DECIMALS) for name, value in found.items()}


def request_decode(records: Sequence[RequestRecord]) -> float | None:
    """Return the tokens per second of one request after its first text, over all of them.

    The times are added up before the division. Otherwise an answer whose text reaches a late client in one piece would
    count as infinitely fast.
    """
    streamed = [record for record in records if record.first_text_s is not None and record.completion_tokens > 1]
    seconds = sum(record.ended_s - record.first_text_s for record in streamed if record.first_text_s is not None)
    return sum(record.completion_tokens - 1 for record in streamed) / seconds if seconds > 0 else None


def token_gap(record: RequestRecord) -> float | None:
    """Return the mean seconds between the tokens of one request."""
    if record.first_text_s is None or record.last_text_s is None or record.completion_tokens < 2:
        return None
    return (record.last_text_s - record.first_text_s) / (record.completion_tokens - 1)


def summary(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Return the figures of one scenario. A failed request counts as failed and in nothing else.

    A figure that the requests do not give is None, so that nobody reads it as zero.
    """
    good = [record for record in records if not record.error]
    found: dict[str, Any] = {
        "requests": len(records),
        "failed": len(records) - len(good),
        "errors": dict(Counter(record.error for record in records if record.error)),
        "lacking": dict(Counter(record.lack for record in good if record.lack)),
        "prompt_tokens": sum(record.prompt_tokens for record in good),
        "completion_tokens": sum(record.completion_tokens for record in good),
    }
    begun = min((record.started_s for record in good), default=0.0)
    ended = max((record.ended_s for record in good), default=0.0)
    first = min((record.first_text_s for record in good if record.first_text_s is not None), default=None)
    after = None if first is None else ended - first
    return {
        **found,
        "wall_s": _rounded(ended - begun if good else None),
        "wall_tok_s": _share(found["completion_tokens"], ended - begun if good else None),
        "decode_tok_s": _share(found["completion_tokens"], after),
        "request_decode_tok_s": _rounded(request_decode(good)),
        "ttft_s": spread(
            [record.first_text_s - record.started_s for record in good if record.first_text_s is not None]
        ),
        "itl_s": spread([gap for gap in map(token_gap, good) if gap is not None]),
        "request_s": spread([record.ended_s - record.started_s for record in good]),
    }


def _share(tokens: int, seconds: float | None) -> float | None:
    return round(tokens / seconds, _DECIMALS) if seconds else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
