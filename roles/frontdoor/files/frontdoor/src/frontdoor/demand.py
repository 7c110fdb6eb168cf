# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that name a model which their slot may load: they wait, and the model is asked for through the helper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from frontdoor import config, errors
from frontdoor.admin.api import Admin, Place
from frontdoor.admission.demand import View, Wish, ahead, decide, eta_s, is_idle
from frontdoor.admission.limiter import QUEUED, Limiter
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection, Server
from frontdoor.http.head import RequestHead
from frontdoor.observability.activity import Entry
from frontdoor.observability.metrics import CLIENT_CLOSED, FAILED, REFUSED, SERVED
from frontdoor.policy.document import Document
from frontdoor.policy.keys import Keys
from frontdoor.policy.routes import MODELS, STREAMING_PATHS
from frontdoor.slot.current import STOPPING
from frontdoor.slot.reports import FRESH_S, history, liveness
from frontdoor.slot.state import epoch

ALL = "*"
_MOVING = ("switching", "verifying")
# outcomes of a switch that say nothing against its profile
_HARMLESS = (None, "committed", "degraded", "unchanged", "interrupted", "deferred")
# the pause after a load that the host did not begin, for its profile; and after one that met another switch, for all
_PAUSE_S, _LOCKED_S = 60.0, 5.0
# the seconds of a load, and of a wake, where the journal has none
_GUESS_S, _WAKE_S = 180.0, 15.0
# stands for the name of the key where requests need none
_NOBODY = "on-demand"
_REFUSED_NOW = "the host did not begin to load it; the frontdoor's journal says why"


