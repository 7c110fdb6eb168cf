# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers about what passed, and how they are written for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from frontdoor.errors import ENGINE_CODES, OTHER_CODES, TURNED_AWAY_CODES
from frontdoor.policy.routes import GENERATION_PATHS
from frontdoor.slot.reports import WEDGED
from frontdoor.slot.state import PHASES, epoch

PREFIX = "b70_frontdoor_"
Labels = dict[str, str]
# Upper bounds in seconds. The clock of the event loop has a resolution of a millisecond.
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FIRST = (*SHORT, 30.0, 60.0, 120.0)
LONG = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

# The outcomes of a request.
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

# The ends of loads that requests asked for: a refused one was not begun.
SERVED, FAILED = "served", "failed"
LOADS = (SERVED, FAILED, REFUSED)

# The signs in a stream that no sound engine sends.
REPETITION = "repetition"
UNPRINTABLE = "unprintable"
NOT_A_NUMBER = "nan_logprob"
SIGNS = (REPETITION, UNPRINTABLE, NOT_A_NUMBER)


def outcome_of(status: int) -> str:
    """Return the outcome of a request with a complete answer of the engine."""
    return OK if status < 500 else ENGINE_5XX


class Histogram:
    """Counts by upper bound. `counts` has one place more than `bounds`, for what lies above all of them."""

    def __init__(self, bounds: tuple[float, ...], parts: Sequence[Histogram] = ()) -> None:
        """Take the bounds; `parts` are histograms whose sum it begins as."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        for part in parts:
            self.counts = [one + other for one, other in zip(self.counts, part.counts, strict=True)]
        self.total: float = sum([part.total for part in parts], 0.0)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


def _zeros(known: Iterable[str]) -> Counter[str]:
    """Return a count with all possible keys at 0, because a rise from nothing is not seen."""
    return Counter(dict.fromkeys(known, 0))


class PathStats:
    """Numbers of one path."""

    def __init__(self) -> None:
        self.outcomes = _zeros(OUTCOMES)
        self.duration = Histogram(LONG)
        #: of event streams that went well, and of everything else
        self.first_token, self.first_byte = Histogram(FIRST), Histogram(FIRST)


class Stats:
    """Numbers of one API key, of one of several replicas, or of more."""

    def __init__(self) -> None:
        self.outcomes = _zeros(OUTCOMES)
        #: the engine's own report of what it read and generated
        self.prompt_tokens = self.completion_tokens = 0

    @property
    def tokens(self) -> Counter[str]:
        return Counter(prompt=self.prompt_tokens, completion=self.completion_tokens)


class SlotStats(Stats):
    """Numbers of the generations of one slot."""

    def __init__(self) -> None:
        super().__init__()
        #: those that were turned away for want of a permit, or because the slot is closed
        self.refusals = _zeros(TURNED_AWAY_CODES)
        #: of event streams that went well
        self.first_token = Histogram(FIRST)
        self.queue_wait = Histogram(LONG)
        #: loads that requests asked for, by how they ended, and how long requests waited for their model
        self.loads = _zeros(LOADS)
        self.load_wait = Histogram(LONG)
        self.gaps = Histogram(SHORT)

    def refused(self, code: str, status: int, number: int = 1) -> None:
        """Count generations that no engine was asked for."""
        self.outcomes[REFUSED] += number
        if status == 503:
            self.refusals[code] += number


class ModelStats:
    """Numbers of one served model."""

    def __init__(self) -> None:
        #: event streams that were looked at, and those with a sign of a broken engine
        self.streams = 0
        self.signs = _zeros(SIGNS)


class Metrics:
    """Totals since the start. Labels come from fixed sets, so their number is bounded."""

    def __init__(self, slots: Iterable[str] = ("main",)) -> None:
        #: by name
        self.slots = {name: SlotStats() for name in slots}
        self.paths: defaultdict[str, PathStats] = defaultdict(PathStats)
        self.keys: defaultdict[str, Stats] = defaultdict(Stats)
        #: by index, where the slot has several
        self.replicas: defaultdict[int, Stats] = defaultdict(Stats)
        #: by the name that each is served by
        self.models: defaultdict[str, ModelStats] = defaultdict(ModelStats)
        #: of the API keys that count now, which have rows before their first request
        self.key_names: Callable[[], Iterable[str]] = tuple
        #: requests that were turned away for want of a permit, or because the slot is closed
        self.refusals = _zeros(TURNED_AWAY_CODES)
        self.engine_errors = _zeros(ENGINE_CODES)
        #: other errors that clients were told
        self.errors = _zeros(OTHER_CODES)
        self.request_bytes = self.response_bytes = 0

    def answered(self, code: str, status: int, number: int = 1) -> None:
        """Count answers of the frontdoor's own that say no."""
        table = self.refusals if status == 503 else self.engine_errors if status in (502, 504) else self.errors
        table[code] += number

    def of_slots(self, attribute: str) -> Any:
        """Return a number or a histogram of all slots together."""
        parts: list[Any] = [getattr(slot, attribute) for slot in self.slots.values()]
        return Histogram(parts[0].bounds, parts) if isinstance(parts[0], Histogram) else sum(parts)

    @property
    def generation_requests(self) -> int:
        """The generations that have ended."""
        return sum([slot.outcomes.total() for slot in self.slots.values()])

    def outcomes(self) -> Counter[str]:
        """Return how many exchanges ended how, over all paths."""
        return sum((stats.outcomes for stats in self.paths.values()), Counter())


