# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The latest activity, for the status page: numbers by the second, the last requests, the last phases. No content."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

from frontdoor.observability.metrics import REFUSED, SlotStats
from frontdoor.policy.routes import Route

_SECONDS = 300
_REQUESTS = 30
_PHASES = 20
# refusals at the door for the same reason are taken together while the next comes so soon; so many rows are kept
_ONE_FLOOD_S = 60.0
_FLOODS = 8


@dataclasses.dataclass(slots=True)
class Entry:
    """One request that ended. Times are seconds of the loop's clock."""

    address: str
    #: name of the API key
    key_name: str | None
    route: Route
    #: needed permits
    gated: bool
    outcome: str
    #: 0 where the client was told nothing
    status: int
    #: of the frontdoor's own answer, where it was one
    code: str | None
    started: float
    ended: float
    #: for a slot
    waited_s: float = 0.0
    #: from the question to the first byte of the engine's body; negative where there was none
    first_s: float = -1.0
    #: of the engine's body, in bytes
    received: int = 0
    #: the last bytes of the body, in which usage stands
    tail: bytes = b""
    #: an event stream that began well
    streamed: bool = False
    #: which of several replicas was asked; -1 where there is one, or none was asked
    replica: int = -1
    #: the number of the slot; -1 where it is not known which one was meant
    slot: int = 0
    request_id: bytes = b""
    #: of an event stream: reads after the first
    reads: int = 0
    #: prompt tokens and generated ones, where the engine reported them
    tokens: tuple[int, int] | None = None


class Activity:
    """Rings of fixed size, of one slot."""

    def __init__(self, stats: SlotStats) -> None:
        self._stats = stats
        self._samples: deque[tuple[float, ...]] = deque(maxlen=_SECONDS)
        # with the time of day less the loop's clock
        self._requests: deque[tuple[Entry, float]] = deque(maxlen=_REQUESTS)
        self._phases: deque[dict[str, Any]] = deque(maxlen=_PHASES)
        self._last = self._totals()
        # sum in seconds and number, since the last sample
        self._first_s, self._firsts = 0.0, 0
        # when, what status and how many, by path and code
        self._turned_away: dict[tuple[str, str], tuple[float, int, int]] = {}

    def _totals(self) -> tuple[int, int, int]:
        stats = self._stats
        return stats.gaps.count, stats.outcomes.total(), stats.refusals.total()

    def sample(self, now: float, active: int, queued: int, tokens_per_s: float | None = None) -> None:
        """Add the row of one second; `now` is the time of day. What is not known stands as -1."""
        before, self._last = self._last, self._totals()
        reads, requests, refused = (after - was for after, was in zip(self._last, before, strict=True))
        first_ms = round(self._first_s / self._firsts * 1000) if self._firsts else -1
        self._first_s, self._firsts = 0.0, 0
        tokens = -1 if tokens_per_s is None else round(tokens_per_s, 1)
        self._samples.append((round(now), active, queued, reads, requests, refused, first_ms, tokens))

    def first_token(self, seconds: float) -> None:
        """Add how long a first token took."""
        self._first_s += seconds
        self._firsts += 1

    def turned_away(self, now: float, path: str, status: int, code: str, number: int) -> None:
        """Add generations that were refused at the door. A flood of them is one row, and pushes nothing else out."""
        at, _status, before = self._turned_away.pop((path, code), (0.0, 0, 0))
        self._turned_away[path, code] = now, status, number + (before if now - at < _ONE_FLOOD_S else 0)
        if len(self._turned_away) > _FLOODS:
            del self._turned_away[next(iter(self._turned_away))]

    def requests(self, entries: list[Entry], offset: float) -> None:
        """Add requests with permits that ended; `offset` is the time of day less the loop's clock."""
        self._requests.extend((entry, offset) for entry in entries[-_REQUESTS:])

    def phase(self, now: float, phase: str, profile: str, reason: str) -> None:
        """Add the slot's phase and profile, where one of them changed."""
        last = self._phases[-1] if self._phases else {}
        if (last.get("phase"), last.get("profile")) != (phase, profile):
            self._phases.append({"at": round(now), "phase": phase, "profile": profile, "reason": reason})

    def report(self) -> dict[str, Any]:
        """Return all activity; the newest comes last in `samples` and first elsewhere."""
        return {
            "columns": ["at", "active", "queued", "chunks", "requests", "refused", "first_token_ms", "tokens"],
            "samples": list(self._samples),
            "requests": sorted(self._rows(), key=lambda row: row["at"], reverse=True),
            "phases": list(reversed(self._phases)),
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        for (path, code), (at, status, number) in reversed(self._turned_away.items()):
            said = {"path": path, "status": status, "outcome": REFUSED, "code": code, "count": number}
            yield {"at": round(at, 3), **said, "queue_wait_s": 0.0, "first_token_s": None, "elapsed_s": 0.0}
        for entry, offset in reversed(self._requests):
            yield {
                "at": round(entry.ended + offset, 3),
                "path": entry.route.path,
                "status": entry.status,
                "outcome": entry.outcome,
                "code": entry.code,
                "count": 1,
                "queue_wait_s": round(entry.waited_s, 3),
                "first_token_s": round(entry.first_s, 3) if entry.streamed and entry.received else None,
                "elapsed_s": round(entry.ended - entry.started, 3),
            }
