# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Structured events: one JSON object per line on standard output. Never prompts, never keys."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import Any

import orjson

_MAX_PENDING = 10_000


class EventLog:
    """Collects lines and writes them in batches; a reader that does not keep up costs lines, never time."""

    def __init__(self, fd: int = 1, *, clock: Callable[[], float] = time.time) -> None:
        self._fd = fd
        self._clock = clock
        self._pending: list[bytes] = []
        self._rest = b""
        self._dropped = 0
        self.requests = True
        try:
            # a terminal is shared with the shell and stays blocking
            if not stat.S_ISCHR(os.fstat(fd).st_mode):
                os.set_blocking(fd, False)
        except OSError:
            pass

    def emit(self, event: str, **fields: Any) -> None:
        """Note one event; `ts_ms` is added."""
        if len(self._pending) >= _MAX_PENDING:
            self._dropped += 1
            return
        fields["event"] = event
        fields["ts_ms"] = int(self._clock() * 1000)
        self._pending.append(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))

    def request(
        self,
        client: bytes,
        path: bytes,
        status: int,
        outcome: str,
        error: str | None,
        waited: float = 0.0,
        took: float = 0.0,
        size: int = 0,
    ) -> None:
        """Note a generation request; `client` and `path` are JSON already: this runs for each and costs accordingly."""
        if len(self._pending) >= _MAX_PENDING:
            self._dropped += 1
            return
        self._pending.append(
            b'{"bytes":%d,"client":%b,"elapsed_s":%.3f,"error":%b,"event":"generation_request","outcome":"%b","path":%b,'
            b'"queue_wait_s":%.3f,"queued":%b,"status":%d,"ts_ms":%d}\n'
            % (
                size,
                client,
                took,
                b"null" if error is None else b'"%b"' % error.encode(),
                outcome.encode(),
                path,
                waited,
                b"true" if waited else b"false",
                status,
                int(self._clock() * 1000),
            )
        )

    def flush(self) -> None:
        """Write what is pending as far as the reader takes it."""
        if self._dropped and len(self._pending) < _MAX_PENDING:
            dropped, self._dropped = self._dropped, 0
            self.emit("events_dropped", count=dropped)
        if not self._pending and not self._rest:
            return
        data = self._rest + b"".join(self._pending)
        self._pending.clear()
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            # nobody reads any more
            written = len(data)
        self._rest = data[written:]
        if len(self._rest) > 4 * 1024 * 1024:
            self._dropped += self._rest.count(b"\n")
            # the line that was begun is finished, the others go
            self._rest = self._rest[: self._rest.find(b"\n") + 1]
