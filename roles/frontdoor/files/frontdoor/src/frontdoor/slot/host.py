# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's own records: its quarantine, the work of a person on it, and that of a play."""

from __future__ import annotations

import os

import orjson

from frontdoor.slot.regular import Parsed

# as the unit names it: the file of the kernel is out of the service's reach
BOOT_ID = os.environ.get("B70_BOOT_ID", "")


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
