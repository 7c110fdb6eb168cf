# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record that the role model_weights keeps beside the files of a model, as far as it tells which files they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

RECORDED = ".b70-weights.json"


def digest(record: str | None) -> str:
    """Return a digest of the names, sizes and SHA-256 in the text of a record; empty if it names no files.

    Times are left out, so hosts with the same files have the same digest.
    """
    try:
        files = json.loads(record or "{}")["files"]
        rows = sorted((name, row["size"], row["sha256"]) for name, row in files.items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def together(digests: Iterable[str]) -> str:
    """Return one digest for those of a profile's models, in their order; empty if any of them is."""
    found = list(digests)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found and all(found) else ""
