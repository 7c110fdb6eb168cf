# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written down about requests: counted, shown and logged in batches, off the way of the requests themselves."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from frontdoor.activity import REQUESTS, Activity
from frontdoor.errors import Refusal
from frontdoor.events import EventLog, request_fields, request_line
from frontdoor.httphead import RequestHead
from frontdoor.metrics import FIRST, LONG, Metrics, PathStats, count
from frontdoor.usage import usage

if TYPE_CHECKING:
    from frontdoor.client import ClientConnection

# How a request ends.
OK = "ok"
REFUSED = "refused"
CLIENT_CLOSED = "client_closed"
CLIENT_STALLED = "client_stalled"
UPSTREAM_ERROR = "upstream_error"
UPSTREAM_CUT = "upstream_cut"
UPSTREAM_TIMEOUT = "upstream_timeout"
INTERRUPTED = "interrupted"
_ENGINE_FAULTS = (UPSTREAM_ERROR, UPSTREAM_CUT, UPSTREAM_TIMEOUT)

# entries that are settled without waiting for the next sweep: more of them would only fill caches
_BATCH = 128
# refusals at the door that are logged one by one between two sweeps; the others are counted
_REFUSALS_LOGGED = 20


# One request that ended: its client, the name of the API key, the head, the outcome, the status, the refusal if it was
# one, when it began and ended, the wait for a slot, the time to the first byte (negative if none came), the bytes of
# the answer, and its last bytes, in which usage stands. Times are seconds of the loop's clock.
Entry = tuple[
    "ClientConnection", str | None, RequestHead, str, int, Refusal | None, float, float, float, float, int, bytes
]


class Ledger:
    """Takes entries and settles them."""

    def __init__(self, events: EventLog, clock: Callable[[], float]) -> None:
        self.metrics = Metrics()
        self.activity = Activity(self.metrics)
        self._events = events
        self._clock = clock
        self._entries: list[Entry] = []
        self._turned_away: dict[tuple[str, str], int] = {}
        self._refused_now = 0

    def note(self, entry: Entry) -> None:
        """Note a request that ended."""
        self._entries.append(entry)
        if len(self._entries) >= _BATCH:
            self.settle()

    def turned_away(self, client: ClientConnection, head: RequestHead, refusal: Refusal) -> None:
        """Note a generation that was refused at the door; in a flood this is all that happens to most of them."""
        key = (head.route.label, refusal.code)
        self._turned_away[key] = self._turned_away.get(key, 0) + 1
        self._refused_now += 1
        if self._refused_now <= _REFUSALS_LOGGED and self._events.requests:
            about = request_fields(client.address, head.route.path, REFUSED, refusal.code, 0.0)
            self._events.append([request_line(about, refusal.status, 0.0, 0, time.time())])

    def refused(self, refusal: Refusal) -> None:
        """Note any other refusal."""
        count(self.metrics.refusals, refusal.code)

    def sweep(self) -> None:
        """Settle, and say how many refusals were not logged."""
        self.settle()
        if self._refused_now > _REFUSALS_LOGGED and self._events.requests:
            self._events.emit("more_generations_refused", count=self._refused_now - _REFUSALS_LOGGED)
        self._refused_now = 0
        self._events.flush()

    def settle(self) -> None:
        """Count, show and log what was noted."""
        metrics = self.metrics
        for (label, code), number in self._turned_away.items():
            metrics.refusals[code] = metrics.refusals.get(code, 0) + number
            metrics.generation_requests += number
            outcomes = metrics.path(label).outcomes
            outcomes[REFUSED] = outcomes.get(REFUSED, 0) + number
        self._turned_away.clear()
        entries, self._entries = self._entries, []
        if not entries:
            return
        # the loop's clock against the time of day
        offset = time.time() - self._clock()
        self._count(entries)
        generations = [entry for entry in entries if entry[2].generates]
        metrics.generation_requests += len(generations)
        self.activity.requests(
            (ended + offset, head.route.path, status, outcome, waited, first, ended - started)
            for _who, _key, head, outcome, status, _why, started, ended, waited, first, _size, _tail in generations[
                -REQUESTS:
            ]
        )
        firsts = [entry[9] for entry in generations if entry[9] >= 0]
        self.activity.first_bytes(sum(firsts), len(firsts))
        if self._events.requests:
            self._events.append(self._lines(generations, offset))

    def _count(self, entries: list[Entry]) -> None:
        metrics = self.metrics
        path: PathStats | None = None
        label = ""
        for _who, key_name, head, outcome, _status, refusal, started, ended, _waited, first, received, tail in entries:
            # most are like the one before
            if path is None or label != head.route.label:
                label = head.route.label
                path = metrics.path(label)
                outcomes, durations, firsts = path.outcomes, path.duration, path.first_byte
            took = ended - started
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            durations.counts[bisect_left(LONG, took)] += 1
            durations.total += took
            if first >= 0:
                firsts.counts[bisect_left(FIRST, first)] += 1
                firsts.total += first
            metrics.response_bytes += received
            if outcome is not OK and outcome in _ENGINE_FAULTS:
                count(metrics.engine_errors, refusal.code if refusal is not None else outcome)
            if key_name is not None:
                count(metrics.key(key_name).outcomes, outcome)
            if tail and head.generates:
                self._count_tokens(tail, key_name)

    @staticmethod
    def _lines(generations: list[Entry], offset: float) -> list[str]:
        lines = []
        for client, _key, head, outcome, status, refusal, started, ended, waited, _first, size, _tail in generations:
            if outcome is OK and not waited:
                about = client.log_fields(head)
            else:
                code = None if refusal is None else refusal.code
                about = request_fields(client.address, head.route.path, outcome, code, waited)
            lines.append(request_line(about, status, ended - started, size, ended + offset))
        return lines

    def _count_tokens(self, tail: bytes, key_name: str | None) -> None:
        found = usage(tail)
        if found is None:
            return
        self.metrics.prompt_tokens += found[0]
        self.metrics.completion_tokens += found[1]
        if key_name is not None:
            stats = self.metrics.key(key_name)
            stats.prompt_tokens += found[0]
            stats.completion_tokens += found[1]
