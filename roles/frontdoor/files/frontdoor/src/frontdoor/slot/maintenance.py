# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a person has taken the host out of its fleet, as the slot writes it."""

from __future__ import annotations

import orjson

from frontdoor.slot.regular import Watched

_UNKNOWN = "an unknown time"


class Maintenance:
    """Reads the record if it changed, and only on request. Without a path nothing is known."""

    def __init__(self, path: str) -> None:
        self._file = Watched(path)
        self._since = ""

    def since(self) -> str:
        """Since when it lasts; empty if it does not. A record that cannot be read counts, as in the slot."""
        if not self._file.path:
            return ""
        try:
            raw = self._file.read()
        except FileNotFoundError:
            self._since = ""
        except OSError:
            self._since = _UNKNOWN
        else:
            if raw is not None:
                self._since = _time(raw)
        return self._since


def _time(raw: bytes) -> str:
    try:
        return str(orjson.loads(raw)["since"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return _UNKNOWN
