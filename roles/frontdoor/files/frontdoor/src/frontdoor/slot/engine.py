# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine, as the frontdoor sees it: whether it answers, and how fast it generates by its own count."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from frontdoor.http.fetch import Fetched, fetch
from frontdoor.http.upstream import Pool
from frontdoor.observability.events import EventLog

_TIMEOUT_S = 2.0
# of an engine whose slot does not say how its metrics are named
_METRICS = {"tokens": "vllm:generation_tokens_total", "cache": "vllm:kv_cache_usage_perc"}


def values_of(name: str, text: bytes) -> list[float]:
    """Return a metric's values, one for each set of labels of data-parallel engines; empty where it is missing."""
    if not name:
        return []
    rows = rb"^%s(?:\{[^}\n]*\})? ([0-9.eE+-]+)$" % re.escape(name.encode())
    try:
        return [float(found) for found in re.findall(rows, text, re.MULTILINE)]
    except ValueError:
        return []


class EngineHealth:
    """The last known contact with the engine, or attempt at one."""

    def __init__(self, events: EventLog, changed: Callable[[], None] = lambda: None) -> None:
        """Take `changed`, which is called when the engine first answers, or no longer does."""
        self._events = events
        self._changed = changed
        #: its index, where the slot has several
        self.replica: int | None = None
        #: None while nothing is known
        self.reachable: bool | None = None
        self.error = ""
        #: answers that began well and reads of streams; anybody can tell whether there were more since the last look
        self.heard = 0

    def note(self, reachable: bool, error: str = "") -> None:
        """Note that the engine did or did not answer."""
        before, self.reachable, self.error = self.reachable, reachable, error
        if reachable is not before:
            which = {} if self.replica is None else {"replica": self.replica}
            self._events.emit("engine_reachable" if reachable else "engine_unreachable", error=error, **which)
            self._changed()

    def forget(self) -> None:
        """Forget the engine: another one may run now."""
        self.reachable, self.error = None, ""


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

    def _heard(self) -> bool:
        """Tell whether the engine has sent anything to anybody since the last call."""
        before, self._heard_before = self._heard_before, self._health.heard
        return before != self._heard_before

    def _ask(self, path: str, answered: Callable[[float, Fetched], None]) -> None:
        """Ask; the answer is told with the time at which it was asked for."""

        async def run() -> None:
            url, asked = self._pool.url, self._clock()
            got = await fetch(self._pool, path, _TIMEOUT_S)
            self._task = None
            if url == self._pool.url:
                answered(asked, got)

        self._task = asyncio.get_running_loop().create_task(run())


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

    @property
    def hung_s(self) -> float | None:
        """The same of an engine that is taken for hung; None of any other."""
        return self.silent_s if self._health.reachable is False else None

    def run(self) -> None:
        """Ask, unless the engine is well, or the last question is still open."""
        heard = self._heard()
        if heard:
            self._silent_since = None
        if not (heard and self._health.reachable) and self._task is None:
            self._ask("/health", self._answered)

    def again(self) -> None:
        """Forget what was known, since another engine may run now, and ask at once."""
        self.stop()
        self._heard()
        self._silent_since = None
        self._ask("/health", self._answered)

    def _answered(self, asked: float, got: Fetched) -> None:
        silent = got.timed_out and not got.status and not self._heard()
        if not silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = asked
        if got.status:
            alive = got.status < 500
            self._health.note(alive, "" if alive else f"/health answered {got.status}")
        elif not got.timed_out:
            self._health.note(False, got.error)
        elif self.silent_s is not None:
            hung = self.silent_s >= self._limit_s
            self._health.note(not hung, f"it has sent nothing for {self.silent_s:.0f} s" if hung else "")


class Vitals(_Asker):
    """Asks the engine's /metrics now and then, while it has something to do."""

    def __init__(
        self,
        pool: Pool,
        health: EngineHealth,
        clock: Callable[[], float],
        active: Callable[[], int],
        engine: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        """Take `active`, which tells how many generations run, and `engine`, with the slot's words about the engine."""
        super().__init__(pool, health, clock)
        self._active = active
        self._engine = engine
        self.forget()

    def run(self) -> None:
        """Ask, unless the engine is not there, has had nothing to do, or has not answered yet."""
        if not self._health.reachable:
            self.forget()
        elif self._task is None and (self._active() or self._heard() or self.tokens_per_s):
            self._heard()
            self._ask("/metrics", self._answered)

    def forget(self) -> None:
        """Forget the figures of an engine that is gone."""
        self.stop()
        self._before: tuple[float, float] | None = None
        #: None: the engine does not say
        self.tokens_per_s: float | None = None
        #: share of the engine's cache that is in use, from 0 to 1; of several engines the fullest counts
        self.cache_used: float | None = None

    def _answered(self, _asked: float, got: Fetched) -> None:
        before = self._before
        # the rate from before a silence, or a new count, does not hold any more
        pace, self.tokens_per_s, self.cache_used = self.tokens_per_s, None, None
        if got.status != 200:
            return
        names = (self._engine() or {}).get("metrics") or _METRICS
        self.cache_used = max(values_of(names["cache"], got.body), default=None)
        tokens = values_of(names["tokens"], got.body)
        now, total = self._before = self._clock(), sum(tokens)
        if not tokens:
            self._before = None
        elif before is not None and total >= before[1]:
            passed = now - before[0]
            self.tokens_per_s = (total - before[1]) / passed if passed > 0 else pace
