# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frontdoor itself: what all connections share."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from frontdoor import errors
from frontdoor.admin.api import Admin
from frontdoor.admission.limiter import Limiter
from frontdoor.admission.permits import places_of
from frontdoor.admission.queue import busy
from frontdoor.config import Config
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection
from frontdoor.http.exchange import Exchange
from frontdoor.http.head import RequestHead, ResponseHead, parse_request_head, parse_response_head
from frontdoor.http.listener import ConnectionLimiter
from frontdoor.http.upload import Holdings
from frontdoor.http.upstream import Pool
from frontdoor.http.work import Work
from frontdoor.networks import networks
from frontdoor.observability.events import EventLog
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.local import LocalAnswers, unknown
from frontdoor.policy.document import Document
from frontdoor.policy.editing import PathRules, policies
from frontdoor.policy.keys import Keys
from frontdoor.policy.listing import Listing
from frontdoor.policy.routes import Kind
from frontdoor.slot.engine_metrics import Vitals
from frontdoor.slot.journal import History
from frontdoor.slot.probe import Probe
from frontdoor.slot.state import SlotState, StateFile, utc_now

_SWEEP_S = 0.25
# when this process was not let run for so long, what came meanwhile is read before anybody is told to be late
_STALL_S = 1.0
# heads that repeat are parsed once; longer ones are unlikely to repeat
_HEADS_KEPT = 512
_HEAD_KEPT_BYTES = 2048


_STOPPING = Refusal(503, "stopping", "the frontdoor is stopping; try again shortly", 5)
_OPEN_PATHS = ("/", "/health", "/ready")


def _turned(before: SlotState, now: SlotState) -> bool:
    """Whether another engine may run now than before."""
    return any(getattr(before, name) != getattr(now, name) for name in ("open", "phase", "engine", "backend_url"))


def _judged_by(state: SlotState) -> tuple[object, ...]:
    """What bodies are checked and edited by."""
    profile = state.profile or {}
    return state.rules, *(profile.get(name) for name in ("name", "fingerprint", "served_model_name", "modalities"))


