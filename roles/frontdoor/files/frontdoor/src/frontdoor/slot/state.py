# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot's state, as the switch writes it."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from typing import Any, get_args

import orjson

from frontdoor.config import Config, ConfigError, ModelPolicy, Routing, Rules, StickyMode, split_backend_url
from frontdoor.policy.dialect import PLAIN
from frontdoor.slot.regular import Watched

VERIFIED = "verified"
PHASES = ("stopped", "switching", "verifying", "serving", "failed")
#: how a model may think
HOWS = ("disabled", "separate", "inline")
#: what is told of a profile
PROFILE_TEXTS = ("name", "title", "hf_id", "status", "served_model_name", "fingerprint")
# no time and no number of slots or tokens is meant to be more than this
_MOST = 10_000_000
_MOST_REPLICAS = 64


def utc_now() -> str:
    """Return the time of day as timestamps have it here, such as 2026-06-07T09:08:44Z."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(stamp: str | None) -> float:
    """Return the seconds since 1970 of a timestamp; 0 where there is none."""
    try:
        return datetime.datetime.fromisoformat(stamp or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


class StateError(ValueError):
    """The state file cannot be used; the text says why."""


@dataclasses.dataclass(frozen=True)
class ReplicaState:
    """One engine of the slot, as the state file tells it; a slot with one engine has one of them."""

    backend_url: str
    open: bool
    verified: bool
    #: why it is not open; may be empty
    reason: str
    max_active_generations: int
    #: tokens of a request and its answer; None where that is not to be looked at
    max_model_len: int | None
    #: numbers of its cards on the host; None where they are not told
    cards: tuple[int, ...] | None
    engine: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class SlotState:
    """One reading of the state file; where it says null, the configuration decides.

    Times ending in `_s` are seconds; `updated_at` and `verified_at` are UTC timestamps as text.
    """

    slot: str
    sequence: int
    phase: str
    open: bool
    verified: bool
    reason: str
    event_log: bool
    updated_at: str | None
    verified_at: str | None
    retry_after_s: float | None
    switch: dict[str, Any] | None
    profile: dict[str, Any] | None
    engine: dict[str, Any] | None
    #: what had to hold before the slot was opened: verified, healthy or none
    gate: str
    backend_url: str
    max_active_generations: int
    queue_timeout_s: float
    backend_timeout_s: float
    rules: Rules
    #: at least one
    replicas: tuple[ReplicaState, ...]
    routing: Routing
    #: of the model that was served last, where none is
    names: tuple[str, ...]
    #: the profile that was unloaded because nobody asked for it, and since when
    idle: dict[str, Any] | None


_NAMES = [field.name for field in dataclasses.fields(SlotState)]
# keys that are read of the file, as its schema allows them; the writer always writes all of them
_MEMBERS: dict[Any, tuple[str, ...]] = {
    dict | None: (
        *("limits", "request", "switch", "profile", "engine"),
        *("request.chat_template_kwargs", "request.sampling_defaults"),
    ),
    str: (
        *("slot", "phase", "reason", "gate", "switch.started_at"),
        *("engine.unit", "engine.invocation_id", "engine.started_at"),
        *(f"profile.{name}" for name in PROFILE_TEXTS),
    ),
    str | None: ("backend_url", "updated_at", "verified_at", "switch.from", "switch.to", "request.model_policy"),
    bool: ("open", "verified", "event_log", "switch.loading"),
    list: ("profile.modalities",),
    list | None: ("request.model_aliases", "request.allowed_media_domains"),
    int: ("sequence", "limits.max_active_generations"),
    int | None: ("request.max_tokens_default", "request.max_tokens_cap", "profile.max_model_len"),
    int | float: ("limits.queue_timeout_s", "limits.backend_timeout_s"),
    int | float | None: ("retry_after_s", "switch.eta_s"),
}
_METRIC = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?")
_LEAST = {"limits.max_active_generations": 1, "limits.max_model_len": 1, "limits.backend_timeout_s": 0.1}
_CHOICES = {
    "phase": PHASES,
    "request.model_policy": (None, *get_args(ModelPolicy)),
    "routing.sticky": get_args(StickyMode),
}
_IDLE_MEMBERS: dict[Any, tuple[str, ...]] = {str: ("idle.profile", "idle.since")}
# the same of each of several engines, and of how requests find theirs
_REPLICA_MEMBERS: dict[Any, tuple[str, ...]] = {
    dict: ("limits",),
    dict | None: ("engine",),
    int: ("limits.max_active_generations",),
    int | None: ("limits.max_model_len",),
    list: ("cards",),
    str: ("backend_url", "reason", "engine.unit", "engine.invocation_id", "engine.started_at"),
    bool: ("open", "verified"),
}
_ROUTING_MEMBERS: dict[Any, tuple[str, ...]] = {
    str: ("routing.sticky",),
    bool: ("routing.prefix_affinity",),
    list | None: ("routing.headers", "routing.json_fields"),
}


def _check(where: str, kind: Any, value: Any) -> None:
    """Raise StateError where a member is not what the schema of the file allows."""
    # bool is an int in Python, never in the state file
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise StateError(f"{where} has the wrong type: {value!r}")
    if isinstance(value, list):
        item, what = (int, "numbers") if where == "cards" else (str, "texts")
        if not all(isinstance(one, item) and not isinstance(one, bool) for one in value):
            raise StateError(f"{where} is no list of {what}: {value!r}")
    if where in _CHOICES and value not in _CHOICES[where]:
        raise StateError(f"{where} {value!r} is none of {', '.join(filter(None, _CHOICES[where]))}")
    if where == "engine.unit" and ("/" in value or not value.isprintable()):
        raise StateError(f"engine.unit is no name of a unit: {value!r}")
    if where == "sequence" and value < 0:
        raise StateError(f"sequence is {value!r}, which is below 0")
    least = _LEAST.get(where, 0)
    if where != "sequence" and kind is not bool and isinstance(value, int | float) and not least <= value <= _MOST:
        raise StateError(f"{where} is {value!r}, which is not between {least} and {_MOST}")


def _check_metrics(engine: dict[str, Any] | None) -> None:
    """Raise StateError where the names of the engine's metrics are none."""
    metrics = (engine or {}).get("metrics")
    if metrics is None:
        return
    if not isinstance(metrics, dict):
        raise StateError(f"engine.metrics has the wrong type: {metrics!r}")
    for name in ("tokens", "cache"):
        value = metrics.get(name)
        if not isinstance(value, str) or not _METRIC.fullmatch(value):
            raise StateError(f"engine.metrics.{name} is no name of a metric: {value!r}")


