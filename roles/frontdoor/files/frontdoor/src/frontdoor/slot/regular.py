# Copyright (c) 2026, arcpro.b70 contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading files that others write or replace. A FIFO, a directory or a device in the place of one holds nobody up."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

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


class Parsed(Generic[T]):
    """The content of a file, which is read when it changed, and only when somebody asks."""

    def __init__(
        self, path: str, parse: Callable[[bytes], T], absent: T, unreadable: T | None = None, tail: int | None = None
    ) -> None:
        """Take the values that stand for a file that is `absent`, and for one that cannot be read or parsed."""
        self._file, self._parse = Watched(path, tail), parse
        self._absent, self._unreadable = absent, absent if unreadable is None else unreadable
        self._content = absent

    def read(self) -> T:
        """Return the content, the same object as long as the file is the same."""
        try:
            raw = self._file.read()
            if raw is not None:
                self._content = self._parse(raw)
        except FileNotFoundError:
            self._content = self._absent
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            self._content = self._unreadable
        return self._content