class Door:
    """Wires state, admission, engine connections and clients together."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        events: EventLog,
        spread: Callable[[], float] = random.random,
    ) -> None:
        """`spread` gives numbers from 0 to 1, by which those who are sent away are spread over time."""
        self.spread = spread
        self.config = config
        self.loop = loop
        self.events = events
        self.scheme = b"https" if config.tls.cert_file else b"http"
        keys = self.keys = Keys(config.auth.keys_file) if config.auth.keys_file else None
        self.started_at = utc_now()
        self.ledger = Ledger(events, loop.time, loop.call_later)
        self.outlook = self.ledger.activity.outlook
        # for those that count each read of a stream; what is no generation is not counted
        self.gaps = self.ledger.metrics.gaps.counts
        self.other_gaps = [0] * len(self.gaps)
        self.ledger.metrics.streaming_s = lambda: sum(
            (exchange.streaming_s for exchange in self.exchanges if isinstance(exchange, Exchange)), 0.0
        )
        if keys is not None:
            self.ledger.metrics.key_names = lambda: keys.names
        self.engine_responses = 0
        self.crowd = ConnectionLimiter(config.limits, networks(config.listen.allowed_networks))
        self.connections = self.crowd.connections
        self.welcome = self.crowd.welcome
        self.farewell = self.crowd.farewell
        self.exchanges: set[Exchange | Listing] = set()
        #: bytes of request bodies
        self.buffered = 0
        self.holdings = Holdings()
        self.draining = False
        self.engine_reachable: bool | None = None
        self.engine_error = ""
        backend = config.backend
        self.pool = Pool(
            loop, size=backend.pool_size, idle_s=backend.pool_idle_timeout_s, connect_s=backend.connect_timeout_s
        )
        self.gate = Limiter(config.admission.max_active_generations, config.admission.max_queued)
        #: heads that were seen, by their bytes
        self.heads: dict[bytes, RequestHead] = {}
        self.response_heads: dict[bytes, ResponseHead] = {}
        #: that of the last answer, which the next one is likely to begin with; None where it is not remembered
        self.latest_head: tuple[bytes, ResponseHead | None] = (b"\0", None)
        self.max_head = config.limits.max_header_bytes
        self.max_body = config.limits.max_body_bytes
        self.keepalive_s = config.limits.keepalive_timeout_s
        self._policies: dict[str, PathRules] = {}
        self.closed: Refusal | None = None
        #: what those were told who found no slot last
        self.busy = errors.busy(1, 1, 1)
        self._may_queue = False
        self._state_file = StateFile(config)
        first = self._state_file.poll()
        assert first is not None
        self.state = first
        self._sequence = first.sequence
        self._apply(first, first)
        self.probe = Probe(self)
        self.vitals = Vitals(self)
        self._swept = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        origin = config.cors.allow_origin
        self.cors_on = bool(origin)
        self._cors = (
            f"Access-Control-Allow-Origin: {origin}\r\n"
            "Access-Control-Expose-Headers: Retry-After\r\n" + ("" if origin == "*" else "Vary: Origin\r\n")
        ).encode()
        #: the last switches
        self.history = History(config.slot.journal_file)
        self.ledger.metrics.generations_under_way = lambda: self.gate.requests
        self._local = LocalAnswers(self)
        self._admin = Admin(self)

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work."""
        self._every("state", self.config.slot.poll_interval_s, self.poll_state)
        self._every("sweep", _SWEEP_S, self._sweep)
        self._every("sample", 1.0, self._sample)
        self._every("vitals", self.config.backend.metrics_interval_s, self.vitals.run)
        self._every("probe", self.config.backend.probe_interval_s, self.probe.run)
        self.probe.run()

    def stop(self) -> None:
        """End the periodic work and every connection."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.probe.stop()
        self.vitals.stop()
        self._admin.drain()
        for connection in list(self.connections):
            connection.abort()
        self.pool.drop_idle()
        self.ledger.sweep()

    def drain(self) -> None:
        """Take no more work; idle clients are sent away, running answers go on."""
        self.draining = True
        self.closed = _STOPPING
        self._dismiss(_STOPPING)
        self._admin.drain()
        for connection in list(self.connections):
            if connection.idle:
                connection.transport.close()

    def interrupt(self) -> int:
        """End the answers that still run, so that clients see why; return how many there were."""
        running = list(self.exchanges)
        for exchange in running:
            exchange.interrupt(_STOPPING)
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
            self._expire(now)
        self.pool.sweep()
        self._refresh_keys()
        self.ledger.sweep()

    def _expire(self, now: float) -> None:
        for connection in [c for c in self.connections if c.deadline is not None and c.deadline < now]:
            connection.expired()
        for exchange in [e for e in self.exchanges if e.timed_out(now)]:
            exchange.expire()

    def _sample(self) -> None:
        self._count_down()
        self.ledger.activity.sample(time.time(), self.gate.active, self.gate.queued, self.vitals.tokens_per_s)

    @property
    def keys_error(self) -> str:
        """What is wrong with a file of keys that changed; those of before count until it is right."""
        return self.keys.error if self.keys is not None and self.keys.error else self._admin.keys_error

    def _refresh_keys(self) -> None:
        if self.keys is not None:
            self.keys.refreshed(self.events)
        self._admin.refresh_keys()

    # --- the slot's state ------------------------------------------------------------------------------------------

    def poll_state(self) -> None:
        """Apply the state file when it changed."""
        state = self._state_file.poll()
        if state is not None:
            before, self.state = self.state, state
            self._note_sequence(state.sequence)
            self._apply(state, before)
            if _turned(before, state):
                # what was found out about the engine was of another one, or of the time without one
                self.engine_reachable, self.engine_error = None, ""
                self.outlook.forget()
                self.probe.again()
            if (before.engine, before.backend_url) != (state.engine, state.backend_url):
                self.vitals.forget()
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

    def _note_sequence(self, sequence: int) -> None:
        """Say so when an older state comes back: what the file says counts, but whoever put it there should know."""
        if 0 < sequence < self._sequence:
            self.events.emit("state_went_back", sequence=sequence, was=self._sequence)
        self._sequence = sequence or self._sequence

    def reload(self) -> None:
        """Read the state file now, whether it looks changed or not."""
        self._state_file.forget()
        self.poll_state()

    def _apply(self, state: SlotState, before: SlotState) -> None:
        # what ended before is logged by the rules of before
        self.ledger.settle()
        self.ledger.activity.phase(time.time(), state.phase, str((state.profile or {}).get("name") or ""), state.reason)
        self.events.requests = self.config.log.events and state.event_log
        self.pool.point_to(state.backend_url)
        self.closed = None if state.open else errors.closed(state, time.time())
        if self.draining:
            self.closed = _STOPPING
        self._may_queue = state.queue_timeout_s > 0
        self.outlook.crowded_until = 0.0
        self._policies = policies(state.rules, state.profile)
        # before the limit, which could let the first of them in
        if self.closed is not None:
            self._dismiss(self.closed)
        elif _judged_by(state) != _judged_by(before):
            # their bodies are edited as it was right for what was served before
            self._dismiss(errors.outdated(before, state))
        elif state.queue_timeout_s != before.queue_timeout_s:
            for waiter in self.gate.waiting():
                assert isinstance(waiter, Exchange)
                waiter.wait_until(state.queue_timeout_s)
        for waiter in self.gate.set_limit(state.max_active_generations):
            assert isinstance(waiter, Exchange)
            waiter.refuse(errors.too_many_generations(waiter.places, state.max_active_generations))

    def _count_down(self) -> None:
        """Tell clients what is left of the time until the slot is open."""
        if self.closed is not None and not self.draining:
            closed = errors.closed(self.state, time.time())
            if closed != self.closed:
                self.closed = closed

    def _dismiss(self, refusal: Refusal) -> None:
        for waiter in self.gate.dismiss():
            assert isinstance(waiter, Exchange)
            waiter.refuse(refusal)

    # --- requests --------------------------------------------------------------------------------------------------

    def request_head(self, raw: bytes) -> RequestHead:
        """Parse a head, or remember it; raise HeadError."""
        head = self.heads.get(raw)
        if head is None:
            head = parse_request_head(raw, self.config.limits.max_headers, keep_secrets=self.keys is None)
            if len(raw) <= _HEAD_KEPT_BYTES and (head.content_length or 0) <= self.max_body:
                if len(self.heads) >= _HEADS_KEPT:
                    self.heads.clear()
                self.heads[raw] = head
        return head

    def unauthorized(self, client: ClientConnection, head: RequestHead) -> Refusal | None:
        """What to say where a key is needed and was not given; notes whose key it is.

        The machine itself may look at the status without one, but not whom a proxy on it speaks for. The administration
        has keys of its own.
        """
        if self.keys is None or head.route.path in _OPEN_PATHS:
            return None
        if head.method == b"OPTIONS" and self.cors_on:
            # a browser that asks first shows no key; without CORS the engine would be asked
            return None
        if head.route.kind is Kind.ADMIN:
            return None
        name = self.keys.identify(head.secret) if head.secret else None
        client.key_name = name
        if name is not None:
            client.key = "key " + name
            return None
        if head.route.kind is Kind.LOCAL and client.from_this_host and not head.forwarded:
            return None
        return self._admin.refusal_elsewhere(head)

    def refusal_before_body(self, client: ClientConnection, head: RequestHead) -> Refusal | None:
        """What is known to be refused before the client sends its body."""
        if head.route.kind is Kind.ADMIN:
            return self._admin.refusal(head)
        refusal = self.unauthorized(client, head)
        if refusal is not None or not head.expects_continue:
            return refusal
        if head.route.kind is Kind.UNKNOWN:
            return unknown(head)
        return self.closed if head.route.kind is Kind.ENGINE else None

    def response_head(self, raw: bytes, head: RequestHead) -> ResponseHead:
        """Parse the head of an engine's answer, or remember it; raise ResponseError."""
        if head.method == b"HEAD":
            return parse_response_head(raw, to_head=True, drop_cors=self.cors_on)
        response = self.response_heads.get(raw)
        if response is None:
            response = parse_response_head(raw, to_head=False, drop_cors=self.cors_on)
            if len(raw) <= _HEAD_KEPT_BYTES and response.status >= 200:
                if len(self.response_heads) >= _HEADS_KEPT:
                    self.response_heads.clear()
                self.response_heads[raw] = response
        return response

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes | bytearray) -> Work | None:
        """Answer a complete request at once (None), or return what will."""
        if self.keys is not None and (stranger := self.unauthorized(client, head)) is not None:
            client.refuse(stranger, head)
        elif head.generates:
            refusal = self.closed
            if refusal is None and not self._may_queue and self.gate.full:
                refusal = busy(self, client)
            if refusal is None:
                document = Document(body)
                # a compressed body is read by no engine
                places = 1 if head.coded else places_of(head.route.path, document, self.gate.limit)
                if isinstance(places, Refusal):
                    refusal = places
                else:
                    # whatever it calls itself: who reads it as JSON must not find what was not looked at
                    rules = self._policies.get(head.route.path)
                    wanted = body if rules is None else rules.apply(document, coded=head.coded)
                    if not isinstance(wanted, Refusal):
                        return Exchange(self, client, head, len(body), wanted, places)
                    refusal = wanted
            client.turn_away(refusal, head)
            self.ledger.turned_away(client, head, refusal)
        elif head.route.kind is Kind.ADMIN and head.method != b"OPTIONS":
            return self._admin.handle(client, head, bytes(body))
        elif head.route.kind is not Kind.ENGINE:
            self._local.answer(client, head)
        elif head.method == b"OPTIONS" and (self.cors_on or head.route.methods):
            self._local.preflight(client, head)
        elif head.route.methods and head.method not in head.route.methods:
            client.refuse(errors.method_not_allowed(head.route.label, head.route.methods), head)
        else:
            # who asks all the time would keep the process from ending
            refusal = (None if head.route.always and not self.draining else self.closed) or self._crowded()
            if refusal is None and head.route.lists_models and head.method in (b"GET", b"HEAD"):
                return Listing(self, client, head)
            if refusal is None:
                rules = self._policies.get(head.route.path) if head.method == b"POST" else None
                wanted = body if rules is None else rules.apply(Document(body), coded=head.coded)
                if not isinstance(wanted, Refusal):
                    return Exchange(self, client, head, len(body), wanted)
                refusal = wanted
            client.refuse(refusal, head)
        return None

    def _crowded(self) -> Refusal | None:
        """Requests that take no generation slot have a bound of their own."""
        limit = self.config.admission.max_passthrough
        if len(self.exchanges) - self.gate.requests < limit:
            return None
        return Refusal(503, "too_many_requests", f"{limit} requests are already under way", 1)

    def cors_fields(self, head: RequestHead) -> bytes:
        """Header lines for browsers, on requests that come from one."""
        return self._cors if head.origin and self.cors_on else b""

    # --- notes -----------------------------------------------------------------------------------------------------

    def note_engine(self, reachable: bool, error: str = "") -> None:
        """The engine did or did not answer."""
        if reachable is not self.engine_reachable:
            self.events.emit("engine_reachable" if reachable else "engine_unreachable", error=error)
        self.engine_reachable, self.engine_error = reachable, error
