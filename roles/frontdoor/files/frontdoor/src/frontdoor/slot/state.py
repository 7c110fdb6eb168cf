# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot's state, as the switch writes it."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from math import inf
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import orjson

from frontdoor.config import Config, ConfigError, Request, Routing, Rules, StickyMode, checked, split_backend_url
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
# The members that are read of the file, as its schema allows them. ~: it may be null; ?: it may be missing, too.
_COUNT, _AMOUNT, _SECONDS = Annotated[int, 1, _MOST], Annotated[int, 0, _MOST], Annotated[float, 0, _MOST]
_SAID = get_type_hints(Request, include_extras=True)
_ENGINE = {
    "unit": re.compile(r"[A-Za-z0-9:_.@-]*"),
    **dict.fromkeys(("invocation_id", "started_at"), str),
    "metrics?": dict.fromkeys(("tokens", "cache"), re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?")),
    "dialect?": {name: type(value) for name, value in PLAIN._asdict().items()},
}
_REPLICA = {
    **dict.fromkeys(("backend_url", "reason"), str),
    **dict.fromkeys(("open", "verified"), bool),
    "limits": {"max_active_generations": _COUNT, "max_model_len~": _COUNT},
    "cards": [_AMOUNT],
    "engine~": _ENGINE,
}
_STATE = {
    "sequence": Annotated[int, 0, inf],
    "phase": Literal[PHASES],
    "retry_after_s~": _SECONDS,
    **dict.fromkeys(("slot", "reason", "gate", "backend_url~", "updated_at~", "verified_at~"), str),
    **dict.fromkeys(("open", "verified", "event_log"), bool),
    "limits~": {
        "max_active_generations": _COUNT,
        "queue_timeout_s": _SECONDS,
        "backend_timeout_s": Annotated[float, 0.1, _MOST],
    },
    # what a site may say, and a profile before it; a 0 is a site's way to say nothing
    "request~": {
        **{f"{name}?": _COUNT if get_origin(hint) is Annotated else hint for name, hint in _SAID.items()},
        "allowed_media_domains?": tuple,
    },
    "switch~": {"loading": bool, "eta_s~": _SECONDS, **dict.fromkeys(("started_at", "from~", "to~"), str)},
    "profile~": {
        **dict.fromkeys(PROFILE_TEXTS, str),
        "modalities": tuple,
        "max_model_len~": _COUNT,
        "remote?": bool,
        "reasoning?": {"how": Literal[HOWS], "template_kwargs": dict},
    },
    "engine~": _ENGINE,
    # a slot with one engine does not tell these two
    "replicas?": [_REPLICA],
    "routing?": {"sticky": StickyMode, "prefix_affinity": bool, "headers~": tuple, "json_fields~": tuple},
    "names?": tuple,
    "idle?": {"profile": str, "since": str},
}


def _check(rule: Any, value: Any, where: str = "") -> None:
    """Raise ConfigError where a value is not what its rule says; `where` is its dotted name."""
    if isinstance(rule, dict):
        checked(dict, value, where)
        for name, member in rule.items():
            key = name.rstrip("~?")
            dotted = f"{where}.{key}" if where else key
            if key not in value and not name.endswith("?"):
                raise ConfigError(f"{dotted} is missing")
            if key == name or value.get(key) is not None:
                _check(member, value[key], dotted)
    elif isinstance(rule, list):
        for index, one in enumerate(checked(list, value, where)):
            _check(rule[0], one, f"{where}[{index}]")
    elif not isinstance(rule, re.Pattern):
        checked(rule, value, where)
    elif not rule.fullmatch(checked(str, value, where)):
        raise ConfigError(f"{where}: {value!r} does not match {rule.pattern}")


def _state(table: dict[str, Any], config: Config) -> SlotState:
    """Fill in what the configuration decides; raise ConfigError for an address that is none."""
    limits = table["limits"] or {}
    backend_url = table["backend_url"] or config.backend.url
    split_backend_url(backend_url)
    decided: dict[str, Any] = {
        "backend_url": backend_url,
        "max_active_generations": limits.get("max_active_generations", config.admission.max_active_generations),
        "queue_timeout_s": limits.get("queue_timeout_s", config.admission.queue_timeout_s),
        "backend_timeout_s": limits.get("backend_timeout_s", config.backend.response_timeout_s),
        "rules": _rules(table, config),
    }
    decided["names"] = tuple(table.get("names") or ())
    decided["replicas"] = _replicas(table, decided["max_active_generations"], backend_url)
    routing: dict[str, Any] = table.get("routing") or {}
    told = {field.name: routing[field.name] for field in dataclasses.fields(Routing) if routing}
    told |= {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    decided["routing"] = Routing(**told)
    return SlotState(**{name: table[name] for name in _NAMES if name not in decided}, **decided)


def _rules(table: dict[str, Any], config: Config) -> Rules:
    """Return what is done to requests: what the profile says, else the site."""
    request = table["request"] or {}
    # the template's arguments are the model's, so that a site has none for those of a profile
    own = config.request._asdict() | {"chat_template_kwargs": None, "allowed_media_domains": None}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Rules):
        said = own[field.name] if request.get(field.name) is None else request[field.name]
        found[field.name] = (
            tuple(said) if isinstance(said, list) else None if said.__class__ is int and not said else said
        )
    return Rules(**found | {"model_aliases": _aliases(table, config, found["model_aliases"])})


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
    try:
        _check(_STATE, table)
        rows = table.get("replicas")
        if rows is not None and not 2 <= len(rows) <= _MOST_REPLICAS:
            raise ConfigError(f"replicas is no list of 2 to {_MOST_REPLICAS} engines")
        return _state({"idle": None} | table, config)
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
