# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The use of each API key in the current minute and day, and its limits. Pure code: no clock, no I/O."""

from __future__ import annotations

from typing import NamedTuple

from frontdoor.policy.keys import KeyLimits

_MINUTE_S, _DAY_S = 60, 24 * 60 * 60


_REQUESTS = (("requests_per_minute", _MINUTE_S), ("requests_per_day", _DAY_S))
_TOKENS = (("tokens_per_minute", _MINUTE_S), ("tokens_per_day", _DAY_S))


class Exceeded(NamedTuple):
    """A limit that is reached, and in how many seconds it is no longer."""

    name: str
    limit: int
    left_s: float


class Quotas:
    """Counts in whole minutes and days (UTC); times are seconds since 1970.

    A request counts when it is let in, its tokens when it has ended. So the last one before a limit may exceed it.
    """

    def __init__(self) -> None:
        # by key and limit: the number of the minute or day, and what was used in it
        self._used: dict[tuple[str, str], tuple[int, int]] = {}

    def requested(self, key: str, now: float, number: int = 1) -> None:
        """Count requests; a number below 0 takes some back."""
        self._add(key, _REQUESTS, now, number)

    def spent(self, key: str, now: float, tokens: int) -> None:
        """Count tokens."""
        self._add(key, _TOKENS, now, tokens)

    def _add(self, key: str, windows: tuple[tuple[str, int], ...], now: float, number: int) -> None:
        for name, seconds in windows:
            self._used[key, name] = int(now // seconds), max(0, self._of(key, name, seconds, now) + number)

    def _of(self, key: str, name: str, seconds: int, now: float) -> int:
        window, used = self._used.get((key, name), (0, 0))
        return used if window == int(now // seconds) else 0

    def exceeded(self, key: str, limits: KeyLimits, now: float) -> Exceeded | None:
        """Return the limit that the key has reached and has to wait for longest; None while it may ask."""
        found: Exceeded | None = None
        for name, seconds in (*_REQUESTS, *_TOKENS):
            limit = int(getattr(limits, name))
            if limit and self._of(key, name, seconds, now) >= limit:
                one = Exceeded(name, limit, seconds - now % seconds)
                found = one if found is None or one.left_s > found.left_s else found
        return found
