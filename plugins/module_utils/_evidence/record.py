# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One record: dated, with the fingerprint it holds for and the host it was made on. Pure.

The envelope is the same for all kinds; `data` depends on the kind. Both are in roles/evidence/files/schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._slot.model import recorded

SCHEMA = 1
KINDS = recorded.KINDS
VERDICTS = ("passed", "failed", "unfinished")
ID = re.compile(rf"\d{{8}}T\d{{6}}Z-({'|'.join(KINDS)})-[a-z0-9][a-z0-9._-]*-[0-9a-f]{{6}}")
# Fields of each record in the index of a store, besides `summary`.
ROW_KEYS = ("id", "number", "kind", "began_at", "ended_at", "slot", "profile", "fingerprint", "verdict")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def record_id(kind: str, profile: str, began_at: str, where: str = "") -> str:
    """Return the id of a record: its time first. where: host and slot, so that ids differ across a fleet."""
    digest = hashlib.sha256(json.dumps([kind, profile, began_at, where]).encode()).hexdigest()
    return f"{re.sub('[-:]', '', began_at)}-{kind}-{profile}-{digest[:6]}"


def make(
    kind: str,
    *,
    profile: str,
    fingerprint: str | None,
    slot: str,
    stack: str | None,
    engine: Mapping[str, Any] | None,
    host: Mapping[str, Any],
    began_at: str,
    ended_at: str,
    verdict: str,
    reasons: Sequence[str],
    canary: Mapping[str, Any] | None,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a record, to which its store gives a number; raise ValueError if the envelope would not be valid.

    :param engine: ``{name, version}``, or None if it is not known.
    :param host: ``{name, ...}`` with all of `host_class.look`.
    :param began_at: ISO 8601 in UTC with seconds, as `ended_at`: ``2026-11-23T04:16:00Z``.
    :param reasons: why the verdict is what it is, one sentence each.
    :param canary: ``{before, after}``, each ``{ok, hashes: {case: sha256}}`` or None; None if it was not asked.
    :param data: what the kind measures. Lists of records show its `summary`, one line.
    """
    if kind not in KINDS:
        raise ValueError(f"a record of kind {kind!r}: the kinds are {', '.join(KINDS)}")
    if verdict not in VERDICTS:
        raise ValueError(f"the verdict {verdict!r} of a record: it is one of {', '.join(VERDICTS)}")
    for name, moment in (("began_at", began_at), ("ended_at", ended_at)):
        if not _TIME.fullmatch(moment):
            raise ValueError(f"{name} of a record is {moment!r}: write it as 2026-11-23T04:16:00Z")
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "id": record_id(kind, profile, began_at, f"{host['name']}/{slot}"),
        "number": 0,
        "kind": kind,
        "began_at": began_at,
        # The clock may have been set back meanwhile.
        "ended_at": max(ended_at, began_at),
        "slot": slot,
        "profile": profile,
        "fingerprint": fingerprint,
        "stack": stack,
        "engine": None if engine is None else {"name": engine["name"], "version": engine["version"]},
        "host": dict(host),
        "verdict": verdict,
        "reasons": list(reasons),
        "canary": {"before": None, "after": None, **(canary or {})},
        "data": dict(data),
    }
    if not ID.fullmatch(made["id"]):
        raise ValueError(f"the profile {profile!r} makes no id of a record: {made['id']}")
    text(made)
    return made


def text(record: Mapping[str, Any]) -> str:
    """Return a record as it is written: JSON without infinity or NaN, with its keys in the order they were made."""
    return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def parse(content: str, name: str) -> dict[str, Any]:
    """Return the record of a file called ``name``.json; raise ValueError with what is wrong with it."""
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError(f"it is no record of schema {SCHEMA}")
    missing = [key for key in (*ROW_KEYS, "host", "data") if key not in found]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if found["id"] != name:
        raise ValueError(f"it holds the record {found['id']}")
    return found


def row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's row in the index."""
    summary = record["data"].get("summary") or next(iter(record["reasons"]), "")
    examined = {"examined": record["data"]["examined"]} if record["data"].get("examined") else {}
    return {**{key: record[key] for key in ROW_KEYS}, **examined, "summary": summary}
