# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: which models there are, and loading another one, in the words of llm-pool's API.

What changes the slot is done by `b70ctl admin`, a privileged helper behind a socket. It goes on when the client, or
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
from collections.abc import Callable
from typing import Any

import orjson

from frontdoor import config, errors
from frontdoor.admin import models
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection, Server
from frontdoor.http.head import RequestHead
from frontdoor.http.job import Job
from frontdoor.observability.events import EventLog
from frontdoor.policy.keys import Keys
from frontdoor.policy.routes import ADMIN_MEMORY, ADMIN_MODELS, ADMIN_RELOAD, Kind
from frontdoor.slot.records import Records, status_here
from frontdoor.slot.state import SlotState

_READS, _CHANGES = (b"GET", b"HEAD"), (b"POST",)
_METHODS = {ADMIN_MODELS: _READS, ADMIN_MEMORY: _READS, ADMIN_RELOAD: _CHANGES}
_ACTION = re.compile(re.escape(ADMIN_MODELS) + r"/([^/]+)/(load|unload)")
# what an action would bring about, and need not
_SETTLED = {"load": ("loaded", "loading"), "unload": ("unloaded", "failed", "unloading")}
# for a look at the cards
_LOOK_S = 10.0
_MAX_ANSWER = 4 * 1024 * 1024
# exit codes of `b70ctl admin`, and one for when there is no time to wait for it; no answer counts as a failure
DONE, FAILED, LOCKED, REFUSED, STOPPING = 0, 1, 4, 64, -1

Answer = dict[str, Any] | Refusal


async def question(path: str, line: bytes, limit_s: float) -> dict[str, Any]:
    """The helper's answer, or one in its place that says why there is none."""
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


