# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real clock, and the one place where a request to end takes effect."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from ..words.types import ToldToEndFault

_ENDING = (signal.SIGTERM, signal.SIGINT)


class SystemClock:
    def __init__(self) -> None:
        self._told_by = ""  # the signal that came and has not taken effect yet
        self._waiting = False
        self._told: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Sleep; raise ToldToEndFault, once, when the process was told to end. Every wait passes here."""
        if self._told_by:
            by, self._told_by = self._told_by, ""
            raise ToldToEndFault(by)
        time.sleep(max(0.0, seconds))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal to end take effect at once in this block, which only waits for somebody else's answer."""
        self.sleep(0)
        self._waiting = True
        try:
            yield
        except ToldToEndFault:
            self._told_by = ""
            raise
        finally:
            self._waiting = False

    def heed_signals(
        self, told: Callable[[], object] = lambda: None, happened: Callable[[], object] = lambda: None
    ) -> None:
        """Let SIGTERM and SIGINT end the current wait, also that for an answer, and lead back; `told` is called then.

        A closed terminal or a lost connection changes nothing. happened: is called at SIGURG, which ends no process
        that has not come here yet.
        """
        self._told = told
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
        signal.signal(signal.SIGURG, lambda _number, _frame: happened())
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for number in _ENDING:
            signal.signal(number, self._terminated)

    def _terminated(self, number: int, _frame: FrameType | None) -> None:
        # Once: the way back that follows must not be broken off as well.
        for ending in _ENDING:
            signal.signal(ending, signal.SIG_IGN)
        self._told_by = signal.Signals(number).name
        self._told()
        if self._waiting:
            # Should this be lost on its way, the next wait raises it again.
            raise ToldToEndFault(self._told_by)
