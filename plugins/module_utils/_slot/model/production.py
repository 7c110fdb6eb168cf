# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a profile on one host, by the rows of its records. The catalogue's status is one for all hosts.
Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

PRODUCTION, CANDIDATE = "production", "candidate"
_REFUSED = ("rejected", "blocked")  # why they are is in the catalogue, and no gate shows that it is over
_VERDICTS = ("passed", "failed")
_EXAMINED = ("frontdoor", "canary", "accuracy")


def examined(profile: Mapping[str, Any]) -> str:
    """Return ``sha256:`` and 64 hex digits over what the gate examines of a resolved profile beside its fingerprint.

    The number of its engines on a host, and the choice among them, are left out.
    """
    examined_parts = {key: profile[key] for key in _EXAMINED}
    count = len(profile.get("engine", {}).get("replicas") or ())
    if count or "routing" in profile["frontdoor"]:
        front = {key: value for key, value in profile["frontdoor"].items() if key != "routing"}
        front["max_active_generations"] //= count or 1
        examined_parts["frontdoor"] = front
    parts = json.dumps(examined_parts, sort_keys=True)
    return f"sha256:{hashlib.sha256(parts.encode()).hexdigest()}"


def promotion(rows: Iterable[Row], name: str, fingerprint: str | None, parts: str | None) -> Row | None:
    """Return the row of the last production gate that came to a verdict on this very profile, or None.

    :param rows: newest last.
    :param parts: the result of `examined` for the profile; None if that is not known.
    """
    mine = (name, fingerprint, parts)
    judged = [row for row in rows if row["kind"] == "promotion" and row["verdict"] in _VERDICTS]
    same = [row for row in judged if (row["profile"], row.get("fingerprint"), row.get("examined")) == mine]
    return same[-1] if same and fingerprint and parts else None


def holds(status: str, gate: Row | None) -> bool:
    """Return whether the last gate made a profile production. status: what the catalogue says."""
    return gate is not None and gate["verdict"] == "passed" and status not in _REFUSED


def status_here(status: str, gate: Row | None) -> str:
    """Return the status of a profile on the host whose last gate this is; a failed one overrules the catalogue."""
    if holds(status, gate):
        return PRODUCTION
    return CANDIDATE if gate is not None and status == PRODUCTION else status
