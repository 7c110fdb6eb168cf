# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every part of the lab uses: errors, commands, progress lines, locks, atomic files, removal of trees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class LabError(Exception):
    """What was wrong and where; `fix` is what to do next; `code` is the exit code (2: cannot work on this machine)."""

    def __init__(self, message: str, fix: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.fix = fix
        self.code = code


class Progress:
    """Lines with the seconds since the command started, on stderr so that stdout stays for answers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()

    def __call__(self, text: str) -> None:
        print(f"[lab {self._clock() - self._start:5.1f} s] {text}", file=sys.stderr, flush=True)


say = Progress()


def run(
    argv: Sequence[str | Path], *, timeout: float = 240, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises LabError with the command and its output when it fails or takes too long."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as exc:
        raise LabError(f"command not found: {words[0]}", "tests/lab/lab.py prerequisites --install", 2) from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"took longer than {timeout:g} s: {' '.join(words)}") from exc
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise LabError(f"exit code {done.returncode} from: {' '.join(words)}\n{said}")
    return done


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` in one step, so that a reader or a crash never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    with open(tmp, "w", encoding="utf-8") as handle:
        os.fchmod(handle.fileno(), mode)
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(tmp, path)


@contextlib.contextmanager
def locked(path: Path, what: str, timeout: float) -> Iterator[int]:
    """Hold an exclusive lock on the file `path`; yields its descriptor.

    Waits up to `timeout` seconds and says so. The file may be removed by whoever holds the lock: the waiters notice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            if time.monotonic() >= deadline:
                raise LabError(
                    f"{what} is held by {holder}; gave up after {timeout:g} s ({path})",
                    "wait for it to end, or end that process, then run the command again",
                ) from None
            if not told:
                say(f"waiting for {holder}, who holds {what}")
                told = True
            time.sleep(0.2)
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                break
        os.close(descriptor)  # removed by the holder before us: take the new file
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} ({' '.join(sys.argv[1:]) or 'lab'})\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def mounts_below(path: Path) -> list[str]:
    """Mount points at or below `path`, deepest first."""
    prefix = str(path.resolve())
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == prefix or point.startswith(prefix + "/"):
            found.append(point)
    return sorted(found, key=len, reverse=True)


def remove_tree(path: Path) -> None:
    """Remove a tree of the lab. Refuses when something is mounted below it: that would delete what is not ours."""
    if not path.exists() and not path.is_symlink():
        return
    mounted = mounts_below(path)
    if mounted:
        raise LabError(f"not removing {path}: mounted below it: {', '.join(mounted)}", f"umount {' '.join(mounted)}")
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    # In parallel: on a disk that is mounted with `discard` every removal waits for the device, one after the other.
    directories: list[str] = []
    files: list[str] = []
    for parent, names, plain in os.walk(path, topdown=False):
        directories.append(parent)
        files += (os.path.join(parent, name) for name in plain)
        files += (link for name in names if os.path.islink(link := os.path.join(parent, name)))
    with ThreadPoolExecutor(16) as pool:
        for _done in pool.map(_unlink, files, chunksize=32):
            pass
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(directory)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def wait_for(condition: Callable[[], bool], timeout: float, interval: float = 0.2) -> bool:
    """True as soon as `condition` holds, False after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval)
