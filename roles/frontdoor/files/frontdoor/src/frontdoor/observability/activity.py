# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened lately, for the status page: numbers by the second, the last requests, the last phases. No content."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from frontdoor.admission.outlook import Outlook
from frontdoor.observability.metrics import REFUSED, Metrics

if TYPE_CHECKING:
    from frontdoor.observability.ledger import Entry

_SECONDS = 300
_REQUESTS = 30
_PHASES = 20
# refusals at the door for the same reason are taken together while the next comes so soon; so many rows are kept
_ONE_FLOOD_S = 60.0
_FLOODS = 8


class Activity:
    """Rings of fixed size."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: when a slot will be free, by the generations that ended
        self.outlook = Outlook()
        self._samples: deque[tuple[float, int, int, int, int, int, int, float]] = deque(maxlen=_SECONDS)
        # as they came: most are pushed out before anybody looks
        self._requests: deque[Entry] = deque(maxlen=_REQUESTS)
        self._offset = 0.0
        self._phases: deque[dict[str, Any]] = deque(maxlen=_PHASES)
        self._last = self._totals()
        # sum in seconds and number, since the last sample
        self._first_tokens = (0.0, 0)
        # when, what status and how many, by path and code
        self._turned_away: dict[tuple[str, str], tuple[float, int, int]] = {}

    def _totals(self) -> tuple[int, int, int]:
        metrics = self._metrics
        return metrics.gaps.count, metrics.generation_requests, sum(metrics.refusals.values())

    def sample(self, now: float, active: int, queued: int, tokens_per_s: float | None = None) -> None:
        """Note one second; `now` is the time of day. What is not known stands as -1."""
        before, self._last = self._last, self._totals()
        reads, requests, refused = (after - was for after, was in zip(self._last, before, strict=True))
        (total, number), self._first_tokens = self._first_tokens, (0.0, 0)
        first_ms = round(total / number * 1000) if number else -1
        tokens = -1 if tokens_per_s is None else round(tokens_per_s, 1)
        self._samples.append((round(now), active, queued, reads, requests, refused, first_ms, tokens))

    def first_tokens(self, total_s: float, number: int) -> None:
        """Note how long first tokens took, in all, since the last call."""
        before, count = self._first_tokens
        self._first_tokens = before + total_s, count + number

    def turned_away(self, now: float, path: str, status: int, code: str, number: int) -> None:
        """Note generations that were refused at the door. A flood of them is one row, and pushes nothing else out."""
        at, _status, before = self._turned_away.pop((path, code), (0.0, 0, 0))
        self._turned_away[path, code] = now, status, number + (before if now - at < _ONE_FLOOD_S else 0)
        if len(self._turned_away) > _FLOODS:
            del self._turned_away[next(iter(self._turned_away))]

    def requests(self, ended: Collection[Entry], offset: float) -> None:
        """Note generation requests that ended; `offset` is the time of day less the loop's clock."""
        self._requests.extend(ended)
        # who was refused held none
        self.outlook.lasted([entry[7] - entry[6] - entry[8] for entry in ended if entry[5] is None])
        self._offset = offset

    def phase(self, now: float, phase: str, profile: str, reason: str) -> None:
        """Note that the slot's phase or profile changed."""
        last = self._phases[-1] if self._phases else {}
        if (last.get("phase"), last.get("profile")) != (phase, profile):
            self._phases.append({"at": round(now), "phase": phase, "profile": profile, "reason": reason})

    def report(self) -> dict[str, Any]:
        """All of it; the newest comes last in `samples` and first elsewhere."""
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
        for entry in reversed(self._requests):
            _who, _key, head, outcome, status, refusal, started, ended, waited, first, received, _tail, streamed = entry
            yield {
                "at": round(ended + self._offset, 3),
                "path": head.route.path,
                "status": status,
                "outcome": outcome,
                "code": None if refusal is None else refusal.code,
                "count": 1,
                "queue_wait_s": round(waited, 3),
                "first_token_s": round(first, 3) if streamed and received else None,
                "elapsed_s": round(ended - started, 3),
            }
