# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for the list of models or for one of them: the engine is asked for its list, the slot adds what it knows."""

from __future__ import annotations

import re
from typing import Any

import orjson

from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection
from frontdoor.http.exchange import Engine
from frontdoor.http.fetch import fetch
from frontdoor.http.head import FAILURE, RequestHead, ResponseHead
from frontdoor.http.job import Job
from frontdoor.observability.activity import Entry
from frontdoor.observability.metrics import CLIENT_CLOSED, INTERRUPTED, OK, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, outcome_of
from frontdoor.policy.routes import MODELS
from frontdoor.slot.state import SlotState

#: what the slot knows stands under this key of each model
_KEY = "b70"
_TIMEOUT_S = 10.0
# what a client says about a form of the answer that it will not get: it is read, changed, and given whole
_NOT_SENT = re.compile(rb"(?:accept-encoding|content-[a-z]+|if-[a-z-]+|range):", re.IGNORECASE)
# what the engine says about bytes that the client does not get
_FRAMING = re.compile(rb"(?:content-length|transfer-encoding):", re.IGNORECASE)
_ABOUT_BYTES = re.compile(rb"(?:etag|last-modified|[a-z-]*digest|content-md5|accept-ranges):", re.IGNORECASE)
_CORS = re.compile(rb"access-control-", re.IGNORECASE)


class Listing(Job):
    """One such request. It is counted, bounded and ended like every other request that takes no slot."""

    def __init__(self, engine: Engine, client: ClientConnection, head: RequestHead) -> None:
        super().__init__(client, head)
        self._engine = engine
        self._started = engine.loop.time()

    def start(self) -> None:
        """Ask the engine."""
        self._engine.running.add(self)
        super().start()

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        """Nobody waits for the answer any more."""
        super().client_gone()
        self._note(outcome)

    def interrupt(self, refusal: Refusal) -> None:
        """Give up because the frontdoor stops."""
        super().client_gone()
        self._refuse(refusal, INTERRUPTED)
        self.client.exchange_done(self.head.keep_alive)

    def expire(self, now: float) -> None:
        """The question has a limit of its own."""

    async def answer(self) -> None:
        """Ask for the list, and pass on what the engine and the slot say."""
        engine = self._engine
        query = self.head.line.split(b" ")[1].partition(b"?")[2].decode("latin-1")
        lines = (self.head.fields + self.client.forwarded).split(b"\r\n")
        fields = b"".join(line + b"\r\n" for line in lines if line and not _NOT_SENT.match(line))
        got = await fetch(engine.pool, MODELS + ("?" + query if query else ""), _TIMEOUT_S, fields)
        if got.head is None:
            if not got.connected:
                engine.health.note(False, got.error)
            status, code = (504, "engine_timeout") if got.timed_out else (502, "engine_unreachable")
            refusal = Refusal(status, code, f"the engine cannot be asked for its models: {got.error}")
            self._refuse(refusal, UPSTREAM_TIMEOUT if got.timed_out else UPSTREAM_ERROR)
            return
        if got.status < FAILURE:
            engine.health.heard += 1
            engine.health.note(True)
        listed = _enriched(got.body, engine.slot.state) if got.status == 200 else None
        wanted = self.head.route.path.removeprefix(MODELS).lstrip("/")
        if listed is None:
            # no list, or a failure: as it came
            self._reply(got.head, got.body, changed=False)
        elif not wanted:
            self._reply(got.head, orjson.dumps(listed), changed=True)
        elif wanted in (models := _by_name(listed)):
            self._reply(got.head, orjson.dumps(models[wanted]), changed=True)
        else:
            served = list(models)
            words = f"the model {wanted!r} is not served here; served: {', '.join(served)}"
            self._refuse(Refusal(404, "model_not_found", words, details={"param": "model", "models": served}), OK)

    def _reply(self, head: ResponseHead, content: bytes, *, changed: bool) -> None:
        line, *fields = [part for part in head.wire.split(b"\r\n") if part]
        kept = [
            field
            for field in fields
            if not _FRAMING.match(field)
            and not (changed and _ABOUT_BYTES.match(field))
            and not (self._engine.drop_cors and _CORS.match(field))
        ]
        if head.status not in (204, 304):
            kept.append(b"Content-Length: %d" % len(content))
        top = b"\r\n".join((line, *kept, self.client.cors(self.head)))
        top += b"" if top.endswith(b"\r\n") else b"\r\n"
        body = b"" if self.head.method == b"HEAD" else content
        self.client.reply(self.head, lambda connection: top + connection + b"\r\n" + body)
        self._note(outcome_of(head.status), head.status, size=len(body))

    def _refuse(self, refusal: Refusal, outcome: str) -> None:
        self.client.refuse(refusal, self.head)
        self._note(outcome, refusal.status, refusal.code)

    def _note(self, outcome: str, status: int = 0, code: str | None = None, size: int = 0) -> None:
        engine, client, now = self._engine, self.client, self._engine.loop.time()
        engine.running.discard(self)
        first = now - self._started if size else -1.0
        about = (client.address, client.key_name, self.head.route, False, outcome, status, code, self._started, now)
        engine.ledger.note(Entry(*about, first_s=first, received=size))


def _enriched(body: bytes, state: SlotState) -> dict[str, Any] | None:
    """The engine's list with profile, modalities and limits under one key of each model, and the aliases.

    None where the engine's answer is no list.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        return None
    about = _about(state)
    served = about["served_model_name"]
    known = {model.get("id") for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)}
    aliases = []
    for model in data:
        if isinstance(model, dict):
            model[_KEY] = about
            if model.get("id") == served:
                aliases = [
                    {**model, "id": alias, "parent": served, _KEY: {**about, "alias_of": served}}
                    for alias in state.rules.model_aliases
                    if alias not in known
                ]
    data += aliases
    return dict(answer)


def _by_name(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The models in an enriched list; of those with the same name the first one."""
    found: dict[str, dict[str, Any]] = {}
    for model in answer["data"]:
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            found.setdefault(model["id"], model)
    return found


def _about(state: SlotState) -> dict[str, Any]:
    profile = state.profile or {}
    return {
        "profile": profile.get("name", ""),
        "title": profile.get("title", ""),
        "status": profile.get("status", ""),
        "served_model_name": profile.get("served_model_name", ""),
        "modalities": profile.get("modalities") or [],
        "fingerprint": profile.get("fingerprint", ""),
        "verified": state.verified,
        "verified_at": state.verified_at,
        "limits": {
            "max_model_len": profile.get("max_model_len"),
            "max_active_generations": state.max_active_generations,
            "queue_timeout_s": state.queue_timeout_s,
            "max_tokens_default": state.rules.max_tokens_default,
            "max_tokens_cap": state.rules.max_tokens_cap,
        },
    }
