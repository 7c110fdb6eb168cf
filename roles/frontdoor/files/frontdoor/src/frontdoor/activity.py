# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened lately, for the status page: numbers by the second, the last requests, the last phases. No content."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from frontdoor.metrics import Metrics

_SECONDS = 300
REQUESTS = 30
_PHASES = 20


class Activity:
    """Rings of fixed size."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._samples: deque[tuple[float, int, int, int, int, int, int, float]] = deque(maxlen=_SECONDS)
        self._requests: deque[tuple[Any, ...]] = deque(maxlen=REQUESTS)
        self._phases: deque[dict[str, Any]] = deque(maxlen=_PHASES)
        self._last = self._totals()
        # sum in seconds and number, since the last sample
        self._first_bytes = (0.0, 0)

    def _totals(self) -> tuple[int, int, int]:
        metrics = self._metrics
        return metrics.gaps.count, metrics.generation_requests, sum(metrics.refusals.values())

    def sample(self, now: float, active: int, queued: int, tokens_per_s: float | None = None) -> None:
        """Note one second; `now` is the time of day. What is not known stands as -1."""
        before, self._last = self._last, self._totals()
        reads, requests, refused = (after - was for after, was in zip(self._last, before, strict=True))
        (total, number), self._first_bytes = self._first_bytes, (0.0, 0)
        first_ms = round(total / number * 1000) if number else -1
        tokens = -1 if tokens_per_s is None else round(tokens_per_s, 1)
        self._samples.append((round(now), active, queued, reads, requests, refused, first_ms, tokens))

    def first_bytes(self, total_s: float, number: int) -> None:
        """Note how long first bytes took, in all, since the last call."""
        before, count = self._first_bytes
        self._first_bytes = before + total_s, count + number

    def requests(self, ended: Iterable[tuple[float, str, int, str, float, float, float]]) -> None:
        """Note generation requests that ended.

        Of each: the time of day, path, status, outcome, wait for a slot, time to the first byte, and what it took.
        """
        self._requests.extend(ended)

    def phase(self, now: float, phase: str, profile: str, reason: str) -> None:
        """Note that the slot's phase or profile changed."""
        last = self._phases[-1] if self._phases else {}
        if (last.get("phase"), last.get("profile")) != (phase, profile):
            self._phases.append({"at": round(now), "phase": phase, "profile": profile, "reason": reason})

    def report(self) -> dict[str, Any]:
        """All of it; the newest comes last in `samples` and first elsewhere."""
        return {
            "columns": ["at", "active", "queued", "chunks", "requests", "refused", "first_byte_ms", "tokens"],
            "samples": list(self._samples),
            "requests": [
                {
                    "at": round(now, 3),
                    "path": path,
                    "status": status,
                    "outcome": outcome,
                    "queue_wait_s": round(waited, 3),
                    "first_byte_s": round(first, 3) if first >= 0 else None,
                    "elapsed_s": round(took, 3),
                }
                for now, path, status, outcome, waited, first, took in reversed(self._requests)
            ],
            "phases": list(reversed(self._phases)),
        }