def _check_dialect(engine: dict[str, Any] | None) -> None:
    """Raise StateError where what the engine speaks is not what the schema allows."""
    told = (engine or {}).get("dialect")
    if told is None:
        return
    kinds = {name: type(value) for name, value in PLAIN._asdict().items()}
    if not isinstance(told, dict) or {name: type(value) for name, value in told.items()} != kinds:
        raise StateError(f"engine.dialect is not what the schema allows: {told!r}")


def _check_reasoning(profile: dict[str, Any] | None) -> None:
    """Raise StateError where what is told of the model is not what the schema allows."""
    told = profile or {}
    if told.get("remote", True) is not True:
        raise StateError(f"profile.remote has the wrong type: {told['remote']!r}")
    reasoning = told.get("reasoning")
    if reasoning is None:
        return
    right = isinstance(reasoning, dict) and reasoning.keys() == {"how", "template_kwargs"}
    if not right or reasoning["how"] not in HOWS or not isinstance(reasoning["template_kwargs"], dict):
        raise StateError(f"profile.reasoning is not what the schema allows: {reasoning!r}")


def _state(table: dict[str, Any], config: Config) -> SlotState:
    """Fill in what the configuration decides; raise ConfigError for an address that is none."""
    limits, request, own = table["limits"] or {}, table["request"] or {}, config.request
    aliases, sampling, domains = map(request.get, ("model_aliases", "sampling_defaults", "allowed_media_domains"))
    backend_url = table["backend_url"] or config.backend.url
    split_backend_url(backend_url)
    decided: dict[str, Any] = {
        "backend_url": backend_url,
        "max_active_generations": limits.get("max_active_generations", config.admission.max_active_generations),
        "queue_timeout_s": limits.get("queue_timeout_s", config.admission.queue_timeout_s),
        "backend_timeout_s": limits.get("backend_timeout_s", config.backend.response_timeout_s),
        "rules": Rules(
            chat_template_kwargs=request.get("chat_template_kwargs"),
            max_tokens_default=request.get("max_tokens_default") or own.max_tokens_default or None,
            max_tokens_cap=request.get("max_tokens_cap") or own.max_tokens_cap or None,
            sampling_defaults=own.sampling_defaults if sampling is None else sampling,
            model_policy=request.get("model_policy") or own.model_policy,
            model_aliases=_aliases(table, config, own.model_aliases if aliases is None else tuple(aliases)),
            allowed_media_domains=None if domains is None else tuple(domains),
            metrics=own.metrics,
            remote=own.remote,
        ),
    }
    decided["names"] = tuple(table.get("names") or ())
    decided["replicas"] = _replicas(table, decided["max_active_generations"], backend_url)
    routing = table.get("routing")
    lists = ("headers", "json_fields")
    decided["routing"] = (
        Routing()
        if routing is None
        else Routing(
            routing["sticky"],
            routing["prefix_affinity"],
            *(None if routing[name] is None else tuple(routing[name]) for name in lists),
        )
    )
    return SlotState(**{name: table[name] for name in _NAMES if name not in decided}, **decided)


