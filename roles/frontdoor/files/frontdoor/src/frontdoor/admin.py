# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administration: which models there are, and loading another one, in the words of llm-pool's API.

What changes the slot is done by a privileged helper behind a socket. It goes on when the client, or this very process,
does not wait for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import orjson

from frontdoor import errors
from frontdoor.auth import Keys
from frontdoor.catalogue import (
    LOADED,
    LOADING,
    UNLOADED,
    UNLOADING,
    Profiles,
    Running,
    at_work,
    fairness,
    gpu_memory,
    row,
    runtime_state,
)
from frontdoor.errors import Refusal
from frontdoor.helper import CARDS, DONE, LOCKED
from frontdoor.httphead import RequestHead
from frontdoor.routes import ADMIN_MEMORY, ADMIN_MODELS

if TYPE_CHECKING:
    from frontdoor.client import ClientConnection
    from frontdoor.door import Door

_ACTION = re.compile(re.escape(ADMIN_MODELS) + r"/([^/]+)/(load|unload)")
_MAX_ANSWER = 64 * 1024
# for a look at the cards
_LOOK_S = 10.0
# what stands for an exit code where there is none: no helper, and no time to wait for it
_NO_HELPER, _STOPPING = 1, -1
# what llm-pool lets a client change on load
_OVERRIDES = re.compile(r"replicas|(vllm|gguf|exllama|llama_server)_[a-z_]+")


class Job:
    """A load or unload under way: one question to the helper, asked once, whoever waits for its end."""

    def __init__(self, running: Running, key: str, ask: Callable[[bytes], Any]) -> None:
        self.running = running
        self._waiting: list[Callable[[int, str], None]] = []
        line = f"{running.verb} {running.name} {key}\n".encode()
        self.task: asyncio.Task[tuple[int, str]] = asyncio.ensure_future(ask(line))
        self.task.add_done_callback(self._ended)

    def then(self, done: Callable[[int, str], None]) -> None:
        """Have `done` called with the exit code and the message."""
        self._waiting.append(done)

    def forget(self, done: Callable[[int, str], None]) -> None:
        """Nobody waits there any more."""
        if done in self._waiting:
            self._waiting.remove(done)

    def abandon(self) -> None:
        """Wait for nothing any more, and tell who does; what the helper has begun goes on."""
        self.task.cancel()
        self._tell(_STOPPING, "the frontdoor is stopping; what was begun goes on, and can be seen when it is back")

    def _ended(self, task: asyncio.Task[tuple[int, str]]) -> None:
        if not task.cancelled():
            self._tell(*task.result())

    def _tell(self, code: int, message: str) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(code, message)


class Wait:
    """A client's request that is answered when a job ends."""

    def __init__(self, job: Job, answer: Callable[[int, str], None], done: Callable[[], None]) -> None:
        self._job = job
        self._answer = answer
        self._done = done

    def start(self) -> None:
        """Begin."""
        self._job.then(self._ended)

    def client_gone(self, outcome: str = "") -> None:
        """The job goes on."""
        self._job.forget(self._ended)

    def pause(self) -> None:
        """Nothing is under way to the client."""

    def resume(self) -> None:
        """Nothing was paused."""

    def _ended(self, code: int, message: str) -> None:
        self._answer(code, message)
        self._done()


class Question:
    """A client's request that is answered when the helper has answered."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._ask())

    def client_gone(self, outcome: str = "") -> None:
        """Nobody wants to know any more."""
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Nothing is under way to the client."""

    def resume(self) -> None:
        """Nothing was paused."""


