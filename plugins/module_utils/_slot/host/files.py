# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real files: replaced atomically, synced before they count."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import PurePosixPath

_READ_LIMIT = 64 * 2**20
_PIECE = 2**20


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _nearest(path: PurePosixPath) -> str:
    """The path, or its nearest parent that exists."""
    current = path
    while not os.path.exists(current) and current != current.parent:
        current = current.parent
    return str(current)


class HostFiles:
    def read(self, path: PurePosixPath) -> str | None:
        data = bytearray()
        try:
            with open(path, "rb") as file:
                # In pieces: a file of /proc/sys refuses to be read with room for megabytes (ENOMEM).
                while len(data) < _READ_LIMIT and (piece := file.read(_PIECE)):
                    data += piece
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data.decode("utf-8", "replace")

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        try:
            with open(path, "rb") as file:
                end = file.seek(0, os.SEEK_END)
                # One byte more tells whether the first line is whole.
                begin = max(0, end - limit - 1)
                file.seek(begin)
                data = file.read(end - begin)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if begin:
            data = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
        return data.decode("utf-8", "replace")

    def names(self, path: PurePosixPath) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def write(self, path: PurePosixPath, text: str) -> None:
        os.makedirs(path.parent, mode=0o755, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except Exception:
            self.remove(temporary)
            raise
        _sync_directory(str(path.parent))

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        os.makedirs(path.parent, mode=0o755, exist_ok=True)
        with open(path, "ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync and not end:
            _sync_directory(str(path.parent))

    def truncate(self, path: PurePosixPath, text: str) -> None:
        os.makedirs(path.parent, mode=0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def remove(self, path: PurePosixPath) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def rename(self, path: PurePosixPath, new: PurePosixPath) -> None:
        os.replace(path, new)
        _sync_directory(str(new.parent))

    def size(self, path: PurePosixPath) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: PurePosixPath) -> datetime | None:
        try:
            return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def writable(self, path: PurePosixPath) -> str | None:
        # access() asks the file system itself, so a read-only mount answers no to root as well.
        where = _nearest(path)
        if not os.path.isdir(where):
            return f"{where} is not a directory"
        return None if os.access(where, os.W_OK | os.X_OK) else f"{where} is read-only or not permitted"

    def free_bytes(self, path: PurePosixPath) -> int:
        numbers = os.statvfs(_nearest(path))
        return numbers.f_bavail * numbers.f_frsize

    def executable(self, path: PurePosixPath) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK)
