# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the frontdoor's own, in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from frontdoor import errors
from frontdoor.errors import Refusal
from frontdoor.http.client import ClientConnection
from frontdoor.http.head import RequestHead

#: the text format of Prometheus
METRICS = "text/plain; version=0.0.4"


def respond(
    client: ClientConnection,
    head: RequestHead,
    content: Any,
    *,
    status: int = 200,
    kind: str = "application/json",
    fields: bytes = b"",
) -> None:
    """Answer with bytes, or anything else as JSON; `fields` are whole header lines."""
    if not isinstance(content, bytes):
        content = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    fields = client.own_fields(head) + fields + client.connection_field(head)
    client.write(errors.response(status, content, fields, kind=kind, head_only=head.method == b"HEAD"))


class Job:
    """A request that a coroutine answers with JSON, bytes or a refusal; it ends when the client disconnects."""

    def __init__(
        self,
        client: ClientConnection,
        head: RequestHead,
        answer: Callable[[], Awaitable[dict[str, Any] | bytes | Refusal]],
        kind: str = "application/json",
    ) -> None:
        self._client, self._head, self._answer, self._kind = client, head, answer, kind
        self._task: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        answer = await self._answer()
        if isinstance(answer, Refusal):
            self._client.refuse(answer, self._head)
        else:
            respond(self._client, self._head, answer, kind=self._kind)
        self._client.exchange_done(self._head.keep_alive)

    def client_gone(self, outcome: str = "") -> None:
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Do nothing: the answer is written in one piece."""

    resume = pause
