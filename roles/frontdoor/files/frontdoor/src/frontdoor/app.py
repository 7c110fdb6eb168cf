# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The application: wires the parts together, and routes requests to them."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Iterable

from frontdoor import chat, errors
from frontdoor.admin.api import Admin
from frontdoor.admission.bounds import ConnectionLimiter, MemoryBudget
from frontdoor.admission.router import Wish
from frontdoor.config import Config
from frontdoor.demand import Demand
from frontdoor.errors import Refusal
from frontdoor.follower import Follower
from frontdoor.http.client import ClientConnection, Server, Work, maker_of_ids
from frontdoor.http.exchange import Exchange
from frontdoor.http.head import RequestHead
from frontdoor.http.job import METRICS, Job, respond
from frontdoor.http.listing import Listing
from frontdoor.http.measured import Measured
from frontdoor.networks import networks
from frontdoor.observability.events import EventLog
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.status import LocalAnswers
from frontdoor.policy.asked import permits_of
from frontdoor.policy.document import Document
from frontdoor.policy.keys import Keys
from frontdoor.policy.origins import Origins
from frontdoor.policy.routes import CHAT_PAGE_PATHS, REMOTE_PATHS, Kind
from frontdoor.policy.routing import names_all_replicas, replica_named
from frontdoor.slot.current import STOPPING, Slot
from frontdoor.slot.engine_metrics import EngineMetrics
from frontdoor.slot.reports import Records, history, lease, liveness, maintenance, quarantine
from frontdoor.slot.state import SlotState, epoch

_SWEEP_S = 0.25
# when this process was not let run for so long, what came meanwhile is read before anybody is told to be late
_STALL_S = 1.0
_OPEN_PATHS = frozenset(("/", "/health", "/ready"))


