# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the engine answers, as requests and the probe find out."""

from __future__ import annotations

from frontdoor.observability.events import EventLog


class EngineHealth:
    """What was last heard of the engine, or of the attempt to reach it."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        #: None while nothing is known
        self.reachable: bool | None = None
        self.error = ""
        #: answers that began well and reads of streams; anybody can tell whether there were more since the last look
        self.heard = 0

    def note(self, reachable: bool, error: str = "") -> None:
        """The engine did or did not answer."""
        if reachable is not self.reachable:
            self._events.emit("engine_reachable" if reachable else "engine_unreachable", error=error)
        self.reachable, self.error = reachable, error

    def forget(self) -> None:
        """Another engine may run now."""
        self.reachable, self.error = None, ""
