# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: which models there are, and loading another one, in the words of llm-pool's API.

What changes a slot is done by `b70ctl admin`, a privileged helper behind a socket. It goes on when the client, or
this very process, does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from frontdoor import config, errors
from frontdoor.admin import models
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection, Server, Target
from frontdoor.http.head import RequestHead
from frontdoor.http.job import Job
from frontdoor.observability.events import EventLog
from frontdoor.policy.keys import Keys
from frontdoor.policy.routes import ADMIN_MEMORY, ADMIN_MODELS, ADMIN_RELOAD, Kind
from frontdoor.slot.reports import Records, status_here
from frontdoor.slot.state import SlotState

_READS, _CHANGES = (b"GET", b"HEAD"), (b"POST",)
_METHODS = {ADMIN_MODELS: _READS, ADMIN_MEMORY: _READS, ADMIN_RELOAD: _CHANGES}
_ACTION = re.compile(re.escape(ADMIN_MODELS) + r"/([^/]+)/(load|unload)")
# the states that an action would lead to, in which it has nothing to do
_SETTLED = {"load": ("loaded", "loading"), "unload": ("unloaded", "failed", "unloading")}
# of slots that have a profile, whose row tells of it, and which of them an unload is about
_RANKS = (models.LOADED, models.UNLOADING, models.LOADING, models.MODEL_FAILED, models.UNLOADED)
# for a look at the cards
_LOOK_S = 10.0
_MAX_ANSWER = 4 * 1024 * 1024
# exit codes of `b70ctl admin`, and one for when there is no time to wait for it; no answer counts as a failure
DONE, FAILED, LOCKED, REFUSED, STOPPING = 0, 1, 4, 64, -1

Answer = dict[str, Any] | Refusal


async def question(path: str, line: bytes, limit_s: float) -> dict[str, Any]:
    """Return the helper's answer, or one in its place that says why there is none."""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_unix_connection(path)
            with contextlib.closing(writer):
                writer.write(line)
                # it writes as it likes, and ends when it has said everything
                said = b""
                while len(said) <= _MAX_ANSWER and (more := await reader.read(64 * 1024)):
                    said += more
        if len(said) > _MAX_ANSWER:
            return {"exit": FAILED, "message": f"{path} said more than {_MAX_ANSWER >> 20} MiB"}
        answer = orjson.loads(said)
        return {**answer, "exit": int(answer["exit"]), "message": str(answer["message"])}
    except TimeoutError:
        message = f"no word from {path} within {limit_s:g} s; it may still be at work"
    except OSError as exc:
        message = f"{path} cannot be asked: {exc.strerror or exc}; is its socket unit active?"
    except (LookupError, TypeError, ValueError):
        message = f"{path} gave no answer; read: journalctl -u 'b70-slot-admin@*'"
    return {"exit": FAILED, "message": message}


class Place:
    """A slot, as the administration sees it."""

    def __init__(self, target: Target, profiles: models.Profiles) -> None:
        self.name = target.name
        self.target = target
        self.profiles = profiles
        # a load or unload under way, and the task that waits for the helper
        self.running: dict[str, str] = {}
        self.job: asyncio.Task[Refusal | None] | None = None
        #: why the last load of a profile failed
        self.failures: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        """Read the files of the slot again."""
        self.known = self.profiles.read()
        self.refused, self.kinds, self.cards = self.profiles.settings.read()
        self.estimates = self.profiles.estimates.read()

    @property
    def state(self) -> SlotState:
        return self.target.slot.state

    @property
    def served(self) -> str:
        """Name of the profile that is served; empty while none is."""
        return ((self.state.profile or {}).get("name") or "") if self.state.phase == "serving" else ""

    def runtime(self, name: str) -> str:
        return models.runtime_state(name, self.state, self.running, name in self.failures)

    def suits(self, name: str) -> bool:
        """Tell whether the slot has as many cards as a profile needs."""
        return self.cards is None or self.cards >= models.cards_of(self.known[name])

    def traffic(self, refusals: Mapping[str, int]) -> dict[str, Any]:
        """Return the part of a row about generations; `refusals` are those of the slot, by their code."""
        limiter, opened = self.target.permits.limiter, len(self.target.replicas.used)
        turned_away = sum(refusals[code] for code in ("busy", "queue_full", "queue_timeout"))
        return models.traffic(opened, limiter.active, limiter.queued, limiter.shares(), turned_away)


