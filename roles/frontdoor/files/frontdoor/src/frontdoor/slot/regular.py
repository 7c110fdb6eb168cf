# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading what others write, without being held up by what is no file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

NOT_REGULAR = "it is not a regular file"


def read(path: str | Path, tail: int | None = None) -> bytes:
    """The file's bytes, or the last of them. Raises OSError, also for a FIFO, a directory or a device in its place."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        with open(handle, "rb", closefd=False) as file:
            if tail is not None:
                file.seek(max(0, found.st_size - tail))
            return file.read()
    finally:
        os.close(handle)
