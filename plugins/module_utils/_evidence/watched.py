# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that watches an engine, and saves what it has seen so far after each step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from .._slot.words.types import ToldToEndFault


class WatchEffects(Protocol):
    """The effects of such work on its host."""

    def monotonic(self) -> float: ...

    def now(self) -> str: ...

    def sleep(self, seconds: float) -> None: ...

    def gone(self) -> tuple[str, str] | None:
        """Return (how, why) the engine is no longer served, or None; raise ToldToEndFault if this was told to end."""

    def save(self, seen: Mapping[str, Any]) -> None:
        """Save what was seen so far."""


class WatchedWork:
    """One piece of work. seen: what becomes the record; `now` says what is being done."""

    noun: str
    host: WatchEffects
    seen: dict[str, Any]

    @abstractmethod
    def run(self) -> None:
        """Do the work to its end."""

    def carry_out(self) -> None:
        """Run it; somebody who ends it, and what goes wrong, break it off. What was seen so far stays."""
        try:
            self.run()
        except ToldToEndFault as fault:
            self.break_off("told", f"somebody ended the {self.noun} ({fault.message})")
        except Exception as error:
            self.break_off("broken", f"the {self.noun} broke off: {type(error).__name__}: {error}")
            raise

    def break_off(self, how: str, why: str) -> None:
        """End it early."""
        self._end(how, why)
        self._say("")

    def _end(self, how: str, why: str) -> None:
        """Note why it ended. Only the first cause counts."""
        self.seen["ended"] = self.seen["ended"] or {"how": how, "why": why, "at": self.host.now()}

    def _say(self, text: str) -> None:
        self.seen["now"] = text
        self.host.save(self.seen)
