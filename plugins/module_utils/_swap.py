# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Swap for the time of a build. The role host puts this file on the host as a program that only a systemd unit calls:
`make` when a build that requires the unit starts, `remove` when no build needs it any more, however the build ended.

A file is ours when it is a swap file with our label. Any other file is never opened for writing, switched off or
removed. Needs Python's standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
LABEL = "b70-build"
# Where in a swap file's first page the label and the signature are, for pages of 4096 bytes.
_LABEL_AT, _LABEL_BYTES, _SIGNATURE_AT, _SIGNATURE = 1052, 16, 4086, b"SWAPSPACE2"

# The way to make a file swap on a file system; a reason where it cannot be.
_ALLOCATED = frozenset({"ext2", "ext3", "ext4", "xfs", "f2fs"})
_IMPOSSIBLE = {
    "zfs": "ZFS cannot hold a swap file: make a zvol and swapon it yourself before the build",
    "tmpfs": "it is in memory itself",
    "ramfs": "it is in memory itself",
    "overlay": "an overlay cannot hold a swap file",
    "nfs": "swap over the network is not for a build",
    "nfs4": "swap over the network is not for a build",
    "bcachefs": "bcachefs cannot hold a swap file",
}


class SwapProblem(Exception):
    """There will be no swap; the text has the figures and says what to do."""


@dataclass(frozen=True)
class MemoryInfo:
    """Of /proc/meminfo, in bytes: all RAM, and the swap that is free now."""

    ram: int
    swap_free: int


def parse_memory(meminfo: str) -> MemoryInfo:
    """Return the figures in the text of /proc/meminfo; raise SwapProblem where they are missing."""
    rows = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    try:
        ram, swap_free = (int(rows[key].split()[0]) << 10 for key in ("MemTotal", "SwapFree"))
    except (KeyError, ValueError, IndexError) as error:
        raise SwapProblem(f"/proc/meminfo has no {error}") from error
    return MemoryInfo(ram, swap_free)


def size_for(memory: MemoryInfo, total: int) -> int:
    """Return the bytes of swap with which RAM and free swap together are `total`; 0 for less than half a GiB.

    Whole GiB upwards. What counts is the largest process of a build and what runs beside it, whatever the machine's
    RAM: where 16 GiB of RAM needed 160 GiB of swap, `total` is 176 GiB.
    """
    missing = total - memory.ram - memory.swap_free
    return 0 if missing < GIB // 2 else -(-missing // GIB) * GIB


def check_space(size: int, free: int, reserve: int, folder: str) -> None:
    """Raise SwapProblem unless `size` fits on the disk and leaves `reserve`; all in bytes."""
    if size + reserve > free:
        raise SwapProblem(
            f"{folder} has {free / GIB:.1f} GiB free, but the build needs {size / GIB:.0f} GiB of swap and "
            f"{reserve / GIB:.0f} GiB must stay free: free {(size + reserve - free) / GIB:.1f} GiB, choose another "
            "host_build_swap_file, or build on a host with more RAM"
        )


def method(file_system: str) -> str:
    """Return how the file is made: `allocate`, `nocow` (btrfs) or `write` (every byte, works wherever swap does).

    Raise SwapProblem where a file cannot be swap.
    """
    if file_system in _IMPOSSIBLE:
        raise SwapProblem(
            f"the swap file would be on {file_system}: {_IMPOSSIBLE[file_system]}; or choose another place"
        )
    if file_system == "btrfs":
        return "nocow"
    return "allocate" if file_system in _ALLOCATED else "write"


def file_system_of(path: str, mountinfo: str) -> str:
    """Return the type of the file system that holds `path`, from the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _dash, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def label_of(first_page: bytes) -> str | None:
    """Return the label of a swap file, from its first 4096 bytes; None when it is no swap file."""
    if first_page[_SIGNATURE_AT : _SIGNATURE_AT + len(_SIGNATURE)] != _SIGNATURE:
        return None
    return first_page[_LABEL_AT : _LABEL_AT + _LABEL_BYTES].rstrip(b"\0").decode(errors="replace")


def _label(path: Path) -> str | None:
    with path.open("rb") as file:
        return label_of(file.read(4096))


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SwapProblem(f"{argv[0]} {argv[-1]} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _swap_off(path: Path) -> None:
    """Switch the file off as swap; one that is not in use is fine."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.swapoff(os.fsencode(path)) != 0 and ctypes.get_errno() != 22:  # EINVAL: it is not in use
        raise SwapProblem(f"swapoff {path} failed: {os.strerror(ctypes.get_errno())}; it stays until the next restart")


def remove(path: Path) -> list[str]:
    """Take our swap file away, and what an interrupted `make` has left; returns what was done, in words."""
    done = []
    part = path.with_name(path.name + ".part")
    if part.exists():
        part.unlink()
        done.append(f"removed the unfinished {part}")
    if path.exists():
        if _label(path) != LABEL:
            return [*done, f"{path} is not ours and stays"]
        _swap_off(path)
        path.unlink()
        done.append(f"removed {path}")
    return done


def make(path: Path, total: int, reserve: int) -> list[str]:
    """Make as much swap as is missing to `total` and switch it on; returns what was done, in words."""
    if path.exists() and _label(path) != LABEL:
        raise SwapProblem(f"{path} exists and is not ours: it stays as it is; choose another host_build_swap_file")
    done = remove(path)  # of a build that a power failure ended
    memory = parse_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
    size = size_for(memory, total)
    if size == 0:
        has = f"{memory.ram / GIB:.0f} GiB of RAM and {memory.swap_free / GIB:.0f} GiB of free swap"
        return [*done, f"{has} are enough for a build of {total / GIB:.0f} GiB: no swap is made"]
    kind = file_system_of(str(path.resolve()), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    how = method(kind)
    folder = path.parent
    space = os.statvfs(folder)
    check_space(size, space.f_bavail * space.f_frsize, reserve, str(folder))
    part = path.with_name(path.name + ".part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.close(descriptor)
        if how == "nocow":
            _run("chattr", "+C", str(part))
        if how == "write":
            _run("dd", "if=/dev/zero", "bs=4M", f"count={size // (4 << 20)}", "conv=fsync", "status=none", f"of={part}")
        else:
            _run("fallocate", "--length", str(size), str(part))
        _run("mkswap", "--label", LABEL, str(part))
        os.link(part, path)  # fails where a file came into being meanwhile
        part.unlink()
        _run("swapon", str(path))
    except OSError as error:
        raise SwapProblem(f"{error.strerror}: {error.filename}") from error
    return [*done, f"switched on {size / GIB:.0f} GiB of swap in {path} ({kind}, {how})"]


def main(arguments: list[str]) -> int:
    """Make or remove the swap file; return 0, or 1 where there is no swap and a build must not start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["make", "remove"])
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--total-gib", type=int, default=0, help="what RAM and swap are to be together")
    parser.add_argument("--reserve-gib", type=int, default=0, help="what must stay free on the disk")
    given = parser.parse_args(arguments)
    try:
        if given.action == "remove":
            done = remove(given.file)
        else:
            done = make(given.file, given.total_gib * GIB, given.reserve_gib * GIB)
    except (SwapProblem, OSError) as problem:
        sys.stderr.write(f"no swap for the build: {problem}\n")
        return 1
    sys.stdout.write(f"{'; '.join(done) or 'nothing to do'}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
