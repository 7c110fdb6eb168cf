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
# no time and no number of slots or tokens is meant to be more than this
_MOST = 10_000_000


def utc_now() -> str:
    """The time of day as timestamps are written here, such as 2026-06-07T09:08:44Z."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StateError(ValueError):
    """The state file cannot be used; the text says why."""


@dataclasses.dataclass(frozen=True)
class SlotState:
    """One reading of the state file, with the configuration's fallbacks filled in.

    Times ending in `_s` are seconds; `updated_at` and `verified_at` are UTC timestamps as text.
    """

    slot: str
    sequence: int
    phase: str
    open: bool
    verified: bool
    reason: str
    backend_url: str
    max_active_generations: int
    queue_timeout_s: float
    backend_timeout_s: float
    rules: Rules
    event_log: bool
    updated_at: str | None = None
    verified_at: str | None = None
    retry_after_s: float | None = None
    switch: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None
    engine: dict[str, Any] | None = None
    #: what had to hold before the slot was opened: verified, healthy or none
    gate: str = VERIFIED


def _get(table: dict[str, Any], name: str, kinds: tuple[type, ...], where: str = "") -> Any:
    value = table.get(name)
    if value is None:
        return None
    # bool is an int in Python, never in the state file
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise StateError(f"{where}{name} has the wrong type: {value!r}")
    return value


def _number(
    table: dict[str, Any], name: str, minimum: float, where: str, kinds: tuple[type, ...] = (int, float)
) -> Any:
    value = _get(table, name, kinds, where)
    if value is not None and not minimum <= value <= _MOST:
        raise StateError(f"{where}{name} is {value!r}, which is not between {minimum} and {_MOST}")
    return value


def _limit(limits: dict[str, Any], name: str, default: float, minimum: float) -> float:
    value = _number(limits, name, minimum, "limits.")
    return default if value is None else float(value)


def _texts(table: dict[str, Any], name: str, where: str) -> list[str] | None:
    found: list[str] | None = _get(table, name, (list,), where)
    if found is not None and not all(isinstance(text, str) for text in found):
        raise StateError(f"{where}{name} is no list of texts: {found!r}")
    return found


def _part(table: dict[str, Any], name: str, texts: tuple[str, ...]) -> dict[str, Any] | None:
    """A part of the state that is passed on as it is, of which these members are used as texts."""
    part: dict[str, Any] | None = _get(table, name, (dict,))
    for text in texts:
        _get(part or {}, text, (str,), f"{name}.")
    return part


def _sequence(table: dict[str, Any]) -> int:
    value: int = _get(table, "sequence", (int,)) or 0
    if value < 0:
        raise StateError(f"sequence is {value!r}, which is below 0")
    return value


def _profile(table: dict[str, Any]) -> dict[str, Any] | None:
    profile = _part(table, "profile", ("name", "title", "hf_id", "status", "served_model_name", "fingerprint"))
    _texts(profile or {}, "modalities", "profile.")
    return profile


def _switch(table: dict[str, Any]) -> dict[str, Any] | None:
    switch = _part(table, "switch", ("id", "from", "to", "started_at"))
    _number(switch or {}, "eta_s", 0, "switch.")
    _get(switch or {}, "loading", (bool,), "switch.")
    return switch


def _engine(table: dict[str, Any]) -> dict[str, Any] | None:
    engine = _part(table, "engine", ("unit", "invocation_id", "started_at"))
    unit = (engine or {}).get("unit") or ""
    if "/" in unit or not unit.isprintable():
        raise StateError(f"engine.unit is no name of a unit: {unit!r}")
    return engine


def _rules(request: dict[str, Any], config: Config) -> Rules:
    """What is done to requests: the profile's word, or else the operator's."""

    def get(name: str, *kinds: type) -> Any:
        return _get(request, name, kinds, "request.")

    own = config.request
    policy = get("model_policy", str)
    if policy is not None and policy not in MODEL_POLICIES:
        raise StateError(f"request.model_policy {policy!r} is none of {', '.join(MODEL_POLICIES)}")
    aliases = _texts(request, "model_aliases", "request.")
    sampling = get("sampling_defaults", dict)
    domains = _texts(request, "allowed_media_domains", "request.")
    return Rules(
        chat_template_kwargs=get("chat_template_kwargs", dict),
        max_tokens_default=_number(request, "max_tokens_default", 0, "request.", (int,))
        or own.max_tokens_default
        or None,
        max_tokens_cap=_number(request, "max_tokens_cap", 0, "request.", (int,)) or own.max_tokens_cap or None,
        sampling_defaults=own.sampling_defaults if sampling is None else sampling,
        model_policy=policy or own.model_policy,
        model_aliases=tuple(own.model_aliases if aliases is None else aliases),
        allowed_media_domains=None if domains is None else tuple(domains),
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
    phase = table.get("phase")
    if phase not in PHASES:
        raise StateError(f"phase {phase!r} is none of {', '.join(PHASES)}")
    limits = _get(table, "limits", (dict,)) or {}
    request = _get(table, "request", (dict,)) or {}
    backend_url = _get(table, "backend_url", (str,)) or config.backend.url
    try:
        split_backend_url(backend_url)
    except ConfigError as exc:
        raise StateError(str(exc)) from exc
    event_log = _get(table, "event_log", (bool,))
    return SlotState(
        slot=_get(table, "slot", (str,)) or config.slot.name,
        sequence=_sequence(table),
        phase=phase,
        open=_get(table, "open", (bool,)) or False,
        verified=_get(table, "verified", (bool,)) or False,
        reason=_get(table, "reason", (str,)) or "",
        backend_url=backend_url,
        max_active_generations=int(
            _limit(limits, "max_active_generations", config.admission.max_active_generations, 1)
        ),
        queue_timeout_s=_limit(limits, "queue_timeout_s", config.admission.queue_timeout_s, 0),
        backend_timeout_s=_limit(limits, "backend_timeout_s", config.backend.response_timeout_s, 0.1),
        rules=_rules(request, config),
        event_log=True if event_log is None else event_log,
        updated_at=_get(table, "updated_at", (str,)),
        verified_at=_get(table, "verified_at", (str,)),
        retry_after_s=_number(table, "retry_after_s", 0, ""),
        switch=_switch(table),
        profile=_profile(table),
        engine=_engine(table),
        gate=_get(table, "gate", (str,)) or VERIFIED,
    )


def fallback(config: Config, *, is_open: bool, reason: str, sequence: int = 0) -> SlotState:
    """The state when no file says anything: closed and stopped, or (without a slot) serving."""
    return SlotState(
        slot=config.slot.name,
        sequence=sequence,
        phase="serving" if is_open else "stopped",
        open=is_open,
        verified=False,
        reason=reason,
        backend_url=config.backend.url,
        max_active_generations=config.admission.max_active_generations,
        queue_timeout_s=config.admission.queue_timeout_s,
        backend_timeout_s=config.backend.response_timeout_s,
        rules=dataclasses.replace(_rules({}, config), chat_template_kwargs=config.request.chat_template_kwargs or None),
        event_log=True,
        updated_at=utc_now(),
    )


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
            if self._seen is None:
                self._seen = "none"
                return fallback(self._config, is_open=True, reason="no slot is configured")
            return None
        try:
            found = os.stat(self._path)
        except OSError as exc:
            return self._closed(f"the state file {self._path} cannot be read: {exc.strerror}")
        seen = (found.st_mtime_ns, found.st_ino, found.st_size)
        if seen == self._seen:
            return None
        try:
            state = parse(regular.read(self._path), self._config)
        except OSError as exc:
            return self._closed(f"the state file {self._path} cannot be read: {exc.strerror}")
        except StateError as exc:
            # remembered as this very file, so that it is read again only after it changed
            state = fallback(self._config, is_open=False, reason=f"the state file {self._path} is unusable: {exc}")
        self._seen = seen
        return state

    def forget(self) -> None:
        """Make the next poll read the file again, changed or not."""
        if self._path:
            self._seen = None

    def _closed(self, reason: str) -> SlotState | None:
        if self._seen == reason:
            return None
        self._seen = reason
        return fallback(self._config, is_open=False, reason=reason)
