# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of the frontdoor itself: status, health, metrics, the page, and browsers that ask first."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import math
import os
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from frontdoor import __version__, chat, errors
from frontdoor.admission.outlook import told_s
from frontdoor.config import Config
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection, Server, Target
from frontdoor.http.head import RequestHead
from frontdoor.http.job import METRICS, respond
from frontdoor.observability.metrics import SHOWN, render
from frontdoor.policy.routes import CHAT_PAGE_PATHS, Kind
from frontdoor.slot.regular import Parsed
from frontdoor.slot.replicas import Replica
from frontdoor.slot.reports import KEPT, Records, newest, status_here
from frontdoor.slot.state import PROFILE_TEXTS, VERIFIED, epoch, utc_now

# The installed build, as the unit names it: tells whether a process is older than its files.
BUILD = os.environ.get("B70_FRONTDOOR_BUILD", "")
# whether the modules that every request passes are compiled
COMPILED = not hasattr(render, "__code__")
_PREFLIGHT = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: *, Authorization\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)

# statuses that a load balancer may want instead of 503: HAProxy lets requests end where a check is answered with 404
_UNREADY = {"404": 404}
# of the first slot, what the status tells as that of the host
_OF_FIRST = (
    *("ok", "phase", "open", "verified", "verified_at", "gate", "switch", "reason", "retry_after_s", "since"),
    *("last_switch", "idle", "demand", "model_slot", "records", "engine", "replicas"),
)


