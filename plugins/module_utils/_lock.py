# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock on a file that only its owner can open: whoever can open a file can lock it and block everybody else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE_S = 0.05


@contextlib.contextmanager
def hold(path: Path, limit_s: float, fault: type[Exception], *, inherited: bool = False) -> Iterator[None]:
    """Hold the lock of a file or folder; raise the fault if another process has it for `limit_s` seconds.

    The kernel releases the lock when its holder dies. The file stays, so that nobody ever locks a removed one. Its
    folder must exist.

    :param inherited: whether commands that this process begins keep the lock until they end.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.set_inheritable(handle, inherited)
    end = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise fault(
                        f"another process has held {path} for {limit_s:g} s. Run again when it has ended; "
                        f"`fuser {path}` names it"
                    ) from None
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(handle)
