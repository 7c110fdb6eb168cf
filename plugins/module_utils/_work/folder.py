# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of work on a host: what the work was asked, and what became of it.

The folder has `given.json` (what was asked, written once), `out/seen.json` (what was seen so far, written by the unit),
`program.zip` (the archive that the unit runs) and `result.json` (what became of it, written by the module). Beside it
is the lock for those who begin work or collect it.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from .. import _files
from .._lock import hold
from .._slot.host.files import foreign, make_directory
from .._slot.model.state_file import stamp

LOCK_LIMIT_S = 180.0  # its holder asks systemd a few times, for at most 60 s each
_LINE_CHARS = 300


class WorkError(Exception):
    """Work can't be begun, or its files can't be read."""


@dataclass(frozen=True)
class WorkFolder:
    """The files of one piece of work. locks: where its lock is, if not beside it."""

    path: Path
    locks: Path | None = None

    @property
    def out(self) -> Path:
        """Return the folder that the unit may write to."""
        return self.path / "out"

    @property
    def program(self) -> Path:
        return self.path / "program.zip"

    def alone(self) -> AbstractContextManager[None]:
        """Hold the folder against other calls, for example from the look that finds no work until the unit runs."""
        place = self.locks or self.path.parent
        make_directory(PurePosixPath(place))
        return hold(place / f".{self.path.name}.lock", LOCK_LIMIT_S, WorkError)

    def given(self) -> dict[str, Any] | None:
        return self.read(self.path / "given.json")

    def seen(self) -> dict[str, Any] | None:
        return self.read(self.out / "seen.json")

    def result(self) -> dict[str, Any] | None:
        return self.read(self.path / "result.json")

    def save_seen(self, seen: Mapping[str, Any]) -> None:
        _write(self.out / "seen.json", seen)

    def save_result(self, result: Mapping[str, Any]) -> None:
        _write(self.path / "result.json", result)

    def prepare(self, archive: Path) -> None:
        """Make the folder anew, with the program; the caller holds it."""
        self.remove()
        make_directory(PurePosixPath(self.out))
        shutil.copyfile(archive, self.program)
        self.program.chmod(0o644)

    def give(self, given: Mapping[str, Any], user: str = "", secret: str = "") -> None:
        """Write what is asked. user: the unit's user, root if empty. secret: for root alone."""
        if user:
            entry = pwd.getpwnam(user)
            os.chown(self.out, entry.pw_uid, entry.pw_gid)
        if secret:
            _files.replace(self.path / "secret", secret.encode(), 0o600)
        _write(self.path / "given.json", given)

    def secret(self) -> str:
        """Return what only the unit may know, and delete it."""
        file = self.path / "secret"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.unlink(missing_ok=True)
        return text

    def argv(self, module: str) -> tuple[str, ...]:
        """Return the unit's command, which calls `main(folder)` of a module in the archive."""
        code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2])"
        return (sys.executable, "-c", code, str(self.program), str(self.path))

    def last_seen_at(self) -> str:
        """Return when the unit last wrote, or was begun, in UTC."""
        file = self.out / "seen.json"
        moment = (file if file.exists() else self.path / "given.json").stat().st_mtime
        return stamp(datetime.fromtimestamp(moment, UTC))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def read(self, path: Path) -> dict[str, Any] | None:
        """Return what a file has, which another user may have written; None if it is not there."""
        try:
            return _mapping(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise WorkError(f"{path} is damaged ({error}); remove {self.path} and run the same again") from error


def own_archive() -> Path:
    """Return the archive from which this module was imported, which Ansible removes when the module ends."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is None:
        raise WorkError(
            "the module does not run from the archive that Ansible makes of it, so it can't be left to systemd"
        )
    return Path(archive)


def last_line(path: str) -> str:
    """Return the end of a log, or nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:_LINE_CHARS] if lines else ""


def _mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a file whose folder another user may write to. Pipes, links and large files do no harm."""
    found = json.loads(foreign(PurePosixPath(path)))
    if not isinstance(found, dict):
        raise ValueError("not a mapping")
    return found


def _write(path: Path, data: Mapping[str, Any]) -> None:
    _files.replace(path, json.dumps(data).encode(), 0o644)