class Held:
    """A request that waits for its model. It never gets a permit here: it begins anew when the model is served."""

    #: that of a waiter of the limiter, of no meaning here
    replica = 0

    def __init__(
        self, client: ClientConnection, head: RequestHead, document: Document, line: Line, profile: str, since: float
    ) -> None:
        """Begin to wait for a profile; `since` is when the client first asked for it."""
        self._client, self._head, self._document, self._line = client, head, document, line
        self.profile, self.since, self.client_key = profile, since, client.client_key
        self.streams = head.route.path in STREAMING_PATHS and document.streams
        self._began = self._told = client.server.loop.time()
        self._done = False

    def start(self) -> None:
        self._document.forget()
        self._count(1)
        self._line.enter(self)

    def choose(self, room: int) -> int:
        raise AssertionError(f"there are no permits to choose from: {room:b}")

    def granted(self) -> None:
        raise AssertionError("there are no permits to have")

    def displaced(self) -> None:
        # not from within the limiter: the client may have sent its next request ahead
        self._client.server.loop.call_soon(self.refuse_full)

    def refuse_full(self) -> None:
        self.refuse(errors.queue_full(self._line.queue.queued, int(_PAUSE_S)))

    def go(self) -> None:
        """Begin anew: the model is served."""
        if not self._done:
            self._line.stats.load_wait.observe(self._leave())
            self._client.dispatch(self._head, self._document)

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error."""
        if self._done:
            return
        self._leave()
        self._client.refuse(refusal, self._head, slot=self._line.target.index)
        self._client.exchange_done(self._head.keep_alive)

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        if self._done:
            return
        waited, client, now = self._leave(), self._client, self._client.server.loop.time()
        entry = Entry(
            client.address, client.key_name, self._head.route, True, outcome, 0, None, self._began, now, waited
        )
        entry.slot, entry.request_id = self._line.target.index, client.request_id
        client.server.ledger.note(entry)
        client.exchange_done(False)

    def pause(self) -> None:
        """Pause nothing: only a word is written now and then."""

    resume = pause

    def sweep(self, now: float, wait_s: float, silent_wait_s: float) -> None:
        """Tell the client of a stream that it waits; send away one that waited for too long."""
        if now - self._began > (wait_s if self.streams else silent_wait_s):
            self._line.remember(self)
            self.refuse(errors.loading(self.profile, self._line.eta_s(self.profile)))
            return
        if self.streams and self._client.say_waiting(self._head, now - self._told):
            self._told = now

    def _count(self, number: int) -> None:
        self._client.server.memory.add(self.client_key, number * len(self._document.body))

    def _leave(self) -> float:
        """Leave the queue, and return the seconds in it."""
        self._done = True
        self._count(-1)
        self._line.queue.leave(self)
        return self._client.server.loop.time() - self._began


class Line:
    """The requests that wait for models of one slot, and the loads for them."""

    def __init__(self, place: Place, slot: config.Slot, demand: Demand, max_queued: int) -> None:
        self.target = place.target
        self._place, self._demand = place, demand
        self._allowed, self._idle_s = slot.on_demand, slot.idle_s
        self._history, self._watchdog = history(slot.journal_file), liveness(slot.state_file)
        self._loop = demand.server.loop
        self.stats = demand.server.ledger.metrics.slots[place.name]
        #: a queue like that for permits, of which there are none
        self.queue = Limiter(0, max_queued)
        # clients that were told when to come back, by profile: since when they ask for it, and until when it counts
        self._absent: dict[tuple[str, str], tuple[float, float]] = {}
        #: whether the model that is served takes no more requests
        self.closes = False
        self._served, self._since = "", self._loop.time()
        # when a request for the slot last came or ran
        self.used = self._since
        # the load that was asked for and has not ended, and what is being unloaded because nobody asks for it
        self._asked, self._unloads = "", ""
        # profiles whose last switch failed, with fingerprint and reason; those that could not be tried, and till when
        self._failed: dict[str | None, tuple[str | None, str]] = {}
        self._paused: dict[str, float] = {}
        self._locked_until = 0.0
        self._rows: list[dict[str, Any]] = []
        self.profiles: list[str] = []
        #: profiles by each name that requests may use
        self.names: dict[str, str] = {}
        self.look()

    # --- what may be asked for -------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read what changed: the profiles, and how switches ended, whoever asked for them."""
        place = self._place
        if place.profiles.changed():
            place.look()
            usable = [name for name, one in place.known.items() if one.get("status") not in place.refused]
            listed = sorted(usable) if ALL in self._allowed else [one for one in self._allowed if one in place.known]
            self.profiles = listed
            taken = [name for name in listed if name in usable]
            self.names = {name: name for name in taken}
            for profile in taken:
                for name in self._names_of(profile):
                    self.names.setdefault(name, profile)
        rows = self._history.read()
        if rows is not self._rows:
            self._rows = rows
            for row in reversed(rows):
                if row["outcome"]:
                    self._failed.pop(row["served"], None)
                if row["outcome"] not in _HARMLESS and row["failed_phase"]:
                    self._failed[row["to"]] = (row["fingerprint"], row["reason"] or "")

    def _names_of(self, profile: str) -> list[str]:
        """Return the name that a profile is served by, its own, and its aliases."""
        known = self._place.known.get(profile) or {}
        aliases = (known.get("frontdoor") or {}).get("model_aliases") or ()
        return list(dict.fromkeys([(known.get("engine") or {}).get("served_model_name") or profile, profile, *aliases]))

    def refusal(self, profile: str) -> Refusal | None:
        """Return why a profile is not loaded for a request now; None if it could be, or is on its way."""
        if profile in (self._asked, self._moving_to):
            return None
        if self._has_failed(profile):
            return errors.load_failed(profile, self._failed[profile][1])
        if why := self._demand.hindered():
            return errors.load_failed(profile, why, int(_PAUSE_S))
        left = self._paused.get(profile, 0.0) - self._loop.time()
        return errors.load_failed(profile, _REFUSED_NOW, max(1, int(left))) if left > 0 else None

    def _has_failed(self, profile: str) -> bool:
        """Tell whether the last switch to a profile failed, and the profile is rendered as it was then."""
        fingerprint = self._place.known.get(profile, {}).get("fingerprint")
        return fingerprint is not None and self._failed.get(profile, (None, ""))[0] == fingerprint

    def offers(self) -> Iterator[dict[str, Any]]:
        """Yield the profiles as rows of the list of models, each under all its names."""
        self.read()
        back = self.back
        for profile in sorted(self.profiles, key=lambda one: one != back):
            known = self._place.known[profile]
            engine = known.get("engine") or {}
            may = profile in self.names and self.refusal(profile) is None
            served, *others = self._names_of(profile)
            about = {
                "profile": profile,
                **{text: known.get(text) or "" for text in ("title", "status", "fingerprint")},
                "served_model_name": served,
                "modalities": known.get("modalities") or [],
                "state": "blocked" if not may else "standby" if self._sleeps(profile) else "loadable",
                "slot": self._place.name,
                "verified": False,
            }
            row = {"id": served, "object": "model", "created": 0, "owned_by": "b70", "b70": about}
            row["max_model_len"] = engine.get("max_model_len")
            yield row
            for name in others:
                yield {**row, "id": name, "parent": served, "b70": {**about, "alias_of": served}}

    # --- who waits -------------------------------------------------------------------------------------------------

    def hold(self, client: ClientConnection, head: RequestHead, document: Document, profile: str) -> Held | Refusal:
        """Have a request wait for a profile, or send it away."""
        refusal = self.refusal(profile)
        if refusal is not None:
            return refusal
        since, _until = self._absent.pop((client.client_key, profile), (self._loop.time(), 0.0))
        held = Held(client, head, document, self, profile, since)
        wait_s = self.eta_s(profile)
        if held.streams or wait_s <= self._demand.settings.silent_wait_s:
            return held
        self.remember(held)
        self._loop.call_soon(self.look)
        return errors.loading(profile, wait_s)

    def enter(self, held: Held) -> None:
        """Put a request into the queue."""
        if self.queue.enter(held, held.client_key, may_wait=True) is QUEUED:
            self._loop.call_soon(self.look)
        else:
            held.refuse_full()

    def remember(self, held: Held) -> None:
        """Keep the place of a client that is told to come back."""
        if len(self._absent) < self.queue.max_queued:
            until = self._loop.time() + self._demand.settings.wait_s
            self._absent[held.client_key, held.profile] = held.since, until

    def waiting(self) -> list[Held]:
        return [one for one in self.queue.waiting() if isinstance(one, Held)]

    def _wishes(self) -> list[Wish]:
        absent = [Wish(profile, since, key) for (key, profile), (since, _until) in self._absent.items()]
        return absent + [Wish(one.profile, one.since, one.client_key) for one in self.waiting()]

    # --- what is served --------------------------------------------------------------------------------------------

    @property
    def _moving_to(self) -> str:
        """The profile of a switch under way, whoever asked for it."""
        state = self.target.slot.state
        return str((state.switch or {}).get("to") or "") if state.phase in _MOVING else ""

    def _view(self) -> View:
        slot = self.target.slot
        served = str((slot.state.profile or {}).get("name") or "") if slot.state.phase == "serving" else ""
        is_open = slot.closed is None
        asked = bool(self._asked or self._unloads or self._place.running)
        moving = asked or slot.state.phase in _MOVING or bool(served and not is_open)
        moving = moving or self._loop.time() < self._locked_until
        running = self.target.permits.limiter.requests
        if running or served != self._served:
            self.used = self._loop.time()
        if served != self._served:
            self._served, self._since = served, self.used
        return View(served, self._since, running, moving, self.used)

    @property
    def back(self) -> str:
        """The profile that the next request for the slot brings back, whatever it names; empty where none is idle."""
        if self._unloads:
            return self._unloads
        profile = str((self.target.slot.state.idle or {}).get("profile") or "")
        is_it = (self._asked or self._moving_to or profile) == profile and profile in self.names.values()
        return profile if is_it and self.refusal(profile) is None else ""

    def named(self, name: str) -> str:
        """Return the profile that a request by this name gets: of several the idle one, else the first."""
        back = self.back
        return back if back and name in self._names_of(back) else self.names[name]

    def told(self) -> dict[str, Any]:
        """Return what the status says of the requests that wait for models."""
        now, waiting = self._loop.time(), self.waiting()
        oldest_s, back = max((now - one.since for one in waiting), default=0.0), self.back
        return {
            "loads": self._asked,
            "held": len(waiting),
            "oldest_wait_s": round(oldest_s, 1),
            "brings_back": back,
            "names": self._names_of(back) if back else [],
        }

    def serves(self, profile: str) -> bool:
        slot = self.target.slot
        return slot.closed is None and (slot.state.profile or {}).get("name") == profile

    def eta_s(self, profile: str) -> float:
        """Estimate in how many seconds a profile will be served."""
        view, closed = self._view(), self.target.slot.closed
        target = self._asked or self._moving_to
        left = closed.retry_after_s if closed is not None and self._moving_to else None
        before: list[str] = []
        for wish in ahead(view, self._wishes(), ()):
            if wish.profile == profile:
                break
            before.append(wish.profile)
        min_serve_s, now = self._demand.settings.min_serve_s, self._loop.time()
        left_s = self._load_s(target) if left is None else left
        return eta_s(view, before, profile, now, min_serve_s, self._load_s, target, left_s if target else 0.0)

    def _sleeps(self, profile: str) -> int:
        """Tell the level at which the engine of a profile sleeps, 0 for none, as a controller says that still runs."""
        told = self._watchdog.read()
        if told is None or time.time() - epoch(told["at"]) > FRESH_S:
            return 0
        return max((int(one["level"]) for one in told["standby"] if one["profile"] == profile), default=0)

    def _load_s(self, profile: str) -> float:
        """Estimate how long a load takes: as the last of this profile, or the longest of all; or a wake that reads no
        weights: as the shortest."""
        wakes = self._sleeps(profile) == 1
        rows = (row for row in self._rows if row["seconds"] and row["outcome"] == "committed")
        loads = [row for row in rows if (row["way"] == "standby") == wakes]
        own = [row["seconds"] for row in loads if row["to"] == profile]
        if wakes:
            # Wakes from level 2 are among them, and read the weights.
            return float(min(own or (row["seconds"] for row in loads), default=_WAKE_S))
        return float(own[0] if own else max((row["seconds"] for row in loads), default=_GUESS_S))

    def look(self) -> None:
        """Let requests go on whose model is served, refuse those whose model cannot be, and ask for the next one."""
        view, now = self._view(), self._loop.time()
        self._absent = {one: told for one, told in self._absent.items() if told[1] > now}
        closes = False
        if self._absent or self.queue.queued or not self.names:
            self.read()
            blocked = {one.profile: self.refusal(one.profile) for one in self._wishes()}
            refused = {profile: refusal for profile, refusal in blocked.items() if refusal is not None}
            self._absent = {one: told for one, told in self._absent.items() if one[1] not in refused}
            for held in self.waiting():
                if held.profile in refused:
                    held.refuse(refused[held.profile])
            wishes = self._wishes()
            step = decide(view, wishes, (), now, self._demand.settings.min_serve_s)
            closes = step.closes
            if step.switch_to and not self._demand.stopping:
                first = next(one for one in ahead(view, wishes, ()) if one.profile == step.switch_to)
                self._ask(step.switch_to, first.client)
        if is_idle(view, len(self._absent) + self.queue.queued, now, self._demand.settings.min_serve_s, self._idle_s):
            self.read()
            loadable = view.served in self.names.values() and self.refusal(view.served) is None
            if loadable and not self._demand.stopping:
                self._unloads = view.served
                seconds = str(int(now - self.used))
                self._demand.admin.begin(self._place, "idle", view.served, seconds).add_done_callback(self._unloaded)
        # as long as the switch that was asked for has not closed the slot, or left it open beside the new engine
        asked = bool(self._asked or self._unloads)
        self.closes = closes or (asked and self.target.slot.state.phase == "serving")
        if not self.closes:
            self._absent = {one: told for one, told in self._absent.items() if not self.serves(one[1])}
            for held in self.waiting():
                if self.serves(held.profile):
                    held.go()

    # --- loads -----------------------------------------------------------------------------------------------------

    def _ask(self, profile: str, client_key: str) -> None:
        key = client_key.removeprefix("key ") if client_key.startswith("key ") else _NOBODY
        self._asked = profile
        self._demand.admin.begin(self._place, "load", profile, key).add_done_callback(self._ended)

    def _unloaded(self, task: asyncio.Task[Refusal | None]) -> None:
        self._unloads = ""
        if task.cancelled() or task.result() is not None:
            # it is tried again when nobody has asked for as long once more
            self.used = self._loop.time()
        if not self._demand.stopping:
            self.look()

    def _ended(self, task: asyncio.Task[Refusal | None]) -> None:
        profile, self._asked = self._asked, ""
        refusal = None if task.cancelled() else task.result()
        if self._demand.stopping:
            return
        self.read()
        if refusal is None and self._place.served == profile:
            self.stats.loads[SERVED] += 1
        elif refusal is not None and refusal.code == "model_loading":
            self._locked_until = self._loop.time() + _LOCKED_S
        elif self._has_failed(profile):
            self.stats.loads[FAILED] += 1
        else:
            # nothing was switched: what is wrong is not the profile, and may pass
            self.stats.loads[REFUSED] += 1
            self._paused[profile] = self._loop.time() + _PAUSE_S
        self.look()


