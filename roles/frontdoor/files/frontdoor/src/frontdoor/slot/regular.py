# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading files that others write or replace. A FIFO, a directory or a device in the place of one holds nobody up."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

NOT_REGULAR = "it is not a regular file"


def read(path: str | Path, tail: int | None = None) -> bytes:
    """Return the bytes of a regular file, or only the last of them; raise OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
        with open(handle, "rb", closefd=False) as file:
            file.seek(0 if tail is None else max(0, found.st_size - tail))
            return file.read()
    finally:
        os.close(handle)


class Watched:
    """A file that is read when it changed."""

    def __init__(self, path: str, tail: int | None = None) -> None:
        self.path = path
        self._tail = tail
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> bytes | None:
        """Return its bytes, or None when it is as it was at the last call; raise OSError."""
        before, self._seen = self._seen, None
        found = os.stat(self.path)
        seen = (found.st_mtime_ns, found.st_ino, found.st_size)
        content = None if seen == before else read(self.path, self._tail)
        self._seen = seen
        return content

    def forget(self) -> None:
        """Read it at the next call, changed or not."""
        self._seen = None
