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

from frontdoor.config import MODEL_POLICIES, Config, ConfigError, Request, Rules, split_backend_url
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


_TEXT, _FLAG, _WHOLE, _NUMBER = (str,), (bool,), (int,), (int, float)
_LIST, _TABLE = (list,), (dict,)
# what is used of the file: members by their dotted name, what they must be, and the least that a number may be
_MEMBERS: dict[str, tuple[tuple[type, ...], float | None]] = {
    **dict.fromkeys(("limits", "request", "switch", "profile", "engine"), (_TABLE, None)),
    **dict.fromkeys(("slot", "reason", "backend_url", "updated_at", "verified_at", "gate"), (_TEXT, None)),
    **dict.fromkeys(("open", "verified", "event_log", "switch.loading"), (_FLAG, None)),
    **dict.fromkeys((f"switch.{name}" for name in ("id", "from", "to", "started_at")), (_TEXT, None)),
    **dict.fromkeys((f"engine.{name}" for name in ("unit", "invocation_id", "started_at")), (_TEXT, None)),
    **dict.fromkeys(
        (f"profile.{name}" for name in ("name", "title", "hf_id", "status", "served_model_name", "fingerprint")),
        (_TEXT, None),
    ),
    **dict.fromkeys(("profile.modalities", "request.model_aliases", "request.allowed_media_domains"), (_LIST, None)),
    **dict.fromkeys(("request.chat_template_kwargs", "request.sampling_defaults"), (_TABLE, None)),
    **dict.fromkeys(("request.max_tokens_default", "request.max_tokens_cap"), (_WHOLE, 0)),
    **dict.fromkeys(("retry_after_s", "switch.eta_s", "limits.queue_timeout_s"), (_NUMBER, 0)),
    "request.model_policy": (_TEXT, None),
    "limits.max_active_generations": (_NUMBER, 1),
    "limits.backend_timeout_s": (_NUMBER, 0.1),
    "sequence": (_WHOLE, None),
}


def _check(table: dict[str, Any]) -> None:
    """Raise StateError where a member that is used is not what it must be; null is as good as none."""
    for where, (kinds, least) in _MEMBERS.items():
        part, _dot, name = where.rpartition(".")
        value: Any = ((table.get(part) or {}) if part else table).get(name)
        if value is None:
            continue
        # bool is an int in Python, never in the state file
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not fits:
            raise StateError(f"{where} has the wrong type: {value!r}")
        if kinds is _LIST and not all(isinstance(text, str) for text in value):
            raise StateError(f"{where} is no list of texts: {value!r}")
        if least is not None and not least <= value <= _MOST:
            raise StateError(f"{where} is {value!r}, which is not between {least} and {_MOST}")


def _rules(request: dict[str, Any], own: Request) -> Rules:
    """What is done to requests: the profile's word, or else the operator's."""
    policy = request.get("model_policy")
    if policy is not None and policy not in MODEL_POLICIES:
        raise StateError(f"request.model_policy {policy!r} is none of {', '.join(MODEL_POLICIES)}")
    aliases, sampling, domains = map(request.get, ("model_aliases", "sampling_defaults", "allowed_media_domains"))
    return Rules(
        chat_template_kwargs=request.get("chat_template_kwargs"),
        max_tokens_default=request.get("max_tokens_default") or own.max_tokens_default or None,
        max_tokens_cap=request.get("max_tokens_cap") or own.max_tokens_cap or None,
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
    _check(table)
    get, limits = table.get, table.get("limits") or {}
    sequence, unit = get("sequence") or 0, (get("engine") or {}).get("unit") or ""
    if sequence < 0:
        raise StateError(f"sequence is {sequence!r}, which is below 0")
    if "/" in unit or not unit.isprintable():
        raise StateError(f"engine.unit is no name of a unit: {unit!r}")
    backend_url = get("backend_url") or config.backend.url
    try:
        split_backend_url(backend_url)
    except ConfigError as exc:
        raise StateError(str(exc)) from exc

    def limit(name: str, default: float) -> float:
        value = limits.get(name)
        return default if value is None else float(value)

    return SlotState(
        slot=get("slot") or config.slot.name,
        sequence=sequence,
        phase=phase,
        open=get("open") or False,
        verified=get("verified") or False,
        reason=get("reason") or "",
        backend_url=backend_url,
        max_active_generations=int(limit("max_active_generations", config.admission.max_active_generations)),
        queue_timeout_s=limit("queue_timeout_s", config.admission.queue_timeout_s),
        backend_timeout_s=limit("backend_timeout_s", config.backend.response_timeout_s),
        rules=_rules(get("request") or {}, config.request),
        event_log=get("event_log") is not False,
        gate=get("gate") or VERIFIED,
        **{name: get(name) for name in ("updated_at", "verified_at", "retry_after_s", "switch", "profile", "engine")},
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
        rules=dataclasses.replace(
            _rules({}, config.request), chat_template_kwargs=config.request.chat_template_kwargs or None
        ),
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
