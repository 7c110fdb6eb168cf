# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written down about requests: counted, shown and logged in batches, off the way of the requests themselves."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from frontdoor.errors import Refusal
from frontdoor.http.head import FAILURE, RequestHead, ResponseHead
from frontdoor.observability.activity import Activity
from frontdoor.observability.events import EventLog, in_ms, line_of_request, request_line
from frontdoor.observability.metrics import (
    ENGINE_5XX,
    FIRST,
    LONG,
    OK,
    REFUSED,
    UPSTREAM_CUT,
    UPSTREAM_ERROR,
    UPSTREAM_TIMEOUT,
    Metrics,
    count,
)
from frontdoor.observability.usage import KEPT, REPORT, usage

if TYPE_CHECKING:
    from frontdoor.http.client import ClientConnection

_ENGINE_FAULTS = (ENGINE_5XX, UPSTREAM_ERROR, UPSTREAM_CUT, UPSTREAM_TIMEOUT)

# Entries are settled a little later, not at the end of the request: its client is likely to ask again at once. If there
# are so many before, they are settled then: more would fill caches, and hold up whoever comes next.
_LATER_S = 0.01
_BATCH = 32
# refusals at the door that are logged one by one between two sweeps; the others are counted
_REFUSALS_LOGGED = 20


# One request that ended: its client, the name of the API key, the head, the outcome, the status, the refusal if it was
# one, when it began and ended, the wait for a slot, the time to the first byte of the body (negative if there was no
# answer), the bytes of the answer, its last bytes, in which usage stands, and whether it was an event stream that began
# well. Times are seconds of the loop's clock.
Entry = tuple[
    "ClientConnection",
    str | None,
    RequestHead,
    str,
    int,
    Refusal | None,
    float,
    float,
    float,
    float,
    int,
    bytes,
    bool,
]


def outcome_of(response: ResponseHead) -> str:
    """How a request ended whose answer is complete."""
    return OK if response.status < FAILURE else ENGINE_5XX


class Ledger:
    """Takes entries and settles them."""

    def __init__(
        self, events: EventLog, clock: Callable[[], float], later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """`clock` and `later` are those of the loop."""
        self.metrics = Metrics()
        self.activity = Activity(self.metrics)
        self._events = events
        self._clock = clock
        self._later = later
        self._awaited = False
        self._entries: list[Entry] = []
        self._turned_away: dict[tuple[str, str], int] = {}
        # by the name of the API key
        self._keys_turned_away: dict[str, int] = {}
        # by code
        self._statuses: dict[str, int] = {}
        self._refused_now = 0

    def note(self, entry: Entry) -> None:
        """Note a request that ended."""
        entries = self._entries
        entries.append(entry)
        if not self._awaited:
            self._awaited = True
            self._later(_LATER_S, self._due)
        elif len(entries) >= _BATCH:
            self.settle()

    def _due(self) -> None:
        self._awaited = False
        self.settle()

    def turned_away(self, client: ClientConnection, head: RequestHead, refusal: Refusal) -> None:
        """Note a generation that was refused at the door; in a flood this is all that happens to most of them."""
        key = (head.route.label, refusal.code)
        before = self._turned_away.get(key, 0)
        if not before:
            self._statuses[refusal.code] = refusal.status
        self._turned_away[key] = before + 1
        name = client.key_name
        if name is not None:
            self._keys_turned_away[name] = self._keys_turned_away.get(name, 0) + 1
        self._refused_now += 1
        if self._refused_now <= _REFUSALS_LOGGED and self._events.requests:
            line = line_of_request(client.address, head.route.path, REFUSED, refusal.code, 0.0)
            self._events.append([request_line(line, refusal.status, 0.0, 0, in_ms(time.time()))])

    def refused(self, refusal: Refusal) -> None:
        """Note any other refusal."""
        self.metrics.answered(refusal.code, refusal.status)

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
            metrics.answered(code, self._statuses[code], number)
            self.activity.turned_away(time.time(), label, self._statuses[code], code, number)
            metrics.generation_requests += number
            outcomes = metrics.path(label).outcomes
            outcomes[REFUSED] = outcomes.get(REFUSED, 0) + number
        self._turned_away.clear()
        for name, number in self._keys_turned_away.items():
            outcomes = metrics.key(name).outcomes
            outcomes[REFUSED] = outcomes.get(REFUSED, 0) + number
        self._keys_turned_away.clear()
        entries, self._entries = self._entries, []
        if not entries:
            return
        # the loop's clock against the time of day
        offset = time.time() - self._clock()
        self.activity.requests(self._count(entries, offset), offset)

    def _count(self, entries: list[Entry], offset: float) -> list[Entry]:
        """Count and log entries, in one pass, and return those that were generations."""
        metrics = self.metrics
        generations: list[Entry] = []
        lines: list[str] | None = [] if self._events.requests else None
        last_head: RequestHead | None = None
        firsts, first_total, sent = 0, 0.0, 0
        last, stamp = -1.0, ""
        for entry in entries:
            (
                client,
                key_name,
                head,
                outcome,
                status,
                refusal,
                started,
                ended,
                waited,
                first,
                received,
                tail,
                streamed,
            ) = entry
            if head is not last_head:
                # most are like the one before
                last_head, generates = head, head.generates
                path = metrics.path(head.route.label)
                outcomes, durations = path.outcomes, path.duration
                duration_counts = durations.counts
            took = ended - started
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            duration_counts[bisect_left(LONG, took)] += 1
            durations.total += took
            if first >= 0 and received:
                data = path.first_token if streamed else path.first_byte
                data.counts[bisect_left(FIRST, first)] += 1
                data.total += first
                if streamed and generates:
                    firsts += 1
                    first_total += first
            sent += received
            if key_name is not None:
                count(metrics.key(key_name).outcomes, outcome)
            if outcome is not OK and outcome in _ENGINE_FAULTS and refusal is None:
                # those before an answer was begun were told to the client, and counted then
                count(metrics.engine_errors, f"http_{status}" if outcome is ENGINE_5XX else outcome)
            if generates:
                generations.append(entry)
                if tail and tail.rfind(REPORT, -KEPT) >= 0:
                    self._count_tokens(tail, key_name)
                if lines is not None:
                    if ended != last:
                        # the loop's clock goes in milliseconds, in which many end
                        last, stamp = ended, in_ms(ended + offset)
                    if outcome is OK and not waited:
                        line = client.log_line(head)
                    else:
                        code = None if refusal is None else refusal.code
                        line = line_of_request(client.address, head.route.path, outcome, code, waited)
                    lines.append(request_line(line, status, took, received, stamp))
        metrics.response_bytes += sent
        metrics.generation_requests += len(generations)
        self.activity.first_tokens(first_total, firsts)
        if lines:
            self._events.append(lines)
        return generations

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
