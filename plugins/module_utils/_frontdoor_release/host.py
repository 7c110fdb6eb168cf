# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effects of a release on this host: files, links, groups, systemd, and the question for its health."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _desired_state, _files
from .._python_environment.host import RECORD
from .._slot.host.commands import said
from .._slot.host.http import HttpClient
from .types import (
    COMMAND_LIMIT_S,
    SOCKET,
    UNIT,
    Await,
    File,
    HostBefore,
    Identity,
    Keep,
    LastRelease,
    MakeDirectory,
    MakeLink,
    Move,
    ReleaseFault,
    ReleasePaths,
    Reload,
    Remove,
    RunCommand,
    ServiceState,
    Step,
    Write,
)

ASK_EVERY_S = 1.0
ANSWER_LIMIT_S = 5.0
JOURNAL_LINES = 20
# The second is what the record of an environment was called before.
RECORDS = (RECORD, "installed")


def installed(environment: str) -> bool:
    """Tell whether an environment was installed completely."""
    return Path(environment, RECORD).is_file()


def look(place: ReleasePaths, url: str) -> HostBefore:
    """Return what a host has of a release. url: where to ask which build serves; empty asks nobody."""
    paths = (*place.kept_files, *place.key_files, place.record_file, place.link, place.config_dir)
    folders = dict.fromkeys((place.directory, str(Path(place.link).parent), place.config_dir))
    return HostBefore(
        files={path: _desired_state.file_facts(path) for path in paths},
        texts=_texts((*place.kept_files, place.record_file)),
        children={path: tuple(str(child) for child in Path(path).iterdir()) for path in folders if os.path.isdir(path)},
        units=_unit_states((UNIT, SOCKET)),
        group=_has_group(place.group),
        answers=ReleaseHost().answers(url) if url else "",
        own_folder=any(Path(place.link, name).exists() for name in RECORDS),
    )


def _texts(paths: Sequence[str]) -> dict[str, str]:
    return _files.texts(Path(path) for path in paths)


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _unit_states(units: Sequence[str]) -> dict[str, ServiceState]:
    show = ("systemctl", "show", "--property=ActiveState,UnitFileState", "--", *units)
    try:
        blocks = _run(show).strip().split("\n\n")
    except ReleaseFault:
        blocks = []
    states = dict.fromkeys(units, ServiceState())
    for unit, block in zip(units, blocks, strict=False):
        lines = block.splitlines()
        states[unit] = ServiceState("UnitFileState=enabled" in lines, "ActiveState=active" in lines)
    return states


def _run(argv: Sequence[str], limit_s: float = COMMAND_LIMIT_S) -> str:
    """Return the output of a command; raise ReleaseFault with its words where it fails."""
    return said(argv, limit_s, ReleaseFault, env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"})


class ReleaseHost:
    """The effects, as root."""

    def do(self, step: Step) -> None:
        try:
            self._do(step)
        except OSError as error:
            raise ReleaseFault(f"{error.filename or 'the host'}: {error.strerror}") from None

    def _do(self, step: Step) -> None:
        match step:
            case Write(file):
                _write(file)
            case MakeDirectory(path):
                os.makedirs(path, exist_ok=True)
                os.chown(path, 0, 0)
                os.chmod(path, 0o755)
            case Move(source, target):
                if os.path.lexists(target):
                    raise ReleaseFault(f"{target} exists; move it away")
                os.rename(source, target)
            case MakeLink(path, target):
                _link(path, target)
            case Remove(path):
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    Path(path).unlink(missing_ok=True)
            case RunCommand(argv, _told, limit_s):
                _run(argv, limit_s)
            case Keep(place, identity):
                _keep(place, identity)
            case Await(identity, limit_s):
                self._await(identity, limit_s)
            case Reload(identity, limit_s, restart):
                _run(("systemctl", "reload", UNIT))
                if self._await(identity, limit_s, reloaded=True):
                    _run(restart.argv, restart.limit_s)
                    self._await(identity, limit_s)

    def kept(self, place: ReleasePaths) -> LastRelease:
        texts = _texts([place.kept(path) for path in place.kept_files] + [place.record_file])
        record = texts.get(place.record_file)
        return LastRelease(
            identity=Identity.parse(record) if record else None,
            texts={path: texts[place.kept(path)] for path in place.kept_files if place.kept(path) in texts},
            folder=os.path.isdir(place.link) and not os.path.islink(place.link),
        )

    def answers(self, url: str) -> str:
        return str(self._said(url).get("build", ""))

    def _said(self, url: str) -> Mapping[str, Any]:
        """Return the frontdoor's own part of its status; empty where none answers."""
        try:
            return dict(json.loads(HttpClient().get(url, ANSWER_LIMIT_S).text)["frontdoor"])
        except (ValueError, KeyError, TypeError):
            return {}

    def journal(self) -> list[str]:
        """Return the last lines of the journal about the latest start alone."""
        try:
            start = _run(("systemctl", "show", "--property=InvocationID", "--value", UNIT)).strip()
            fields = (f"_SYSTEMD_INVOCATION_ID={start}", "+", "_PID=1", f"INVOCATION_ID={start}")
            command = ("journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={JOURNAL_LINES}", *fields)
            return _run(command).splitlines() if start else []
        except ReleaseFault:
            return []

    def _await(self, identity: Identity, limit_s: float, *, reloaded: bool = False) -> list[str]:
        """Wait for a build. Of a process that was reloaded, returns the settings that it needs a restart for."""
        until = time.monotonic() + limit_s
        while (build := (said := self._said(identity.url)).get("build", "")) != identity.build:
            if reloaded and said.get("restart_needed"):
                return list(said["restart_needed"])
            if time.monotonic() >= until:
                seen = f"another build, {build}" if build else "nobody"
                wrong = f": {said['settings_error']}" if said.get("settings_error") else ""
                raise ReleaseFault(f"{seen} answered within {limit_s:g} s{wrong}")
            time.sleep(ASK_EVERY_S)
        return []


def _write(file: File) -> None:
    content = (file.content or "").encode()
    if file.check:
        # A unit is judged by its name too.
        with tempfile.TemporaryDirectory(prefix="b70-frontdoor-") as folder:
            copy = Path(folder, Path(file.path).name)
            copy.write_bytes(content)
            _run((*file.check, str(copy)))
    group = grp.getgrnam(file.group).gr_gid
    _files.replace(Path(file.path), content, int(file.mode, 8), (os.geteuid(), group))


def _link(path: str, target: str) -> None:
    """Replace a link in one step."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink(target, new)
    try:
        os.replace(new, path)
    except OSError:
        os.unlink(new)
        raise


def _keep(place: ReleasePaths, identity: Identity) -> None:
    """Keep copies of the release that serves.

    The old copies go first and the record is written last, so copies with a record are complete.
    """
    shutil.rmtree(place.kept_dir, ignore_errors=True)
    os.makedirs(place.kept_dir)
    os.chmod(place.kept_dir, 0o755)
    texts = _texts(place.kept_files)
    files = {place.kept(path): text for path, text in texts.items()} | {place.record_file: identity.text}
    for path, text in files.items():
        _files.replace(Path(path), text.encode(), 0o644)
