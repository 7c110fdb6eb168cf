# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account of requests that ended: they are counted, shown and logged, a batch at a time."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from frontdoor.admission.quotas import Quotas
from frontdoor.errors import Refusal
from frontdoor.observability.activity import Activity, Entry
from frontdoor.observability.events import EventLog
from frontdoor.observability.metrics import ENGINE_5XX, ENGINE_FAULTS, REFUSED, Metrics
from frontdoor.policy.routes import Kind, Route

# Entries are settled a little later, not at the end of the request: its client is likely to ask again at once. If there
# are so many before, they are settled then: more would hold up whoever comes next.
_LATER_S = 0.01
_BATCH: Final = 32
# refusals at the door that are logged one by one between two sweeps; the others are counted
_REFUSALS_LOGGED = 20

# a request that was not understood is of no path
_NOWHERE = Route(Kind.UNKNOWN, "")

# the beginning of the engine's report of tokens
_REPORT: Final = b'"usage":'
#: bytes of an answer's end in which a report may stand; further back is text of the model, which is never one
KEPT: Final = 4096
_COUNT: Final = re.compile(rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens)"\s*:\s*(\d{1,12})')


def usage(tail: bytes) -> tuple[int, int] | None:
    """Return (prompt tokens, generated tokens) from the last bytes of an answer, or None where there is no report."""
    at = tail.rfind(_REPORT, -KEPT)
    if at < 0:
        return None
    found: dict[bool, int] = {}
    for name, number in _COUNT.findall(tail, at):
        found.setdefault(name in (b"prompt_tokens", b"input_tokens"), int(number))
    return (found.get(True, 0), found.get(False, 0)) if found else None


