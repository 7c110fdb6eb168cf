# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work on the host: that of a person, as the slot writes it, or of a play, by its lease."""

from __future__ import annotations

import orjson

from frontdoor.slot.regular import Watched

_UNKNOWN = "an unknown time"


class _Moment:
    """Reads a time in a record if that changed, and only on request. Without a path nothing is known."""

    def __init__(self, path: str, key: str, unreadable: str) -> None:
        self._file, self._key, self._unreadable = Watched(path), key, unreadable
        self._told = ""

    def read(self) -> str:
        if not self._file.path:
            return ""
        try:
            raw = self._file.read()
        except FileNotFoundError:
            self._told = ""
        except OSError:
            self._told = self._unreadable
        else:
            if raw is not None:
                self._told = self._time(raw)
        return self._told

    def _time(self, raw: bytes) -> str:
        try:
            return str(orjson.loads(raw)[self._key])
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return self._unreadable


class Maintenance:
    """The record of a person's work."""

    def __init__(self, path: str) -> None:
        self._moment = _Moment(path, "since", _UNKNOWN)

    def since(self) -> str:
        """Return when the maintenance began, empty if there is none; an unreadable record counts, as in the slot."""
        return self._moment.read()


class Lease:
    """The lease of a play."""

    def __init__(self, path: str) -> None:
        self._moment = _Moment(path, "until", "")

    def until(self) -> str:
        """Return when the lease ends at the latest, empty if there is none; an unreadable one is none, as for plays."""
        return self._moment.read()
