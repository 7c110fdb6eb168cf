# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of work on a host that ends with a record: what the work was asked, and what became of it.

The folder has `given.json` (what was asked, written once), `out/seen.json` (what was seen so far, written by the unit),
`program.zip` (the archive that the unit runs) and `result.json` (which record became of it, written by the module).
Beside it is the lock for those who begin work or make its record.
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
from .._slot.host.files import foreign, make_directory
from .._slot.kinds.table import kind_of
from .._slot.model.profile import Profile
from .._slot.model.state_file import stamp
from .._slot.words.effects import Effects
from .lock import hold

_VERSION_S = 5.0
LOCK_LIMIT_S = 180.0  # its holder asks systemd a few times, for at most 60 s each


class WorkError(Exception):
    """Work can't be begun, or its files can't be read."""


@dataclass(frozen=True)
class Work:
    """One kind of work on a slot."""

    folder: Path
    unit: str

    @property
    def out(self) -> Path:
        """Return the folder that the unit may write to."""
        return self.folder / "out"

    def alone(self) -> AbstractContextManager[None]:
        """Hold the folder against other calls, for example from the look that finds no work until the unit runs."""
        make_directory(PurePosixPath(self.folder.parent))
        return hold(self.folder.with_name(f".{self.folder.name}.lock"), LOCK_LIMIT_S, WorkError)

    def given(self) -> dict[str, Any] | None:
        return self._read(self.folder / "given.json")

    def seen(self) -> dict[str, Any] | None:
        return self._read(self.out / "seen.json")

    def result(self) -> dict[str, Any] | None:
        return self._read(self.folder / "result.json")

    def begun_by(self, token: str) -> bool:
        """Return whether a play with this token began the work, and asks again since the answer was lost."""
        return bool(token) and (self.given() or {}).get("token") == token

    def told(self) -> bool:
        """Return whether any play was told the result."""
        return _told_to(self.result()) is not None

    def told_to_another(self, token: str) -> bool:
        """Return whether another play was told the result, and no play with this token began the work."""
        told_to = _told_to(self.result())
        return told_to is not None and (not token or told_to != token) and not self.begun_by(token)

    def save_seen(self, seen: Mapping[str, Any]) -> None:
        _write(self.out / "seen.json", seen)

    def save_result(self, result: Mapping[str, Any]) -> None:
        _write(self.folder / "result.json", result)

    def tell(self, result: Mapping[str, Any], token: str) -> None:
        """Note that the play with this token was told the result, if there is one. The first note stays."""
        if result:
            self.save_result({"told_to": token, **result})

    def prepare(self, given: Mapping[str, Any], archive: Path, user: str = "", secret: str = "") -> None:
        """Make the folder anew; the caller holds it. user: the unit's user, root if empty. secret: for root alone."""
        self.remove()
        make_directory(PurePosixPath(self.out))
        if user:
            entry = pwd.getpwnam(user)
            os.chown(self.out, entry.pw_uid, entry.pw_gid)
        shutil.copyfile(archive, self.folder / "program.zip")
        (self.folder / "program.zip").chmod(0o644)
        if secret:
            _files.replace(self.folder / "secret", secret.encode(), 0o600)
        _write(self.folder / "given.json", given)

    def secret(self) -> str:
        """Return what only the unit may know, and delete it."""
        file = self.folder / "secret"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.unlink(missing_ok=True)
        return text

    def argv(self, module: str) -> tuple[str, ...]:
        """Return the unit's command, which calls `main(folder)` of a module in the archive."""
        code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2])"
        return (sys.executable, "-c", code, str(self.folder / "program.zip"), str(self.folder))

    def last_seen_at(self) -> str:
        """Return when the unit last wrote, or was begun, in UTC."""
        file = self.out / "seen.json"
        moment = (file if file.exists() else self.folder / "given.json").stat().st_mtime
        return stamp(datetime.fromtimestamp(moment, UTC))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            return _mapping(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise WorkError(f"{path} is damaged ({error}); remove {self.folder} and run the same again") from error


def _told_to(result: Mapping[str, Any] | None) -> str | None:
    """Return the token of the play that was told the result; older results have it as `collected_by`."""
    found = result or {}
    told_to: str | None = found.get("told_to", found.get("collected_by"))
    return told_to


def _mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a file whose folder another user may write to. Pipes, links and large files do no harm."""
    found = json.loads(foreign(PurePosixPath(path)))
    if not isinstance(found, dict):
        raise ValueError("not a mapping")
    return found


def asked_version(fx: Effects, profile: Profile) -> str:
    """Return the engine's answer where engines of its kind tell their version."""
    path, _key = kind_of(profile.engine.kind).version_at
    return fx.http.get(f"{profile.engine.backend_url}{path}", _VERSION_S).text


def engine_of(kind: str, version: str) -> dict[str, str]:
    """Return the engine of a record. version: the answer where engines of its kind tell their version."""
    try:
        return {"name": kind, "version": str(json.loads(version)[kind_of(kind).version_at[1]])}
    except (ValueError, LookupError, TypeError):
        return {"name": kind, "version": "unknown"}


def _write(path: Path, data: Mapping[str, Any]) -> None:
    _files.replace(path, json.dumps(data).encode(), 0o644)
