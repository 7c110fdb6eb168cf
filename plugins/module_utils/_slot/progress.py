# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a running switch: one JSON per line for whoever watches, and the engine's own words as hints."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .effects import Effects
from .state_file import stamp
from .types import Layout

HINT_CHARS = 120
_WORTH_SAYING = (
    re.compile(r"loading safetensors checkpoint shards.*?(\d+)%", re.I),
    re.compile(
        r"starting to load model|loading weights took|model loading took|loading (?:safetensors|weights|model)", re.I
    ),
    re.compile(r"capturing (?:cuda|xpu)? ?graphs?|graph capturing finished|torch\.compile|dynamo bytecode", re.I),
    re.compile(r"GPU KV cache size|KV cache|memory profiling|init engine", re.I),
    re.compile(r"initializing|starting vllm|waiting for|application startup complete|quantization|loading", re.I),
    re.compile(r"\b\d{1,3} ?%"),
)
_PREFIX = re.compile(
    r"^(?:\([^)]*\)\s*)?(?:DEBUG|INFO|WARNING|ERROR)?\s*(?:\d\d-\d\d \d\d:\d\d:\d\d)?\s*(?:\[[\w./]+:\d+\])?\s*"
)


def engine_hint(lines: Sequence[str]) -> str | None:
    """The newest log line that says how far the engine is, without its time stamp; None when none does."""
    for line in reversed(lines):
        text = line.rsplit("\r", 1)[-1].strip()
        if any(pattern.search(text) for pattern in _WORTH_SAYING):
            text = _PREFIX.sub("", text, count=1).strip() or text
            return text if len(text) <= HINT_CHARS else text[: HINT_CHARS - 1] + "…"
    return None


class Progress:
    """Writes the progress file. A file that can't be written never stops a switch."""

    def __init__(self, fx: Effects, layout: Layout, switch_id: str, pid: int) -> None:
        self._fx, self._path, self._id, self._pid = fx, layout.progress_file, switch_id, pid
        self._start = fx.clock.monotonic()
        self._begun = False

    def _line(self, event: str, **fields: Any) -> str:
        seconds = round(self._fx.clock.monotonic() - self._start, 3)
        record = {"id": self._id, "at": stamp(self._fx.clock.now()), "t": seconds, "event": event, **fields}
        # ASCII, so that a reader may count characters as bytes
        return json.dumps(record) + "\n"

    def start(self, **fields: Any) -> None:
        """Begins the file anew; only the holder of the lock may. What is said before is lost."""
        self._begun = True
        try:
            self._fx.files.truncate(self._path, self._line("start", pid=self._pid, **fields))
        except OSError:
            return

    def say(self, event: str, **fields: Any) -> None:
        if not self._begun:
            return
        try:
            self._fx.files.append(self._path, self._line(event, **fields), sync=False)
        except OSError:
            return
