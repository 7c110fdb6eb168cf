# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Structured events: one JSON object per line on standard output. Never prompts, never keys."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Any

import orjson

# lines that are written without waiting for the next flush
_BATCH = 128
# bytes that wait for a reader that does not keep up
_MAX_WAITING_BYTES = 1024 * 1024


class EventLog:
    """Collects lines and writes them in batches; a reader that does not keep up costs lines, never time."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._pending: list[bytes] = []
        self._rest = b""
        self._dropped = 0
        #: whether each generation request is logged
        self.requests = True
        with contextlib.suppress(OSError):
            # a terminal is shared with the shell and stays blocking
            if not stat.S_ISCHR(os.fstat(fd).st_mode):
                os.set_blocking(fd, False)

    def emit(self, event: str, **fields: Any) -> None:
        """Log one event of now."""
        self.write({"event": event, **fields, "ts_ms": int(time.time() * 1000)})

    def write(self, event: dict[str, Any]) -> None:
        """Log one event as it stands."""
        self._pending.append(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        if len(self._pending) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as far as the reader takes it."""
        if self._dropped and not self._rest:
            dropped, self._dropped = self._dropped, 0
            self.emit("events_dropped", count=dropped)
        data = self._rest + b"".join(self._pending)
        self._pending.clear()
        if not data:
            return
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            # nobody reads any more
            written = len(data)
        self._rest = data[written:]
        if len(self._rest) > _MAX_WAITING_BYTES:
            # the line that was begun is finished, the others go
            end = self._rest.find(b"\n") + 1
            self._dropped += self._rest.count(b"\n", end)
            self._rest = self._rest[:end]
