# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The application: wires the parts together, and routes requests to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from frontdoor import errors
from frontdoor.admin.api import Admin
from frontdoor.admission.connections import ConnectionLimiter
from frontdoor.admission.limiter import Limiter
from frontdoor.admission.memory import MemoryBudget
from frontdoor.admission.outlook import Outlook
from frontdoor.admission.permits import Permits
from frontdoor.admission.router import Router, Wish
from frontdoor.config import Config
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection, Server, Work
from frontdoor.http.exchange import Exchange
from frontdoor.http.head import RequestHead
from frontdoor.http.listing import Listing
from frontdoor.http.measured import Measured
from frontdoor.networks import networks
from frontdoor.observability.events import EventLog
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.status import LocalAnswers
from frontdoor.policy.asked import permits_of
from frontdoor.policy.document import Document
from frontdoor.policy.keys import Keys
from frontdoor.policy.llm_pool import Served
from frontdoor.policy.routes import REMOTE_PATHS, Kind
from frontdoor.policy.routing import Reader, replica_named
from frontdoor.slot.current import STOPPING, Slot, kind_of
from frontdoor.slot.journal import History
from frontdoor.slot.records import Records
from frontdoor.slot.replicas import Replicas
from frontdoor.slot.state import SlotState, StateFile

_SWEEP_S = 0.25
# when this process was not let run for so long, what came meanwhile is read before anybody is told to be late
_STALL_S = 1.0
_OPEN_PATHS = ("/", "/health", "/ready")


def _judged_by(state: SlotState) -> tuple[object, ...]:
    """What bodies are checked and edited by. Another stack of the same model is no reason to turn away who waits."""
    profile, lengths = state.profile or {}, tuple(one.max_model_len for one in state.replicas)
    names = ("name", "served_model_name", "modalities", "reasoning", "remote")
    served = Served(kind=kind_of(state), version=profile.get("engine_version") or "")
    return state.rules, lengths, served.kind, served.templates_responses, *(profile.get(name) for name in names)