class Ledger:
    """Takes entries and settles them."""

    def __init__(
        self,
        events: EventLog,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        lasted: Callable[[int, Iterable[float]], None],
        slots: Iterable[str] = ("main",),
    ) -> None:
        """Take the `clock` and `later` of the loop.

        `lasted` hears how long the generations of each slot held their permits.
        """
        self.metrics = Metrics(slots)
        # by their numbers
        self._slots = [*self.metrics.slots.values()]
        self._names = [*self.metrics.slots]
        #: of the API keys
        self.quotas = Quotas()
        #: the model that each slot serves, or served last
        self.models = [""] * len(self._names)
        self.activities = [Activity(stats) for stats in self._slots]
        self._events = events
        self._clock = clock
        self._later = later
        self._lasted = lasted
        self._entries: list[Entry] = []
        self._awaited = False
        # by path, code, status, the name of the API key and the slot
        self._turned_away: Counter[tuple[str, str, int, str | None, int]] = Counter()
        self._refused_now = 0

    def note(self, entry: Entry) -> None:
        """Take a request that ended."""
        self._entries.append(entry)
        if not self._awaited:
            self._awaited = True
            self._later(_LATER_S, self._due)
        elif len(self._entries) >= _BATCH:
            self.settle()

    def _due(self) -> None:
        self._awaited = False
        self.settle()

    def refused(
        self, address: str, key_name: str | None, route: Route | None, refusal: Refusal, slot: int, request_id: bytes
    ) -> None:
        """Take a request that was refused at the door; in a flood this is all that happens to most.

        One for permits is for a slot, for any other `slot` is -1; without a route it was not understood.
        """
        route, code, status = route or _NOWHERE, refusal.code, refusal.status
        if slot < 0:
            self.metrics.answered(code, status)
        else:
            self._turned_away[route.label, code, status, key_name, slot] += 1
        self._refused_now += 1
        if self._refused_now <= _REFUSALS_LOGGED and self._events.requests:
            now = self._clock()
            entry = Entry(address, key_name, route, route.gated, REFUSED, status, code, now, now)
            entry.slot, entry.request_id = slot, request_id
            self._log(entry, time.time() - now)

    def sweep(self) -> None:
        """Settle, and say how many refusals were not logged."""
        self.settle()
        if self._refused_now > _REFUSALS_LOGGED and self._events.requests:
            self._events.emit("more_requests_refused", count=self._refused_now - _REFUSALS_LOGGED)
        self._refused_now = 0
        self._events.flush()

    def settle(self) -> None:
        """Count, show and log what was taken."""
        metrics, now = self.metrics, time.time()
        for (label, code, status, key_name, slot), number in self._turned_away.items():
            metrics.answered(code, status, number)
            self._slots[slot].refused(code, status, number)
            metrics.paths[label].outcomes[REFUSED] += number
            self.activities[slot].turned_away(now, label, status, code, number)
            if key_name is not None:
                metrics.keys[key_name].outcomes[REFUSED] += number
        self._turned_away.clear()
        entries, self._entries = self._entries, []
        offset = now - self._clock()
        for entry in entries:
            self._count(entry)
        gated = [entry for entry in entries if entry.gated]
        if self._events.requests:
            for entry in entries:
                # requests that a monitor repeats every few seconds say nothing
                if not entry.route.always:
                    self._log(entry, offset)
        # a refused request held none
        for slot in {entry.slot for entry in gated}:
            own = [entry for entry in gated if entry.slot == slot]
            self.activities[slot].requests(own, offset)
            self._lasted(slot, (e.ended - e.started - e.waited_s for e in own if e.code is None))

    def _count(self, entry: Entry) -> None:
        metrics, path, outcome = self.metrics, self.metrics.paths[entry.route.label], entry.outcome
        path.outcomes[outcome] += 1
        path.duration.observe(entry.ended - entry.started)
        if entry.first_s >= 0 and entry.received:
            (path.first_token if entry.streamed else path.first_byte).observe(entry.first_s)
            if entry.streamed and entry.gated:
                self._slots[entry.slot].first_token.observe(entry.first_s)
                self.activities[entry.slot].first_token(entry.first_s)
            metrics.response_bytes += entry.received
        key = None if entry.key_name is None else metrics.keys[entry.key_name]
        if key is not None:
            key.outcomes[outcome] += 1
        # by number: of the first slot, which all numbers without a slot's name are of
        if entry.replica >= 0 and not entry.slot:
            metrics.replicas[entry.replica].outcomes[outcome] += 1
        if outcome in ENGINE_FAULTS and entry.code is None:
            # failures before the answer began were told to the client, and counted then
            metrics.engine_errors[f"http_{entry.status}" if outcome == ENGINE_5XX else outcome] += 1
        if not entry.gated:
            return
        slot = self._slots[entry.slot]
        if entry.code is None or outcome != REFUSED:
            slot.outcomes[outcome] += 1
        else:
            slot.refused(entry.code, entry.status)
        entry.tokens = usage(entry.tail)
        if entry.key_name is not None:
            # of a stream that was cut short nobody reports the tokens: most engines send each by itself
            used = entry.reads if entry.tokens is None else sum(entry.tokens)
            self.quotas.spent(entry.key_name, time.time(), used)
        if entry.tokens is not None:
            for counted in (slot,) if key is None else (slot, key):
                counted.prompt_tokens += entry.tokens[0]
                counted.completion_tokens += entry.tokens[1]

    def _log(self, entry: Entry, offset: float) -> None:
        """Log one request; `offset` is the time of day less the loop's clock, which counts in milliseconds."""
        waited, first_s = entry.waited_s, entry.first_s if entry.streamed and entry.received else -1.0
        read, made = (None, None) if entry.tokens is None else entry.tokens
        row: dict[str, object] = {
            "bytes": entry.received,
            "client": entry.address,
            "completion_tokens": made,
            "elapsed_s": int((entry.ended - entry.started) * 1000 + 0.5) / 1000,
            "error": entry.code,
            "event": "request",
            "first_token_s": round(waited + first_s, 3) if first_s >= 0 else None,
            "key": entry.key_name,
            "outcome": entry.outcome,
            "path": entry.route.path,
            "prompt_tokens": read,
            "queue_wait_s": round(waited, 3) if waited else 0.0,
            "queued": waited > 0,
            "request_id": entry.request_id.decode(),
            "status": entry.status,
            "ts_ms": int((entry.ended + offset) * 1000),
        }
        if entry.slot >= 0:
            row |= {"model": self.models[entry.slot], "slot": self._names[entry.slot]}
        if entry.replica >= 0:
            row["replica"] = entry.replica
        self._events.write(row)
