# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the engine now and then whether it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontdoor.fetch import Fetch, Fetched

if TYPE_CHECKING:
    from frontdoor.door import Door

_TIMEOUT_S = 2.0


class Probe:
    """Asks /health, unless the engine has answered somebody meanwhile.

    Nobody who listens means that there is no engine. Silence does not: a busy engine may be slow to answer.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._answered = 0
        self._fetch: Fetch | None = None

    def run(self) -> None:
        """Ask, unless the last question is still open."""
        answered, self._answered = self._answered, self._door.engine_responses
        if answered == self._answered and not (self._fetch and self._fetch.running):
            url = self._door.pool.url
            self._fetch = Fetch(self._door.pool, "/health", lambda got: self._heard(url, got), timeout_s=_TIMEOUT_S)
            self._fetch.start()

    def stop(self) -> None:
        """Give up on the open question."""
        if self._fetch is not None:
            self._fetch.client_gone()

    def _heard(self, url: str, got: Fetched) -> None:
        if url != self._door.pool.url:
            return
        if got.status:
            alive = got.status < 500
            self._door.note_engine(alive, "" if alive else f"/health answered {got.status}")
        else:
            slow = got.connected and got.error.startswith("no answer")
            self._door.note_engine(slow, "" if slow else got.error)
