# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's lock of a slot: flock, which the kernel lets go of when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from ..words.effects import RENDERING, SETTLING, Clock, poll
from ..words.types import HostFault
from .files import make_directory, regular

_INTERVAL_S = 0.2
_NOTE_S = 1.0
SETTLE_LIMIT_S = 3600.0  # the load of the largest model, and of one more on the way back


class FileLocks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @contextmanager
    def hold(self, path: PurePosixPath, note: str, timeout_s: float) -> Iterator[None]:
        make_directory(path.parent)
        with regular(path, os.O_RDWR | os.O_CREAT) as handle:
            self._acquire(handle, path, timeout_s)
            os.ftruncate(handle, 0)
            # Where there is no room left for the note, the guard says so.
            with suppress(OSError):
                os.pwrite(handle, note.encode() + b"\n", 0)
            yield
            # The note goes with the lock; the file stays, so that nobody ever locks a file that was unlinked.
            os.ftruncate(handle, 0)

    def _acquire(self, handle: int, path: PurePosixPath, timeout_s: float) -> None:
        note, waited, empty_since = "", 0.0, float("inf")
        for waited in poll(self._clock, max(timeout_s, SETTLE_LIMIT_S), _INTERVAL_S):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                note = os.pread(handle, 500, 0).decode("utf-8", "replace").strip()
            # A holder writes its note just after it got the lock.
            empty_since = float("inf") if note else min(empty_since, waited)
            enough = waited >= timeout_s and (note or waited >= empty_since + _NOTE_S)
            if enough and not note.endswith((SETTLING, RENDERING)):
                break
        raise HostFault(
            f"the slot's lock {path} is held by another switch: {note or 'its holder left no note'}; "
            f"waited {waited:.0f} s for it"
        )
