# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's watch over a switch: which lines a look at the host shows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

QUIET_S = 10.0  # after this long without a line, one line says what the switch waits for
_WAY = {"forward": "", "back": "way back: ", "halt": "stopping: "}


@dataclass(frozen=True)
class Line:
    text: str
    failed: bool = False


class Watcher:
    """Turns looks into lines: finished phases on one line, a phase as it begins, hints when nothing happens."""

    def __init__(self, switch_id: str, host: str) -> None:
        self.switch_id, self.host = switch_id, host
        self.offset = 0
        self.pid: int | None = None
        self.phase: str | None = None
        self._way = ""
        self._begun_at: float | None = None
        self._spoke_at: float | None = None
        self._hint = ""

    def gone(self) -> str:
        return (
            f"the switch {self.switch_id} on {self.host} vanished in phase {self.phase or 'start'}: its process was "
            "killed or the host was rebooted. The host settles what was interrupted by itself; status.yml says what "
            "is served then, and the same play may be run again."
        )

    def _records(self, text: str) -> Iterator[Mapping[str, Any]]:
        """Yield the complete new records of this switch. The file may still be that of an earlier switch."""
        whole = text[: text.rfind("\n") + 1]
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, Mapping) and record.get("id") == self.switch_id:
                yield record
        if self.pid is not None:
            self.offset += len(whole)

    def lines(self, text: str, now: float) -> list[Line]:
        """Return the lines to show for new text of the progress file. now: monotonic seconds."""
        self._spoke_at = now if self._spoke_at is None else self._spoke_at
        records = list(self._records(text))
        if self.pid is None and records:
            self.pid = records[0].get("pid")
            self.offset = text.rfind("\n") + 1
        lines: list[Line] = []
        done: list[str] = []
        seconds = 0.0
        for record in records:
            event, state = record.get("event"), record.get("state")
            if event == "phase" and state == "begin":
                way = _WAY.get(str(record.get("direction")), "")
                if way != self._way:
                    self._flush(lines, done, seconds)
                    seconds = 0.0
                self._way, self.phase, self._begun_at, self._hint = way, str(record["phase"]), now, ""
            elif event == "phase" and state == "end":
                done.append(str(record["phase"]))
                seconds += float(record.get("seconds", 0.0))
                self.phase = None
            elif event == "phase":
                self._flush(lines, done, seconds)
                seconds = 0.0
                lines.append(self._line(f"{record['phase']} FAILED: {record.get('text', '')}", failed=True))
                self.phase = None
            elif event == "hint":
                self._hint = str(record.get("text", ""))
            elif event == "note":
                self._flush(lines, done, seconds)
                seconds = 0.0
                lines.append(self._line(f"note: {record.get('text', '')}"))
        self._flush(lines, done, seconds)
        began = any(record.get("state") == "begin" for record in records)
        if self.phase is not None and began:
            lines.append(self._line(f"{self.phase} ..."))
        elif not lines and now - self._spoke_at >= QUIET_S:
            since = f" {now - self._begun_at:.0f} s" if self._begun_at is not None else ""
            hint = f": {self._hint}" if self._hint else ""
            lines.append(self._line(f"{self.phase or 'waiting for the switch to begin'}{since}{hint}"))
        if lines:
            self._spoke_at = now
        return lines

    def _flush(self, lines: list[Line], done: list[str], seconds: float) -> None:
        if done:
            lines.append(self._line(f"{', '.join(done)}  {seconds:.1f} s"))
            done.clear()

    def _line(self, text: str, *, failed: bool = False) -> Line:
        return Line(f"{self.host} | {self._way}{text}", failed)
