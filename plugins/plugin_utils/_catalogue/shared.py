# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Share one reading of the catalogue between the processes of a run, each of which begins with nothing read."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .catalogue import load_catalogue
from .places import Site
from .reading import SHIPPED
from .stacks import load_stacks


@dataclass(frozen=True)
class Reading:
    """Everything that decides what a catalogue holds."""

    folders: tuple[Path, ...]
    stack_folders: tuple[Path, ...]
    inline: Mapping[str, Any]
    site: Site

    def profiles(self) -> dict[str, dict[str, Any]]:
        """Return the complete profiles by name, as :func:`load_catalogue` does."""
        return load_catalogue(self.folders, self.inline, load_stacks(self.stack_folders), self.site)

    def shared(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Return :meth:`profiles`, read once for all that share ``folder``, while no file changes.

        Only the first process reads; those that ask meanwhile wait for it. Faults are not kept.
        """
        kept = folder / f"b70-catalogue-{self._digest()}.json"
        try:
            with (folder / "b70-catalogue.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH if kept.exists() else fcntl.LOCK_EX)
                if kept.exists():
                    found: dict[str, dict[str, Any]] = json.loads(kept.read_bytes())
                    return found
                profiles = self.profiles()
                kept.write_text(json.dumps(profiles), encoding="utf-8")
                return profiles
        except (OSError, json.JSONDecodeError):  # a full or read-only disk of the controller costs time, no more
            return self.profiles()

    def _digest(self) -> str:
        files = [(str(path), status.st_mtime_ns, status.st_size) for path, status in _files(self)]
        given = (
            list(map(str, (*self.folders, *self.stack_folders))),
            self.inline,
            dataclasses.asdict(self.site),
            files,
        )
        return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()


def _files(reading: Reading) -> Iterator[tuple[Path, Any]]:
    for folder in (SHIPPED / "catalogue", SHIPPED / "stacks", *reading.folders, *reading.stack_folders):
        if folder.is_dir():
            yield from ((path, path.stat()) for path in sorted(folder.iterdir()))
