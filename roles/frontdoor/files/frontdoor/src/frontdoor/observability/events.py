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
# lines that are written without waiting for the next flush: more of them would only fill caches
_BATCH = 128


class EventLog:
    """Collects lines and writes them in batches; a reader that does not keep up costs lines, never time."""

    def __init__(self, fd: int = 1, *, clock: Callable[[], float] = time.time) -> None:
        self._fd = fd
        self._clock = clock
        self._pending: list[str] = []
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
        self._pending.append(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode())

    def append(self, lines: list[str]) -> None:
        """Note lines that are complete, as `request_line` makes them."""
        room = _MAX_PENDING - len(self._pending)
        if len(lines) > room:
            self._dropped += len(lines) - max(0, room)
            lines = lines[: max(0, room)]
        self._pending += lines
        if len(self._pending) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as far as the reader takes it."""
        if self._dropped and len(self._pending) < _MAX_PENDING:
            dropped, self._dropped = self._dropped, 0
            self.emit("events_dropped", count=dropped)
        if not self._pending and not self._rest:
            return
        data = self._rest + "".join(self._pending).encode()
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


# What a line has before its numbers: the size, the time it took, the status, and the time of day.
Line = tuple[str, str, str, str]


def in_ms(at: float) -> str:
    """A time of day as lines have it."""
    return str(int(at * 1000))


# what requests take that are over soon, in milliseconds: to format a number costs more than to look it up
_SECONDS = tuple(f"{ms / 1000:.3f}" for ms in range(1000))


def request_line(line: Line, status: int, took_s: float, size: int, at: str) -> str:
    """The line of a generation request that ended `at`, which comes from `in_ms`; `line` from `line_of_request`."""
    begin, client, words, end = line
    ms = int(took_s * 1000 + 0.5)
    took = _SECONDS[ms] if 0 <= ms < 1000 else f"{took_s:.3f}"
    return f"{begin}{size}{client}{took}{words}{status}{end}{at}}}\n"


def line_of_request(client: str, path: str, outcome: str, error: str | None, waited_s: float) -> Line:
    """The line but for its numbers, which is the same for many requests."""

    def text(**fields: Any) -> str:
        return orjson.dumps(fields)[1:-1].decode()

    words = text(error=error, event="generation_request", outcome=outcome, path=path)
    wait = text(queue_wait_s=round(waited_s, 3), queued=waited_s > 0)
    return '{"bytes":', f',{text(client=client)},"elapsed_s":', f',{words},{wait},"status":', ',"ts_ms":'
