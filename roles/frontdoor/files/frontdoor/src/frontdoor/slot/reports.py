# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files about a slot and its host that others write: they are shown, and decide nothing of one request.

The host's records of its quarantine, of the work of a person on it and of that of a play; the report of the watchdog,
which judges the engines by their counters; the journal with the last switches; and the index of what was measured and
proven of the profiles.
"""

from __future__ import annotations

import hashlib
import os
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from frontdoor.slot.regular import Parsed

#: of the watchdog's report and of the index
SCHEMA = 1
PRODUCTION, CANDIDATE = "production", "candidate"
PROMOTION = "promotion"
_REFUSED = ("rejected", "blocked")
_TEXTS = ("id", "kind", "ended_at", "slot", "profile", "fingerprint", "verdict", "summary")
_SUMMARY_CHARS = 400
# as the unit names it: the file of the kernel is out of the service's reach
BOOT_ID = os.environ.get("B70_BOOT_ID", "")
FILE = "liveness.json"
WEDGED = "wedged"
#: a report that is older was left by a controller that does not run any more
FRESH_S = 120.0
KEPT = 10
# bytes read of a journal that has grown: more than ten switches take
_TAIL_BYTES = 512 * 1024
_REASON_CHARS = 400
_END = ("outcome", "way", "served", "seconds", "failed_phase", "reason")


def quarantine(path: str, boot_id: str = BOOT_ID) -> Parsed[bool]:
    """Tell whether a record holds that no reboot has ended; an unreadable one counts, as in the slot.

    Without an id it holds until somebody clears it. systemd writes the id without hyphens.
    """

    def holds(raw: bytes) -> bool:
        return orjson.loads(raw)["boot_id"].replace("-", "") in ("", boot_id) or not boot_id

    return Parsed(path, holds, absent=False, unreadable=True)


def maintenance(path: str) -> Parsed[str]:
    """Tell since when a person works on the host, empty for nobody; an unreadable record counts, as in the slot."""
    return Parsed(path, lambda raw: str(orjson.loads(raw)["since"]), absent="", unreadable="an unknown time")


def lease(path: str) -> Parsed[str]:
    """Tell until when a play works on the host at most, empty for none; an unreadable lease is none, as for plays."""
    return Parsed(path, lambda raw: str(orjson.loads(raw)["until"]), absent="")


def _told_of(raw: bytes) -> dict[str, Any] | None:
    """Return the content of the file, or None if it is of another version."""
    data = orjson.loads(raw)
    if data["schema"] != SCHEMA:
        return None
    names = ("index", "unit", "verdict", "since", "flat_s", "reason")
    engines = [{name: row[name] for name in names} for row in data["engines"]]
    step = data["next"] and {name: data["next"][name] for name in ("wanted", "do", "why", "at")}
    told = {key: data[key] for key in ("at", "policy", "verification", "action", "counts", "cards")}
    kept = ("profile", "since", "bytes", "level")
    asleep = [{name: row[name] for name in kept} for row in data.get("standby") or ()]
    return {**told, "engines": engines, "next": step, "standby": asleep}


def liveness(state_file: str) -> Parsed[dict[str, Any] | None]:
    """Tell the watchdog's last report, which is beside the slot's state; None if none has run since the boot."""
    return Parsed(str(Path(state_file).with_name(FILE)) if state_file else "", _told_of, absent=None)


def _text(entry: Any, name: str) -> str | None:
    value = entry.get(name) if isinstance(entry, dict) else None
    return value if isinstance(value, str) and value else None


def _failed_phase(end: dict[str, Any]) -> str | None:
    failures = end.get("failures")
    return _text(failures[0], "phase") if isinstance(failures, list) and failures else None


def _reason(end: dict[str, Any]) -> str | None:
    """Return the reason for everybody, else only the phase, because the messages quote logs and command lines."""
    phase = _failed_phase(end)
    reason = _text(end, "reason") or (phase and f"phase {phase}")
    return reason and reason[:_REASON_CHARS]


def remember(raw: bytes) -> list[dict[str, Any]]:
    """Return the switches in lines of the journal, newest first; unreadable lines are left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in raw.splitlines():
        try:
            entry = orjson.loads(line)
            event, name = entry["event"], str(entry["id"])
        except (orjson.JSONDecodeError, LookupError, TypeError):
            continue
        if event == "begin":
            began = {key: _text(entry, key) for key in ("at", "kind", "from", "to", "fingerprint")}
            found[name] = {"id": name, **began, **dict.fromkeys(_END)}
        elif event == "end" and name in found:
            seconds = entry.get("seconds")
            found[name] |= {
                "outcome": _text(entry, "outcome"),
                "way": _text(entry, "way"),
                "served": _text(entry, "profile"),
                "seconds": seconds if isinstance(seconds, int | float) else None,
                "failed_phase": _failed_phase(entry),
                "reason": _reason(entry),
            }
    return list(found.values())[::-1]


def history(path: str) -> Parsed[list[dict[str, Any]]]:
    """Tell the switches in the end of a journal, newest first; `outcome` is None while one has no end."""
    return Parsed(path, remember, absent=[], tail=_TAIL_BYTES)


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
