# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers about what passed, and how they are written for Prometheus."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate

from frontdoor.codes import ENGINE_CODES, OTHER_CODES, TURNED_AWAY_CODES
from frontdoor.policy.routes import GATED_PATHS
from frontdoor.slot.state import PHASES

PREFIX = "b70_frontdoor_"
Labels = dict[str, str]
# Upper bounds in seconds. The clock of the event loop has a resolution of a millisecond.
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FIRST = (*SHORT, 30.0, 60.0, 120.0)
LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

# How a request ends.
OK = "ok"
ENGINE_5XX = "engine_5xx"
REFUSED = "refused"
CLIENT_CLOSED = "client_closed"
CLIENT_STALLED = "client_stalled"
UPSTREAM_ERROR = "upstream_error"
UPSTREAM_CUT = "upstream_cut"
UPSTREAM_TIMEOUT = "upstream_timeout"
INTERRUPTED = "interrupted"
ENGINE_FAULTS = (ENGINE_5XX, UPSTREAM_ERROR, UPSTREAM_CUT, UPSTREAM_TIMEOUT)
OUTCOMES = (OK, REFUSED, CLIENT_CLOSED, CLIENT_STALLED, INTERRUPTED, *ENGINE_FAULTS)


def outcome_of(status: int) -> str:
    """How a request ended whose answer, of the engine's, is complete."""
    return OK if status < 500 else ENGINE_5XX


class Histogram:
    """Counts by upper bound. `counts` has one place more than `bounds`, for what lies above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in seconds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


@dataclasses.dataclass(slots=True)
class PathStats:
    """Numbers of one path."""

    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    duration: Histogram = dataclasses.field(default_factory=lambda: Histogram(LONG))
    #: of event streams that went well, and of everything else
    first_token: Histogram = dataclasses.field(default_factory=lambda: Histogram(FIRST))
    first_byte: Histogram = dataclasses.field(default_factory=lambda: Histogram(FIRST))


@dataclasses.dataclass(slots=True)
class KeyStats:
    """Numbers of one API key."""

    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Metrics:
    """Totals since the start. Labels come from fixed sets, so their number is bounded."""

    def __init__(self) -> None:
        self.paths: defaultdict[str, PathStats] = defaultdict(PathStats)
        self.keys: defaultdict[str, KeyStats] = defaultdict(KeyStats)
        #: of the API keys that count now, which have rows before their first request
        self.key_names: Callable[[], Iterable[str]] = tuple
        #: requests that were turned away for want of a slot, or because the slot is closed
        self.refusals: Counter[str] = Counter()
        self.engine_errors: Counter[str] = Counter()
        #: other errors that clients were told
        self.errors: Counter[str] = Counter()
        self.queue_wait = Histogram(LONG)
        self.gaps = Histogram(SHORT)
        self.generation_requests = 0
        #: those that have not ended, which `generation_requests` does not count yet
        self.generations_under_way: Callable[[], int] = int
        self.request_bytes = self.response_bytes = 0
        self.prompt_tokens = self.completion_tokens = 0

    def answered(self, code: str, status: int, number: int = 1) -> None:
        """Count answers of the frontdoor's own that say no."""
        table = self.refusals if status == 503 else self.engine_errors if status in (502, 504) else self.errors
        table[code] += number

    def all_generation_requests(self) -> int:
        """Requests on paths that take a slot, from their arrival on."""
        return self.generation_requests + self.generations_under_way()

    def outcomes(self) -> Counter[str]:
        """How many exchanges ended how, over all paths."""
        return sum((stats.outcomes for stats in self.paths.values()), Counter())


