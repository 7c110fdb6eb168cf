# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The quarantine of the host, as the slot writes it."""

from __future__ import annotations

import os

import orjson

from frontdoor.slot.regular import Watched

# as the unit names it: the file of the kernel is out of the service's reach
BOOT_ID = os.environ.get("B70_BOOT_ID", "")


class Quarantine:
    """Reads the record if it changed, and only on request. Without a path nothing is known."""

    def __init__(self, path: str, boot_id: str = BOOT_ID) -> None:
        self._file = Watched(path)
        self._boot_id = boot_id
        self._holds = False

    def holds(self) -> bool:
        """Tell whether a record holds that no reboot has ended; an unreadable one counts, as in the slot."""
        if not self._file.path:
            return False
        try:
            raw = self._file.read()
        except FileNotFoundError:
            self._holds = False
        except OSError:
            self._holds = True
        else:
            if raw is not None:
                self._holds = self._of_this_boot(raw)
        return self._holds

    def _of_this_boot(self, raw: bytes) -> bool:
        """Tell whether a record is of this boot.

        Without an id it holds until somebody clears it. systemd writes the id without hyphens.
        """
        try:
            written = orjson.loads(raw)["boot_id"].replace("-", "")
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            return True
        return written in ("", self._boot_id) or not self._boot_id