class Admin:
    """Answers below /v1/admin. Without a file of keys there is nothing there."""

    def __init__(self, door: Door) -> None:
        """Read the keys; raise ConfigError."""
        config = door.config.admin
        self._door = door
        self._keys = Keys(config.keys_file) if config.keys_file else None
        self._profiles = Profiles(config.profiles_dir)
        self._job: Job | None = None
        #: why the last load of a profile failed
        self._failures: dict[str, str] = {}
        self._keys_error = ""

    # --- who may ------------------------------------------------------------------------------------------------------

    def refresh_keys(self) -> None:
        """Read the keys again when they changed."""
        if self._keys is not None:
            self._keys_error = self._keys.refreshed(self._door.events, self._keys_error)

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Why this client may not ask; needs no body."""
        if self._keys is None:
            return Refusal(404, "unknown_path", f"{head.route.path} is not served here")
        if self._key_name(head):
            return None
        ordinary = self._door.keys
        if ordinary is not None and head.secret and ordinary.identify(head.secret):
            return Refusal(403, "not_an_admin_key", "this API key may ask the model, not change what is served")
        return errors.UNAUTHORIZED

    def _key_name(self, head: RequestHead) -> str | None:
        return self._keys.identify(head.secret) if self._keys is not None and head.secret else None

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, client: ClientConnection, head: RequestHead, body: bytes) -> Wait | Question | None:
        """Answer a complete request at once (None), or return what will."""
        refusal = self.refusal(head)
        if refusal is not None:
            client.refuse(refusal, head)
            return None
        path = head.route.path
        action = _ACTION.fullmatch(path)
        wanted = (b"POST",) if action else (b"GET", b"HEAD")
        if path not in (ADMIN_MODELS, ADMIN_MEMORY) and action is None:
            client.refuse(Refusal(404, "unknown_path", f"{path} is not served here"), head)
        elif head.method not in wanted:
            client.refuse(Refusal(405, "method_not_allowed", f"{path} only answers {wanted[0].decode()}"), head)
        elif path == ADMIN_MEMORY:
            return Question(lambda: self._tell_memory(client, head))
        elif action is None:
            rows = [self._row(name) for name in self._profiles.all()]
            self._reply(client, head, {"models": rows})
        else:
            return self._change(client, head, action[1], action[2], body)
        return None

    def _change(self, client: ClientConnection, head: RequestHead, name: str, verb: str, body: bytes) -> Wait | None:
        refusal = self._unknown(name) or wrong_body(verb, name, body)
        runtime = "" if refusal else self._runtime(name)
        settled = (LOADED, LOADING) if verb == "load" else (UNLOADED, "failed", UNLOADING)
        if refusal is None and runtime not in settled:
            refusal = self._in_the_way(name, verb)
        if refusal is not None:
            client.refuse(refusal, head)
        elif runtime in settled:
            self._reply(client, head, self._row(name))
        else:
            job = self._begin(Running(verb, name), self._key_name(head) or "")

            def answer(code: int, message: str) -> None:
                refusal = failure(verb, name, code, message)
                if refusal is None:
                    self._reply(client, head, self._row(name))
                else:
                    client.refuse(refusal, head)

            return Wait(job, answer, lambda: client.exchange_done(head.keep_alive))
        return None

    def _unknown(self, name: str) -> Refusal | None:
        if name in self._profiles.all():
            return None
        return Refusal(404, "unknown_model", f"{name} is not a profile of this host", details={"model": name})

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
        return row(self._profiles.all()[name], self._runtime(name), error, gate.active, gate.queued, shared)

    async def _tell_memory(self, client: ClientConnection, head: RequestHead) -> None:
        answer = await self._question(CARDS, _LOOK_S)
        error = None if answer["exit"] == DONE else str(answer["message"])
        rows = [self._row(name) for name in self._profiles.all()]
        self._reply(client, head, gpu_memory(answer.get("cards"), error, rows))
        client.exchange_done(head.keep_alive)

    def _reply(self, client: ClientConnection, head: RequestHead, payload: dict[str, Any]) -> None:
        content = orjson.dumps(payload, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        extra = self._door.cors_fields(head)
        bare = head.method == b"HEAD"
        client.reply(head, lambda close: errors.response(200, content, extra=extra, close=close, head_only=bare))

    # --- the helper -------------------------------------------------------------------------------------------------

    def _begin(self, running: Running, key: str) -> Job:
        self._failures.pop(running.name, None)
        job = self._job = Job(running, key, self._ask)
        job.then(self._ended)
        self._door.events.emit(f"admin_{running.verb}", model=running.name, key=key)
        return job

    def _ended(self, code: int, message: str) -> None:
        assert self._job is not None
        running, self._job = self._job.running, None
        # the slot's newest word, before anybody is told
        self._door.poll_state()
        if running.verb == "load" and code not in (DONE, LOCKED, _STOPPING):
            self._failures[running.name] = message
        self._door.events.emit(f"admin_{running.verb}_ended", model=running.name, exit=code, message=message)

    async def _ask(self, line: bytes) -> tuple[int, str]:
        answer = await self._question(line, self._door.config.admin.timeout_s)
        return int(answer["exit"]), str(answer["message"])

    async def _question(self, line: bytes, limit_s: float) -> dict[str, Any]:
        """The helper's answer, or one in its place that says why there is none."""
        path = self._door.config.admin.socket
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_ANSWER)
                try:
                    writer.write(line)
                    answer = orjson.loads(await reader.read(_MAX_ANSWER))
                finally:
                    writer.close()
            return {**answer, "exit": int(answer["exit"]), "message": str(answer["message"])}
        except TimeoutError:
            message = f"no word from {path} within {limit_s:g} s; it may still be at work"
        except OSError as exc:
            message = f"{path} cannot be asked: {exc.strerror or exc}; is its socket unit active?"
        except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
            message = f"{path} gave no answer; read: journalctl -u 'b70-slot-admin@*'"
        return {"exit": _NO_HELPER, "message": message}

    def drain(self) -> None:
        """Wait for nothing any more."""
        if self._job is not None:
            self._job.abandon()


def wrong_body(verb: str, name: str, body: bytes) -> Refusal | None:
    """Why a body cannot be meant: nothing can be changed on load, so it is empty or says nothing."""
    if not body.strip():
        return None
    try:
        wanted = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        return Refusal(422, "invalid_body", f"the body is not JSON: {exc}")
    if not isinstance(wanted, dict):
        return Refusal(422, "invalid_body", "the body is not a JSON object")
    strange = sorted(field for field in wanted if verb == "unload" or not _OVERRIDES.fullmatch(field))
    if strange:
        return Refusal(422, "invalid_body", f"unknown field: {', '.join(strange)}")
    changed = sorted(
        field for field, value in wanted.items() if value is not None and (field, value) != ("replicas", 1)
    )
    if changed:
        words = f"{', '.join(changed)} cannot be set on load; write another profile"
        return Refusal(400, "invalid_load_request", words, details={"model": name})
    return None


def failure(verb: str, name: str, code: int, message: str) -> Refusal | None:
    """What a client is told at the end of a job, unless all is well."""
    if code == DONE:
        return None
    if code == LOCKED:
        return Refusal(409, f"model_{LOADING}", message, details={"model": name})
    if code == _STOPPING:
        return Refusal(503, "stopping", message, 5, details={"model": name})
    return Refusal(500, f"model_{verb}_failed", message, details={"model": name})
