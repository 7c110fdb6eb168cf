# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last switches of the slot, as its journal tells them."""

from __future__ import annotations

import os
from typing import Any

import orjson

from frontdoor.slot import regular

KEPT = 10
# what is read of a journal that has grown: more than ten switches take
_TAIL_BYTES = 512 * 1024
_REASON_CHARS = 400


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _failed_phase(failures: Any) -> str | None:
    """All that is told of an end without a reason for everybody: the messages quote logs and command lines."""
    first = failures[0] if isinstance(failures, list) and failures else None
    phase = _text(first.get("phase")) if isinstance(first, dict) else None
    return phase and f"phase {phase}"


def remember(raw: bytes) -> list[dict[str, Any]]:
    """The last switches in lines of the journal, newest first; what cannot be read is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in raw.splitlines():
        try:
            entry = orjson.loads(line)
            event, name = entry["event"], str(entry["id"])
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue
        if event == "begin":
            began = {"id": name, "at": _text(entry.get("at")), "kind": _text(entry.get("kind"))}
            began |= {"from": _text(entry.get("from")), "to": _text(entry.get("to"))}
            found[name] = {**began, "outcome": None, "served": None, "seconds": None, "reason": None}
        elif event == "end" and name in found:
            reason = _text(entry.get("reason")) or _failed_phase(entry.get("failures"))
            seconds = entry.get("seconds")
            found[name]["outcome"] = _text(entry.get("outcome"))
            found[name]["served"] = _text(entry.get("profile"))
            found[name]["seconds"] = seconds if isinstance(seconds, int | float) else None
            found[name]["reason"] = reason and reason[:_REASON_CHARS]
    return list(found.values())[: -KEPT - 1 : -1]


class History:
    """Reads the journal when it changed, and only when somebody asks. Without one there are no switches."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._switches: list[dict[str, Any]] = []

    def switches(self) -> list[dict[str, Any]]:
        """The last switches, newest first. `outcome` is None while one has no end."""
        if not self._path:
            return []
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._switches = remember(regular.read(self._path, _TAIL_BYTES))
                self._seen = seen
        except OSError:
            self._seen, self._switches = None, []
        return self._switches
