# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements and proofs of the served profile, according to the index of the host's records."""

from __future__ import annotations

import hashlib
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from frontdoor.slot.regular import Parsed

SCHEMA = 1
PRODUCTION, CANDIDATE = "production", "candidate"
PROMOTION = "promotion"
_REFUSED = ("rejected", "blocked")
_TEXTS = ("id", "kind", "ended_at", "slot", "profile", "fingerprint", "verdict", "summary")
_SUMMARY_CHARS = 400


def machine() -> str:
    """Return the mark of this machine in its records."""
    try:
        found = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        found = ""
    return hashlib.sha256(f"b70 records {found}".encode()).hexdigest()[:32]


def rows_of(raw: bytes) -> list[dict[str, str]]:
    """Return the rows of an index, newest first; none of one of another version or of another machine."""
    index = orjson.loads(raw)
    listed = index["records"] if (index["schema"], index["machine"]) == (SCHEMA, machine()) else ()
    rows = [row for row in listed if isinstance(row, dict) and isinstance(row.get("number"), int)]
    rows = [row for row in rows if all(isinstance(row.get(key), str) for key in _TEXTS)]
    rows.sort(key=itemgetter("number"))
    told = ({key: row[key] for key in _TEXTS} | {"examined": str(row.get("examined") or "")} for row in rows)
    return [row for row in told if row["fingerprint"]][::-1]


def status_here(status: str, rows: list[dict[str, str]]) -> str:
    """Return the status of a profile here: the last gate in its `rows` makes it production, or takes that back."""
    gates = [row["verdict"] for row in rows if row["kind"] == PROMOTION and row["verdict"] in ("passed", "failed")]
    if gates[:1] == ["passed"] and status not in _REFUSED:
        return PRODUCTION
    return CANDIDATE if gates[:1] == ["failed"] and status == PRODUCTION else status


def newest(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the newest row of each kind for everybody, without reasons of failures, which may quote logs."""
    by_kind = {row["kind"]: row for row in reversed(rows)}
    return [
        {key: row[key] for key in ("kind", "verdict", "ended_at")}
        | {"summary": row["summary"][:_SUMMARY_CHARS] if row["verdict"] == "passed" else ""}
        for _kind, row in sorted(by_kind.items())
    ]


class Records:
    """The index. Without one nothing is known."""

    def __init__(self, path: str) -> None:
        self._index: Parsed[list[dict[str, str]]] = Parsed(path, rows_of, absent=[])

    def of(self, slot: str, profile: dict[str, Any]) -> list[dict[str, str]]:
        """Return the records of a profile under the very fingerprint that it has now, newest first.

        A promotion holds only for what it examined, too.
        """
        wanted = (slot, profile.get("name"), profile.get("fingerprint"))
        rows = [row for row in self._index.read() if (row["slot"], row["profile"], row["fingerprint"]) == wanted]
        return [row for row in rows if row["kind"] != PROMOTION or row["examined"] == profile.get("examined") != ""]
