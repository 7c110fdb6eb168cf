# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of benchmarks, soaks and the like, as lists show them, and such work under way. Of records only the index
is read, which the role evidence writes (index.schema.json there), of work only how far it is. What either says wrongly
is left out, because nothing here depends on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from ..words.effects import Effects
from ..words.types import Layout

SCHEMA = 1
MACHINE_ID = "/etc/machine-id"
KINDS = ("benchmark", "soak", "context_search", "promotion")
_TEXTS = ("id", "kind", "began_at", "ended_at", "slot", "profile", "verdict", "summary")


def recorded(fx: Effects, layout: Layout) -> list[dict[str, Any]]:
    """Return the rows of this slot's records, each with `seconds`, newest last.

    Empty where the index is missing, torn, or of the machine from whose disk this one was cloned.
    """
    with suppress(OSError, ValueError, LookupError, TypeError):
        index = json.loads(fx.files.read(layout.records_index) or "{}")
        machine = machine_of(fx.files.read(PurePosixPath(MACHINE_ID)) or "")
        if (index["schema"], index["machine"]) == (SCHEMA, machine):
            rows = [row for row in index["records"] if _sound(row) and row["slot"] == layout.slot]
            return sorted(({**row, "seconds": _seconds(row)} for row in rows), key=lambda row: row["number"])
    return []


def machine_of(text: str) -> str:
    """Return the mark of a machine in its records, from its machine-id, which itself is nobody else's business."""
    return hashlib.sha256(f"b70 records {text.strip()}".encode()).hexdigest()[:32]


def unit_of(kind: str, slot: str) -> str:
    """Return the unit of this kind of work on a slot."""
    return f"b70-{kind.replace('_', '-')}-{slot}.service"


def excluded_by(kind: str, slot: str, running: Callable[[str], bool]) -> str:
    """Return why this kind of work can't begin now, or "". It shares the engine with no other kind."""
    for unit in (unit_of(other, slot) for other in KINDS if other != kind):
        if running(unit):
            return f"{unit} runs and asks the engine too: wait for its end, or end it with `systemctl stop {unit}`"
    return ""


def works(fx: Effects, layout: Layout) -> list[dict[str, str | None]]:
    """Return the work under way: kind, unit, profile, began_at, and its current step; None where that can't be read."""
    units = {unit_of(kind, layout.slot): kind for kind in KINDS}
    running = [unit.name for unit in fx.units.show(tuple(units)) if unit.running]
    return [{"kind": units[name], "unit": name, **_of_work(fx, layout, units[name])} for name in running]


def _of_work(fx: Effects, layout: Layout, kind: str) -> dict[str, str | None]:
    folder = layout.state_dir / kind / layout.slot
    found: dict[str, str | None] = {"profile": None, "began_at": None, "now": None}
    for file in ("given.json", "out/seen.json"):
        with suppress(OSError, ValueError, AttributeError, RecursionError):
            said = json.loads(fx.files.read_foreign(folder / file) or "{}")
            found |= {key: said[key] for key in found if isinstance(said.get(key), str)}
    return found


def _sound(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("number"), int)
        and all(isinstance(row.get(name), str) for name in _TEXTS)
    )


def _seconds(row: dict[str, Any]) -> float | None:
    try:
        began, ended = (datetime.fromisoformat(row[name]) for name in ("began_at", "ended_at"))
        return (ended - began).total_seconds()
    except (ValueError, TypeError):
        return None