def _aliases(table: dict[str, Any], config: Config, told: tuple[str, ...]) -> tuple[str, ...]:
    """Further names of the model; where requests may have one loaded, that of its profile is one of them."""
    profile = table["profile"] or {}
    name = profile.get("name")
    known = not config.slot.on_demand or not name or name in (profile.get("served_model_name"), *told)
    return told if known else (*told, str(name))


def _replicas(table: dict[str, Any], limit: int, backend_url: str) -> tuple[ReplicaState, ...]:
    """Return the engines of the slot; what the file does not tell of each is the slot's. Raise ConfigError."""
    rows = table.get("replicas")
    if rows is None:
        told: dict[str, Any] = {name: table[name] for name in ("open", "verified", "reason", "engine")}
        return (
            ReplicaState(backend_url=backend_url, max_active_generations=limit, max_model_len=None, cards=None, **told),
        )
    for row in rows:
        split_backend_url(row["backend_url"])
    return tuple(
        ReplicaState(
            **{name: row[name] for name in ("backend_url", "open", "verified", "reason", "engine")},
            **{name: row["limits"][name] for name in ("max_active_generations", "max_model_len")},
            cards=tuple(row["cards"]),
        )
        for row in rows
    )


def _check_members(table: dict[str, Any], members: dict[Any, tuple[str, ...]]) -> None:
    """Raise StateError where a member is missing, or is not what it has to be."""
    for kind, names in members.items():
        for where in names:
            part, _dot, name = where.rpartition(".")
            holder = table[part] if part else table
            if holder is None:
                continue
            if name not in holder:
                raise StateError(f"{where} is missing")
            _check(where, kind, holder[name])


def _check_replicas(rows: Any) -> None:
    """Raise StateError where the list of engines is none."""
    if rows is None:
        return
    if not isinstance(rows, list) or not 2 <= len(rows) <= _MOST_REPLICAS:
        raise StateError(f"replicas is no list of 2 to {_MOST_REPLICAS} engines")
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise StateError(f"replicas[{index}] is no object: {row!r}")
        try:
            _check_members(row, _REPLICA_MEMBERS)
            _check_metrics(row["engine"])
            _check_dialect(row["engine"])
        except StateError as exc:
            raise StateError(f"replicas[{index}]: {exc}") from exc


def parse(raw: bytes, config: Config) -> SlotState:
    """Turn the bytes of the state file into a SlotState; raise StateError."""
    try:
        table = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise StateError(f"not valid JSON: {exc}") from exc
    if not isinstance(table, dict):
        raise StateError("not a JSON object")
    if table.get("schema") != 1:
        raise StateError(f"schema {table.get('schema')!r} is not known to this frontdoor (it knows 1)")
    _check_members(table, _MEMBERS)
    _check_metrics(table["engine"])
    _check_dialect(table["engine"])
    # a slot with one engine does not tell these
    _check_replicas(table.get("replicas"))
    _check("names", list | None, table.get("names"))
    _check("idle", dict | None, table.setdefault("idle", None))
    _check_members(table, _IDLE_MEMBERS)
    _check("routing", dict | None, table.setdefault("routing", None))
    _check_members(table, _ROUTING_MEMBERS)
    _check_reasoning(table["profile"])
    try:
        return _state(table, config)
    except ConfigError as exc:
        raise StateError(str(exc)) from exc


