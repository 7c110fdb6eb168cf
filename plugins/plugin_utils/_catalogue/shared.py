# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Share one reading of the catalogue between the processes of a run, each of which begins with nothing read."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .catalogue import load_catalogue
from .places import WeightsSettings
from .reading import SHIPPED
from .stacks import load_stacks


@dataclass(frozen=True)
class Reading:
    """Everything that decides what a catalogue holds."""

    folders: tuple[Path, ...]
    stack_folders: tuple[Path, ...]
    inline: Mapping[str, Any]
    site: WeightsSettings

    def profiles(self) -> dict[str, dict[str, Any]]:
        """Return the complete profiles by name, as :func:`load_catalogue` does."""
        return self._profiles(load_stacks(self.stack_folders))

    def shared(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Return :meth:`profiles`, read once by all that use ``folder`` while no file changes; faults are not kept."""
        stacks = shared_stacks(self.stack_folders, folder)
        return _once(folder, f"catalogue-{self._digest()}", lambda: self._profiles(stacks))

    def _profiles(self, stacks: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return load_catalogue(self.folders, self.inline, stacks, self.site)

    def _digest(self) -> str:
        return _digest_of(
            (SHIPPED / "catalogue", SHIPPED / "stacks", *self.folders, *self.stack_folders),
            (list(map(str, self.stack_folders)), self.inline, dataclasses.asdict(self.site)),
        )


def shared_stacks(folders: Sequence[Path], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the stack manifests as :func:`load_stacks` does, read once for all that share ``folder``."""
    name = f"stacks-{_digest_of((SHIPPED / 'stacks', *folders), ())}"
    return _once(folder, name, lambda: load_stacks(folders))


def _once(folder: Path, name: str, read: Callable[[], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Only the first process reads; those that ask meanwhile wait for it."""
    kept = folder / f"b70-{name}.json"
    try:
        with (folder / f"{kept.stem}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH if kept.exists() else fcntl.LOCK_EX)
            if kept.exists():
                found: dict[str, dict[str, Any]] = json.loads(kept.read_bytes())
                return found
            everything = read()
            kept.write_text(json.dumps(everything), encoding="utf-8")
            return everything
    except (OSError, json.JSONDecodeError):  # a full or read-only disk of the controller costs time, no more
        return read()


def _digest_of(folders: Sequence[Path], given: Any) -> str:
    files = [
        (str(path), status.st_mtime_ns, status.st_size)
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        for status in [path.stat()]
    ]
    told = (list(map(str, folders)), given, files)
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