def _labels(labels: dict[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    # not in six digits: a counter would stand still
    return repr(float(value)).removesuffix(".0")


class _Page:
    """Collects lines in the text format of Prometheus (version 0.0.4).

    Not with `prometheus_client`: to import it takes 14 MB, as much as is left of what the frontdoor may take.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _head(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]

    def rows(self, name: str, kind: str, text: str, rows: Iterable[tuple[Labels, float]]) -> None:
        """One metric with its rows."""
        self._head(name, kind, text)
        self.lines += [f"{PREFIX}{name}{_labels(labels)} {_number(value)}" for labels, value in rows]

    def counts(
        self, name: str, text: str, label: str, known: Iterable[str], tables: Iterable[tuple[Labels, Counter[str]]]
    ) -> None:
        """Counters by one label more. What is known to be possible begins at 0: a rise from nothing is not seen."""
        rows = (
            ({**labels, label: key}, value)
            for labels, table in tables
            for key, value in sorted((dict.fromkeys(known, 0) | table).items())
        )
        self.rows(name, "counter", text, rows)

    def histogram(self, name: str, text: str, rows: Iterable[tuple[Labels, Histogram]]) -> None:
        """One histogram, by labels."""
        self._head(name, "histogram", text)
        for labels, data in rows:
            for bound, value in zip((*data.bounds, "+Inf"), accumulate(data.counts), strict=True):
                self.lines.append(f"{PREFIX}{name}_bucket{_labels({**labels, 'le': str(bound)})} {value}")
            self.lines.append(f"{PREFIX}{name}_sum{_labels(labels)} {_number(data.total)}")
            self.lines.append(f"{PREFIX}{name}_count{_labels(labels)} {data.count}")


def render(metrics: Metrics, gauges: dict[str, tuple[str, float]], served: Labels, phase: str, version: str) -> bytes:
    """The body of /metrics; `gauges` maps a name to its explanation and value, `served` are labels."""
    page = _Page()
    page.rows("info", "gauge", "Version of the frontdoor.", [({"version": version}, 1)])
    page.rows("slot_info", "gauge", "The profile in the slot.", [(served, 1)])
    page.rows("phase", "gauge", "Phase of the slot.", [({"phase": name}, float(name == phase)) for name in PHASES])
    for name, (text, value) in gauges.items():
        page.rows(name, "gauge", text, [({}, value)])
    paths = [
        ({"path": path}, stats)
        for path, stats in sorted(({path: PathStats() for path in GATED_PATHS} | metrics.paths).items())
    ]
    outcomes = [(labels, stats.outcomes) for labels, stats in paths]
    page.counts("requests_total", "Requests for the engine by how they ended.", "outcome", OUTCOMES, outcomes)
    for name, text, known, table in (
        ("refusals", "Requests turned away: no slot was free, or it was closed.", TURNED_AWAY_CODES, metrics.refusals),
        ("engine_errors", "Failures of the engine, by kind.", ENGINE_CODES, metrics.engine_errors),
        ("errors", "Other requests answered with an error of the frontdoor's.", OTHER_CODES, metrics.errors),
    ):
        page.counts(f"{name}_total", text, "code", known, [({}, table)])
    for name, text, total in (
        ("generation_requests_total", "Requests on paths that take a slot.", metrics.all_generation_requests()),
        ("request_body_bytes_total", "Bytes of request bodies.", metrics.request_bytes),
        ("response_body_bytes_total", "Bytes of the engine's response bodies.", metrics.response_bytes),
        ("prompt_tokens_total", "Prompt tokens, where the engine reported usage.", metrics.prompt_tokens),
        ("completion_tokens_total", "Generated tokens, where the engine reported usage.", metrics.completion_tokens),
    ):
        page.rows(name, "counter", text, [({}, total)])
    for name, text, data in (
        ("queue_wait", "Wait for a slot, of those who waited.", metrics.queue_wait),
        ("inter_chunk", "Time between reads of an event stream, from the first on.", metrics.gaps),
    ):
        page.histogram(f"{name}_seconds", text, [({}, data)])
    text = "Time from the complete request to the first bytes of an event stream, without the wait for a slot."
    page.histogram("first_token_seconds", text, [(labels, stats.first_token) for labels, stats in paths])
    text = "The same for all other answers of the engine: whole ones, and errors."
    page.histogram("first_byte_seconds", text, [(labels, stats.first_byte) for labels, stats in paths])
    text = "Time from the complete request to the end of the answer."
    page.histogram("request_duration_seconds", text, [(labels, stats.duration) for labels, stats in paths])
    # a key that was removed keeps its numbers: what it used does not become less
    keys = sorted(({name: KeyStats() for name in metrics.key_names()} | metrics.keys).items())
    outcomes = [({"key": key}, stats.outcomes) for key, stats in keys]
    text = "Requests for the engine by API key and how they ended."
    page.counts("key_requests_total", text, "outcome", OUTCOMES, outcomes)
    tokens = [
        ({"key": key, "kind": kind}, value)
        for key, stats in keys
        for kind, value in (("prompt", stats.prompt_tokens), ("completion", stats.completion_tokens))
    ]
    page.rows("key_tokens_total", "counter", "Tokens by API key, where the engine reported usage.", tokens)
    return ("\n".join(page.lines) + "\n").encode()
