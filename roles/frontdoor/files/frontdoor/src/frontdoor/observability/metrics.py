# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers about what passed, and how they are written for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate

from frontdoor.codes import ENGINE_CODES, OTHER_CODES, TURNED_AWAY_CODES
from frontdoor.policy.routes import GATED_PATHS
from frontdoor.slot.state import PHASES

PREFIX = "b70_frontdoor_"
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
OUTCOMES = (
    *(OK, ENGINE_5XX, REFUSED, CLIENT_CLOSED, CLIENT_STALLED),
    *(UPSTREAM_ERROR, UPSTREAM_CUT, UPSTREAM_TIMEOUT, INTERRUPTED),
)


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


class PathStats:
    """Numbers of one path."""

    __slots__ = ("duration", "first_byte", "first_token", "outcomes")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.duration = Histogram(LONG)
        #: of event streams that went well, and of everything else
        self.first_token = Histogram(FIRST)
        self.first_byte = Histogram(FIRST)


class KeyStats:
    """Numbers of one API key."""

    __slots__ = ("completion_tokens", "outcomes", "prompt_tokens")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.prompt_tokens = self.completion_tokens = 0


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


Labels = dict[str, str]
Names = tuple[str, ...]


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

    def counts(self, name: str, text: str, label: str, tables: Iterable[tuple[Labels, Counter[str], Names]]) -> None:
        """Counters by one label more. What is known to be possible begins at 0: a rise from nothing is not seen."""
        rows = (
            ({**labels, label: key}, value)
            for labels, table, known in tables
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
    paths = sorted(({path: PathStats() for path in GATED_PATHS} | metrics.paths).items())
    page.counts(
        "requests_total",
        "Requests for the engine by how they ended.",
        "outcome",
        [({"path": path}, stats.outcomes, OUTCOMES) for path, stats in paths],
    )
    for name, text, table, codes in (
        (
            "refusals_total",
            "Requests turned away: no slot was free, or it was closed.",
            metrics.refusals,
            TURNED_AWAY_CODES,
        ),
        ("engine_errors_total", "Failures of the engine, by kind.", metrics.engine_errors, ENGINE_CODES),
        ("errors_total", "Other requests answered with an error of the frontdoor's.", metrics.errors, OTHER_CODES),
    ):
        page.counts(name, text, "code", [({}, table, codes)])
    for name, text, total in (
        ("generation_requests_total", "Requests on paths that take a slot.", metrics.all_generation_requests()),
        ("request_body_bytes_total", "Bytes of request bodies.", metrics.request_bytes),
        ("response_body_bytes_total", "Bytes of the engine's response bodies.", metrics.response_bytes),
        ("prompt_tokens_total", "Prompt tokens, where the engine reported usage.", metrics.prompt_tokens),
        ("completion_tokens_total", "Generated tokens, where the engine reported usage.", metrics.completion_tokens),
    ):
        page.rows(name, "counter", text, [({}, total)])
    page.histogram("queue_wait_seconds", "Wait for a slot, of those who waited.", [({}, metrics.queue_wait)])
    text = "Time between reads of an event stream, from the first on."
    page.histogram("inter_chunk_seconds", text, [({}, metrics.gaps)])
    for name, attribute, text in (
        (
            "first_token_seconds",
            "first_token",
            "Time from the complete request to the first bytes of an event stream, without the wait for a slot.",
        ),
        ("first_byte_seconds", "first_byte", "The same for all other answers of the engine: whole ones, and errors."),
        ("request_duration_seconds", "duration", "Time from the complete request to the end of the answer."),
    ):
        page.histogram(name, text, [({"path": path}, getattr(stats, attribute)) for path, stats in paths])
    # a key that was removed keeps its numbers: what it used does not become less
    keys = sorted(({name: KeyStats() for name in metrics.key_names()} | metrics.keys).items())
    page.counts(
        "key_requests_total",
        "Requests for the engine by API key and how they ended.",
        "outcome",
        [({"key": key}, stats.outcomes, OUTCOMES) for key, stats in keys],
    )
    page.rows(
        "key_tokens_total",
        "counter",
        "Tokens by API key, where the engine reported usage.",
        [
            ({"key": key, "kind": kind}, value)
            for key, stats in keys
            for kind, value in (("prompt", stats.prompt_tokens), ("completion", stats.completion_tokens))
        ],
    )
    return ("\n".join(page.lines) + "\n").encode()
