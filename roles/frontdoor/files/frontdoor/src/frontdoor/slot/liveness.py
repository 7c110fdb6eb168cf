# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The liveness watchdog's report on a slot's engines. The watchdog judges by their counters; this only shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from frontdoor.slot.regular import Parsed

SCHEMA = 1
FILE = "liveness.json"
WEDGED = "wedged"


def _told_of(raw: bytes) -> dict[str, Any] | None:
    """Return the content of the file, or None if it is of another version."""
    data = orjson.loads(raw)
    if data["schema"] != SCHEMA:
        return None
    names = ("index", "unit", "verdict", "since", "flat_s", "reason")
    engines = [{name: row[name] for name in names} for row in data["engines"]]
    step = data["next"] and {name: data["next"][name] for name in ("wanted", "do", "why", "at")}
    told = {key: data[key] for key in ("at", "policy", "verification", "action", "counts", "cards")}
    asleep = [{name: row[name] for name in ("profile", "since", "bytes")} for row in data.get("standby") or ()]
    return {**told, "engines": engines, "next": step, "standby": asleep}


def liveness(state_file: str) -> Parsed[dict[str, Any] | None]:
    """Tell the watchdog's last report, which is beside the slot's state; None if none has run since the boot."""
    return Parsed(str(Path(state_file).with_name(FILE)) if state_file else "", _told_of, absent=None)