@functools.cache
def page() -> tuple[bytes, bytes]:
    """Return the page for people, and the header lines that let the browser run exactly its own script and style."""
    html = (Path(__file__).parent / "page.html").read_bytes()

    def source(tag: str) -> str:
        text = html.partition(f"<{tag}>".encode())[2].partition(f"</{tag}>".encode())[0]
        return base64.b64encode(hashlib.sha256(text).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{source('script')}'; style-src 'sha256-{source('style')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, f"Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n".encode()


@dataclasses.dataclass
class LocalAnswers:
    """Answers paths that are not the engine's."""

    config: Config
    server: Server
    #: of each slot
    histories: list[Parsed[list[dict[str, Any]]]]
    watchdogs: list[Parsed[dict[str, Any] | None]]
    records: Records
    quarantine: Parsed[bool]
    maintenance: Parsed[str]
    lease: Parsed[str]
    #: what is wrong with a file of keys
    keys_error: Callable[[], str]
    #: the requests that wait for models of a slot, and what the next one brings back
    demand: Callable[[int], dict[str, Any] | None]
    #: names the settings that count
    digest: str = ""
    #: what is wrong with the settings that were read last, and which of them wait for a new process
    settings_error: str = ""
    restart_needed: list[str] = dataclasses.field(default_factory=list)
    started_at: str = dataclasses.field(default_factory=utc_now)

    def answer(self, client: ClientConnection, head: RequestHead) -> None:
        path = head.route.path
        if head.method == b"OPTIONS":
            # a browser asks what it may do
            fields = client.own_fields(head) + client.connection_field(head)
            fields += _PREFLIGHT if self.server.cors.on and head.origin else b""
            client.write(errors.response(204, None, fields))
        elif head.route.kind is not Kind.LOCAL or path == "*":
            client.refuse(errors.unknown_path(path), head)
        elif head.method not in head.route.methods:
            client.refuse(errors.method_not_allowed(path, head.route.methods), head)
        elif path == "/":
            html, fields = page()
            respond(client, head, html, kind="text/html; charset=utf-8", fields=fields)
        elif path in CHAT_PAGE_PATHS:
            self._answer_chat(client, head)
        elif path == "/metrics":
            respond(client, head, self._metrics(), kind=METRICS)
        elif path == "/status":
            respond(client, head, self._status())
        elif path == "/frontdoor/activity":
            self._answer_activity(client, head)
        elif path == "/health":
            respond(client, head, {"status": "ok"})
        else:
            self._answer_ready(client, head)

    def _answer_chat(self, client: ClientConnection, head: RequestHead) -> None:
        """Send the chat page, or one of its files."""
        path = head.route.path
        if not chat.is_on(self.config):
            client.refuse(errors.unknown_path(path), head)
        else:
            content, kind = chat.file_at(path)
            respond(client, head, content, kind=kind, fields=chat.FIELDS)

    def _answer_activity(self, client: ClientConnection, head: RequestHead) -> None:
        """Tell what happened lately in a slot, the first one where none is named."""
        name = _asked(head).get("slot", [self.server.targets[0].name])[0]
        found = next((target.index for target in self.server.targets if target.name == name), None)
        if found is None:
            client.refuse(Refusal(404, "unknown_path", f"this host has no slot {name!r}"), head)
            return
        ledger = self.server.ledger
        ledger.settle()
        respond(client, head, ledger.activities[found].report() | {"switches": self.histories[found].read()[:KEPT]})

    def _answer_ready(self, client: ClientConnection, head: RequestHead) -> None:
        """Answer a load balancer, which may ask about one model, and may want another status than 503."""
        asked = _asked(head)
        model, targets = asked.get("model", [""])[0], self.server.targets
        comes = {name: one for one in targets for name in (self.demand(one.index) or {}).get("names", ())}
        by_model = {**comes, **self.server.by_model}
        target = by_model.get(model, targets[0])
        (ready, reason, seconds), state = self._ready(target, self.server.spread()), target.slot.state
        if ready and model and model not in by_model:
            ready, reason = False, f"the model {model!r} is not served here"
        if (since := self.maintenance.read()) and ready:
            # A person took it out of the fleet. Whoever asks it directly is served.
            ready, reason = False, f"the host is in maintenance since {since}"
        about = {"phase": state.phase, "reason": reason, "verified": state.verified, "gate": state.gate}
        fields = b"" if seconds is None else b"Retry-After: %d\r\n" % seconds
        unready = _UNREADY.get(asked.get("unready_status", [""])[0], 503)
        respond(client, head, {"ready": ready, **about}, status=200 if ready else unready, fields=fields)

    def _ready(self, target: Target, spread: float = 0.0) -> tuple[bool, str, int | None]:
        """Tell whether a verified engine would serve a request to the slot now; else why not, and when to retry.

        Without a slot there is no verification; under another gate of the operator it is not awaited. The seconds are
        those that generations are told that are refused now.
        """
        slot, replicas = target.slot, target.replicas
        state, reason = slot.state, ""
        if slot.draining:
            reason = "the frontdoor is stopping"
        elif not state.open and (self.demand(target.index) or {}).get("brings_back"):
            # only a request brings it back
            return True, state.reason, None
        elif not state.open or state.phase != "serving":
            reason = state.reason or f"the slot is {state.phase}"
        elif replicas.reachable is False:
            reason = f"the engine does not answer: {replicas.error}"
        elif self.config.slot.state_file and not state.verified and state.gate == VERIFIED:
            reason = "the engine is not verified"
        # open, but not well: it is looked at again then
        seconds = self.config.backend.probe_interval_s if slot.closed is None else slot.closed.retry_after_s
        return not reason, reason, told_s(math.ceil(seconds), spread) if reason and seconds is not None else None

    def _status(self) -> dict[str, Any]:
        """Return the body of /status: `model_slot` and `frontdoor` as clients know them, and the slot's phase."""
        config, metrics, first = self.config, self.server.ledger.metrics, self.server.targets[0]
        limiter, state = first.permits.limiter, first.slot.state
        # the page counts requests that have ended by now
        self.server.ledger.settle()
        slots = {target.name: self._slot(target) for target in self.server.targets}
        return {
            **{name: slots[first.name][name] for name in _OF_FIRST},
            "quarantined": self.quarantine.read(),
            "maintenance": self.maintenance.read() or None,
            "lease_until": self.lease.read() or None,
            "now": utc_now(),
            "slots": slots,
            "frontdoor": {
                "version": __version__,
                "compiled": COMPILED,
                "build": f"{BUILD}.{self.digest}" if self.digest else BUILD,
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
                # from their arrival on
                "total_generation_requests": metrics.generation_requests
                + sum(one.permits.limiter.requests for one in self.server.targets),
                "refused_requests": +metrics.refusals,
                "outcomes": metrics.outcomes(),
                "active_requests": len(self.server.running),
                "client_connections": len(self.server.connections.connections),
                "buffered_bytes": self.server.memory.held,
                "request": dataclasses.asdict(state.rules),
                "event_logging": config.log.events and state.event_log,
                "auth": "api_key" if config.auth.keys_file else "none",
                "keys_error": self.keys_error(),
                "settings_error": self.settings_error,
                "restart_needed": self.restart_needed,
                "admin": bool(config.admin.keys_file),
                "chat_page": chat.is_on(config),
                "tls": bool(config.tls.cert_file),
                "state_sequence": state.sequence,
                "draining": first.slot.draining,
                "started_at": self.started_at,
            },
        }

    def _slot(self, target: Target) -> dict[str, Any]:
        """Return the status of a slot: the profile that it serves, its records, and the state of its engines."""
        state, limiter, replicas = target.slot.state, target.permits.limiter, target.replicas
        profile, engine = state.profile or {}, state.engine or {}
        records = self.records.of(state.slot, profile)
        switches = self.histories[target.index].read()
        is_ready, why_not, retry_after_s = self._ready(target)
        return {
            "ok": is_ready,
            **{name: getattr(state, name) for name in ("phase", "open", "verified", "verified_at", "gate", "switch")},
            "reason": why_not or state.reason,
            "retry_after_s": retry_after_s,
            "since": state.updated_at,
            "last_switch": next((switch for switch in switches if switch["outcome"]), None),
            "idle": state.idle,
            "demand": self.demand(target.index),
            "profile": profile.get("name", ""),
            "served_model_name": profile.get("served_model_name", ""),
            "fingerprint": profile.get("fingerprint", ""),
            "model_aliases": state.rules.model_aliases,
            "state_sequence": state.sequence,
            "max_active_generations": limiter.limit,
            "active_generations": limiter.active,
            "queued_generations": limiter.queued,
            "queue_timeout_s": state.queue_timeout_s,
            "model_slot": {
                "slot": state.slot,
                **{name: profile.get(name, "") for name in PROFILE_TEXTS},
                "status": status_here(profile.get("status", ""), records),
                "modalities": ",".join(profile.get("modalities", ())),
                "max_model_len": profile.get("max_model_len"),
                "remote": target.slot.remote,
            },
            "records": newest(records),
            "engine": {
                "reachable": replicas.reachable,
                "error": replicas.error,
                "silent_s": _rounded(replicas.silent_s),
                "tokens_per_s": replicas.tokens_per_s,
                "cache_used": replicas.cache_used,
                "url": state.backend_url,
                **{name: engine.get(name) for name in ("unit", "invocation_id", "started_at")},
                "connections": sum(len(one.pool.open) for one in replicas.all),
                "idle_connections": sum(len(one.pool.idle) for one in replicas.all),
            },
            "sentinel": target.sentinel.report(),
            "liveness": self.watchdogs[target.index].read(),
            "replicas": [self._replica(target, one) for one in replicas.all],
        }

    def _replica(self, target: Target, replica: Replica) -> dict[str, Any]:
        """Return the status of one of the slot's engines; a slot with one engine has one row."""
        state, health, vitals = replica.state, replica.health, replica.vitals
        return {
            "index": replica.index,
            "cards": state.cards,
            "url": state.backend_url,
            "open": state.open,
            "verified": state.verified,
            "reason": state.reason,
            "reachable": health.reachable,
            "error": health.error,
            "used": state.open and health.reachable is not False,
            "silent_s": _rounded(replica.probe.silent_s),
            "max_active_generations": state.max_active_generations,
            "max_model_len": state.max_model_len,
            "active_generations": target.permits.limiter.held[replica.index],
            "active_requests": target.permits.loads()[replica.index],
            "tokens_per_s": vitals.tokens_per_s,
            "cache_used": vitals.cache_used,
            **{name: (state.engine or {}).get(name) for name in ("unit", "invocation_id", "started_at")},
            "connections": len(replica.pool.open),
        }

    def _metrics(self) -> bytes:
        status, now = self._status(), {}
        for name, (path, _text) in SHOWN.items():
            part, _dot, key = path.rpartition(".")
            value = (status[part] if part else status)[key]
            # a timestamp, or what is wrong
            now[name] = epoch(value) or bool(value) if isinstance(value, str) else value or 0
        if not status["verified"]:
            now["verified_timestamp_seconds"] = 0
        model = status["model_slot"]
        served = {"slot": model["slot"], "profile": model["name"]}
        served |= {name: model[name] for name in ("status", "served_model_name", "fingerprint")}
        slots = {
            name: row
            | {
                "verification_wanted": row["sentinel"]["verification_wanted_at"] is not None,
                "replica_count": len(row["replicas"]),
                "used_replicas": sum(one["used"] for one in row["replicas"]),
                "tokens_per_s": row["engine"]["tokens_per_s"],
                "is_idle": row["idle"] is not None,
                **{f"demand_{name}": row["demand"] and row["demand"][name] for name in ("held", "oldest_wait_s")},
            }
            for name, row in status["slots"].items()
        }
        told = {"replicas": status["replicas"], "slots": slots}
        return render(self.server.ledger.metrics, now, served, status["phase"], __version__, **told)


def _asked(head: RequestHead) -> dict[str, list[str]]:
    """Return the query of a request."""
    return urllib.parse.parse_qs(head.line.split(b" ")[1].partition(b"?")[2].decode("latin-1"))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
