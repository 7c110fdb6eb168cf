# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files: their digests, and small ones that are replaced in one step: what differs, the diff, the writing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WantedFile:
    """A file as it must be. content: None for a file that must not exist."""

    path: Path
    content: bytes | None
    mode: int = 0o644


def sha256(path: str | Path) -> str:
    """Return the hex digest of a file, which may be large."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_of(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def texts(paths: Iterable[Path]) -> dict[str, str]:
    """Return path to text for the files that exist."""
    contents = ((path, content_of(path)) for path in paths)
    return {str(path): content.decode(errors="replace") for path, content in contents if content is not None}


def differing(files: Iterable[WantedFile]) -> list[WantedFile]:
    """Return those of `files` whose content or mode is not as wanted."""
    found = []
    for item in files:
        if content_of(item.path) != item.content or (
            item.content is not None and stat.S_IMODE(item.path.stat().st_mode) != item.mode
        ):
            found.append(item)
    return found


def _shown(content: bytes | None) -> str:
    if content is None:
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"({len(content)} bytes)\n"


def diffs(files: Iterable[WantedFile]) -> list[dict[str, str]]:
    """Return Ansible's diff of `files` against what exists. Binary content is shown as its size."""
    return [
        {
            "before_header": str(item.path),
            "after_header": str(item.path),
            "before": _shown(content_of(item.path)),
            "after": _shown(item.content),
        }
        for item in files
    ]


def write(files: Iterable[WantedFile]) -> None:
    """Make `files` what they must be. A missing directory is made with mode 0755."""
    for item in files:
        if item.content is None:
            item.path.unlink(missing_ok=True)
            continue
        item.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace(item.path, item.content, item.mode)


def replace(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file in one step: after a crash it is the old one or the new one. owner: user and group id."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
