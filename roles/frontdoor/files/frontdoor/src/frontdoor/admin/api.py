# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: which models there are, and loading another one, in the words of llm-pool's API.

What changes the slot is done by a privileged helper behind a socket. It goes on when the client, or this very process,
does not wait for it.
"""

from __future__ import annotations

import asyncio
import os
import re
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from frontdoor import config, errors
from frontdoor.admin.helper import CARDS, DONE, LOCKED, REFUSED
from frontdoor.admin.models import (
    LOADED,
    LOADING,
    MODEL_FAILED,
    UNLOADED,
    UNLOADING,
    Profiles,
    Running,
    at_work,
    fairness,
    gpu_memory,
    overrides,
    refused_overrides,
    row,
    runtime_state,
)
from frontdoor.admission.limiter import Limiter
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection
from frontdoor.http.head import RequestHead
from frontdoor.http.job import Job, respond
from frontdoor.observability.events import EventLog
from frontdoor.policy.keys import Keys
from frontdoor.policy.routes import ADMIN_MEMORY, ADMIN_MODELS, ADMIN_RELOAD, Kind
from frontdoor.slot.current import Slot
from frontdoor.slot.state import SlotState

_ACTION = re.compile(re.escape(ADMIN_MODELS) + r"/([^/]+)/(load|unload)")
# for a look at the cards
_LOOK_S = 10.0
# what stands for an exit code where there is none: no helper, and no time to wait for it
NO_HELPER, STOPPING = 1, -1
_MAX_ANSWER = 4 * 1024 * 1024

Answer = dict[str, Any] | Refusal


async def question(path: str, line: bytes, limit_s: float) -> dict[str, Any]:
    """The helper's answer, or one in its place that says why there is none."""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(line)
                # it writes as it likes, and ends when it has said everything
                said = b""
                while len(said) <= _MAX_ANSWER and (more := await reader.read(64 * 1024)):
                    said += more
            finally:
                writer.close()
        if len(said) > _MAX_ANSWER:
            return {"exit": NO_HELPER, "message": f"{path} said more than {_MAX_ANSWER >> 20} MiB"}
        answer = orjson.loads(said)
        return {**answer, "exit": int(answer["exit"]), "message": str(answer["message"])}
    except TimeoutError:
        message = f"no word from {path} within {limit_s:g} s; it may still be at work"
    except OSError as exc:
        message = f"{path} cannot be asked: {exc.strerror or exc}; is its socket unit active?"
    except (LookupError, TypeError, ValueError):
        message = f"{path} gave no answer; read: journalctl -u 'b70-slot-admin@*'"
    return {"exit": NO_HELPER, "message": message}


