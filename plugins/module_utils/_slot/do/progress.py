# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a running switch: one JSON per line for whoever watches, and the engine's own words as hints."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ..kinds.kind import Kind
from ..kinds.table import DEFAULT
from ..model.state_file import stamp
from ..words.effects import Effects
from ..words.types import Layout

HINT_CHARS = 120
_PERCENT = re.compile(r"\b\d{1,3} ?%")
_PREFIX = re.compile(
    r"^(?:\([^)]*\)\s*)?(?:DEBUG|INFO|WARNING|ERROR)?\s*(?:\d\d-\d\d \d\d:\d\d:\d\d)?\s*(?:\[[\w./]+:\d+\])?\s*"
)


def engine_hint(lines: Sequence[str], kind: Kind = DEFAULT) -> str | None:
    """Return how far the engine is, by the newest log line that tells it; None when none does.

    Lines of which the kind knows nothing, and that count in percent, are shown as they are, without their time stamp.
    """
    for line in reversed(lines):
        text = line.rsplit("\r", 1)[-1].strip()
        for pattern, words in kind.steps:
            found = pattern.search(text)
            if found is not None:
                return words.replace("{1}", found[1] if pattern.groups else "")
        if _PERCENT.search(text):
            text = _PREFIX.sub("", text, count=1).strip() or text
            return text if len(text) <= HINT_CHARS else text[: HINT_CHARS - 1] + "…"
    return None


def last_progress(text: str, pid: int) -> str | None:
    """Return where the switch of this process is, by the progress file: its phase, and the last hint of that phase.

    The file may still be that of the switch before.
    """
    phase, hint = "", ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if record.get("event") == "start" and record.get("pid") != pid:
            return None
        if record.get("event") == "phase":
            way = str(record.get("direction") or "forward")
            phase, hint = f"{record.get('phase')}{'' if way == 'forward' else f' ({way})'}", ""
        elif record.get("event") == "hint":
            hint = str(record.get("text") or "")
    return (f"{phase}: {hint}" if hint else phase) or None


class ProgressFile:
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
        """Begin the file anew; only the holder of the lock may. Earlier lines are lost."""
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
