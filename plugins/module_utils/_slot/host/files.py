# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real files: replaced atomically, synced before they count."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePosixPath

_READ_LIMIT = 64 * 2**20
_PIECE = 2**20
_PREFETCHED = 16 * 2**20


_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755  # whatever the caller's umask


@contextmanager
def regular(path: PurePosixPath, flags: int) -> Iterator[int]:
    """Yield the open file; raise OSError where something else has its place.

    A FIFO or a device there holds up nobody.
    """
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, _FILE_MODE)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file, remove it", str(path))
        if flags & os.O_CREAT and stat.S_IMODE(found.st_mode) != _FILE_MODE:
            os.fchmod(handle, _FILE_MODE)
        yield handle
    finally:
        os.close(handle)


def foreign(path: PurePosixPath) -> bytes:
    """Return what a file has that another user may have written. Raise OSError where a link or a pipe has its place,
    and where it is too large."""
    with regular(path, os.O_RDONLY | os.O_NOFOLLOW) as handle, open(handle, "rb", closefd=False) as file:
        content = file.read(_READ_LIMIT + 1)
    if len(content) > _READ_LIMIT:
        raise OSError(errno.EFBIG, f"is larger than {_READ_LIMIT} bytes", str(path))
    return content


def make_directory(path: PurePosixPath) -> None:
    """Make the directory and its missing parents, readable for everybody."""
    missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
    for one in reversed(missing):
        try:
            os.mkdir(one)
        except FileExistsError:
            continue
        os.chmod(one, _DIRECTORY_MODE)


def _aside(path: PurePosixPath) -> None:
    """Move a directory aside that has the place of a file."""
    if os.path.isdir(path) and not os.path.islink(path):
        os.rename(path, path.with_name(f"{path.name}.aside"))


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _nearest(path: PurePosixPath) -> str:
    """Return the path, or its nearest parent that exists."""
    current = path
    while not os.path.exists(current) and current != current.parent:
        current = current.parent
    return str(current)


class HostFiles:
    def read(self, path: PurePosixPath) -> str | None:
        data = bytearray()
        try:
            with regular(path, os.O_RDONLY) as handle:
                # In pieces: a file of /proc/sys refuses to be read with room for megabytes (ENOMEM).
                while len(data) < _READ_LIMIT and (piece := os.read(handle, _PIECE)):
                    data += piece
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data.decode("utf-8", "replace")

    def read_foreign(self, path: PurePosixPath) -> str | None:
        try:
            return foreign(path).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def tail(self, path: PurePosixPath, limit: int) -> str | None:
        try:
            with regular(path, os.O_RDONLY) as handle, open(handle, "rb", closefd=False) as file:
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
        make_directory(path.parent)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with (
                regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle,
                open(handle, "w", encoding="utf-8", closefd=False) as file,
            ):
                file.write(text)
                file.flush()
                os.fsync(handle)
            _aside(path)
            os.replace(temporary, path)
        except Exception:
            self.remove(temporary)
            raise
        _sync_directory(str(path.parent))

    def append(self, path: PurePosixPath, text: str, *, sync: bool) -> None:
        make_directory(path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with regular(path, flags) as handle, open(handle, "ab+", closefd=False) as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())
            file.flush()
            if sync:
                os.fsync(handle)
        if sync and not end:
            _sync_directory(str(path.parent))

    def truncate(self, path: PurePosixPath, text: str) -> None:
        if os.path.exists(path) and not os.path.isfile(path):
            self.write(path, text)
            return
        make_directory(path.parent)
        with (
            regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle,
            open(handle, "w", encoding="utf-8", closefd=False) as file,
        ):
            file.write(text)

    def hidden(self, path: PurePosixPath) -> str | None:
        try:
            found, above = os.lstat(path), os.stat(path.parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            return None if mode & 0o555 == 0o555 else f"{path} has the mode {mode:04o}"
        if not stat.S_ISREG(found.st_mode):
            return f"{path} is not a regular file"
        if found.st_uid != above.st_uid:
            return f"{path} belongs to user {found.st_uid}"
        return None if mode == _FILE_MODE else f"{path} has the mode {mode:04o}"

    def unhide(self, directory: PurePosixPath) -> None:
        os.chmod(directory, stat.S_IMODE(os.stat(directory).st_mode) | _DIRECTORY_MODE)

    def remove(self, path: PurePosixPath) -> None:
        try:
            _aside(path)
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

    def prefetch(self, path: PurePosixPath) -> Iterator[int]:
        buffer = bytearray(_PREFETCHED)
        with regular(path, os.O_RDONLY) as handle:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while count := os.readv(handle, [buffer]):
                yield count
