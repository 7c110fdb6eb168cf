# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the frontdoor's own, in one piece."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import orjson

from frontdoor import errors
from frontdoor.http.client import ClientConnection
from frontdoor.http.head import RequestHead


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
    make = functools.partial(errors.response, content_type=kind, extra=client.cors(head) + fields)
    bare = head.method == b"HEAD"
    client.reply(head, lambda line: make(status, content, connection=line, head_only=bare))


class Job:
    """A request that a coroutine answers; a client that leaves ends it."""

    def __init__(self, client: ClientConnection, head: RequestHead) -> None:
        self.client = client
        self.head = head
        self._task: asyncio.Future[None] | None = None

    async def answer(self) -> None:
        """Write the answer; never raises."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        await self.answer()
        self.client.exchange_done(self.head.keep_alive)

    def client_gone(self, outcome: str = "") -> None:
        """Nobody waits for the answer any more."""
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """The answer is written in one piece."""

    def resume(self) -> None:
        """Nothing was paused."""
