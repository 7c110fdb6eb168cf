# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state file: what the switch tells the frontdoor. Pure conversion between the record and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..words.decode import ShapeError, decode_written, document, plain
from .profile import Profile

SCHEMA = 1
# Fields of `profile.Frontdoor`; the others are rules for requests.
_LIMITS = ("max_active_generations", "queue_timeout_s", "backend_timeout_s")
_BESIDE = ("event_log", "routing")


def stamp(moment: datetime) -> str:
    """Return a moment in ISO 8601, in UTC with seconds, such as 2026-06-07T09:08:44Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class SlotState:
    """One version of the state file. phase: stopped, switching, verifying, serving or failed."""

    slot: str
    sequence: int
    updated_at: str
    phase: str
    open: bool = False
    verified: bool = False
    verified_at: str | None = None
    reason: str = ""
    retry_after_s: int | None = None
    switch: Mapping[str, Any] | None = None
    profile: Mapping[str, Any] | None = None
    backend_url: str | None = None
    limits: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    event_log: bool = True
    engine: Mapping[str, Any] | None = None
    gate: str = "verified"  # what had to hold before it was opened
    replicas: Sequence[Mapping[str, Any]] | None = None  # each of several engines; None: there is one
    routing: Mapping[str, Any] | None = None  # how requests find their replica; None: there is one
    names: Sequence[str] | None = None  # of the model that was served last, where none is
    idle: Mapping[str, Any] | None = None  # what the next request loads: its profile, and since when

    def check(self) -> None:
        if self.replicas is not None and not (self.replicas and all(map(_is_replica, self.replicas))):
            raise ShapeError("replicas", "holds something that is not the entry of an engine")

    @property
    def profile_name(self) -> str | None:
        return None if self.profile is None else self.profile.get("name")

    @property
    def known_as(self) -> Sequence[str]:
        """Return the names by which clients ask for its model; those of the last one where none is served."""
        if self.profile is None:
            return self.names or ()
        return [self.profile["served_model_name"], *((self.request or {}).get("model_aliases") or ())]

    @property
    def fingerprint(self) -> str | None:
        return None if self.profile is None else self.profile.get("fingerprint")

    @property
    def invocation_id(self) -> str | None:
        return None if self.engine is None else self.engine.get("invocation_id")

    @property
    def fields(self) -> dict[str, Any]:
        """Return what it says, without what counts and dates it."""
        return {key: value for key, value in self.__dict__.items() if key not in ("slot", "sequence", "updated_at")}

    @property
    def engines(self) -> tuple[Mapping[str, Any], ...]:
        """The engines that the state knows."""
        parts = [self.engine] if self.replicas is None else [row.get("engine") for row in self.replicas]
        return tuple(part for part in parts if part is not None)

    @property
    def passed(self) -> Mapping[str, bool]:
        """Return whether it is verified, by the invocation id of each process that passed what the gate asks for."""
        if self.replicas is None:
            return {self.invocation_id: self.verified} if self.invocation_id else {}
        opened = [row for row in self.replicas if row.get("open") and row.get("engine")]
        return {row["engine"]["invocation_id"]: bool(row.get("verified")) for row in opened}

    def to_json(self) -> str:
        return document(self, SCHEMA)


def parse_state(text: str | None) -> SlotState | None:
    """Return the state in `text`; None if it is not one that this version can read."""
    return decode_written(SlotState, text, SCHEMA)


def _is_replica(row: Mapping[str, Any]) -> bool:
    if not isinstance(row.get("index"), int):
        return False
    engine = row.get("engine")
    return engine is None or (isinstance(engine, Mapping) and isinstance(engine.get("invocation_id"), str))


def profile_part(profile: Profile) -> dict[str, Any]:
    """Return the fields of the state file that come from the profile."""
    front, thinks = plain(profile.frontdoor), profile.engine.reasoning
    return {
        "profile": {
            "name": profile.name,
            "title": profile.title,
            "hf_id": profile.model.hf_repo or "",
            "modalities": list(profile.modalities),
            "status": profile.status,
            "served_model_name": profile.engine.served_model_name,
            "max_model_len": profile.engine.max_model_len,
            "fingerprint": profile.fingerprint,
            "examined": profile.examined,
            **({"remote": True} if profile.engine.remote else {}),
            "engine_version": profile.engine.version,
            "reasoning": thinks and {"how": thinks.how, "template_kwargs": dict(thinks.template_kwargs)},
        },
        "backend_url": profile.engine.backend_url,
        "limits": {name: front[name] for name in _LIMITS},
        "request": {name: value for name, value in front.items() if name not in (*_LIMITS, *_BESIDE)}
        | {"allowed_media_domains": list(profile.engine.allowed_media_domains)},
        **{name: front[name] for name in _BESIDE},
    }


def current_env(slot: str, profile: Profile, verified: bool) -> str:
    """Return the text of current.env: the active profile's identity, one KEY="value" per line."""
    rows = {
        "B70_SLOT": slot,
        "B70_PROFILE": profile.name,
        "B70_PROFILE_TITLE": profile.title,
        "B70_PROFILE_STATUS": profile.status,
        "B70_FINGERPRINT": profile.fingerprint,
        "B70_STACK_ID": profile.stack.id,
        "B70_MODEL_PATH": profile.model.path,
        "B70_SERVED_MODEL_NAME": profile.engine.served_model_name,
        "B70_BACKEND_URL": profile.engine.backend_url,
        "B70_UNIT": " ".join(profile.units),
        "B70_VERIFIED": "1" if verified else "0",
    }
    lines = ["# Written by the switch at its commit. Changes made by hand are lost."]
    for key, value in rows.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        lines.append(f'{key}="{quoted}"')
    return "\n".join(lines) + "\n"
