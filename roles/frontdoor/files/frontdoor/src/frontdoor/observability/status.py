# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor answers itself: status, health, metrics, the page, and browsers that ask first."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import math
import os
import re
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

from frontdoor import __version__, errors
from frontdoor.admission.limiter import Limiter
from frontdoor.admission.memory import MemoryBudget
from frontdoor.admission.outlook import told_s
from frontdoor.config import Config
from frontdoor.http.client import ClientConnection
from frontdoor.http.head import RequestHead
from frontdoor.http.job import respond
from frontdoor.http.upstream import Pool
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.metrics import render
from frontdoor.policy.routes import Kind
from frontdoor.slot.current import Slot
from frontdoor.slot.engine import Probe, Vitals
from frontdoor.slot.health import EngineHealth
from frontdoor.slot.journal import History
from frontdoor.slot.state import PROFILE_TEXTS, VERIFIED, epoch, utc_now

# What was installed, as the unit names it: tells whether a process is older than its files.
BUILD = os.environ.get("B70_FRONTDOOR_BUILD", "")
_PREFLIGHT = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: *, Authorization\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)


@functools.cache
def page() -> tuple[bytes, bytes]:
    """The page for people, and the header lines that let the browser run exactly its own script and style."""
    html = (Path(__file__).parent / "page.html").read_bytes()

    def source(tag: str) -> str:
        found = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), html, re.DOTALL)
        assert found
        return base64.b64encode(hashlib.sha256(found[1]).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{source('script')}'; style-src 'sha256-{source('style')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, f"Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n".encode()


@dataclasses.dataclass
class LocalAnswers:
    """Answers paths that are not the engine's. `spread` and `keys_error` are asked each time."""

    config: Config
    slot: Slot
    health: EngineHealth
    limiter: Limiter
    memory: MemoryBudget
    pool: Pool
    probe: Probe
    vitals: Vitals
    history: History
    ledger: Ledger
    connections: Sized
    #: requests for the engine
    running: Sized
    spread: Callable[[], float]
    #: what is wrong with a file of keys
    keys_error: Callable[[], str]
    started_at: str = dataclasses.field(default_factory=utc_now)

    def answer(self, client: ClientConnection, head: RequestHead) -> None:
        """Answer a path that is not the engine's."""
        path = head.route.path
        if head.method == b"OPTIONS":
            self.preflight(client, head)
        elif head.route.kind is not Kind.LOCAL or path == "*":
            client.refuse(errors.unknown_path(path), head)
        elif head.method not in head.route.methods:
            client.refuse(errors.method_not_allowed(path, head.route.methods), head)
        elif path == "/":
            html, fields = page()
            respond(client, head, html, kind="text/html; charset=utf-8", fields=fields)
        else:
            # what is shown counts what has ended by now
            self.ledger.settle()
            if path == "/metrics":
                respond(client, head, self._metrics(), kind="text/plain; version=0.0.4")
                return
            status, payload, fields = 200, self._payload(path), b""
            if path == "/ready" and not payload["ready"]:
                status, seconds = 503, self._retry_after_s(self.spread())
                fields = b"" if seconds is None else b"Retry-After: %d\r\n" % seconds
            respond(client, head, payload, status=status, fields=fields)

    def preflight(self, client: ClientConnection, head: RequestHead) -> None:
        """Tell a browser what it may do."""
        cors = client.cors(head)
        top = errors.status_line(204) + errors.date_line() + cors + (_PREFLIGHT if cors else b"")
        client.reply(head, lambda connection: top + connection + b"\r\n")

    def _payload(self, path: str) -> dict[str, Any]:
        if path == "/status":
            return self._status()
        if path == "/frontdoor/activity":
            return self.ledger.activity.report() | {"switches": self.history.switches()}
        if path == "/health":
            return {"status": "ok"}
        (ready, reason), state = self._ready(), self.slot.state
        about = {"verified": state.verified, "gate": state.gate}
        return {"ready": ready, "phase": state.phase, "reason": reason, **about}

    def _ready(self) -> tuple[bool, str]:
        """Whether a request would be served now, by a verified engine, and why not.

        Without a slot, verification is nobody's business; where the operator's gate is another one, it is not waited
        for.
        """
        state = self.slot.state
        if self.slot.draining:
            return False, "the frontdoor is stopping"
        if not state.open or state.phase != "serving":
            return False, state.reason or f"the slot is {state.phase}"
        if self.health.reachable is False:
            return False, f"the engine does not answer: {self.health.error}"
        if self.config.slot.state_file and not state.verified and state.gate == VERIFIED:
            return False, "the engine is not verified"
        return True, ""

    def _retry_after_s(self, spread: float = 0.0) -> int | None:
        """When to ask again, as generations are told that are refused now; None while there is no reason to wait."""
        if self._ready()[0]:
            return None
        closed = self.slot.closed
        # open, but not well: it is looked at again then
        seconds = self.config.backend.probe_interval_s if closed is None else closed.retry_after_s
        return None if seconds is None else told_s(math.ceil(seconds), spread)

    def _status(self) -> dict[str, Any]:
        """The body of /status: `model_slot` and `frontdoor` as clients know them, and the slot's phase."""
        state, config, limiter, metrics = self.slot.state, self.config, self.limiter, self.ledger.metrics
        profile = state.profile or {}
        is_ready, why_not = self._ready()
        silent = self.probe.silent_s
        return {
            "ok": is_ready,
            "phase": state.phase,
            "open": state.open,
            "verified": state.verified,
            "verified_at": state.verified_at,
            "gate": state.gate,
            "reason": why_not or state.reason,
            "retry_after_s": self._retry_after_s(),
            "since": state.updated_at,
            "now": utc_now(),
            "switch": state.switch,
            "last_switch": next((switch for switch in self.history.switches() if switch["outcome"]), None),
            "model_slot": {
                "slot": state.slot,
                **{name: profile.get(name, "") for name in PROFILE_TEXTS},
                "modalities": ",".join(profile.get("modalities", ())),
                "max_model_len": profile.get("max_model_len"),
            },
            "engine": {
                "reachable": self.health.reachable,
                "error": self.health.error,
                "silent_s": None if silent is None else round(silent, 1),
                "tokens_per_s": self.vitals.tokens_per_s,
                "cache_used": self.vitals.cache_used,
                "url": state.backend_url,
                **{name: (state.engine or {}).get(name) for name in ("unit", "invocation_id", "started_at")},
                "connections": len(self.pool.open),
                "idle_connections": len(self.pool.idle),
            },
            "frontdoor": {
                "version": __version__,
                "build": BUILD,
                "host": config.listen.host,
                "port": config.listen.port,
                "backend": state.backend_url,
                "max_active_generations": limiter.limit,
                "queue_timeout_s": state.queue_timeout_s,
                "max_queued": config.admission.max_queued,
                "drain_timeout_s": config.limits.drain_timeout_s,
                "backend_timeout_s": state.backend_timeout_s,
                "active_generations": limiter.active,
                "queued_generations": limiter.queued,
                "total_generation_requests": metrics.all_generation_requests(),
                "refused_requests": metrics.refusals,
                "outcomes": metrics.outcomes(),
                "active_requests": len(self.running),
                "client_connections": len(self.connections),
                "buffered_bytes": self.memory.held,
                "request": dataclasses.asdict(state.rules),
                "event_logging": config.log.events and state.event_log,
                "auth": "api_key" if config.auth.keys_file else "none",
                "keys_error": self.keys_error(),
                "admin": bool(config.admin.keys_file),
                "tls": bool(config.tls.cert_file),
                "state_sequence": state.sequence,
                "draining": self.slot.draining,
                "started_at": self.started_at,
            },
        }

    def _metrics(self) -> bytes:
        state = self.slot.state
        profile = state.profile or {}
        labels = {name: str(profile.get(name) or "") for name in ("status", "served_model_name", "fingerprint")}
        labels = {"slot": state.slot, "profile": str(profile.get("name") or ""), **labels}
        return render(self.ledger.metrics, self._gauges(), labels, state.phase, __version__)

    def _gauges(self) -> dict[str, tuple[str, float]]:
        """What is true now, for the metrics: name to explanation and value."""
        state, limiter = self.slot.state, self.limiter
        verified_at = state.verified_at if state.verified else None
        return {
            "slot_open": ("Whether the slot takes work.", state.open),
            "slot_verified": ("Whether the running engine is verified.", state.verified),
            "ready": ("Whether a request would be served now.", self._ready()[0]),
            "state_since_timestamp_seconds": ("When the slot's state was last changed.", epoch(state.updated_at)),
            "verified_timestamp_seconds": ("When the running engine was verified; 0: it is not.", epoch(verified_at)),
            "start_time_seconds": ("When the frontdoor was started.", epoch(self.started_at)),
            "state_sequence": ("Sequence of the slot's state that was last applied.", state.sequence),
            "engine_reachable": ("Whether the engine answered when it was last asked.", bool(self.health.reachable)),
            "engine_silent_seconds": (
                "For how long an engine that listens has sent nothing.",
                self.probe.silent_s or 0,
            ),
            "generation_slots": ("Generations that may run at once.", limiter.limit),
            "active_generations": ("Generations that run.", limiter.active),
            "queued_generations": ("Generations that wait for a slot.", limiter.queued),
            "queue_places": ("Generations that may wait for a slot.", self.config.admission.max_queued),
            "active_requests": ("Requests for the engine under way.", len(self.running)),
            "client_connections": ("Connections of clients.", len(self.connections)),
            "engine_connections": ("Connections to the engine.", len(self.pool.open)),
            "buffered_bytes": ("Bytes of request bodies held.", self.memory.held),
            "keys_unusable": ("Whether a file of keys is wrong; its last right keys count.", bool(self.keys_error())),
        }
