# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the length to try next. Pure: trials in, a length or the answer out.

An engine with a longer context never has room for fewer tokens in its cache: if the length changes the memory of the
cache at all, it is through blocks that grow with the length. So a trial that fails with T tokens also excludes every
shorter length above T / target. The rest is searched along the line through the two nearest trials, which is exact if
the tokens are constant. If that is too slow, the interval is halved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SLOW = 3  # trials in a row on one side, after which the interval is halved


@dataclass(frozen=True)
class Trial:
    """One start of the engine.

    :param kv_tokens: tokens that its cache has room for; None if the engine did not start with this length.
    :param concurrency: sequences of full length that fit, as the engine says.
    :param most: the longest length that would fit, as the engine says, if it did not start.
    :param probes: the figures of the requests that were sent to it, by name.
    :param problem: why it does not pass although the engine says that there is room.
    """

    length: int
    kv_tokens: int | None
    concurrency: float
    most: int | None = None
    seconds: float = 0.0
    probes: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def passes(self, target: int) -> bool:
        return self.concurrency >= target and not self.problem


@dataclass(frozen=True)
class SearchEnd:
    """The end of the search. length: the largest that passes; None if none does."""

    length: int | None


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest length. Both may be tried, but only multiples of the granularity."""

    least: int
    most: int


def next_length(trials: Sequence[Trial], target: int, granularity: int, bounds: Bounds) -> int | SearchEnd:
    """Return the length to try now, or what was found. The first length is the largest."""
    least, most = _up(bounds.least, granularity), _down(bounds.most, granularity)
    if least > most:
        return SearchEnd(None)
    if not trials:
        return most
    passed = [trial for trial in trials if trial.passes(target)]
    failed = [trial for trial in trials if not trial.passes(target)]
    low = max((trial.length for trial in passed), default=least - granularity)
    high = min((_excluded(trial, target, granularity) for trial in failed), default=most)
    high = min(high, most)
    if low >= high:
        return SearchEnd(low if passed else None)
    guess = None if _stuck(trials, target) else _crossing(trials, target)
    if guess is None:
        guess = (low + high + granularity) / 2
    return min(max(_down(guess, granularity), low + granularity), high)


def _excluded(trial: Trial, target: int, granularity: int) -> int:
    """Return the longest length that a failed trial leaves possible."""
    high = trial.length - granularity
    if trial.kv_tokens is not None:
        high = min(high, _down(trial.kv_tokens / target, granularity))
    if trial.most is not None:
        high = min(high, _down(trial.most / target, granularity))
    return high


def _crossing(trials: Sequence[Trial], target: int) -> float | None:
    """Return where the tokens are just enough, on the line through the nearest trials; None if it does not tell."""
    known = sorted((trial.length, trial.kv_tokens) for trial in trials if trial.kv_tokens is not None)
    if not known:
        return None
    above = [point for point in known if point[1] < target * point[0]]
    below = [point for point in known if point[1] >= target * point[0]]
    near = [*below[-1:], *above[:1]] if below and above else (above[:2] or below[-2:])
    if len(near) < 2:
        return near[0][1] / target
    (left, left_tokens), (right, right_tokens) = near
    slope = (right_tokens - left_tokens) / (right - left)
    if slope >= target:
        return None
    return (left_tokens - slope * left) / (target - slope)


def _stuck(trials: Sequence[Trial], target: int) -> bool:
    last = [trial.passes(target) for trial in trials[-SLOW:]]
    return len(last) == SLOW and len(set(last)) == 1


def _down(length: float, granularity: int) -> int:
    return math.floor(length / granularity) * granularity


def _up(length: int, granularity: int) -> int:
    return -_down(-length, granularity)