# Of what the status shows, too: the name without the prefix, where it stands there, and what it says.
SHOWN = {
    "slot_open": ("open", "Whether the slot takes work."),
    "slot_verified": ("verified", "Whether the running engine is verified."),
    "ready": ("ok", "Whether a request would be served now."),
    "state_since_timestamp_seconds": ("since", "When the slot's state was last changed."),
    "verified_timestamp_seconds": ("verified_at", "When the running engine was verified; 0: it is not."),
    "start_time_seconds": ("frontdoor.started_at", "When the frontdoor was started."),
    "state_sequence": ("frontdoor.state_sequence", "Sequence of the slot's state that was last applied."),
    "engine_reachable": ("engine.reachable", "Whether the engine answered when it was last asked."),
    "engine_silent_seconds": ("engine.silent_s", "For how long an engine that listens has sent nothing."),
    "generation_slots": ("frontdoor.max_active_generations", "Permits: generations that may run at once."),
    "active_generations": ("frontdoor.active_generations", "Generations that run."),
    "queued_generations": ("frontdoor.queued_generations", "Generations that wait for a permit."),
    "queue_places": ("frontdoor.max_queued", "Generations that may wait for a permit."),
    "active_requests": ("frontdoor.active_requests", "Requests for the engine under way."),
    "client_connections": ("frontdoor.client_connections", "Connections of clients."),
    "engine_connections": ("engine.connections", "Connections to the engine."),
    "buffered_bytes": ("frontdoor.buffered_bytes", "Bytes of request bodies held."),
    "quarantined": ("quarantined", "Whether the host is in quarantine."),
    "maintenance_timestamp_seconds": ("maintenance", "Since when the host is in maintenance; 0: it is not."),
    "lease_until_timestamp_seconds": ("lease_until", "Until when a play works on the host at most; 0: none does."),
    "keys_unusable": ("frontdoor.keys_error", "Whether a file of keys is wrong; its last right keys count."),
    "generation_requests_total": ("frontdoor.total_generation_requests", "Requests on paths that take permits."),
}
# Of each replica: the name without the prefix, its key in the status, and what it says.
REPLICA_SHOWN = {
    "replica_open": ("open", "Whether the replica may be given requests."),
    "replica_used": ("used", "Whether the replica is given requests: it is open, and answers as far as is known."),
    "replica_verified": ("verified", "Whether the replica's running engine is verified."),
    "replica_reachable": ("reachable", "Whether the replica answered when it was last asked."),
    "replica_generation_slots": ("max_active_generations", "Permits of the replica."),
    "replica_active_generations": ("active_generations", "Permits of the replica that are in use."),
    "replica_tokens_per_second": ("tokens_per_s", "Tokens that the replica generates, as it counts them."),
    "replica_cache_used_ratio": ("cache_used", "Share of the replica's cache in use, from 0 to 1."),
}
# The same of each slot; the samples without a label are those of the first one.
SLOT_SHOWN = {
    "by_slot_open": ("open", "Whether the slot takes requests."),
    "by_slot_verified": ("verified", "Whether the slot's running engines are verified."),
    "by_slot_ready": ("ok", "Whether a request to the slot would be served now."),
    "by_slot_generation_slots": ("max_active_generations", "Permits of the slot."),
    "by_slot_active_generations": ("active_generations", "Permits of the slot that are in use."),
    "by_slot_queued_generations": ("queued_generations", "Requests that wait for permits of the slot."),
    "by_slot_verification_wanted": ("verification_wanted", "Whether the slot's streams call for a verification."),
    "by_slot_replicas": ("replica_count", "Engines of the slot."),
    "by_slot_used_replicas": ("used_replicas", "Engines of the slot that are given requests."),
    "by_slot_idle": ("is_idle", "Whether the slot's model was unloaded because nobody asked for it."),
    "by_slot_held_requests": ("demand_held", "Requests that wait until their model is loaded."),
    "by_slot_oldest_held_seconds": ("demand_oldest_wait_s", "For how long the first of them has waited."),
    "by_slot_tokens_per_second": ("tokens_per_s", "Tokens that the slot's engines generate, as they count them."),
}
# Of what the watchdog of a slot tells; a slot without one has no samples.
WATCHED = {
    "engine_wedged": "Whether requests wait for the engine and nothing moves.",
    "engine_verification_timestamp_seconds": "When the canary of what is served last ran to its end.",
    "engine_verification_failed": "Whether that canary failed.",
    "liveness_timestamp_seconds": "When the watchdog last looked.",
    "watchdog_actions_total": "Actions of the watchdog since it started.",
    "standby_bytes": "Host memory kept by an engine that sleeps while another one serves.",
    "card_memory_bytes": "Memory of the card that is in use (used), and all of it (total).",
    "card_ecc": "Whether ECC of the card's memory seems to be on, derived from how much there is.",
    "card_faults_total": "Faults of the card that the kernel has reported since the watchdog started.",
}
# Of everything else: the attribute, of what (of all, all slots, a path, a key, a slot or a replica), and what it says.
_COUNTED = {
    "requests_total": ("outcomes", "path", "Requests for the engine by how they ended."),
    "refusals_total": ("refusals", "", "Requests turned away: no permit was free, or the slot was closed."),
    "engine_errors_total": ("engine_errors", "", "Failures of the engine, by kind."),
    "errors_total": ("errors", "", "Other requests answered with an error of the frontdoor's."),
    "request_body_bytes_total": ("request_bytes", "", "Bytes of request bodies."),
    "response_body_bytes_total": ("response_bytes", "", "Bytes of the engine's response bodies."),
    "prompt_tokens_total": ("prompt_tokens", "slots", "Prompt tokens, where the engine reported usage."),
    "completion_tokens_total": ("completion_tokens", "slots", "Generated tokens, where the engine reported usage."),
    "key_requests_total": ("outcomes", "key", "Requests for the engine by API key and how they ended."),
    "replica_requests_total": (
        "outcomes",
        "replica",
        "Requests by replica and how they ended, where there are several.",
    ),
    "by_slot_requests_total": ("outcomes", "slot", "Generations by slot and how they ended."),
    "by_slot_refusals_total": ("refusals", "slot", "Generations turned away, by slot."),
    "by_slot_tokens_total": ("tokens", "slot", "Tokens by slot, where the engine reported usage."),
    "by_slot_queue_wait_seconds": ("queue_wait", "slot", "Wait for a permit of the slot, of those who waited."),
    "by_slot_demanded_loads_total": ("loads", "slot", "Loads that requests asked for, by how they ended."),
    "by_slot_load_wait_seconds": ("load_wait", "slot", "Wait of requests until their model was loaded."),
    "by_slot_inter_chunk_seconds": ("gaps", "slot", "Time between reads of an event stream, by slot."),
    "by_slot_first_token_seconds": (
        "first_token",
        "slot",
        "Time to an event stream's first bytes, by slot, without the wait for a permit.",
    ),
    "watched_streams_total": ("streams", "model", "Answers that were looked at for degenerate output."),
    "degenerate_streams_total": ("signs", "model", "Those of them that showed a sign of a broken engine."),
    "key_tokens_total": ("tokens", "key", "Tokens by API key, where the engine reported usage."),
    "queue_wait_seconds": ("queue_wait", "slots", "Wait for a permit, of those who waited."),
    "inter_chunk_seconds": ("gaps", "slots", "Time between reads of an event stream, from the first on."),
    "first_token_seconds": (
        "first_token",
        "path",
        "Time to an event stream's first bytes, without the wait for a permit.",
    ),
    "first_byte_seconds": (
        "first_byte",
        "path",
        "The same for all other answers of the engine: whole ones, and errors.",
    ),
    "request_duration_seconds": ("duration", "path", "Time from the complete request to the end of the answer."),
}
# the label of each counter's own, where it is not a code
_LABELS = {"outcomes": "outcome", "loads": "outcome", "tokens": "kind", "signs": "sign"}
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
# suffix of the name, labels, and the value
Sample = tuple[str, Labels, float]