def fallback(config: Config, *, is_open: bool, reason: str) -> SlotState:
    """Return the state without a file: closed and stopped, or (without a slot) serving."""
    table: dict[str, Any] = dict.fromkeys((*_NAMES, "limits"))
    table |= {"slot": config.slot.name, "sequence": 0, "gate": VERIFIED, "event_log": True, "updated_at": utc_now()}
    table |= {"phase": "serving" if is_open else "stopped", "open": is_open, "verified": False, "reason": reason}
    table |= {"request": {"chat_template_kwargs": config.request.chat_template_kwargs or None}}
    return _state(table, config)


def engine_is_another(replica: ReplicaState, units_dir: str) -> str | None:
    """Return why the running engine is not the verified one; None when it is, or when nobody claims that it was.

    systemd keeps a link `invocation:UNIT` for every running unit, which names this very start of it. An engine that was
    restarted, or that another unit has taken the place of, has not given its canary answers.
    """
    engine = replica.engine or {}
    unit, expected = engine.get("unit"), engine.get("invocation_id")
    if not (replica.open and replica.verified and unit and expected):
        return None
    try:
        running = os.readlink(f"{units_dir}/invocation:{unit}")
    except OSError:
        return f"the verified engine, {unit}, does not run any more"
    if running != expected:
        return f"the engine, {unit}, was started again and has not been verified since"
    return None


def _objected(state: SlotState, objections: dict[int, str]) -> SlotState:
    """Return the state with the replicas closed that have an objection."""
    replicas = tuple(
        dataclasses.replace(one, open=False, verified=False, reason=objections[index]) if index in objections else one
        for index, one in enumerate(state.replicas)
    )
    changes: dict[str, Any] = {"replicas": replicas, "updated_at": utc_now()}
    first = next((one for one in replicas if one.open), None)
    if first is not None:
        # as the slot itself tells a state with closed ones
        changes |= {"engine": first.engine, "backend_url": first.backend_url}
    else:
        reason = next(iter(objections.values()))
        changes |= {"open": False, "verified": False, "phase": "failed", "reason": reason}
    return dataclasses.replace(state, **changes)


class StateFile:
    """Reads the file when it changed. Never raises: what is wrong becomes the reason of a closed state."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._file = Watched(config.slot.state_file)
        self._written: SlotState | None = None
        self._unread = ""
        # by replica, where there is something to say against it
        self._objections: dict[int, str] = {}

    def poll(self) -> SlotState | None:
        """Return the new state, or None when nothing changed since the last call.

        A replica that is said to be verified is closed as soon as another engine runs there, and opened again should
        it be back. Without an open one the state is closed.
        """
        written = self._read()
        self._written = written or self._written
        assert self._written is not None
        units_dir, objections = self._config.slot.units_dir, dict[int, str]()
        for index, replica in enumerate(self._written.replicas if self._written.open else ()):
            if (objection := engine_is_another(replica, units_dir)) is not None:
                objections[index] = objection
        if written is None and objections == self._objections:
            return None
        self._objections = objections
        return _objected(self._written, objections) if objections else self._written

    def _read(self) -> SlotState | None:
        if not self._file.path:
            return None if self._written else fallback(self._config, is_open=True, reason="no slot is configured")
        before, self._unread = self._unread, ""
        try:
            raw = self._file.read()
            return None if raw is None else parse(raw, self._config)
        except OSError as exc:
            reason = self._unread = f"the state file {self._file.path} cannot be read: {exc.strerror}"
        except StateError as exc:
            reason = f"the state file {self._file.path} is unusable: {exc}"
        return None if reason == before else fallback(self._config, is_open=False, reason=reason)

    def forget(self, config: Config) -> None:
        """Make the next poll read the file again, changed or not, by these settings."""
        self._config, self._unread = config, ""
        self._file.forget()
        if not self._file.path:
            self._written = None
