# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot's state, as the switch writes it."""

from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any, get_args

import orjson

from frontdoor.config import Config, ConfigError, ModelPolicy, Rules, split_backend_url
from frontdoor.slot.regular import Watched

VERIFIED = "verified"
PHASES = ("stopped", "switching", "verifying", "serving", "failed")
#: what is told of a profile
PROFILE_TEXTS = ("name", "title", "hf_id", "status", "served_model_name", "fingerprint")
# no time and no number of slots or tokens is meant to be more than this
_MOST = 10_000_000


def utc_now() -> str:
    """The time of day as timestamps are written here, such as 2026-06-07T09:08:44Z."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(stamp: str | None) -> float:
    """Seconds since 1970 of a timestamp; 0 where there is none."""
    try:
        return datetime.datetime.fromisoformat(stamp or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


class StateError(ValueError):
    """The state file cannot be used; the text says why."""


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


_NAMES = [field.name for field in dataclasses.fields(SlotState)]
# what is read of the file, by what its schema allows; the writer always writes all of it
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
_LEAST = {"limits.max_active_generations": 1, "limits.backend_timeout_s": 0.1}
_CHOICES = {"phase": PHASES, "request.model_policy": (None, *get_args(ModelPolicy))}


def _check(where: str, kind: Any, value: Any) -> None:
    """Raise StateError where a member is not what the schema of the file allows."""
    # bool is an int in Python, never in the state file
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise StateError(f"{where} has the wrong type: {value!r}")
    if isinstance(value, list) and not all(isinstance(text, str) for text in value):
        raise StateError(f"{where} is no list of texts: {value!r}")
    if where in _CHOICES and value not in _CHOICES[where]:
        raise StateError(f"{where} {value!r} is none of {', '.join(filter(None, _CHOICES[where]))}")
    if where == "engine.unit" and ("/" in value or not value.isprintable()):
        raise StateError(f"engine.unit is no name of a unit: {value!r}")
    if where == "sequence" and value < 0:
        raise StateError(f"sequence is {value!r}, which is below 0")
    least = _LEAST.get(where, 0)
    if where != "sequence" and kind is not bool and isinstance(value, int | float) and not least <= value <= _MOST:
        raise StateError(f"{where} is {value!r}, which is not between {least} and {_MOST}")


def _state(table: dict[str, Any], config: Config) -> SlotState:
    """Fill in what the configuration decides; raise ConfigError for an address that is none."""
    limits, request, own = table["limits"] or {}, table["request"] or {}, config.request
    aliases, sampling, domains = map(request.get, ("model_aliases", "sampling_defaults", "allowed_media_domains"))
    backend_url = table["backend_url"] or config.backend.url
    split_backend_url(backend_url)
    decided = {
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
            model_aliases=own.model_aliases if aliases is None else tuple(aliases),
            allowed_media_domains=None if domains is None else tuple(domains),
        ),
    }
    return SlotState(**{name: table[name] for name in _NAMES if name not in decided}, **decided)


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
    for kind, names in _MEMBERS.items():
        for where in names:
            part, _dot, name = where.rpartition(".")
            holder = table[part] if part else table
            if holder is None:
                continue
            if name not in holder:
                raise StateError(f"{where} is missing")
            _check(where, kind, holder[name])
    try:
        return _state(table, config)
    except ConfigError as exc:
        raise StateError(str(exc)) from exc


def fallback(config: Config, *, is_open: bool, reason: str) -> SlotState:
    """The state when no file says anything: closed and stopped, or (without a slot) serving."""
    table: dict[str, Any] = dict.fromkeys((*_NAMES, "limits"))
    table |= {"slot": config.slot.name, "sequence": 0, "gate": VERIFIED, "event_log": True, "updated_at": utc_now()}
    table |= {"phase": "serving" if is_open else "stopped", "open": is_open, "verified": False, "reason": reason}
    table |= {"request": {"chat_template_kwargs": config.request.chat_template_kwargs or None}}
    return _state(table, config)


def engine_is_another(state: SlotState, units_dir: str) -> str | None:
    """Why the running engine is not the one that was verified; None when it is, or when nobody claims that it was.

    systemd keeps a link `invocation:UNIT` for every running unit, which names this very start of it. An engine that was
    restarted, or that another unit has taken the place of, has not given its canary answers.
    """
    engine = state.engine or {}
    unit, expected = engine.get("unit"), engine.get("invocation_id")
    if not (state.open and state.verified and unit and expected):
        return None
    try:
        running = os.readlink(f"{units_dir}/invocation:{unit}")
    except OSError:
        return f"the verified engine, {unit}, does not run any more"
    if running != expected:
        return f"the engine, {unit}, was started again and has not been verified since"
    return None


class StateFile:
    """Reads the file when it changed. Never raises: what is wrong becomes the reason of a closed state."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._file = Watched(config.slot.state_file)
        self._written: SlotState | None = None
        self._unread = ""
        self._objection: str | None = None

    def poll(self) -> SlotState | None:
        """Return the new state, or None when nothing changed since the last call.

        A state that claims a verified engine is closed as soon as another one runs, and opened again should it be back.
        """
        written = self._read()
        self._written = written or self._written
        assert self._written is not None
        objection = engine_is_another(self._written, self._config.slot.units_dir)
        if written is None and objection == self._objection:
            return None
        self._objection = objection
        if objection is None:
            return self._written
        return dataclasses.replace(
            self._written, open=False, verified=False, phase="failed", reason=objection, updated_at=utc_now()
        )

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

    def forget(self) -> None:
        """Make the next poll read the file again, changed or not."""
        self._file.forget()
        self._unread = ""
