# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot's state, as the switch writes it."""

from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any

import orjson

from frontdoor.config import MODEL_POLICIES, Config, ConfigError, Rules, split_backend_url
from frontdoor.slot import regular

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


_SAME = (
    *("slot", "sequence", "phase", "open", "verified", "reason", "event_log", "updated_at", "verified_at"),
    *("retry_after_s", "switch", "profile", "engine", "gate"),
)
# what is read of the file, by dotted name; the writer always writes all of it
_MEMBERS: dict[str, Any] = {
    **dict.fromkeys(("limits", "request", "switch", "profile", "engine"), dict | None),
    **dict.fromkeys(("slot", "phase", "reason", "gate", "switch.started_at", "engine.unit"), str),
    **dict.fromkeys(("engine.invocation_id", "engine.started_at"), str),
    **dict.fromkeys((f"profile.{name}" for name in PROFILE_TEXTS), str),
    **dict.fromkeys(("backend_url", "updated_at", "verified_at", "switch.from", "switch.to"), str | None),
    "request.model_policy": str | None,
    **dict.fromkeys(("open", "verified", "event_log", "switch.loading"), bool),
    "profile.modalities": list,
    **dict.fromkeys(("request.model_aliases", "request.allowed_media_domains"), list | None),
    **dict.fromkeys(("request.chat_template_kwargs", "request.sampling_defaults"), dict | None),
    **dict.fromkeys(("sequence", "limits.max_active_generations"), int),
    **dict.fromkeys(("request.max_tokens_default", "request.max_tokens_cap", "profile.max_model_len"), int | None),
    **dict.fromkeys(("limits.queue_timeout_s", "limits.backend_timeout_s"), int | float),
    **dict.fromkeys(("retry_after_s", "switch.eta_s"), int | float | None),
}
_LEAST = {"limits.max_active_generations": 1, "limits.backend_timeout_s": 0.1}
_CHOICES = {"phase": PHASES, "request.model_policy": MODEL_POLICIES}


def _check(table: dict[str, Any]) -> None:
    """Raise StateError where a member is missing, or not what the schema of the file allows."""
    for where, kind in _MEMBERS.items():
        part, _dot, name = where.rpartition(".")
        holder = table[part] if part else table
        if holder is None:
            continue
        if name not in holder:
            raise StateError(f"{where} is missing")
        value = holder[name]
        # bool is an int in Python, never in the state file
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise StateError(f"{where} has the wrong type: {value!r}")
        if isinstance(value, list) and not all(isinstance(text, str) for text in value):
            raise StateError(f"{where} is no list of texts: {value!r}")
        if value is not None and value not in _CHOICES.get(where, (value,)):
            raise StateError(f"{where} {value!r} is none of {', '.join(_CHOICES[where])}")
        least = _LEAST.get(where, 0)
        if where != "sequence" and kind is not bool and isinstance(value, int | float) and not least <= value <= _MOST:
            raise StateError(f"{where} is {value!r}, which is not between {least} and {_MOST}")


def _state(table: dict[str, Any], config: Config) -> SlotState:
    """Fill in what the configuration decides; raise ConfigError for an address that is none."""
    limits, request, own = table["limits"] or {}, table["request"] or {}, config.request
    aliases, sampling, domains = map(request.get, ("model_aliases", "sampling_defaults", "allowed_media_domains"))
    backend_url = table["backend_url"] or config.backend.url
    split_backend_url(backend_url)
    return SlotState(
        **{name: table[name] for name in _SAME},
        backend_url=backend_url,
        max_active_generations=limits.get("max_active_generations", config.admission.max_active_generations),
        queue_timeout_s=limits.get("queue_timeout_s", config.admission.queue_timeout_s),
        backend_timeout_s=limits.get("backend_timeout_s", config.backend.response_timeout_s),
        rules=Rules(
            chat_template_kwargs=request.get("chat_template_kwargs"),
            max_tokens_default=request.get("max_tokens_default") or own.max_tokens_default or None,
            max_tokens_cap=request.get("max_tokens_cap") or own.max_tokens_cap or None,
            sampling_defaults=own.sampling_defaults if sampling is None else sampling,
            model_policy=request.get("model_policy") or own.model_policy,
            model_aliases=tuple(own.model_aliases if aliases is None else aliases),
            allowed_media_domains=None if domains is None else tuple(domains),
        ),
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
    _check(table)
    unit = (table["engine"] or {"unit": ""})["unit"]
    if table["sequence"] < 0:
        raise StateError(f"sequence is {table['sequence']!r}, which is below 0")
    if "/" in unit or not unit.isprintable():
        raise StateError(f"engine.unit is no name of a unit: {unit!r}")
    try:
        return _state(table, config)
    except ConfigError as exc:
        raise StateError(str(exc)) from exc


def fallback(config: Config, *, is_open: bool, reason: str) -> SlotState:
    """The state when no file says anything: closed and stopped, or (without a slot) serving."""
    table: dict[str, Any] = dict.fromkeys((*_SAME, "limits", "backend_url"))
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
        self._path = config.slot.state_file
        self._seen: tuple[int, int, int] | str | None = None
        self._written: SlotState | None = None
        self._objection: str | None = None

    def poll(self) -> SlotState | None:
        """Return the new state, or None when nothing changed since the last call.

        A state that claims a verified engine is closed as soon as another one runs, and opened again should it be back.
        """
        written = self._poll_file()
        if written is not None:
            self._written = written
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

    def _poll_file(self) -> SlotState | None:
        if not self._path:
            seen, self._seen = self._seen, "none"
            return None if seen else fallback(self._config, is_open=True, reason="no slot is configured")
        try:
            found = os.stat(self._path)
            seen_now = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen_now == self._seen:
                return None
            state = parse(regular.read(self._path), self._config)
        except OSError as exc:
            reason = f"the state file {self._path} cannot be read: {exc.strerror}"
            seen, self._seen = self._seen, reason
            return None if seen == reason else fallback(self._config, is_open=False, reason=reason)
        except StateError as exc:
            # remembered as this very file, so that it is read again only after it changed
            state = fallback(self._config, is_open=False, reason=f"the state file {self._path} is unusable: {exc}")
        self._seen = seen_now
        return state

    def forget(self) -> None:
        """Make the next poll read the file again, changed or not."""
        if self._path:
            self._seen = None
