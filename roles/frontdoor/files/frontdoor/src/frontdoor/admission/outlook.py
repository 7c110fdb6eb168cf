# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time until a permit is free for a refused client, by the latest generations. Pure: times are passed in."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

# The longest Retry-After that official clients honour: openai-node up to 60 s (7.5.0, `retryRequest` in src/client.ts),
# and openai-python up to 120 s, beyond which it gives up at once (2.52.0 and later, `MAX_RETRY_AFTER_DELAY`; 60 s
# before). Where the wait is longer, a client that comes back in time and is told again stays.
MAX_RETRY_AFTER_S = 60
# by how much of a wait those who wait are spread
_SPREAD = 0.25
# generations that are remembered
_KEPT = 64
# where nothing is known of any
_GUESS_S = 1.0
# for how long what runs counts as it was seen
_FRESH_S = 0.25
# places that are kept in mind for those who were sent away
_MOST_TOLD = 4096


@functools.cache
def _window(seconds: int) -> range:
    earliest = max(1, min(seconds, int(MAX_RETRY_AFTER_S / (1 + _SPREAD))))
    latest = min(MAX_RETRY_AFTER_S, max(earliest, seconds) + max(1, int(seconds * _SPREAD)))
    return range(earliest, latest + 1)


def told_s(seconds: int, spread: float) -> int:
    """Return the seconds for a client to wait: spread, so that not all come at once, and within what clients honour.

    `spread` is from 0 to 1, without the 1, and another one each time.
    """
    window = _window(seconds if seconds < MAX_RETRY_AFTER_S else MAX_RETRY_AFTER_S)
    return window[int(spread * len(window))]


def remaining_s(age_s: float, lasted: Sequence[float]) -> float:
    """Return how much longer a generation will probably run: as those did that ran longer, or else as long again."""
    longer = [one - age_s for one in lasted if one > age_s]
    return fmean(longer) if longer else age_s


def turns_s(running: Iterable[tuple[float, int]], limit: int, lasted: Sequence[float]) -> list[float]:
    """Return in how many seconds each permit will be free, soonest first.

    `running` has the age of each generation, and how many permits it holds.
    """
    held = [remaining_s(age, lasted) for age, permits in running for _place in range(permits)]
    return sorted([0.0] * (limit - len(held)) + held)[:limit]


def turn_s(turns: Sequence[float], ahead: int, permits: int, typical_s: float) -> float:
    """Return the seconds until so many permits are free at once, after `ahead` others are taken one after the other."""
    rounds, at = divmod(ahead + permits - 1, len(turns))
    return turns[at] + rounds * typical_s


class Outlook:
    """Gives each one that is sent away a time of its own, as if they stood in line.

    Who comes back too early on the same connection is told the rest of it, and takes no other's.
    """

    def __init__(self) -> None:
        self._lasted: deque[float] = deque(maxlen=_KEPT)
        self.forget()

    def lasted(self, seconds: Iterable[float]) -> None:
        """Note how long generations held their permits."""
        self._lasted.extend(seconds)

    def forget(self) -> None:
        """Forget how long generations took: another engine takes its own time."""
        self._lasted.clear()
        # by connection: when it was told to come back, and how many permits it needs
        self._told: dict[int, tuple[float, int]] = {}
        self._ahead = 0
        self._turns: list[float] = []
        self._typical_s = _GUESS_S
        self._seen = 0.0
        #: until when nobody who needs one permit is given a time of its own, since there are too many
        self.crowded_until = 0.0

    def wait_s(
        self,
        now: float,
        who: int,
        permits: int,
        queued: int,
        limit: int,
        running: Callable[[], list[tuple[float, int]]],
    ) -> float:
        """Return in how many seconds a client should ask again for so many permits, behind those in the queue.

        `running` is asked now and then.
        """
        if not self._turns or not 0 <= now - self._seen < _FRESH_S or len(self._turns) != limit:
            ages = running()
            self._turns, self._seen = turns_s(ages, limit, self._lasted), now
            self._typical_s = fmean(self._lasted) if self._lasted else max([_GUESS_S, *(age for age, _places in ages)])
            # clients whose time has come are expected no more
            self._told = {one: told for one, told in self._told.items() if told[0] > now}
            self._ahead = sum(permits for _at, permits in self._told.values())
        at, _permits = self._told.get(who, (now, 0))
        if at > now:
            return at - now
        wait = turn_s(self._turns, self._ahead + queued, permits, self._typical_s) - (now - self._seen)
        wait = max(1.0, wait)
        if wait < MAX_RETRY_AFTER_S and len(self._told) < _MOST_TOLD:
            self._told[who] = now + wait, permits
            self._ahead += permits
        elif permits == 1:
            self.crowded_until = self._seen + _FRESH_S
        return wait
