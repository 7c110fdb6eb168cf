# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real clock, and the one place where a request to end takes effect."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from ..types import ToldToEndFault


class SystemClock:
    def __init__(self) -> None:
        self._told_to_end = False
        self._waiting = False

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Sleeps. Raises ToldToEndFault, once, when the process was told to end: every wait comes by here."""
        if self._told_to_end:
            self._told_to_end = False
            raise ToldToEndFault
        time.sleep(max(0.0, seconds))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done in here only waits for somebody else's answer: being told to end takes effect at once."""
        self.sleep(0)
        self._waiting = True
        try:
            yield
        except ToldToEndFault:
            self._told_to_end = False
            raise
        finally:
            self._waiting = False

    def heed_signals(self) -> None:
        """SIGTERM ends the current wait, also that for an answer, and leads back.

        A closed terminal or a lost connection changes nothing.
        """
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, _number: int, _frame: FrameType | None) -> None:
        # Once: the way back that follows must not be broken off as well.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._told_to_end = True
        if self._waiting:
            # Should this be lost on its way, the next wait raises it again.
            raise ToldToEndFault