class App:
    """Made once for a process. What changes is kept by the parts."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        events: EventLog,
        spread: Callable[[], float] = random.random,
    ) -> None:
        """`spread` gives numbers from 0 to 1, by which refused clients are spread over time."""
        self.config = config
        self.loop = loop
        self.events = events
        limits, backend, admission = config.limits, config.backend, config.admission
        self.keys = Keys(config.auth.keys_file) if config.auth.keys_file else None
        outlook = Outlook()
        self.ledger = Ledger(events, loop.time, loop.call_later, outlook.lasted)
        self.limiter = Limiter(admission.max_active_generations, admission.max_queued)
        self.router = Router()
        self.replicas = Replicas(
            loop, backend, events, changed=self._replicas_changed, active=lambda index: self.limiter.held[index]
        )
        self.permits = Permits(
            self.limiter,
            self.router,
            outlook,
            loop,
            loads=self.replicas.loads,
            waited=self.ledger.metrics.queue_wait.observe,
            settle=self.ledger.settle,
        )
        per_client = max(limits.max_buffered_bytes_per_client, limits.max_body_bytes)
        self.memory = MemoryBudget(limits.max_buffered_bytes, per_client)
        #: requests for the engine that are under way
        self.running: set[Exchange] = set()
        self.connection_limiter: ConnectionLimiter[ClientConnection] = ConnectionLimiter(
            limits, networks(config.listen.allowed_networks), networks(config.listen.trusted_proxies)
        )
        self.connections = self.connection_limiter.connections
        #: the last switches
        self.history = History(config.slot.journal_file)
        self._state_file = StateFile(config)
        first = self._state_file.poll()
        assert first is not None
        self.slot = Slot(first)
        self._sequence = first.sequence
        origin = config.cors.allow_origin
        cors = f"Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Expose-Headers: Retry-After\r\n" + (
            "" if origin == "*" else "Vary: Origin\r\n"
        )
        self.server = Server(
            loop=loop,
            limits=limits,
            route=self.route,
            refusal_before_body=self.refusal_before_body,
            connections=self.connection_limiter,
            replicas=self.replicas,
            permits=self.permits,
            memory=self.memory,
            ledger=self.ledger,
            slot=self.slot,
            running=self.running,
            spread=spread,
            scheme=b"https" if config.tls.cert_file else b"http",
            cors=cors.encode() if origin else b"",
            keep_secrets=self.keys is None,
        )
        if self.keys is not None:
            keys = self.keys
            self.ledger.metrics.key_names = lambda: keys.names
        records = Records(config.slot.records_file)
        self._local = LocalAnswers(
            config=config,
            server=self.server,
            history=self.history,
            records=records,
            keys_error=lambda: self.keys_error,
        )
        self._admin = Admin(
            config.admin,
            ordinary=self.keys,
            server=self.server,
            records=records,
            events=events,
            reload=self.reload,
            poll_state=self.poll_state,
        )
        self._swept = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._state_applied(first, first)

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work."""
        self._every("state", self.config.slot.poll_interval_s, self.poll_state)
        self._every("sweep", _SWEEP_S, self._sweep)
        self._every("sample", 1.0, self._sample)
        self._every("vitals", self.config.backend.metrics_interval_s, self.replicas.run_vitals)
        self._every("probe", self.config.backend.probe_interval_s, self.replicas.run_probes)
        self.replicas.run_probes()

    def stop(self) -> None:
        """End the periodic work and every connection."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._admin.drain()
        for connection in list(self.connections):
            connection.abort()
        self.replicas.stop()
        self.ledger.sweep()

    def drain(self) -> None:
        """Take no more work; idle clients are sent away, running answers go on."""
        self.slot.drain()
        self.permits.dismiss(STOPPING)
        self._admin.drain()
        for connection in list(self.connections):
            if connection.idle:
                connection.transport.close()

    def interrupt(self) -> int:
        """End the answers that still run, so that clients see why; return how many there were."""
        running = list(self.running)
        for exchange in running:
            exchange.interrupt(STOPPING)
        return len(running)

    def _every(self, name: str, interval: float, work: Callable[[], None]) -> None:
        def tick() -> None:
            self._timers[name] = self.loop.call_later(interval, tick)
            work()

        self._timers[name] = self.loop.call_later(interval, tick)

    def _sweep(self) -> None:
        now = self.loop.time()
        stalled, self._swept = now - self._swept > _STALL_S, now
        if not stalled:
            for connection in [c for c in self.connections if c.deadline is not None and c.deadline < now]:
                connection.expired()
            for exchange in list(self.running):
                exchange.expire(now)
        self.replicas.sweep()
        self.refresh_keys()
        self.ledger.sweep()

    def _sample(self) -> None:
        self.slot.count_down()
        self.ledger.activity.sample(time.time(), self.limiter.active, self.limiter.queued, self.replicas.tokens_per_s)

    @property
    def keys_error(self) -> str:
        """What is wrong with a file of keys that changed; those of before count until it is right."""
        return next((keys.error for keys in (self.keys, self._admin.keys) if keys is not None and keys.error), "")

    def refresh_keys(self) -> None:
        """Read the files of keys again when they changed."""
        for keys in (self.keys, self._admin.keys):
            if keys is not None:
                keys.refreshed(self.events.emit)

    # --- the slot's state ------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the state file and the keys now, whether they look changed or not."""
        self.refresh_keys()
        self._state_file.forget()
        self.poll_state()

    def poll_state(self) -> None:
        """Apply the state file when it changed."""
        state = self._state_file.poll()
        if state is None:
            return
        before = self.slot.state
        if 0 < state.sequence < self._sequence:
            # what the file says counts, but whoever put it there should know
            self.events.emit("state_went_back", sequence=state.sequence, was=self._sequence)
        self._sequence = state.sequence or self._sequence
        # what ended before is logged by the rules of before
        self.ledger.settle()
        self.slot.apply(state)
        count = len(self.replicas.all)
        self._state_applied(state, before)
        if len(self.replicas.all) > count:
            self.replicas.run_probes()
        self._admin.state_applied(state)
        self.events.emit(
            "state_applied",
            sequence=state.sequence,
            phase=state.phase,
            open=state.open,
            was=before.phase,
            reason=state.reason,
            profile=(state.profile or {}).get("name"),
            max_active_generations=state.max_active_generations,
        )

    def _state_applied(self, state: SlotState, before: SlotState) -> None:
        """Tell the parts what is so from now on."""
        profile = str((state.profile or {}).get("name") or "")
        self.ledger.activity.phase(time.time(), state.phase, profile, state.reason)
        self.events.requests = self.config.log.events and state.event_log
        if self.replicas.apply(state, anew=before.phase != state.phase):
            self.permits.outlook.forget()
            self.router.forget()
        self._reader = Reader(state.routing, [one.max_model_len or 0 for one in state.replicas], kind_of(state))
        self.permits.outlook.crowded_until = 0.0
        refusal = self.slot.closed
        if refusal is None and _judged_by(state) != _judged_by(before):
            # their bodies are edited as it was right for what was served before
            refusal = errors.outdated(before, state)
        self._set_permits(refusal)

    def _set_permits(self, refusal: Refusal | None = None) -> None:
        """Let requests in where they may go now; with a refusal those who wait are told that."""
        limits = [one.state.max_active_generations for one in self.replicas.all]
        self.permits.set(limits, self.replicas.usable, self.slot.state.queue_timeout_s, refusal)

    def _replicas_changed(self) -> None:
        """One of them answers, or does not any more."""
        if self.replicas.several:
            self._set_permits()

    # --- requests --------------------------------------------------------------------------------------------------

    def _unauthorized(self, client: ClientConnection, head: RequestHead) -> Refusal | None:
        """What to say where a key is needed and was not given; notes whose key it is.

        The machine itself may look at the status without one, but not whom a proxy on it speaks for. The administration
        has keys of its own.
        """
        if self.keys is None or head.route.path in _OPEN_PATHS or head.route.kind is Kind.ADMIN:
            return None
        if head.method == b"OPTIONS" and self.server.cors:
            # a browser that asks first shows no key; without CORS the engine would be asked
            return None
        client.key_name = self.keys.identify(head.secret) if head.secret else None
        if client.key_name is not None:
            client.client_key = "key " + client.key_name
            return None
        if head.route.kind is Kind.LOCAL and client.from_this_host and not head.forwarded:
            return None
        return self._admin.refusal_elsewhere(head)

    def refusal_before_body(self, client: ClientConnection, head: RequestHead) -> Refusal | None:
        """What is known to be refused before the client sends its body."""
        if head.route.kind is Kind.ADMIN:
            return self._admin.refusal(head)
        refusal = self._unauthorized(client, head)
        if refusal is not None or not head.expects_continue:
            return refusal
        if head.route.kind is Kind.UNKNOWN:
            return errors.unknown_path(head.route.path)
        return self.slot.closed if head.route.kind is Kind.ENGINE else None

    def route(self, client: ClientConnection, head: RequestHead, body: bytes | bytearray) -> Work | None:
        """Answer a complete request at once (None), or return what will."""
        found = None if self.keys is None else self._unauthorized(client, head)
        if found is not None:
            client.refuse(found, head)
        elif head.generates:
            work = self._generate(client, head, body)
            if not isinstance(work, Refusal):
                return work
            client.turn_away(work, head)
            self.ledger.turned_away(client.address, client.key_name, head.route, work.code, work.status)
        elif head.route.kind is Kind.ADMIN and head.method != b"OPTIONS":
            return self._admin.handle(client, head, bytes(body))
        elif head.route.kind is not Kind.ENGINE or (
            head.method == b"OPTIONS" and (self.server.cors or head.route.methods)
        ):
            self._local.answer(client, head)
        else:
            work = self._pass_on(client, head, body)
            if not isinstance(work, Refusal):
                return work
            client.refuse(work, head)
        return None

    def _generate(self, client: ClientConnection, head: RequestHead, body: bytes | bytearray) -> Work | Refusal:
        """Ask the engine for a generation, when there are permits for it."""
        if self.slot.closed is not None:
            return self.slot.closed
        if self.limiter.full and not self.permits.timeout_s:
            return self.permits.busy(id(client))
        # a compressed body is read by no engine
        document = Document(body)
        permits = 1 if head.coded else permits_of(head.route.path, document, self.limiter.most)
        if isinstance(permits, Refusal):
            return permits
        # whatever it calls itself: who reads it as JSON must not find what was not looked at
        wanted = self._edited(head, document)
        if isinstance(wanted, Refusal):
            return wanted
        wish: Wish | None = None
        if self.replicas.several and not head.coded:
            found = self._reader.wish(head.route.path, head.fields, document, wanted, self.replicas.open)
            if isinstance(found, Refusal):
                return found
            wish = found
        if document.measured:
            return Measured(client, head, len(body), wanted, permits, wish)
        return Exchange(client, head, len(body), wanted, permits, wish)

    def _pass_on(self, client: ClientConnection, head: RequestHead, body: bytes | bytearray) -> Work | Refusal:
        """Ask the engine what takes no permits."""
        if head.route.methods and head.method not in head.route.methods:
            return errors.method_not_allowed(head.route.label, head.route.methods)
        # who asks all the time would keep the process from ending
        if self.slot.closed is not None and (self.slot.draining or not head.route.always):
            return self.slot.closed
        limit = self.config.admission.max_passthrough
        if len(self.running) - self.limiter.requests >= limit:
            return Refusal(503, "too_many_requests", f"{limit} requests are already under way", 1)
        if head.route.lists_models and head.method in (b"GET", b"HEAD"):
            return Listing(client, head)
        if self.slot.remote and not head.route.always and head.method != b"OPTIONS":
            if head.route.path not in REMOTE_PATHS:
                return errors.not_remote(head.route.label)
            if head.method != b"POST":
                return errors.method_not_allowed(head.route.label, (b"POST",))
        wanted = self._edited(head, Document(body)) if head.method == b"POST" else body
        if isinstance(wanted, Refusal):
            return wanted
        only = replica_named(head.line) if head.route.always and self.replicas.several else -1
        if only >= len(self.replicas.all):
            return Refusal(
                404, "unknown_path", f"there is no replica {only} here, only 0 to {len(self.replicas.all) - 1}"
            )
        return Exchange(client, head, len(body), wanted, only=only)

    def _edited(self, head: RequestHead, document: Document) -> bytes | bytearray | Refusal:
        """What the engine is sent, or why it is not asked."""
        rules = self.slot.rules.get(head.route.path)
        return document.body if rules is None else rules.apply(document, coded=head.coded)
