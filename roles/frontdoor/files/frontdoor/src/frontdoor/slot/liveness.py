# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The liveness watchdog's report on a slot's engines. The watchdog judges by their counters; this only shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from frontdoor.slot.regular import Watched

SCHEMA = 1
FILE = "liveness.json"
WEDGED = "wedged"


def told_of(raw: bytes) -> dict[str, Any] | None:
    """Return the content of the file, or None if it is torn or of another version."""
    try:
        data = orjson.loads(raw)
        if data["schema"] != SCHEMA:
            return None
        names = ("index", "unit", "verdict", "since", "flat_s", "reason")
        engines = [{name: row[name] for name in names} for row in data["engines"]]
        step = data["next"] and {name: data["next"][name] for name in ("wanted", "do", "why", "at")}
        told = {key: data[key] for key in ("at", "policy", "verification", "action", "counts", "cards")}
        asleep = [{name: row[name] for name in ("profile", "since", "bytes")} for row in data.get("standby") or ()]
        return {**told, "engines": engines, "next": step, "standby": asleep}
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None


class Liveness:
    """Reads the file beside the slot's state when it changed, and only when somebody asks."""

    def __init__(self, state_file: str) -> None:
        self._file = Watched(str(Path(state_file).with_name(FILE))) if state_file else None
        self._told: dict[str, Any] | None = None

    def told(self) -> dict[str, Any] | None:
        """Return the watchdog's last report; None if none has run since the boot."""
        if self._file is None:
            return None
        try:
            raw = self._file.read()
        except OSError:
            self._told = None
        else:
            if raw is not None:
                self._told = told_of(raw)
        return self._told
