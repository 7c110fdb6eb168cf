# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last switches of the slot, as its journal tells them."""

from __future__ import annotations

from typing import Any

import orjson

from frontdoor.slot.regular import Parsed

KEPT = 10
# bytes read of a journal that has grown: more than ten switches take
_TAIL_BYTES = 512 * 1024
_REASON_CHARS = 400
_END = ("outcome", "way", "served", "seconds", "failed_phase", "reason")


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
