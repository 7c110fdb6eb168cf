# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode: the files of the host as the earlier tasks of the same play would have written them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath

from ._slot.words.effects import Clock, Files


class PlannedFiles:
    """The files of the host with planned ones before them; an empty one will not be there.

    Reads only: a prediction writes nothing.
    """

    def __init__(self, files: Files, clock: Clock, planned: Mapping[PurePosixPath, str]) -> None:
        self._files, self._clock, self._planned = files, clock, planned

    def read(self, path: PurePosixPath) -> str | None:
        return (self._planned[path] or None) if path in self._planned else self._files.read(path)

    def read_foreign(self, path: PurePosixPath) -> str | None:
        return self._files.read_foreign(path)

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        return self._files.tail(path, limit)

    def names(self, path: PurePosixPath) -> tuple[str, ...]:
        planned = {known.name: bool(text) for known, text in self._planned.items() if known.parent == path}
        there = dict.fromkeys(self._files.names(path), True) | planned
        return tuple(sorted(name for name, stays in there.items() if stays))

    def size(self, path: PurePosixPath) -> int | None:
        return (len(self._planned[path].encode()) or None) if path in self._planned else self._files.size(path)

    def modified(self, path: PurePosixPath) -> datetime | None:
        return self._clock.now() if path in self._planned else self._files.modified(path)

    def hidden(self, path: PurePosixPath) -> str | None:
        return self._files.hidden(path)

    def unhide(self, directory: PurePosixPath) -> None:
        raise _refused(directory)

    def writable(self, path: PurePosixPath) -> str | None:
        return self._files.writable(path)

    def free_bytes(self, path: PurePosixPath) -> int:
        return self._files.free_bytes(path)

    def executable(self, path: PurePosixPath) -> bool:
        return self._files.executable(path)

    def prefetch(self, path: PurePosixPath) -> Iterator[int]:
        return self._files.prefetch(path)

    def write(self, path: PurePosixPath, text: str) -> None:
        raise _refused(path)

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        raise _refused(path)

    def truncate(self, path: PurePosixPath, text: str) -> None:
        raise _refused(path)

    def remove(self, path: PurePosixPath) -> None:
        raise _refused(path)

    def rename(self, path: PurePosixPath, new: PurePosixPath) -> None:
        raise _refused(path)


def _refused(path: PurePosixPath) -> OSError:
    return OSError(1, "a prediction writes nothing", str(path))
