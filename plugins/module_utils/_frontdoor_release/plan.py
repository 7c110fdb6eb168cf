# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what is wanted and what a host was found to be to steps in their order. Pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from .._desired_state import file_differences
from .._slot.words.redact import clean
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
    Release,
    ReleasePaths,
    ReleasePlan,
    Reload,
    Remove,
    RunCommand,
    Step,
    Write,
    program_of,
)

REREAD = RunCommand(("systemctl", "daemon-reload"), "make systemd reread its units")
ABSENT = {"state": "absent"}


def enable(unit: str) -> RunCommand:
    return RunCommand(("systemctl", "enable", unit), f"enable {unit}")


def restart(unit: str, limit_s: float = COMMAND_LIMIT_S) -> RunCommand:
    return RunCommand(("systemctl", "restart", unit), f"make sure that {unit} runs what is configured", limit_s)


def disable(unit: str, limit_s: float = COMMAND_LIMIT_S) -> RunCommand:
    return RunCommand(("systemctl", "disable", "--now", unit), f"stop and disable {unit}", limit_s)


def aside(place: ReleasePaths) -> str:
    """Return where a folder goes that has the link's place."""
    return f"{place.link}-before"


def _differs(file: File, found: HostBefore) -> bool:
    if file.content is None:
        return _exists(file.path, found)
    digest = hashlib.sha256(file.content.encode()).hexdigest()
    wanted = {"path": file.path, "state": "file", "owner": "root", "group": file.group, "mode": file.mode}
    return bool(file_differences([{**wanted, "sha256": digest}], found.files))


def _exists(path: str, found: HostBefore) -> bool:
    return bool(found.files.get(path, ABSENT)["state"] != "absent")


def _is_folder(place: ReleasePaths, found: HostBefore) -> bool:
    return bool(found.files[place.link]["state"] == "directory")


def _in_use(place: ReleasePaths, found: HostBefore) -> str:
    """Return the environment that the link names."""
    return found.files[place.link]["target"] or aside(place)


def _environments(place: ReleasePaths, found: HostBefore) -> list[str]:
    """Return the environments that this role has made: folders beside the link, named after what is in them."""
    link = PurePosixPath(place.link)
    name = re.compile(rf"{re.escape(link.name)}-([0-9a-f]{{12}}|before)")
    return sorted(path for path in found.children.get(str(link.parent), ()) if name.fullmatch(PurePosixPath(path).name))


def presence(release: Release, found: HostBefore) -> ReleasePlan:
    """Plan the way to a release whose environment is installed; empty where all is as wanted."""
    return ReleasePlan(_keep(release, found), _activate(release, found), _finish(release, found))


def _keep(release: Release, found: HostBefore) -> tuple[Step, ...]:
    """Record what serves on a host without a record; only files of the process that answers are worth it."""
    place, unit = release.place, found.texts.get(release.units[0].path, "")
    known = _exists(place.record_file, found) or not _exists(place.link, found)
    if known or not found.answers or program_of(found.answers) not in unit:
        return ()
    return (Keep(place, Identity(found.answers, _in_use(place, found), release.identity.url)),)


def _activate(release: Release, found: HostBefore) -> tuple[Step, ...]:
    place, identity = release.place, release.identity
    unit, *helper = release.units
    steps: list[Step] = []
    wanted = {"path": place.config_dir, "state": "directory", "owner": "root", "group": "root", "mode": "0755"}
    if file_differences([wanted], found.files):
        steps.append(MakeDirectory(place.config_dir))
    if not found.group:
        steps.append(RunCommand(("groupadd", "--system", place.group), f"make the group {place.group}"))
    steps += [Write(file) for file in release.keys if file.content is not None and _differs(file, found)]
    steps += [Write(release.config)] if _differs(release.config, found) else []
    if _is_folder(place, found):
        steps.append(Move(place.link, aside(place)))
    # In one step: whoever starts the service finds the one before or this one. A process that runs has read its files.
    if found.files[place.link]["target"] != identity.environment:
        steps.append(MakeLink(place.link, identity.environment))
    changed = [file for file in (unit, *helper) if _differs(file, found)]
    steps += [Write(file) for file in changed if file.content is not None]
    gone = [file for file in changed if file.content is None]
    if any(file.path.endswith(SOCKET) for file in gone):
        steps.append(disable(SOCKET))
    steps += [Remove(file.path) for file in gone]
    # The answer tells which build runs. A process of another program is a reason to restart it; one with other settings
    # reads them again, and says where that is not enough.
    service: list[Step] = [] if found.units[UNIT].enabled else [enable(UNIT)]
    again = restart(UNIT, _restart_limit(release))
    starts = program_of(found.answers) != identity.program or not found.units[UNIT].active
    if starts:
        service += [again, Await(identity, release.start_timeout)]
    elif found.answers != identity.build:
        service.append(Reload(identity, release.start_timeout, again))
    # Before a start in any case: an interrupted run may have written units too.
    steps += [REREAD] if changed or starts else []
    if helper[-1].content is not None:
        state = found.units[SOCKET]
        steps += [] if state.enabled else [enable(SOCKET)]
        # A process that listens keeps the group that it was started with.
        steps += [restart(SOCKET)] if set(helper) & set(changed) or not state.active else []
    return (*steps, *service)


