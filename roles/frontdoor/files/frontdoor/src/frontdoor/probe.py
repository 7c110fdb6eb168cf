# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the engine now and then whether it is there."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from frontdoor.config import split_backend_url

if TYPE_CHECKING:
    from frontdoor.door import Door

_TIMEOUT_S = 2.0


class Probe:
    """Asks /health on a connection of its own.

    A refused connection means that there is no engine. Silence does not: a busy engine may be slow to answer.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        self._answered = 0
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Start one question, unless the last one is still open or the engine has answered somebody meanwhile."""
        answered, self._answered = self._answered, self._door.metrics.engine_responses
        if answered != self._answered:
            return
        if self._task is None or self._task.done():
            self._task = self._door.loop.create_task(self._ask(self._door.pool.url))

    def stop(self) -> None:
        """Give up on the open question."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, url: str) -> None:
        host, port = split_backend_url(url)
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(b"GET /health HTTP/1.1\r\n" + self._door.pool.host_line + b"Connection: close\r\n\r\n")
                line = await reader.readline()
            words = line.split()
            alive = len(words) >= 2 and words[0].startswith(b"HTTP/1.") and not words[1].startswith(b"5")
            verdict = (alive, "" if alive else f"/health answered {line.decode('latin-1').strip()!r}")
        except TimeoutError:
            verdict = (writer is not None, "" if writer is not None else f"no connection within {_TIMEOUT_S:g} s")
        except (OSError, ValueError) as exc:
            verdict = (False, str(exc))
        finally:
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.transport.abort()
        if url == self._door.pool.url:
            self._door.note_engine(*verdict)