class Request(Job):
    """One request under way; what it has begun goes on without it."""

    def __init__(self, admin: Admin, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        super().__init__(client, head)
        self._admin = admin
        self._body = body

    async def answer(self) -> None:
        """Write the answer."""
        await self._admin.answer(self.client, self.head, self._body)


class Admin:
    """Answers below /v1/admin. Without a file of keys there is nothing there."""

    def __init__(
        self,
        settings: config.Admin,
        *,
        ordinary: Keys | None,
        slot: Slot,
        limiter: Limiter,
        refusals: Counter[str],
        events: EventLog,
        read_state: Callable[[bool], None],
    ) -> None:
        """Read the keys; raise ConfigError.

        `ordinary` are the keys that may ask the model; `refusals` counts by code. `read_state` has the slot's state
        applied: if it changed, or, told True, in any case.
        """
        self._settings = settings
        self._ordinary = ordinary
        self._slot = slot
        self._limiter = limiter
        self._refusals = refusals
        self._events = events
        self._read_state = read_state
        self._keys = Keys(settings.keys_file) if settings.keys_file else None
        self._profiles = Profiles(settings.profiles_dir if self._keys is not None else "")
        # a load or unload under way, and the task that waits for the helper
        self._running: Running | None = None
        self._job: asyncio.Task[tuple[int, str]] | None = None
        #: why the last load of a profile failed
        self._failures: dict[str, str] = {}
        reads, changes = (b"GET", b"HEAD"), (b"POST",)
        self._routes: dict[str, tuple[tuple[bytes, ...], Callable[[RequestHead, bytes], Awaitable[Answer]]]] = {
            ADMIN_MODELS: (reads, self._list),
            ADMIN_MEMORY: (reads, self._tell_memory),
            ADMIN_RELOAD: (changes, self._reload),
        }
        self._action = (changes, self._change)

    def state_applied(self, state: SlotState) -> None:
        """Forget that the load of a profile failed, once it is served."""
        self._failures.pop(_served(state), None)

    def drain(self) -> None:
        """Wait for nothing any more, and tell who does; what the helper has begun goes on."""
        if self._job is not None:
            self._job.cancel()

    # --- who may ------------------------------------------------------------------------------------------------------

    def refresh_keys(self) -> None:
        """Read the keys again when they changed."""
        if self._keys is not None:
            self._keys.refreshed(self._events.emit)

    @property
    def keys_error(self) -> str:
        """What is wrong with the file of keys, while those of before count."""
        return self._keys.error if self._keys is not None else ""

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Why this client may not ask; needs no body."""
        if self._keys is None:
            return errors.unknown_path(head.route.path)
        if self._key_name(head):
            return None
        if self._ordinary is not None and head.secret and self._ordinary.identify(head.secret):
            return Refusal(403, "not_an_admin_key", "this API key may ask the model, not change what is served")
        return errors.UNAUTHORIZED_ADMIN

    def refusal_elsewhere(self, head: RequestHead) -> Refusal | None:
        """What a client without an API key is told: who administers may look, and only that."""
        looks = head.route.kind is Kind.LOCAL or head.route.always
        if self._key_name(head):
            return None if looks else errors.ONLY_ADMIN
        return errors.UNAUTHORIZED_TO_LOOK if looks and self._keys is not None else errors.UNAUTHORIZED

    def _key_name(self, head: RequestHead) -> str:
        return (self._keys.identify(head.secret) if self._keys is not None and head.secret else None) or ""

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Request:
        """Begin to answer a complete request."""
        return Request(self, client, head, body)

    async def answer(self, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        """Write the answer; never raises."""
        try:
            answer = self.refusal(head) or await self._handle(head, body)
            if not isinstance(answer, Refusal):
                respond(client, head, answer)
                return
        except Exception as exc:
            self._note(exc, head.route.path)
            words = "the frontdoor failed to answer that; its journal says why: journalctl -u b70-openai-frontdoor"
            answer = Refusal(500, "internal_error", words)
        client.refuse(answer, head)

    async def _handle(self, head: RequestHead, body: bytes) -> Answer:
        path = head.route.path
        methods, handler = self._routes.get(path) or (self._action if _ACTION.fullmatch(path) else ((), None))
        if handler is None:
            return errors.unknown_path(head.route.path)
        if head.method not in methods:
            return errors.method_not_allowed(path, methods)
        return await handler(head, body)

    def _note(self, exc: Exception, path: str = "") -> None:
        place = traceback.extract_tb(exc.__traceback__)[-1:]
        where = f"{os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
        self._events.emit("admin_error", path=path, error=f"{type(exc).__name__}: {exc}", where=where)

    async def _list(self, _head: RequestHead, _body: bytes) -> Answer:
        return {"models": [self._row(name) for name in self._profiles.all()]}

    async def _tell_memory(self, _head: RequestHead, _body: bytes) -> Answer:
        answer = await question(self._settings.socket, CARDS, _LOOK_S)
        error = None if answer["exit"] == DONE else str(answer["message"])
        return gpu_memory(answer.get("cards"), error, [self._row(name) for name in self._profiles.all()])

    async def _reload(self, head: RequestHead, _body: bytes) -> Answer:
        self._read_state(True)
        self.refresh_keys()
        state = self._slot.state
        found = self._profiles.reload(_served(state) or None, str((state.profile or {}).get("fingerprint") or ""))
        if isinstance(found, Refusal):
            return found
        fields: dict[str, Any] = dict(found)
        self._events.emit("admin_reload", key=self._key_name(head), **fields)
        # the role starts the frontdoor anew whenever its own settings change
        return {**found, "service_restart_required": False}

    async def _change(self, head: RequestHead, body: bytes) -> Answer:
        action = _ACTION.fullmatch(head.route.path)
        assert action is not None
        name, verb = action.groups()
        wanted = overrides(verb, body)
        if isinstance(wanted, Refusal):
            return wanted
        if name not in self._profiles.all():
            return Refusal(404, "unknown_model", f"{name} is not a profile of this host", details={"model": name})
        runtime = self._runtime(name)
        settled = runtime in ((LOADED, LOADING) if verb == "load" else (UNLOADED, MODEL_FAILED, UNLOADING))
        refusal = refused_overrides(name, wanted, settled=settled) if verb == "load" else None
        if refusal is None and not settled:
            refusal = self._in_the_way(name, verb) or (self._not_served_so(name) if verb == "load" else None)
        if refusal is None and not settled:
            code, message = await asyncio.shield(self._begin(Running(verb, name), self._key_name(head)))
            refusal = failure(verb, name, code, message)
        return refusal or self._row(name)

    def _not_served_so(self, name: str) -> Refusal | None:
        """A switch refuses some statuses unless they are accepted by name, which is for who stands before the host."""
        profile = self._profiles.all()[name]
        status = profile.get("status")
        if status not in self._profiles.refused_statuses():
            return None
        why = profile.get("status_reason") or "no reason recorded"
        words = (
            f"{name} is {status}: {why}; it is not loaded over HTTP. To serve it nevertheless, on the host: "
            f"b70ctl switch {name} --accept-status {status}"
        )
        return Refusal(400, "invalid_load_request", words, details={"model": name})

    def _in_the_way(self, name: str, verb: str) -> Refusal | None:
        busy = at_work(self._slot.state, self._running)
        if busy is None:
            return None
        other, what = busy
        words = f"{other or 'the slot'} is {what}; try to {verb} {name} when that has ended"
        return Refusal(409, f"model_{what}", words, details={"model": other})

    def _runtime(self, name: str) -> str:
        return runtime_state(name, self._slot.state, self._running, name in self._failures)

    def _row(self, name: str) -> dict[str, Any]:
        limiter, refused = self._limiter, sum(self._refusals[code] for code in ("busy", "queue_full", "queue_timeout"))
        # one that has gone in the meantime is no more than a name
        profile = self._profiles.all().get(name, {"name": name})
        enabled = profile.get("status") not in self._profiles.refused_statuses()
        shared = fairness(limiter.shares(), refused)
        error = self._failures.get(name)
        return row(profile, self._runtime(name), error, limiter.active, limiter.queued, shared, enabled=enabled)

    # --- the helper -------------------------------------------------------------------------------------------------

    def _begin(self, running: Running, key: str) -> asyncio.Task[tuple[int, str]]:
        self._failures.pop(running.name, None)
        self._running = running
        self._job = asyncio.ensure_future(self._run(running, key))
        self._events.emit(f"admin_{running.verb}", model=running.name, key=key)
        return self._job

    async def _run(self, running: Running, key: str) -> tuple[int, str]:
        """Ask the helper once, whoever waits for its end; return exit code and message."""
        line = f"{running.verb} {running.name} {key}\n".encode()
        try:
            answer = await question(self._settings.socket, line, self._settings.timeout_s)
            code, message = answer["exit"], answer["message"]
        except asyncio.CancelledError:
            code = STOPPING
            message = "the frontdoor is stopping; what was begun goes on, and can be seen when it is back"
        except Exception as exc:
            self._note(exc)
            code = NO_HELPER
            message = "the helper could not be asked; the journal of the frontdoor says why"
        self._running = self._job = None
        # the slot's newest word, before anybody is told
        self._read_state(False)
        served = _served(self._slot.state) == running.name
        if running.verb == "load" and code not in (DONE, LOCKED, REFUSED, STOPPING) and not served:
            self._failures[running.name] = message
        self._events.emit(f"admin_{running.verb}_ended", model=running.name, exit=code, message=message)
        return code, message


def _served(state: SlotState) -> str:
    """Name of the profile that is served; empty while none is."""
    return str((state.profile or {}).get("name") or "") if state.phase == "serving" else ""


def failure(verb: str, name: str, code: int, message: str) -> Refusal | None:
    """What a client is told at the end of a job, unless all is well."""
    details = {"model": name}
    if code == DONE:
        return None
    if code == LOCKED:
        return Refusal(409, f"model_{LOADING}", message, details=details)
    if code == STOPPING:
        return Refusal(503, "stopping", message, 5, details)
    if code == REFUSED:
        # what was asked for was true when it was asked, and is not any more
        status, word = (404, "unknown_model") if verb == "load" else (409, "model_not_loaded")
        return Refusal(status, word, message, details=details)
    return Refusal(500, f"model_{verb}_failed", message, details=details)
