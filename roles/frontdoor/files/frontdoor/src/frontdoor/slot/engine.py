# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine, as the frontdoor sees it: whether it answers, and how fast it generates by its own count."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from frontdoor.http.fetch import Fetched, fetch
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


class _Asker:
    """Asks the engine one question at a time, and drops the answer of one that was replaced meanwhile."""

    def __init__(self, pool: Pool, health: EngineHealth, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._health = health
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._heard_before = -1

    def stop(self) -> None:
        """Give up on the open question."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _ask(self, path: str) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(path))

    async def _run(self, path: str) -> None:
        url, asked = self._pool.url, self._clock()
        got = await fetch(self._pool, path, _TIMEOUT_S)
        self._task = None
        if url == self._pool.url:
            self._answered(asked, got)

    def _answered(self, asked: float, got: Fetched) -> None:
        """Take the answer to a question that was asked then."""
        raise NotImplementedError


class Probe(_Asker):
    """Asks /health, unless the engine has answered somebody meanwhile.

    Nobody who listens means that there is no engine. Silence does not, for a while: a busy engine may be slow to
    answer. One that has sent no byte to anybody for `silence_limit_s` is taken for hung.
    """

    def __init__(self, pool: Pool, health: EngineHealth, clock: Callable[[], float], silence_limit_s: float) -> None:
        super().__init__(pool, health, clock)
        self._limit_s = silence_limit_s
        # when a question was asked that is not answered yet, nor has anything else come since
        self._silent_since: float | None = None

    @property
    def silent_s(self) -> float | None:
        """For how long an engine that accepts connections has sent nothing; None while it is not known to be silent."""
        return None if self._silent_since is None else self._clock() - self._silent_since

    def run(self) -> None:
        """Ask, unless the engine is well, or the last question is still open."""
        well = self._heard_of_it() and self._health.reachable
        if not well and self._task is None:
            self._ask("/health")

    def again(self) -> None:
        """Forget what was known, since another engine may run now, and ask at once."""
        self.stop()
        self._heard_of_it()
        self._silent_since = None
        self._ask("/health")

    def _heard_of_it(self) -> bool:
        """Whether the engine has sent anything to anybody since the last call."""
        before, self._heard_before = self._heard_before, self._health.heard
        if before == self._heard_before:
            return False
        self._silent_since = None
        return True

    def _answered(self, asked: float, got: Fetched) -> None:
        if got.status:
            self._silent_since = None
            alive = got.status < 500
            self._health.note(alive, "" if alive else f"/health answered {got.status}")
        elif not got.timed_out:
            self._silent_since = None
            self._health.note(False, got.error)
        elif not self._heard_of_it():
            if self._silent_since is None:
                self._silent_since = asked
            silent = self._clock() - self._silent_since
            hung = silent >= self._limit_s
            self._health.note(not hung, f"it has sent nothing for {silent:.0f} s" if hung else "")


class Vitals(_Asker):
    """Asks the engine's /metrics now and then, while it has something to do."""

    def __init__(self, pool: Pool, health: EngineHealth, clock: Callable[[], float], active: Callable[[], int]) -> None:
        """`active` tells how many generations run."""
        super().__init__(pool, health, clock)
        self._active = active
        self._before: tuple[float, float] | None = None
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
        if not idle and self._task is None:
            self._heard_before = self._health.heard
            self._ask("/metrics")

    def forget(self) -> None:
        """What is known is of an engine that is not there any more."""
        self.stop()
        self._before = self.tokens_per_s = self.cache_used = None

    def _answered(self, asked: float, got: Fetched) -> None:
        if got.status != 200:
            # what it was before it fell silent is not what it is
            self.tokens_per_s = self.cache_used = None
            return
        now, tokens = self._clock(), values_of(_TOKENS, got.body)
        total = sum(tokens) if tokens else None
        self.cache_used = max(values_of(_CACHE, got.body), default=None)
        before, self._before = self._before, None if total is None else (now, total)
        if total is None or before is None or total < before[1]:
            # the engine does not count, or has begun anew
            self.tokens_per_s = None
        elif now > before[0]:
            self.tokens_per_s = (total - before[1]) / (now - before[0])
