# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for the list of models or for one of them: the engine is asked for its list, the slot adds what it knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from frontdoor.errors import Refusal
from frontdoor.http.fetch import Fetch, Fetched
from frontdoor.http.head import FAILURE, RequestHead, ResponseHead
from frontdoor.observability.activity import Entry
from frontdoor.observability.metrics import CLIENT_CLOSED, INTERRUPTED, OK, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, outcome_of
from frontdoor.policy.models import enriched, find, names
from frontdoor.policy.routes import MODELS

if TYPE_CHECKING:
    from frontdoor.app import Door
    from frontdoor.http.client import ClientConnection

_TIMEOUT_S = 10.0
# what a client says about a form of the answer that it will not get: it is read, changed, and given whole
_NOT_SENT = re.compile(rb"(?:host|accept-encoding|content-[a-z]+|if-[a-z-]+|range):", re.IGNORECASE)
# what the engine says about bytes that the client does not get
_FRAMING = re.compile(rb"(?:content-length|transfer-encoding):", re.IGNORECASE)
_ABOUT_BYTES = re.compile(rb"(?:etag|last-modified|[a-z-]*digest|content-md5|accept-ranges):", re.IGNORECASE)
_CORS = re.compile(rb"access-control-", re.IGNORECASE)


class Listing:
    """One such request. It is counted, bounded and ended like every other request that takes no slot."""

    def __init__(self, door: Door, client: ClientConnection, head: RequestHead) -> None:
        self._door = door
        self._client = client
        self._head = head
        self._started = door.loop.time()
        self._done = False
        self._fetch = Fetch(
            door.pool, self._target(), self._heard, timeout_s=_TIMEOUT_S, fields=self._fields(door, client, head)
        )

    def _target(self) -> str:
        query = self._head.line.split(b" ")[1].partition(b"?")[2]
        return MODELS + ("?" + query.decode("latin-1") if query else "")

    @staticmethod
    def _fields(door: Door, client: ClientConnection, head: RequestHead) -> bytes:
        lines = client.engine_head(head, door.pool.host_line).split(b"\r\n")[1:]
        return b"".join(line + b"\r\n" for line in lines if line and not _NOT_SENT.match(line))

    def start(self) -> None:
        """Ask the engine."""
        self._door.exchanges.add(self)
        self._fetch.start()

    def client_gone(self, outcome: str = CLIENT_CLOSED) -> None:
        """Nobody waits for the answer any more."""
        self._fetch.client_gone()
        self._finish(outcome, False)

    def interrupt(self, refusal: Refusal) -> None:
        """Give up because the frontdoor stops."""
        self._fetch.client_gone()
        self._refuse(refusal, INTERRUPTED)

    def timed_out(self, now: float) -> bool:
        """The question has a limit of its own."""
        return False

    def expire(self) -> None:
        """Nothing to do, see `timed_out`."""

    def pause(self) -> None:
        """The answer is written in one piece."""

    def resume(self) -> None:
        """Nothing was paused."""

    def _heard(self, got: Fetched) -> None:
        head = got.head
        if head is None:
            if not got.connected:
                self._door.note_engine(False, got.error)
            late = got.connected and got.error.startswith("no answer")
            status, code = (504, "engine_timeout") if late else (502, "engine_unreachable")
            refusal = Refusal(status, code, f"the engine cannot be asked for its models: {got.error}")
            self._refuse(refusal, UPSTREAM_TIMEOUT if late else UPSTREAM_ERROR)
            return
        if head.status < FAILURE:
            self._door.engine_responses += 1
            self._door.note_engine(True)
        answer = enriched(got.body, self._door.state) if head.status == 200 else None
        wanted = self._head.route.path.removeprefix(MODELS).lstrip("/")
        if answer is None:
            # no list, or a failure: as it came
            self._reply(head, got.body, changed=False)
        elif not wanted:
            self._reply(head, orjson.dumps(answer), changed=True)
        else:
            model = find(answer, wanted)
            if model is not None:
                self._reply(head, orjson.dumps(model), changed=True)
            else:
                served = names(answer)
                words = f"the model {wanted!r} is not served here; served: {', '.join(served)}"
                details = {"param": "model", "models": served}
                self._refuse(Refusal(404, "model_not_found", words, details=details), OK)

    def _reply(self, head: ResponseHead, content: bytes, *, changed: bool) -> None:
        door = self._door
        line, *fields = [part for part in head.wire.split(b"\r\n") if part]
        kept = [
            field
            for field in fields
            if not _FRAMING.match(field)
            and not (changed and _ABOUT_BYTES.match(field))
            and not (door.cors_on and _CORS.match(field))
        ]
        if head.status not in (204, 304):
            kept.append(b"Content-Length: %d" % len(content))
        top = b"\r\n".join((line, *kept, door.cors_fields(self._head)))
        top += b"" if top.endswith(b"\r\n") else b"\r\n"
        body = b"" if self._head.method == b"HEAD" else content
        self._client.reply(self._head, lambda connection: top + connection + b"\r\n" + body)
        self._finish(outcome_of(head.status), self._head.keep_alive, status=head.status, size=len(body))

    def _refuse(self, refusal: Refusal, outcome: str) -> None:
        self._client.refuse(refusal, self._head)
        self._finish(outcome, self._head.keep_alive, refusal, status=refusal.status)

    def _finish(
        self, outcome: str, keep: bool, refusal: Refusal | None = None, *, status: int = 0, size: int = 0
    ) -> None:
        if self._done:
            return
        self._done = True
        door, client, now = self._door, self._client, self._door.loop.time()
        door.exchanges.discard(self)
        first = now - self._started if size else -1.0
        code = None if refusal is None else refusal.code
        door.ledger.note(
            Entry(
                client.address,
                client.key_name,
                self._head.route,
                False,
                outcome,
                status,
                code,
                self._started,
                now,
                first_s=first,
                received=size,
            )
        )
        client.exchange_done(keep)