def _restart_limit(release: Release) -> float:
    return release.stop_timeout + release.start_timeout + COMMAND_LIMIT_S


def _finish(release: Release, found: HostBefore) -> tuple[Step, ...]:
    """Return the steps for when the release serves; until then whatever ran before may need the rest."""
    place, identity = release.place, release.identity
    steps: list[Step] = []
    if found.texts.get(place.record_file) != identity.text:
        steps.append(Keep(place, identity))
    steps += [Remove(file.path) for file in release.keys if file.content is None and _exists(file.path, found)]
    if found.files[place.link]["target"] != identity.environment:
        stay = (identity.environment, _in_use(place, found))
        steps += [Remove(path) for path in _environments(place, found) if path not in stay]
    return tuple(steps)


def way_back(release: Release, was: Identity, kept: LastRelease) -> tuple[Step, ...]:
    """Return the steps that put back the files of the previous release, up to the start of the service."""
    place = release.place
    steps: list[Step] = [Write(File(path, text)) for path, text in kept.texts.items()]
    # A folder that is still there could not be moved aside, and is what served.
    steps += [] if kept.folder else [MakeLink(place.link, was.environment)]
    had = any(path.endswith(SOCKET) for path in kept.texts)
    # Stopped while systemd knows it.
    steps += [] if had else [disable(SOCKET)]
    steps += [Remove(path) for path in place.kept_files if path not in kept.texts]
    return (*steps, REREAD, *([enable(SOCKET), restart(SOCKET)] if had else []))


def start_again(release: Release, was: Identity) -> tuple[Step, ...]:
    """Return the steps that start the previous release, with its files in place."""
    return restart(UNIT, _restart_limit(release)), Await(was, release.start_timeout)


def absence(place: ReleasePaths, found: HostBefore, stop_timeout: int) -> ReleasePlan:
    """Plan the removal of all that the role has made, and of nothing else that somebody put there."""
    units = [path for path in place.unit_files if _exists(path, found)]
    steps: list[Step] = [
        disable(unit, stop_timeout + COMMAND_LIMIT_S) for unit in (UNIT, SOCKET) if f"{place.unit_dir}/{unit}" in units
    ]
    steps += [Remove(path) for path in units]
    steps += [REREAD] if units else []
    archive = re.compile(rf"{re.escape(place.directory)}/b70_frontdoor-[^/]*[.]tar[.]gz")
    ours = [place.config_file, *place.key_files, place.kept_dir, *([place.link] if found.own_folder else [])]
    inside = {path for paths in found.children.values() for path in paths}
    gone = {path for path in inside if path in ours or archive.fullmatch(path)} | set(_environments(place, found))
    steps += [Remove(path) for path in sorted(gone)]
    for folder in dict.fromkeys((place.directory, place.config_dir)):
        if folder in found.children and not set(found.children[folder]) - gone:
            steps.append(Remove(folder))
    if found.group:
        steps.append(RunCommand(("groupdel", place.group), f"remove the group {place.group}"))
    return ReleasePlan(activate=tuple(steps))


def diff(steps: Iterable[Step], found: HostBefore) -> list[dict[str, str]]:
    """Return Ansible's diff: the texts of files that anybody may see, and a list of everything else."""
    entries, gone, other = [], [], []
    for step in steps:
        if isinstance(step, Write) and not step.file.secret:
            path = step.file.path
            texts = {"before": found.texts.get(path, ""), "after": step.file.content or ""}
            entries.append({"before_header": path, "after_header": path, **texts})
        elif isinstance(step, Remove):
            gone.append(f"{step.path}\n")
        else:
            other.append(f"{step.told}\n")
    if gone or other:
        header = {"before_header": "the release", "after_header": "the release"}
        entries.append({**header, "before": "".join(gone), "after": "".join(other)})
    return entries


def summary(steps: Iterable[Step], *, check_mode: bool) -> str:
    """Return the steps as one line for people."""
    told = [step.told for step in steps]
    if not told:
        return "as wanted, nothing to do"
    return "; ".join(f"would {text}" for text in told) if check_mode else f"done: {'; '.join(told)}"


def redacted(lines: Iterable[str]) -> list[str]:
    """Return lines without what a program that is not ours may have said of keys, digests of keys among them."""
    text = "\n".join(lines)
    return clean(text, re.findall("sha256:([0-9a-fA-F]{64})", text)).splitlines()