def _watched(slots: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Sample]]:
    """Return the watchdog's samples by the names of `WATCHED`."""
    found: dict[str, list[Sample]] = {name: [] for name in WATCHED}
    for slot, row in slots.items():
        told = row["liveness"]
        if told is None:
            continue
        for engine in told["engines"]:
            labels = {"slot": slot, "replica": str(engine["index"] or 0)}
            found["engine_wedged"].append(("", labels, engine["verdict"] == WEDGED))
        asked = told["verification"]
        if asked and asked["passed"] is not None:
            found["engine_verification_timestamp_seconds"].append(("", {"slot": slot}, epoch(asked["at"])))
            found["engine_verification_failed"].append(("", {"slot": slot}, not asked["passed"]))
        found["liveness_timestamp_seconds"].append(("", {"slot": slot}, epoch(told["at"])))
        for action, number in told["counts"].items():
            found["watchdog_actions_total"].append(("", {"slot": slot, "action": action}, number))
        for one in told["standby"]:
            labels = {"slot": slot, "profile": one["profile"], "level": str(one["level"])}
            found["standby_bytes"].append(("", labels, one["bytes"]))
        for card in told["cards"]:
            labels = {"slot": slot, "pci": card["pci"]}
            found["card_faults_total"].append(("", labels, card["faults"]))
            # values that its driver does not tell have no sample
            sizes = [(kind, card[kind]) for kind in ("used", "total") if card[kind] is not None]
            found["card_memory_bytes"] += [("", {**labels, "kind": kind}, size) for kind, size in sizes]
            if card["ecc"] is not None:
                found["card_ecc"].append(("", labels, card["ecc"]))
    return found


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def _samples(labels: Labels, attribute: str, data: Histogram | Counter[str] | int) -> Iterator[Sample]:
    if isinstance(data, Histogram):
        for bound, value in zip((*data.bounds, "+Inf"), accumulate(data.counts), strict=True):
            yield "_bucket", {**labels, "le": str(bound)}, value
        yield "_sum", labels, data.total
        yield "_count", labels, data.count
    elif isinstance(data, Counter):
        for key, value in sorted(data.items()):
            yield "", {**labels, _LABELS.get(attribute, "code"): key}, value
    else:
        yield "", labels, data


