# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the engine now and then whether it is there."""

from __future__ import annotations

from collections.abc import Callable

from frontdoor.http.fetch import Fetch, Fetched
from frontdoor.http.upstream import Pool
from frontdoor.slot.health import EngineHealth

_TIMEOUT_S = 2.0


class Probe:
    """Asks /health, unless the engine has answered somebody meanwhile.

    Nobody who listens means that there is no engine. Silence does not, for a while: a busy engine may be slow to
    answer. One that has sent no byte to anybody for `silence_limit_s` is taken for hung.
    """

    def __init__(self, pool: Pool, health: EngineHealth, clock: Callable[[], float], silence_limit_s: float) -> None:
        self._pool = pool
        self._health = health
        self._clock = clock
        self._limit_s = silence_limit_s
        self._heard_before = 0
        self._fetch: Fetch | None = None
        # when a question was asked that is not answered yet, nor has anything else come since
        self._silent_since: float | None = None

    @property
    def silent_s(self) -> float | None:
        """For how long an engine that accepts connections has sent nothing; None while it is not known to be silent."""
        return None if self._silent_since is None else self._clock() - self._silent_since

    def run(self) -> None:
        """Ask, unless the engine is well, or the last question is still open."""
        well = self._heard_of_it() and self._health.reachable
        if not well and not (self._fetch and self._fetch.running):
            self._ask()

    def again(self) -> None:
        """Forget what was known, since another engine may run now, and ask at once."""
        self.stop()
        self._heard_of_it()
        self._silent_since = None
        self._ask()

    def stop(self) -> None:
        """Give up on the open question."""
        if self._fetch is not None:
            self._fetch.client_gone()

    def _ask(self) -> None:
        url, asked = self._pool.url, self._clock()
        self._fetch = Fetch(self._pool, "/health", lambda got: self._heard(url, asked, got), timeout_s=_TIMEOUT_S)
        self._fetch.start()

    def _heard_of_it(self) -> bool:
        """Whether the engine has sent anything to anybody since the last call."""
        before, self._heard_before = self._heard_before, self._health.heard
        if before == self._heard_before:
            return False
        self._silent_since = None
        return True

    def _heard(self, url: str, asked: float, got: Fetched) -> None:
        if url != self._pool.url:
            return
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
