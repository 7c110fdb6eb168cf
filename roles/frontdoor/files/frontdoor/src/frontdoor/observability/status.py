# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor tells about itself."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
from typing import TYPE_CHECKING, Any

import orjson

from frontdoor import __version__
from frontdoor.admission.outlook import told_s
from frontdoor.slot.state import VERIFIED, utc_now

if TYPE_CHECKING:
    from frontdoor.app import Door

# What was installed, as the unit names it: tells whether a process is older than its files.
BUILD = os.environ.get("B70_FRONTDOOR_BUILD", "")


def ready(door: Door) -> tuple[bool, str]:
    """Whether a request would be served now, by a verified engine, and why not.

    Without a slot, verification is nobody's business; where the operator's gate is another one, it is not waited for.
    """
    state = door.state
    if door.draining:
        return False, "the frontdoor is stopping"
    if not state.open or state.phase != "serving":
        return False, state.reason or f"the slot is {state.phase}"
    if door.engine_reachable is False:
        return False, f"the engine does not answer: {door.engine_error}"
    if door.config.slot.state_file and not state.verified and state.gate == VERIFIED:
        return False, "the engine is not verified"
    return True, ""


def retry_after_s(door: Door, spread: float = 0.0) -> int | None:
    """When to ask again, as generations are told that are refused now; None while there is no reason to wait."""
    if ready(door)[0]:
        return None
    # open, but not well: it is looked at again then
    seconds = door.config.backend.probe_interval_s
    if door.closed is not None:
        if door.closed.retry_after_s is None:
            return None
        seconds = door.closed.retry_after_s
    return told_s(math.ceil(seconds), spread)


def status(door: Door) -> dict[str, Any]:
    """The body of /status: `model_slot` and `frontdoor` as clients know them, and the slot's phase."""
    state, config = door.state, door.config
    profile = state.profile or {}
    modalities = profile.get("modalities")
    is_ready, why_not = ready(door)
    silent = door.probe.silent_s
    ended = [switch for switch in door.history.switches() if switch["outcome"]]
    return {
        "ok": is_ready,
        "phase": state.phase,
        "open": state.open,
        "verified": state.verified,
        "verified_at": state.verified_at,
        "gate": state.gate,
        "reason": why_not or state.reason,
        "retry_after_s": retry_after_s(door),
        "since": state.updated_at,
        "now": utc_now(),
        "switch": state.switch,
        "last_switch": ended[0] if ended else None,
        "model_slot": {
            "slot": state.slot,
            "name": profile.get("name", ""),
            "title": profile.get("title", ""),
            "hf_id": profile.get("hf_id", ""),
            "modalities": ",".join(modalities) if isinstance(modalities, list) else modalities or "",
            "status": profile.get("status", ""),
            "served_model_name": profile.get("served_model_name", ""),
            "max_model_len": profile.get("max_model_len"),
            "fingerprint": profile.get("fingerprint", ""),
        },
        "engine": {
            "reachable": door.engine_reachable,
            "error": door.engine_error,
            "silent_s": None if silent is None else round(silent, 1),
            "tokens_per_s": door.vitals.tokens_per_s,
            "cache_used": door.vitals.cache_used,
            "url": state.backend_url,
            **{name: (state.engine or {}).get(name) for name in ("unit", "invocation_id", "started_at")},
            **door.pool.status(),
        },
        "frontdoor": {
            "version": __version__,
            "build": BUILD,
            "host": config.listen.host,
            "port": config.listen.port,
            "backend": state.backend_url,
            "max_active_generations": door.gate.limit,
            "queue_timeout_s": state.queue_timeout_s,
            "max_queued": config.admission.max_queued,
            "drain_timeout_s": config.limits.drain_timeout_s,
            "backend_timeout_s": state.backend_timeout_s,
            "active_generations": door.gate.active,
            "queued_generations": door.gate.queued,
            "total_generation_requests": door.ledger.metrics.all_generation_requests(),
            "refused_requests": door.ledger.metrics.refusals,
            "outcomes": door.ledger.metrics.outcomes(),
            "active_requests": len(door.exchanges),
            "client_connections": len(door.connections),
            "buffered_bytes": door.buffered,
            "request": dataclasses.asdict(state.rules),
            "event_logging": door.events.requests,
            "auth": "none" if door.keys is None else "api_key",
            "keys_error": door.keys_error,
            "admin": bool(config.admin.keys_file),
            "tls": bool(config.tls.cert_file),
            "state_sequence": state.sequence,
            "draining": door.draining,
            "started_at": door.started_at,
        },
    }


def gauges(door: Door) -> dict[str, tuple[str, float]]:
    """What is true now, for the metrics: name to explanation and value."""
    state, gate = door.state, door.gate
    verified_at = state.verified_at if state.verified else None
    return {
        "slot_open": ("Whether the slot takes work.", state.open),
        "slot_verified": ("Whether the running engine is verified.", state.verified),
        "ready": ("Whether a request would be served now.", ready(door)[0]),
        "state_since_timestamp_seconds": ("When the slot's state was last changed.", _epoch(state.updated_at)),
        "verified_timestamp_seconds": ("When the running engine was verified; 0 while it is not.", _epoch(verified_at)),
        "start_time_seconds": ("When the frontdoor was started.", _epoch(door.started_at)),
        "state_sequence": ("Sequence of the slot's state that was last applied.", state.sequence),
        "engine_reachable": ("Whether the engine answered when it was last asked.", bool(door.engine_reachable)),
        "engine_silent_seconds": (
            "For how long an engine that accepts connections has sent nothing; 0 while it is not known to be silent.",
            door.probe.silent_s or 0,
        ),
        "generation_slots": ("Generations that may run at once.", gate.limit),
        "active_generations": ("Generations that run.", gate.active),
        "queued_generations": ("Generations that wait for a slot.", gate.queued),
        "queue_places": ("Generations that may wait for a slot.", door.config.admission.max_queued),
        "active_requests": ("Requests for the engine under way.", len(door.exchanges)),
        "client_connections": ("Connections of clients.", len(door.connections)),
        "engine_connections": ("Connections to the engine.", door.pool.open_connections),
        "buffered_bytes": ("Bytes of request bodies held.", door.buffered),
        "keys_unusable": ("Whether a file of keys is wrong, and those of before still count.", bool(door.keys_error)),
    }


def served(door: Door) -> dict[str, str]:
    """What is served, as labels for the metrics."""
    profile = door.state.profile or {}
    labels = {name: str(profile.get(name) or "") for name in ("status", "served_model_name", "fingerprint")}
    return {"slot": door.state.slot, "profile": str(profile.get("name") or ""), **labels}


def _epoch(stamp: str | None) -> float:
    """Seconds since 1970 of a timestamp; 0 where there is none."""
    try:
        return datetime.datetime.fromisoformat(stamp or "").timestamp()
    except ValueError:
        return 0


def encode(payload: dict[str, Any]) -> bytes:
    """JSON for people and programs alike."""
    return orjson.dumps(payload, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