def _of_slots(slots: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, list[Sample]]]:
    """Yield names, texts and samples about each slot; a slot that was never switched has no last switch."""
    for name, (key, text) in SLOT_SHOWN.items():
        # values that the engines do not tell have no sample
        yield name, text, [("", {"slot": slot}, float(row[key])) for slot, row in slots.items() if row[key] is not None]
    phases = [
        ("", {"slot": slot, "phase": one}, float(row["phase"] == one)) for slot, row in slots.items() for one in PHASES
    ]
    yield "by_slot_phase", "Phase of the slot.", phases
    names = ("profile", "served_model_name", "fingerprint")
    told = [("", {"slot": slot} | {name: row[name] for name in names}, 1.0) for slot, row in slots.items()]
    yield "by_slot_info", "The profile in the slot.", told
    last = [({"slot": slot}, row["last_switch"]) for slot, row in slots.items() if row["last_switch"]]
    names = ("kind", "outcome", "failed_phase")
    told = [("", labels | {name: switch[name] or "" for name in names}, 1.0) for labels, switch in last]
    yield "by_slot_last_switch_info", "How the slot's last switch ended, and in which phase it failed.", told
    told = [("", labels, epoch(switch["at"])) for labels, switch in last]
    yield "by_slot_last_switch_timestamp_seconds", "When the slot's last switch began.", told
    told = [("", labels, float(switch["seconds"])) for labels, switch in last if switch["seconds"] is not None]
    yield "by_slot_last_switch_seconds", "How long the slot's last switch took.", told