@dataclasses.dataclass
class Admin:
    """Answers below /v1/admin. Without a file of keys there is nothing there."""

    settings: config.Admin
    #: keys that may ask the model
    ordinary: Keys | None
    server: Server
    records: Records
    events: EventLog
    #: has the slot's state and the keys read again, or only the state, where it changed
    reload: Callable[[], None]
    poll_state: Callable[[], None]

    def __post_init__(self) -> None:
        """Read the keys; raise ConfigError."""
        #: those that may change what is served
        self.keys = Keys(self.settings.keys_file) if self.settings.keys_file else None
        given = self.settings
        self._profiles = models.Profiles(given.profiles_dir if self.keys is not None else "", given.estimates_file)
        # a load or unload under way, and the task that waits for the helper
        self._running: dict[str, str] = {}
        self._job: asyncio.Task[Refusal | None] | None = None
        #: why the last load of a profile failed
        self._failures: dict[str, str] = {}

    def state_applied(self, state: SlotState) -> None:
        """Forget that the load of a profile failed, once it is served."""
        self._failures.pop(_served(state), None)

    def drain(self) -> None:
        """Wait for nothing any more, and tell who does; what the helper has begun goes on."""
        if self._job is not None:
            self._job.cancel()

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Why this client may not ask; needs no body."""
        if self.keys is None:
            return errors.unknown_path(head.route.path)
        if self._key_name(head):
            return None
        if self.ordinary is not None and head.secret and self.ordinary.identify(head.secret):
            return Refusal(403, "not_an_admin_key", "this API key may ask the model, not change what is served")
        return errors.UNAUTHORIZED_ADMIN

    def refusal_elsewhere(self, head: RequestHead) -> Refusal | None:
        """What a client without an API key is told: who administers may look, and only that."""
        looks = head.route.kind is Kind.LOCAL or head.route.always
        if self._key_name(head):
            return None if looks else errors.ONLY_ADMIN
        return errors.UNAUTHORIZED_TO_LOOK if looks and self.keys is not None else errors.UNAUTHORIZED

    def _key_name(self, head: RequestHead) -> str:
        return (self.keys.identify(head.secret) if self.keys is not None and head.secret else None) or ""

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Job:
        """What answers a complete request; what that has begun goes on without it."""
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

    def _reload(self, key: str) -> Answer:
        self.reload()
        state = self.server.targets[0].slot.state
        found = self._profiles.reload(_served(state), (state.profile or {}).get("fingerprint") or "")
        if isinstance(found, Refusal):
            return found
        self.events.emit("admin_reload", key=key, **found)
        # the role starts the frontdoor anew whenever its own settings change
        return {**found, "service_restart_required": False}

    async def _change(self, key: str, body: bytes, name: str, verb: str) -> Answer:
        wanted = models.overrides(verb, body)
        if isinstance(wanted, Refusal):
            return wanted
        profile = self._profiles.read().get(name)
        if profile is None:
            return Refusal(404, "unknown_model", f"{name} is not a profile of this host", details={"model": name})
        settled = self._runtime(name) in _SETTLED[verb]
        refusal = models.refused_overrides(name, wanted, profile, self._profiles.kinds(), settled=settled)
        if refusal is None and not settled:
            refusal = self._obstacle(verb, name, profile) or await asyncio.shield(self._begin(verb, name, key))
        return refusal or self._rows(name)[0]

    def _obstacle(self, verb: str, name: str, profile: dict[str, Any]) -> Refusal | None:
        """Why this cannot be done now, or not over HTTP."""
        status = profile.get("status")
        for other, what in models.under_way(self.server.targets[0].slot.state, self._running).items():
            words = f"{other or 'the slot'} is {what}; try to {verb} {name} when that has ended"
            return Refusal(409, f"model_{what}", words, details={"model": other})
        if verb == "unload" or status not in self._profiles.refused_statuses():
            return None
        words = (
            f"{name} is {status}: {profile.get('status_reason') or 'no reason recorded'}; it is not loaded over HTTP. "
            f"To serve it nevertheless, on the host: b70ctl switch {name} --accept-status {status}"
        )
        return Refusal(400, "invalid_load_request", words, details={"model": name})

    def _runtime(self, name: str) -> str:
        return models.runtime_state(name, self.server.targets[0].slot.state, self._running, name in self._failures)

    def _rows(self, *names: str) -> list[dict[str, Any]]:
        """Rows of these profiles, or of all; one that has gone in the meantime is no more than a name."""
        profiles, refused = self._profiles.read(), self._profiles.refused_statuses()
        estimates, kinds = self._profiles.estimates(), self._profiles.kinds()
        limiter, refusals = self.server.targets[0].permits.limiter, self.server.ledger.metrics.refusals
        turned_away = sum(refusals[code] for code in ("busy", "queue_full", "queue_timeout"))
        opened = len(self.server.targets[0].replicas.used)
        now = models.traffic(opened, limiter.active, limiter.queued, limiter.shares(), turned_away)
        rows = []
        for name in names or profiles:
            profile = profiles.get(name, {})
            status = str(profile.get("status") or "")
            here = status_here(status, self.records.of(self.server.targets[0].slot.state.slot, profile))
            told = (self._runtime(name), self._failures.get(name), now, status not in refused)
            held = estimates.get(str(profile.get("fingerprint") or ""))
            rows.append(models.row(name, {**profile, "status": here}, *told, held_mib=held, kinds=kinds))
        return rows

    def _note(self, exc: Exception, path: str = "") -> None:
        place = traceback.extract_tb(exc.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        self.events.emit("admin_error", path=path, error=f"{type(exc).__name__}: {exc}", where=where)

    def _begin(self, verb: str, name: str, key: str) -> asyncio.Task[Refusal | None]:
        self._failures.pop(name, None)
        self._running = {name: f"{verb}ing"}
        self._job = asyncio.ensure_future(self._run(verb, name, key))
        self.events.emit(f"admin_{verb}", model=name, key=key)
        return self._job

    async def _run(self, verb: str, name: str, key: str) -> Refusal | None:
        """Ask the helper once, whoever waits for its end; return what a client is told unless all is well."""
        try:
            answer = await question(self.settings.socket, f"{verb} {name} {key}\n".encode(), self.settings.timeout_s)
            code, message = answer["exit"], answer["message"]
        except asyncio.CancelledError:
            code = STOPPING
            message = "the frontdoor is stopping; what was begun goes on, and can be seen when it is back"
        except Exception as exc:
            self._note(exc)
            code, message = FAILED, "the helper could not be asked; the journal of the frontdoor says why"
        self._running, self._job = {}, None
        # the slot's newest word, before anybody is told
        self.poll_state()
        if (
            verb == "load"
            and code not in (DONE, LOCKED, REFUSED, STOPPING)
            and _served(self.server.targets[0].slot.state) != name
        ):
            self._failures[name] = message
        self.events.emit(f"admin_{verb}_ended", model=name, exit=code, message=message)
        if code == DONE:
            return None
        known = {
            LOCKED: (409, "model_loading"),
            STOPPING: (503, "stopping"),
            # what was asked for was true when it was asked, and is not any more
            REFUSED: (404, "unknown_model") if verb == "load" else (409, "model_not_loaded"),
        }
        status, word = known.get(code, (500, f"model_{verb}_failed"))
        return Refusal(status, word, message, 5 if code == STOPPING else None, {"model": name})


def _served(state: SlotState) -> str:
    """Name of the profile that is served; empty while none is."""
    return ((state.profile or {}).get("name") or "") if state.phase == "serving" else ""
