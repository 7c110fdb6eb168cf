# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that a host hands to its controller: its own that the controller lacks, as they are on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from .record import parse
from .store import Store, own

# The approximate size of one answer, which a connection carries as one line.
PART_BYTES = 8 * 2**20


def digest(content: str) -> str:
    """Return the SHA-256 of a record's file."""
    return hashlib.sha256(content.encode()).hexdigest()


def hand_over(store: Store, known: Mapping[str, str], part_bytes: int = PART_BYTES) -> dict[str, Any]:
    """Return `records` (id to text) that differ from what is `known` (id to digest), `problems`, and `more`.

    `more` means that records are left: another call, with these records known, returns the next part.
    """
    records: dict[str, str] = {}
    problems = []
    size = 0
    for record_id in store.ids():
        path = store.path(record_id)
        try:
            content = path.read_text(encoding="utf-8")
            if known.get(record_id) == digest(content):
                continue
            if not own(parse(content, record_id)):
                continue
        except (OSError, ValueError) as error:
            problems.append(f"{path}: not a record: {error}; remove it, or restore it")
            continue
        if records and size + len(content) > part_bytes:
            return {"records": records, "problems": problems, "more": True}
        records[record_id] = content
        size += len(content)
    return {"records": records, "problems": problems, "more": False}
