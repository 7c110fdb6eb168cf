# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of benchmarks, soaks and the like, as lists show them. Only their index is read, which the role evidence
writes (index.schema.json there); what it says wrongly is left out, because nothing here depends on it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from typing import Any

from .effects import Effects
from .types import Layout

SCHEMA = 1
_TEXTS = ("id", "kind", "began_at", "ended_at", "slot", "profile", "verdict", "summary")


def recorded(fx: Effects, layout: Layout) -> list[dict[str, Any]]:
    """The rows of this slot's records, each with `seconds`, newest last. Empty where the index is missing or torn."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        index = json.loads(fx.files.read(layout.records_index) or "{}")
        if index["schema"] == SCHEMA:
            rows = [row for row in index["records"] if _sound(row) and row["slot"] == layout.slot]
            return sorted(({**row, "seconds": _seconds(row)} for row in rows), key=lambda row: row["id"])
    return []


def _sound(row: Any) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), str) for name in _TEXTS)


def _seconds(row: dict[str, Any]) -> float | None:
    try:
        began, ended = (datetime.fromisoformat(row[name]) for name in ("began_at", "ended_at"))
        return (ended - began).total_seconds()
    except (ValueError, TypeError):
        return None