@dataclasses.dataclass
class Admin:
    """Answers below /v1/admin. Without a file of keys there is nothing there."""

    settings: config.Admin
    slots: tuple[config.Slot, ...]
    #: keys that may ask the model
    ordinary: Keys | None
    server: Server
    records: Records
    events: EventLog
    #: has the slots' states and the keys read again, or only the states, where they changed
    reload: Callable[[], None]
    poll_state: Callable[[], None]

    def __post_init__(self) -> None:
        """Read the keys; raise ConfigError."""
        #: those that may change what is served
        self.keys = Keys(self.settings.keys_file) if self.settings.keys_file else None
        self.places = [
            Place(
                target,
                models.Profiles(
                    slot.profiles_dir if self.keys is not None or slot.on_demand else "", slot.estimates_file
                ),
            )
            for target, slot in zip(self.server.targets, self.slots, strict=True)
        ]
        self._before = self._known()

    def _known(self) -> models.Known:
        """Return the profiles by name, each as the slots have it."""
        found: dict[str, dict[str, Any]] = {}
        for place in self.places:
            for name, profile in place.known.items():
                found.setdefault(name, {})[place.name] = profile
        return found

    def state_applied(self, slot: int) -> None:
        """Forget that the load of a profile failed, once it is served."""
        place = self.places[slot]
        place.failures.pop(place.served, None)

    def drain(self) -> None:
        """Wait for nothing any more, and tell who does; what the helper has begun goes on."""
        for place in self.places:
            if place.job is not None:
                place.job.cancel()

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Return why this client may not ask, None if it may; needs no body."""
        if self.keys is None:
            return errors.unknown_path(head.route.path)
        if self._key_name(head):
            return None
        if self.ordinary is not None and head.secret and self.ordinary.identify(head.secret):
            return Refusal(403, "not_an_admin_key", "this API key may ask the model, not change what is served")
        return errors.UNAUTHORIZED_ADMIN

    def refusal_elsewhere(self, head: RequestHead) -> Refusal | None:
        """Return the refusal of a client without an API key.

        One with an administrator's key may look, and only that.
        """
        looks = head.route.kind is Kind.LOCAL or head.route.always
        if self._key_name(head):
            return None if looks else errors.ONLY_ADMIN
        return errors.UNAUTHORIZED_TO_LOOK if looks and self.keys is not None else errors.UNAUTHORIZED

    def _key_name(self, head: RequestHead) -> str:
        return (self.keys.identify(head.secret) if self.keys is not None and head.secret else None) or ""

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Job:
        """Return the job that answers a complete request; work that it begins goes on without it."""
        return Job(client, head, functools.partial(self._answer, head, body))

    async def _answer(self, head: RequestHead, body: bytes) -> Answer:
        try:
            return self.refusal(head) or await self._carry_out(head, body)
        except Exception as exc:
            self._note(exc, head.route.path)
            words = "the frontdoor failed to answer that; its journal says why: journalctl -u b70-openai-frontdoor"
            return Refusal(500, "internal_error", words)

    async def _carry_out(self, head: RequestHead, body: bytes) -> Answer:
        path = head.route.path
        action = _ACTION.fullmatch(path)
        methods = _CHANGES if action else _METHODS.get(path)
        if methods is None:
            return errors.unknown_path(path)
        if head.method not in methods:
            return errors.method_not_allowed(path, methods)
        if action:
            return await self._change(self._key_name(head), body, *action.groups())
        if path == ADMIN_RELOAD:
            return self._reload(self._key_name(head))
        if path == ADMIN_MODELS:
            return {"models": self._rows()}
        answer = await question(self.settings.socket, b"cards\n", _LOOK_S)
        error = None if answer["exit"] == DONE else answer["message"]
        return models.gpu_memory(answer.get("cards"), error, self._rows())

    def _look(self) -> None:
        for place in self.places:
            place.look()

    def _reload(self, key: str) -> Answer:
        self.reload()
        self._look()
        if faults := [fault for place in self.places for fault in place.profiles.faults]:
            return Refusal(400, "invalid_settings", f"{'; '.join(faults)}; what was known of them still counts")
        for place in self.places:
            fingerprint = (place.state.profile or {}).get("fingerprint") or ""
            if (conflict := place.profiles.conflict(place.served, fingerprint)) is not None:
                return conflict
        before, self._before = self._before, self._known()
        found = models.changes(before, self._before)
        self.events.emit("admin_reload", key=key, **found)
        # the role starts the frontdoor anew whenever its own settings change
        return {**found, "service_restart_required": False}

    async def _change(self, key: str, body: bytes, name: str, verb: str) -> Answer:
        wanted = models.overrides(verb, body)
        if isinstance(wanted, Refusal):
            return wanted
        self._look()
        place = self._place(verb, name, wanted.pop(models.SLOT, None))
        if isinstance(place, Refusal):
            return place
        profile = place.known[name]
        settled = place.runtime(name) in _SETTLED[verb]
        refusal = models.refused_overrides(name, wanted, profile, place.kinds, settled=settled)
        if refusal is None and not settled:
            obstacle = self._obstacle(place, verb, name, profile)
            refusal = obstacle or await asyncio.shield(self.begin(place, verb, name, key))
        return refusal or self._rows(name, place=place)[0]

    def _place(self, verb: str, name: str, slot: str | None) -> Place | Refusal:
        """Return the slot in which a profile is to be loaded or unloaded, or why that is not certain."""
        having = [place for place in self.places if name in place.known]
        if not having:
            return Refusal(404, "unknown_model", f"{name} is not a profile of this host", details={"model": name})
        if slot is not None:
            found = [place for place in having if place.name == slot]
            names, words = having, f"{slot} is not a slot of this host that has {name}; these are"
        else:
            nearest = _nearest(name, having)
            if verb == "unload" or nearest.runtime(name) in _SETTLED["load"]:
                return nearest
            # where none has the cards, the load says what is missing
            names = [place for place in having if place.suits(name)] or having
            found = names if len(names) == 1 else [place for place in names if place is self.places[0]]
            words = f"{name} can be loaded into several slots; say in which one with `slot`"
        if found:
            return found[0]
        told = [place.name for place in names]
        return Refusal(
            400, "invalid_load_request", f"{words}: {', '.join(told)}", details={"model": name, "slots": told}
        )

    def _obstacle(self, place: Place, verb: str, name: str, profile: dict[str, Any]) -> Refusal | None:
        """Return why this cannot be done now, or not over HTTP; None if it can."""
        status = profile.get("status")
        for other, what in models.under_way(place.state, place.running).items():
            words = f"{other or 'the slot'} is {what}; try to {verb} {name} when that has ended"
            return Refusal(409, f"model_{what}", words, details={"model": other})
        if verb == "unload" or status not in place.refused:
            return None
        command = "b70ctl" if place is self.places[0] else f"b70ctl-{place.name}"
        words = (
            f"{name} is {status}: {profile.get('status_reason') or 'no reason recorded'}; it is not loaded over HTTP. "
            f"To serve it nevertheless, on the host: {command} switch {name} --accept-status {status}"
        )
        return Refusal(400, "invalid_load_request", words, details={"model": name})

    def _rows(self, *names: str, place: Place | None = None) -> list[dict[str, Any]]:
        """Return the rows of these profiles, or of all; a profile that has gone meanwhile is no more than a name.

        A row is of `place`, or of the slot that serves the model, else of one that could.
        """
        self._look()
        slots = self.server.ledger.metrics.slots
        traffic = {one.name: one.traffic(slots[one.name].refusals) for one in self.places}
        rows = []
        for name in names or dict.fromkeys(name for one in self.places for name in one.known):
            having = [one for one in self.places if name in one.known]
            here = place or (_nearest(name, having) if having else self.places[0])
            profile = here.known.get(name, {})
            status = str(profile.get("status") or "")
            found = {**profile, "status": status_here(status, self.records.of(here.state.slot, profile))}
            told = (here.runtime(name), here.failures.get(name), traffic[here.name], status not in here.refused)
            held = here.estimates.get(str(profile.get("fingerprint") or ""))
            serving = [one.name for one in self.places if one.runtime(name) == models.LOADED]
            rows.append(models.row(name, found, *told, held_mib=held, slot=here.name, slots=serving, kinds=here.kinds))
        return rows

    def _note(self, exc: Exception, path: str = "") -> None:
        place = traceback.extract_tb(exc.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        self.events.emit("admin_error", path=path, error=f"{type(exc).__name__}: {exc}", where=where)

    def begin(self, place: Place, verb: str, name: str, key: str) -> asyncio.Task[Refusal | None]:
        """Have the helper load or unload a profile, and return what waits for that; `key` is who asks."""
        place.failures.pop(name, None)
        place.running = {name: models.LOADING if verb == "load" else models.UNLOADING}
        place.job = asyncio.ensure_future(self._run(place, verb, name, key))
        self.events.emit(f"admin_{verb}", model=name, key=key, slot=place.name)
        return place.job

    async def _run(self, place: Place, verb: str, name: str, key: str) -> Refusal | None:
        """Ask the helper once, whoever waits for its end; return what a client is told unless all is well."""
        try:
            line = f"{verb} {name} {key} {place.name}\n".encode()
            answer = await question(self.settings.socket, line, self.settings.timeout_s)
            code, message = answer["exit"], answer["message"]
        except asyncio.CancelledError:
            code = STOPPING
            message = "the frontdoor is stopping; what was begun goes on, and can be seen when it is back"
        except Exception as exc:
            self._note(exc)
            code, message = FAILED, "the helper could not be asked; the journal of the frontdoor says why"
        place.running, place.job = {}, None
        # the slots' newest word, before anybody is told
        self.poll_state()
        if verb == "load" and code not in (DONE, LOCKED, REFUSED, STOPPING) and place.served != name:
            place.failures[name] = message
        self.events.emit(f"admin_{verb}_ended", model=name, exit=code, message=message, slot=place.name)
        if code == DONE:
            return None
        known = {
            LOCKED: (409, "model_loading"),
            STOPPING: (503, "stopping"),
            # the request was right when it came, and is not any more
            REFUSED: (404, "unknown_model") if verb == "load" else (409, "model_not_loaded"),
        }
        status, word = known.get(code, (500, f"model_{verb}_failed"))
        return Refusal(status, word, message, 5 if code == STOPPING else None, {"model": name})


def _nearest(name: str, places: Sequence[Place]) -> Place:
    """Return the slot nearest to a profile: it serves it, loads it, or tried; else one with the cards."""
    return min(places, key=lambda place: (_RANKS.index(place.runtime(name)), not place.suits(name)))