class Demand:
    """The slots that load models for requests."""

    def __init__(
        self,
        settings: config.Demand,
        slots: Sequence[config.Slot],
        max_queued: int,
        *,
        server: Server,
        admin: Admin,
        keys: Keys | None,
        hindered: Callable[[], str],
    ) -> None:
        """Begin with a line for each slot that loads models; `hindered` tells why the host loads none now, or ""."""
        self.settings, self.server, self.admin, self.hindered = settings, server, admin, hindered
        self._keys = keys
        self.stopping = False
        self.lines = {
            place.target.index: Line(place, slot, self, max_queued)
            for place, slot in zip(admin.places, slots, strict=True)
            if slot.on_demand
        }

    def may_load(self, client: ClientConnection) -> bool:
        """Tell whether requests of a client may change what is served."""
        if self._keys is None:
            return True
        limits = self._keys.limits(client.key_name) if client.key_name is not None else None
        return limits is not None and limits.may_load

    def offers(self, client: ClientConnection) -> dict[str, dict[str, Any]]:
        """Return the profiles that a client may have loaded, as rows of the list of models, by name."""
        may, rows = self.may_load(client), dict[str, dict[str, Any]]()
        for line in self.lines.values():
            for row in line.offers():
                # what was unloaded because nobody asked for it is brought back for everybody
                if may or row["b70"]["profile"] == line.back:
                    # of one name the first
                    rows.setdefault(row["id"], row)
        return rows

    def listing(self, client: ClientConnection, head: RequestHead) -> dict[str, Any] | Refusal:
        """Return the list of models, or one of its rows, while no engine can be asked for its own."""
        rows = self.offers(client)
        wanted = head.route.path.removeprefix(MODELS).lstrip("/")
        if not wanted:
            return {"object": "list", "data": list(rows.values())}
        return rows.get(wanted) or errors.not_served_here(wanted, rows)

    def claim(self, client: ClientConnection, head: RequestHead, document: Document) -> Held | Refusal | None:
        """Hold or refuse a request whose model is not served, or is being left; None if it is admitted as ever."""
        name = document.model(coded=head.coded)
        target = self.server.by_model.get(name)
        if target is None or target.slot.closed is not None:
            for one in self.lines.values():
                one.read()
            having = [one for one in self.lines.values() if name in one.names and target in (None, one.target)]
            if having and not having[0].target.slot.draining:
                return self._wait(client, head, document, name, having[0])
        # a request that names no model which is known is for the first slot
        target = self.server.targets[0] if target is None else target
        line = self.lines.get(target.index)
        if line is None or target.slot.draining:
            return None
        line.used = self.server.loop.time()
        if line.back:
            return line.hold(client, head, document, line.back)
        if not line.closes or target.slot.closed is not None:
            return None
        profile = str((target.slot.state.profile or {}).get("name"))
        if name not in target.slot.names or profile not in line.names or not self.may_load(client):
            return errors.LEAVING
        return line.hold(client, head, document, profile)

    def _wait(
        self, client: ClientConnection, head: RequestHead, document: Document, name: str, line: Line
    ) -> Held | Refusal | None:
        """Hold or refuse a request for a model that is not served."""
        profile, known = line.named(name), name in self.server.by_model
        if (line.back == profile or self.may_load(client)) and not line.serves(profile):
            return line.hold(client, head, document, profile)
        # or the model runs as it was rendered before, without this name
        served = [model for model, one in self.server.by_model.items() if one.slot.closed is None]
        return None if known else errors.not_served_here(name, served)

    def told(self, slot: int) -> dict[str, Any] | None:
        """Return what the status says of a slot, None where it loads nothing for requests."""
        line = self.lines.get(slot)
        return None if line is None else line.told()

    def look(self) -> None:
        for line in self.lines.values():
            line.look()

    def sweep(self, now: float) -> None:
        """Tell clients of streams that they wait, and send away requests that waited for too long."""
        for line in self.lines.values():
            for held in line.waiting():
                held.sweep(now, self.settings.wait_s, self.settings.silent_wait_s)

    def drain(self) -> None:
        """Ask for no more loads, and send away the requests that wait."""
        self.stopping = True
        for line in self.lines.values():
            for held in line.waiting():
                held.refuse(STOPPING)
