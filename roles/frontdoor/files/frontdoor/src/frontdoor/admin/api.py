# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: which models there are, and loading another one, in the words of llm-pool's API.

What changes the slot is done by a privileged helper behind a socket. It goes on when the client, or this very process,
does not wait for it.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from frontdoor import errors
from frontdoor.admin import overrides
from frontdoor.admin.helper import CARDS, DONE, LOCKED, REFUSED
from frontdoor.admin.jobs import STOPPING, Job, Question, Wait, question
from frontdoor.admin.models import (
    LOADED,
    LOADING,
    MODEL_FAILED,
    UNLOADED,
    UNLOADING,
    Profiles,
    Running,
    SettingsError,
    at_work,
    fairness,
    gpu_memory,
    row,
    runtime_state,
)
from frontdoor.errors import Refusal
from frontdoor.http.head import RequestHead
from frontdoor.policy.keys import Keys
from frontdoor.policy.routes import ADMIN_MEMORY, ADMIN_MODELS, ADMIN_RELOAD, Kind
from frontdoor.slot.state import SlotState

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection

_ACTION = re.compile(re.escape(ADMIN_MODELS) + r"/([^/]+)/(load|unload)")
# for a look at the cards
_LOOK_S = 10.0


class Admin:
    """Answers below /v1/admin. Without a file of keys there is nothing there."""

    def __init__(self, door: Door) -> None:
        """Read the keys; raise ConfigError."""
        config = door.config.admin
        self._door = door
        self._keys = Keys(config.keys_file) if config.keys_file else None
        self._profiles = Profiles(config.profiles_dir if self._keys is not None else "")
        self._job: Job | None = None
        #: why the last load of a profile failed
        self._failures: dict[str, str] = {}

    def state_applied(self, state: SlotState) -> None:
        """Forget that the load of a profile failed, once it is served."""
        self._failures.pop(_served(state), None)

    # --- who may ------------------------------------------------------------------------------------------------------

    def refresh_keys(self) -> None:
        """Read the keys again when they changed."""
        if self._keys is not None:
            self._keys.refreshed(self._door.events.emit)

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
        ordinary = self._door.keys
        if ordinary is not None and head.secret and ordinary.identify(head.secret):
            return Refusal(403, "not_an_admin_key", "this API key may ask the model, not change what is served")
        return errors.UNAUTHORIZED_ADMIN

    def refusal_elsewhere(self, head: RequestHead) -> Refusal | None:
        """What a client without an API key is told: who administers may look, and only that."""
        looks = head.route.kind is Kind.LOCAL or head.route.always
        if self._key_name(head):
            return None if looks else errors.ONLY_ADMIN
        return errors.UNAUTHORIZED_TO_LOOK if looks and self._keys is not None else errors.UNAUTHORIZED

    def _key_name(self, head: RequestHead) -> str | None:
        return self._keys.identify(head.secret) if self._keys is not None and head.secret else None

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Wait | Question | None:
        """Answer a complete request at once (None), or return what will."""
        refusal = self.refusal(head)
        if refusal is not None:
            client.refuse(refusal, head)
            return None
        try:
            return self._handle(client, head, body)
        except Exception as exc:
            self._broken(client, head, exc)
            return None

    def _handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Wait | Question | None:
        path = head.route.path
        action = _ACTION.fullmatch(path)
        wanted: tuple[bytes, ...] = (b"POST",) if action or path == ADMIN_RELOAD else (b"GET", b"HEAD")
        if path not in (ADMIN_MODELS, ADMIN_MEMORY, ADMIN_RELOAD) and action is None:
            client.refuse(errors.unknown_path(path), head)
        elif head.method not in wanted:
            client.refuse(errors.method_not_allowed(path, wanted), head)
        elif action is not None:
            return self._change(client, head, action[1], action[2], body)
        elif path == ADMIN_MEMORY:
            return Question(lambda: self._tell_memory(client, head), self._failed(client, head))
        elif path == ADMIN_RELOAD:
            self._reload(client, head)
        else:
            self._reply(client, head, {"models": [self._row(name) for name in self._profiles.all()]})
        return None

    def _broken(self, client: ClientConnection, head: RequestHead, exc: Exception) -> None:
        """Answer a request that could not be answered as it should have been."""
        self._note(exc, head.route.path)
        words = "the frontdoor failed to answer that; its journal says why: journalctl -u b70-openai-frontdoor"
        client.refuse(Refusal(500, "internal_error", words), head)

    def _failed(self, client: ClientConnection, head: RequestHead) -> Callable[[Exception], None]:
        def failed(exc: Exception) -> None:
            self._broken(client, head, exc)
            client.exchange_done(head.keep_alive)

        return failed

    def _note(self, exc: Exception, path: str = "") -> None:
        place = traceback.extract_tb(exc.__traceback__)[-1:]
        where = f"{os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
        self._door.events.emit("admin_error", path=path, error=f"{type(exc).__name__}: {exc}", where=where)

    def _change(self, client: ClientConnection, head: RequestHead, name: str, verb: str, body: bytes) -> Wait | None:
        wanted = overrides.read(verb, body)
        refusal = wanted if isinstance(wanted, Refusal) else self._unknown(name)
        runtime = "" if refusal else self._runtime(name)
        settled = runtime in ((LOADED, LOADING) if verb == "load" else (UNLOADED, MODEL_FAILED, UNLOADING))
        if not isinstance(wanted, Refusal) and refusal is None and verb == "load":
            refusal = overrides.refused(name, wanted, settled=settled)
        if refusal is None and not settled:
            refusal = self._in_the_way(name, verb) or (self._not_served_so(name) if verb == "load" else None)
        if refusal is not None:
            client.refuse(refusal, head)
        elif settled:
            self._reply(client, head, self._row(name))
        else:
            job = self._begin(Running(verb, name), self._key_name(head) or "")

            def answer(code: int, message: str) -> None:
                refusal = failure(verb, name, code, message)
                if refusal is None:
                    self._reply(client, head, self._row(name))
                else:
                    client.refuse(refusal, head)
                client.exchange_done(head.keep_alive)

            return Wait(job, answer, self._failed(client, head))
        return None

    def _reload(self, client: ClientConnection, head: RequestHead) -> None:
        door = self._door
        door.reload()
        self.refresh_keys()
        state = door.state
        name = _served(state)
        try:
            found = self._profiles.reload(name or None, str((state.profile or {}).get("fingerprint") or ""))
        except SettingsError as exc:
            client.refuse(Refusal(exc.status, exc.code, str(exc), details=exc.details), head)
            return
        door.events.emit("admin_reload", key=self._key_name(head) or "", **found._asdict())
        # the role starts the frontdoor anew whenever its own settings change
        self._reply(client, head, {**found._asdict(), "service_restart_required": False})

    def _unknown(self, name: str) -> Refusal | None:
        if name in self._profiles.all():
            return None
        return Refusal(404, "unknown_model", f"{name} is not a profile of this host", details={"model": name})

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
        busy = at_work(self._door.state, self._job.running if self._job else None)
        if busy is None:
            return None
        other, what = busy
        words = f"{other or 'the slot'} is {what}; try to {verb} {name} when that has ended"
        return Refusal(409, f"model_{what}", words, details={"model": other})

    def _runtime(self, name: str) -> str:
        running = self._job.running if self._job else None
        return runtime_state(name, self._door.state, running, name in self._failures)

    def _row(self, name: str) -> dict[str, Any]:
        gate, refused = self._door.gate, self._door.ledger.metrics.refusals
        shared = fairness(gate.shares(), sum(refused.get(code, 0) for code in ("busy", "queue_full", "queue_timeout")))
        error = self._failures.get(name)
        # one that has gone in the meantime is no more than a name
        profile = self._profiles.all().get(name, {"name": name})
        enabled = profile.get("status") not in self._profiles.refused_statuses()
        return row(profile, self._runtime(name), error, gate.active, gate.queued, shared, enabled=enabled)

    async def _tell_memory(self, client: ClientConnection, head: RequestHead) -> None:
        answer = await question(self._door.config.admin.socket, CARDS, _LOOK_S)
        error = None if answer["exit"] == DONE else str(answer["message"])
        rows = [self._row(name) for name in self._profiles.all()]
        self._reply(client, head, gpu_memory(answer.get("cards"), error, rows))
        client.exchange_done(head.keep_alive)

    def _reply(self, client: ClientConnection, head: RequestHead, payload: dict[str, Any]) -> None:
        content = orjson.dumps(payload, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        extra = self._door.cors_fields(head)
        bare = head.method == b"HEAD"
        client.reply(
            head,
            lambda connection: errors.response(200, content, extra=extra, connection=connection, head_only=bare),
        )

    # --- the helper -------------------------------------------------------------------------------------------------

    def _begin(self, running: Running, key: str) -> Job:
        config = self._door.config.admin
        self._failures.pop(running.name, None)
        line = f"{running.verb} {running.name} {key}\n".encode()
        job = self._job = Job(running, question(config.socket, line, config.timeout_s), self._note)
        job.then(self._ended)
        self._door.events.emit(f"admin_{running.verb}", model=running.name, key=key)
        return job

    def _ended(self, code: int, message: str) -> None:
        assert self._job is not None
        running, self._job = self._job.running, None
        # the slot's newest word, before anybody is told
        self._door.poll_state()
        served = _served(self._door.state) == running.name
        if running.verb == "load" and code not in (DONE, LOCKED, REFUSED, STOPPING) and not served:
            self._failures[running.name] = message
        self._door.events.emit(f"admin_{running.verb}_ended", model=running.name, exit=code, message=message)

    def drain(self) -> None:
        """Wait for nothing any more."""
        if self._job is not None:
            self._job.abandon()


def _served(state: SlotState) -> str:
    """Name of the profile that is served; empty while none is."""
    return str((state.profile or {}).get("name") or "") if state.phase == "serving" else ""


def failure(verb: str, name: str, code: int, message: str) -> Refusal | None:
    """What a client is told at the end of a job, unless all is well."""
    if code == DONE:
        return None
    if code == LOCKED:
        return Refusal(409, f"model_{LOADING}", message, details={"model": name})
    if code == STOPPING:
        return Refusal(503, "stopping", message, 5, details={"model": name})
    if code == REFUSED:
        # what was asked for was true when it was asked, and is not any more
        status, word = (404, "unknown_model") if verb == "load" else (409, "model_not_loaded")
        return Refusal(status, word, message, details={"model": name})
    return Refusal(500, f"model_{verb}_failed", message, details={"model": name})
