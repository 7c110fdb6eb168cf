# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the engine generates, by its own count: a read of a stream may hold several tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

from frontdoor.http.fetch import Fetch, Fetched
from frontdoor.http.upstream import Pool
from frontdoor.slot.health import EngineHealth

_TIMEOUT_S = 2.0
_TOKENS = re.compile(rb"^vllm:generation_tokens_total(?:\{[^}\n]*\})? ([0-9.eE+]+)$", re.MULTILINE)
_CACHE = re.compile(rb"^vllm:kv_cache_usage_perc(?:\{[^}\n]*\})? ([0-9.eE+-]+)$", re.MULTILINE)


def values_of(pattern: re.Pattern[bytes], text: bytes) -> list[float]:
    """A metric by its labels, of which data-parallel engines have one set each; empty where it is not there."""
    try:
        return [float(found) for found in pattern.findall(text)]
    except ValueError:
        return []


class Vitals:
    """Asks the engine's /metrics now and then, while it has something to do."""

    def __init__(self, pool: Pool, health: EngineHealth, clock: Callable[[], float], active: Callable[[], int]) -> None:
        """`active` tells how many generations run."""
        self._pool = pool
        self._health = health
        self._clock = clock
        self._active = active
        self._fetch: Fetch | None = None
        self._heard_before = -1
        self._before: tuple[str, float, float] | None = None
        #: None: the engine does not say
        self.tokens_per_s: float | None = None
        #: share of the engine's cache that is in use, from 0 to 1; of several engines the fullest counts
        self.cache_used: float | None = None

    def run(self) -> None:
        """Ask, unless the engine is not there, has had nothing to do, or has not answered yet."""
        if not self._health.reachable:
            self.forget()
            return
        idle = self._active() == 0 and self._heard_before == self._health.heard and not self.tokens_per_s
        if not idle and not (self._fetch and self._fetch.running):
            self._heard_before = self._health.heard
            url = self._pool.url
            self._fetch = Fetch(self._pool, "/metrics", lambda got: self._heard(url, got), timeout_s=_TIMEOUT_S)
            self._fetch.start()

    def stop(self) -> None:
        """Give up on the open question."""
        if self._fetch is not None:
            self._fetch.client_gone()

    def forget(self) -> None:
        """What is known is of an engine that is not there any more."""
        self.stop()
        self._before = self.tokens_per_s = self.cache_used = None

    def _heard(self, url: str, got: Fetched) -> None:
        if url != self._pool.url:
            return
        if got.status != 200:
            # what it was before it fell silent is not what it is
            self.tokens_per_s = self.cache_used = None
            return
        now = self._clock()
        tokens = values_of(_TOKENS, got.body)
        total = sum(tokens) if tokens else None
        self.cache_used = max(values_of(_CACHE, got.body), default=None)
        before, self._before = self._before, None if total is None else (url, now, total)
        if total is None or before is None or before[0] != url or total < before[2]:
            # the engine does not count, or has begun anew
            self.tokens_per_s = None
        elif now > before[1]:
            self.tokens_per_s = (total - before[2]) / (now - before[1])