class App:
    """Made once for a process. What changes is kept by the parts."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        events: EventLog,
        spread: Callable[[], float] = random.random,
    ) -> None:
        """Take the configuration and the loop.

        `spread` gives numbers from 0 to 1, by which refused clients are spread over time.
        """
        self.config = config
        self.loop = loop
        self.events = events
        limits = config.limits
        self.keys = Keys(config.auth.keys_file) if config.auth.keys_file else None
        #: paths that need no key
        self._open_paths = _OPEN_PATHS | {*CHAT_PAGE_PATHS} if chat.is_on(config) else _OPEN_PATHS
        slots = (config.slot, *config.slots)
        self.ledger = Ledger(events, loop.time, loop.call_later, self._lasted, [slot.name for slot in slots])
        self.followers = [
            Follower(index, config._replace(slot=slot), loop, events, self.ledger, self._applied)
            for index, slot in enumerate(slots)
        ]
        #: the slot that takes what names no model
        self.first = self.followers[0]
        self._several = len(self.followers) > 1
        self._engine_metrics = EngineMetrics(
            lambda: [(one.name, replica) for one in self.followers for replica in one.replicas.all]
        )
        self.memory = MemoryBudget(limits)
        #: requests for the engine that are under way
        self.running: set[Exchange] = set()
        self.connection_limiter: ConnectionLimiter[ClientConnection] = ConnectionLimiter(
            limits, networks(config.listen.allowed_networks), networks(config.listen.trusted_proxies)
        )
        self.connections = self.connection_limiter.connections
        self.server = Server(
            loop=loop,
            limits=limits,
            route=self.route,
            refusal_before_body=self.refusal_before_body,
            connections=self.connection_limiter,
            targets=tuple(one.target for one in self.followers),
            by_model={},
            memory=self.memory,
            ledger=self.ledger,
            running=self.running,
            queue_keepalive_s=config.admission.queue_keepalive_s,
            spread=spread,
            scheme=b"https" if config.tls.cert_file else b"http",
            cors=Origins(config.cors.allow_origins),
            keep_secrets=self.keys is None,
            make_id=maker_of_ids(),
            offers=lambda client: {} if self._demand is None else self._demand.offers(client),
        )
        if self.keys is not None:
            keys = self.keys
            self.ledger.metrics.key_names = lambda: keys.names
        records = Records(config.slot.records_file)
        self.local = LocalAnswers(
            config=config,
            server=self.server,
            histories=[history(slot.journal_file) for slot in slots],
            watchdogs=[liveness(slot.state_file) for slot in slots],
            records=records,
            quarantine=quarantine(config.slot.quarantine_file),
            maintenance=maintenance(config.slot.maintenance_file),
            lease=lease(config.slot.lease_file),
            keys_error=lambda: self.keys_error,
            demand=lambda slot: None if self._demand is None else self._demand.told(slot),
        )
        self._admin = Admin(
            config.admin,
            slots=slots,
            ordinary=self.keys,
            server=self.server,
            records=records,
            events=events,
            reload=self.reload,
            poll_state=self.poll_state,
        )
        self._demand: Demand | None = None
        self._swept = loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        for one in self.followers:
            self._state_applied(one)
        if any(slot.on_demand for slot in slots):
            self._demand = Demand(
                config.demand,
                slots,
                config.admission.max_queued,
                server=self.server,
                admin=self._admin,
                keys=self.keys,
                hindered=self._hindered,
            )

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic work."""
        self._every("state", self.config.slot.poll_interval_s, self.poll_state)
        self._every("sweep", _SWEEP_S, self._sweep)
        self._every("sample", 1.0, self._sample)
        self._every("vitals", self.config.backend.metrics_interval_s, self._run_vitals)
        self._every("probe", self.config.backend.probe_interval_s, self._run_probes)
        self._run_probes()

    def stop(self) -> None:
        """End the periodic work and every connection."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._admin.drain()
        for connection in list(self.connections):
            connection.abort()
        for one in self.followers:
            one.replicas.stop()
        self.ledger.sweep()

    def drain(self, keep: Callable[[socket.socket], None] | None = None) -> None:
        """Take no more work; running answers go on.

        With `keep`, which takes the connections of idle clients, nobody is refused who waits for a permit.
        """
        for one in self.followers:
            one.drain(dismiss=keep is None)
        self._admin.drain()
        if self._demand is not None:
            self._demand.drain()
        for connection in list(self.connections):
            if connection.idle and keep is not None and connection.unknown:
                connection.hand_over(keep)
            elif connection.idle:
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
            if self._demand is not None:
                self._demand.sweep(now)
        for one in self.followers:
            one.replicas.sweep()
        self.refresh_keys()
        self.ledger.sweep()

    def _sample(self) -> None:
        for one, activity in zip(self.followers, self.ledger.activities, strict=True):
            one.slot.count_down()
            activity.sample(time.time(), one.limiter.active, one.limiter.queued, one.replicas.tokens_per_s)

    def _run_vitals(self) -> None:
        for one in self.followers:
            one.replicas.run_vitals()

    def _run_probes(self) -> None:
        for one in self.followers:
            one.replicas.run_probes()

    def _lasted(self, slot: int, seconds: Iterable[float]) -> None:
        """Record how long generations of a slot held their permits."""
        self.followers[slot].permits.outlook.lasted(seconds)

    def _hindered(self) -> str:
        """Return why no request has a model loaded now, or "": a person or a play decides, or the host takes none."""
        if self.local.maintenance.read() or epoch(self.local.lease.read()) > time.time():
            return "somebody works on this host"
        return "the host is in quarantine" if self.local.quarantine.read() else ""

    @property
    def keys_error(self) -> str:
        """The fault of a changed file of keys; the keys of before count until it is right."""
        return next((keys.error for keys in (self.keys, self._admin.keys) if keys is not None and keys.error), "")

    def refresh_keys(self) -> None:
        """Read the files of keys again when they changed."""
        for keys in (self.keys, self._admin.keys):
            if keys is not None:
                keys.refreshed(self.events.emit)

    # --- the slot's state ------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the state files and the keys now, whether they look changed or not."""
        self.refresh_keys()
        for one, slot in zip(self.followers, (self.config.slot, *self.config.slots), strict=True):
            one.configure(self.config._replace(slot=slot))
        self.poll_state()

    def configure(self, config: Config) -> None:
        """Go by new settings, of which none is of those at the start; requests under way keep their bounds."""
        self.config = self.local.config = config
        limits, listen = config.limits, config.listen
        self._open_paths = _OPEN_PATHS | {*CHAT_PAGE_PATHS} if chat.is_on(config) else _OPEN_PATHS
        self.server.limits = self.memory.limits = limits
        self.server.cors = Origins(config.cors.allow_origins)
        self.server.queue_keepalive_s = config.admission.queue_keepalive_s
        if self._demand is not None:
            self._demand.settings = config.demand
        self.connection_limiter.configure(limits, networks(listen.allowed_networks), networks(listen.trusted_proxies))
        self.reload()

    def poll_state(self) -> None:
        """Apply each state file that changed."""
        for one in self.followers:
            one.poll()
        if self._demand is not None:
            self._demand.look()

    def _applied(self, follower: Follower, before: SlotState) -> None:
        """Pass a slot's new state on to all other parts."""
        state = follower.slot.state
        self._state_applied(follower)
        self._admin.state_applied(follower.target.index)
        about = {"slot": follower.name} if self._several else {}
        self.events.emit(
            "state_applied",
            **about,
            sequence=state.sequence,
            phase=state.phase,
            open=state.open,
            was=before.phase,
            reason=state.reason,
            profile=(state.profile or {}).get("name"),
            max_active_generations=state.max_active_generations,
        )

    def _state_applied(self, follower: Follower) -> None:
        """Apply the state of a slot to all that depends on it, or on the states of all slots."""
        state = follower.slot.state
        self.ledger.models[follower.target.index] = next(iter(follower.slot.names), "")
        profile = str((state.profile or {}).get("name") or "")
        self.ledger.activities[follower.target.index].phase(time.time(), state.phase, profile, state.reason)
        self.events.requests = self.config.log.events and all(one.slot.state.event_log for one in self.followers)
        by_model = self.server.by_model
        by_model.clear()
        # of two slots that serve one name, such as before and after a move, the first that is open; who served it last
        order = sorted(self.followers, key=lambda one: (one.slot.closed is not None, one.slot.state.profile is None))
        for one in order:
            for model in one.slot.names:
                by_model.setdefault(model, one.target)

    # --- requests --------------------------------------------------------------------------------------------------

    def _unauthorized(self, client: ClientConnection, head: RequestHead) -> Refusal | None:
        """Return the refusal where a needed key is missing, else None; note whose key it is.

        The machine itself may look at the status without one, but not whom a proxy on it speaks for. The administration
        has keys of its own.
        """
        if self.keys is None or head.route.path in self._open_paths or head.route.kind is Kind.ADMIN:
            return None
        if head.method == b"OPTIONS" and self.server.cors.on:
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
        """Return the refusal that is certain before the client sends its body; None if there is none."""
        if head.route.kind is Kind.ADMIN:
            return self._admin.refusal(head)
        refusal = self._unauthorized(client, head)
        if refusal is not None or not head.expects_continue:
            return refusal
        if head.route.kind is Kind.UNKNOWN:
            return errors.unknown_path(head.route.path)
        if (
            head.route.kind is not Kind.ENGINE
            or self._demand is not None
            or any(one.slot.closed is None for one in self.followers)
        ):
            return None
        return self.first.slot.closed

    def route(self, client: ClientConnection, head: RequestHead, document: Document) -> Work | None:
        """Answer a complete request at once (None), or return what will."""
        found = None if self.keys is None else self._unauthorized(client, head)
        if found is not None:
            client.refuse(found, head)
        elif head.gated:
            follower = self._of_model(head, document) if self._several else self.first
            work: Work | Refusal | None = self._over_limit(client)
            if work is None and self._demand is not None:
                work = self._demand.claim(client, head, document)
            work = work or self._admit(follower, client, head, document)
            if not isinstance(work, Refusal):
                return work
            client.refuse(work, head, slot=follower.target.index)
        elif head.route.kind is Kind.ADMIN and head.method != b"OPTIONS":
            return self._admin.handle(client, head, bytes(document.body))
        elif head.route.kind is not Kind.ENGINE or (
            head.method == b"OPTIONS" and (self.server.cors.on or head.route.methods)
        ):
            self.local.answer(client, head)
        else:
            passed = self._pass_on(client, head, document)
            if not isinstance(passed, Refusal):
                return passed
            client.refuse(passed, head)
        return None

    def _over_limit(self, client: ClientConnection) -> Refusal | None:
        """Return why the client's key may not ask for more work now; None if it may."""
        name = client.key_name
        limits = self.keys.limits(name) if self.keys is not None and name is not None else None
        if limits is None or name is None:
            return None
        # requests that ended a moment ago count
        self.ledger.settle()
        found = self.ledger.quotas.exceeded(name, limits, time.time())
        return None if found is None else errors.over_limit(*found)

    def _admit(
        self, follower: Follower, client: ClientConnection, head: RequestHead, document: Document
    ) -> Work | Refusal:
        """Ask the engine for work of its cards, when there are permits for it."""
        slot, permits = follower.slot, follower.permits
        if slot.closed is not None:
            return slot.closed
        if slot.remote and head.route.path not in REMOTE_PATHS:
            return errors.not_remote(head.route.label)
        if follower.limiter.full and not permits.timeout_s:
            return permits.busy(id(client))
        # a compressed body is read by no engine
        count = 1 if head.coded else permits_of(head.route.path, document, follower.limiter.most)
        if isinstance(count, Refusal):
            return count
        # whatever it calls itself: who reads it as JSON must not find what was not looked at
        wanted = _edited(slot, head, document)
        if isinstance(wanted, Refusal):
            return wanted
        wish: Wish | None = None
        replicas = follower.replicas
        if replicas.several and head.route.generates and not head.coded:
            found = follower.reader.wish(
                head.route.path, head.fields, document, wanted, replicas.open, client.client_key
            )
            if isinstance(found, Refusal):
                return found
            wish = found
        size = len(document.body)
        if document.measured:
            return Measured(client, follower.target, head, size, wanted, count, wish, document)
        return Exchange(client, follower.target, head, size, wanted, count, wish, asked=document)

    def _of_model(self, head: RequestHead, document: Document) -> Follower:
        """Return the slot of the model that a request names; the first one for an unknown model, or none."""
        target = self.server.by_model.get(document.model(coded=head.coded))
        return self.first if target is None else self.followers[target.index]

    def _pass_on(self, client: ClientConnection, head: RequestHead, document: Document) -> Work | Refusal | None:
        """Ask the engine what takes no permits; None if it is answered without it."""
        if head.route.methods and head.method not in head.route.methods:
            return errors.method_not_allowed(head.route.label, head.route.methods)
        # a client that asks all the time would keep the process from ending
        follower, body = self.first, document.body
        if self._several and head.method == b"POST":
            follower = self._of_model(head, document)
        elif self._several and head.route.lists_models:
            follower = next((one for one in self.followers if one.slot.closed is None), self.first)
        slot, replicas, target = follower.slot, follower.replicas, follower.target
        reads = head.method in (b"GET", b"HEAD")
        if (
            self._demand is not None
            and slot.closed is not None
            and not slot.draining
            and head.route.lists_models
            and reads
        ):
            listed = self._demand.listing(client, head)
            if not isinstance(listed, Refusal):
                respond(client, head, listed)
                return None
            return listed
        if slot.closed is not None and (slot.draining or not head.route.always):
            return slot.closed
        limit = self.config.admission.max_passthrough
        if len(self.running) - sum(one.limiter.requests for one in self.followers) >= limit:
            return Refusal(503, "too_many_requests", f"{limit} requests are already under way", 1)
        if head.route.always and names_all_replicas(head.line):
            return Job(client, head, self._engine_metrics.answer, METRICS)
        if head.route.lists_models and reads:
            return Listing(client, target, head)
        if slot.remote and not head.route.always and head.method != b"OPTIONS":
            if head.route.path not in REMOTE_PATHS:
                return errors.not_remote(head.route.label)
            if head.method != b"POST":
                return errors.method_not_allowed(head.route.label, (b"POST",))
        wanted = _edited(slot, head, document) if head.method == b"POST" else body
        if isinstance(wanted, Refusal):
            return wanted
        only = replica_named(head.line) if head.route.always and replicas.several else -1
        if only >= len(replicas.all):
            return Refusal(404, "unknown_path", f"there is no replica {only} here, only 0 to {len(replicas.all) - 1}")
        return Exchange(client, target, head, len(body), wanted, only=only)


def _edited(slot: Slot, head: RequestHead, document: Document) -> bytes | bytearray | Refusal:
    """Return the request for the engine, or why none is sent."""
    rules = slot.rules.get(head.route.path)
    return document.body if rules is None else rules.apply(document, coded=head.coded)