def render(
    metrics: Metrics,
    now: Mapping[str, float],
    served: Labels,
    phase: str,
    version: str,
    *,
    replicas: Sequence[Mapping[str, Any]] = (),
    slots: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> bytes:
    """Return the body of /metrics in the text format of Prometheus (version 0.0.4).

    `now` is what the status shows, by name, `served` are labels, `replicas` and `slots` are the status' rows. Not with
    `prometheus_client`: to import it takes 14 MB, as much as is left of what the frontdoor may take.
    """
    lines: list[str] = []

    def add(name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        lines.extend((f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"))
        for suffix, labels, value in samples:
            inside = ",".join(f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels.items())
            # not in six digits: a counter would stand still
            number = repr(float(value)).removesuffix(".0")
            lines.append(f"{PREFIX}{name}{suffix}{inside and f'{{{inside}}}'} {number}")

    add("info", "gauge", "Version of the frontdoor.", [("", {"version": version}, 1)])
    add("slot_info", "gauge", "The profile in the slot.", [("", served, 1)])
    add("phase", "gauge", "Phase of the slot.", [("", {"phase": name}, name == phase) for name in PHASES])
    for name, value in now.items():
        add(name, _kind(name), SHOWN[name][1], [("", {}, value)])
    for name, (key, text) in REPLICA_SHOWN.items():
        # values that a replica does not tell have no sample
        told = [("", {"replica": str(row["index"])}, row[key]) for row in replicas if row[key] is not None]
        add(name, "gauge", text, told)
    for name, text, told in _of_slots(slots):
        add(name, "gauge", text, told)
    for name, samples_of in _watched(slots).items():
        add(name, _kind(name), WATCHED[name], samples_of)
    tables: dict[str, Mapping[str, Any]] = {
        "": {"": metrics},
        "path": {path: PathStats() for path in GENERATION_PATHS} | metrics.paths,
        # a key that was removed keeps its numbers: what it used does not become less
        "key": {name: Stats() for name in metrics.key_names()} | metrics.keys,
        "model": metrics.models,
        "slot": metrics.slots,
        "replica": {str(row["index"]): Stats() for row in replicas if len(replicas) > 1}
        | {str(index): stats for index, stats in metrics.replicas.items()},
    }
    for name, (attribute, label, text) in _COUNTED.items():
        if label == "slots":
            rows = [(Labels(), metrics.of_slots(attribute))]
        else:
            table = sorted(tables[label].items())
            rows = [({label: key} if label else {}, getattr(one, attribute)) for key, one in table]
        samples = [sample for labels, data in rows for sample in _samples(labels, attribute, data)]
        add(name, "counter" if name.endswith("_total") else "histogram", text, samples)
    return "\n".join([*lines, ""]).encode()
