# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the files of a slot on a host to what was rendered: plan, validate all, then write. No Ansible import.

Effects other than the file system go through ``run(argv) -> (exit code, output, errors)``; 127 means "no such program".
"""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import json
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import _files
from ._environment import PLAIN
from ._slot.host.caller import caller
from ._slot.host.clock import SystemClock
from ._slot.host.files import HostFiles
from ._slot.host.locks import FileLocks
from ._slot.look.journal import remembered
from ._slot.model.state_file import stamp
from ._slot.words.effects import RENDERING
from ._slot.words.types import EXCLUSIVE, SlotFault
from ._slot_paths import (
    NAMED,
    Directory,
    Held,
    RenderedFile,
    Run,
    SlotFilesError,
    SlotPaths,
    check_slot,
    drop_ins,
    in_use,
    show,
    stay,
    text_of,
    written_profiles,
)

_NO_PROGRAM = re.compile(r"^(\S+): Command .* is not executable: No such file or directory$")
_ENV_LINE = re.compile(r'(#.*|[A-Z_][A-Z0-9_]*="(?:[^"\\`$\n]|\\["\\`$])*")?')
_PLAIN_ENV_LINE = re.compile(r"(#.*|[A-Z_][A-Z0-9_]*=.*)?")


@dataclass
class SlotFilesPlan:
    """The plan for the files of a slot; ``before`` holds the present text of every file to be written that exists.

    ``held``: profiles in use whose rendering waits for a switch.
    """

    directories: list[Directory] = field(default_factory=list)
    writes: list[RenderedFile] = field(default_factory=list)
    removals: list[Path] = field(default_factory=list)
    links: dict[Path, Path] = field(default_factory=dict)
    before: dict[Path, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reload_needed: bool = False
    starts: bool = False
    units: list[RenderedFile] = field(default_factory=list)

    @property
    def units_changed(self) -> bool:
        return any(_of_unit(path) for path in [*(item.path for item in self.writes), *self.removals])

    @property
    def changed(self) -> bool:
        return bool(self.directories or self.writes or self.removals or self.links or self.reload_needed or self.starts)


def _of_unit(path: Path) -> bool:
    return path.suffix == ".service" or _is_drop_in(path)


def _is_drop_in(path: Path) -> bool:
    return path.name == EXCLUSIVE


def _has_program(unit: str) -> bool:
    """Return whether the program that a unit starts is on the host."""
    program = re.search(r'^ExecStart=[-@:+!|]*"?([^\s"]+)', unit, re.M)
    return program is None or not Path(program[1]).is_absolute() or Path(program[1]).exists()


def _differs(item: RenderedFile, owner: tuple[int, int]) -> bool:
    try:
        status = item.path.lstat()
    except FileNotFoundError:
        return True
    except NotADirectoryError as error:
        raise SlotFilesError(f"{item.path} cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SlotFilesError(f"{item.path} exists and is no regular file; move it away")
    same = stat.S_IMODE(status.st_mode) == int(item.mode, 8) and (status.st_uid, status.st_gid) == owner
    return not same or text_of(item.path) != item.content


def owner_ids(user: str, group: str) -> tuple[int, int]:
    """Return the user and group ids of names; raise SlotFilesError when one does not exist."""
    try:
        return pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise SlotFilesError(
            f"the owner {user}:{group} does not exist on this host; run the role host first"
        ) from error


def numbered(content: str) -> str:
    """Return a text with the numbers of accounts in place of ``@uid:NAME@`` and ``@gid:NAME@``.

    Names of accounts that the host does not have yet stay, which only a prediction sees: the role host makes them.
    """

    def number(match: re.Match[str]) -> str:
        try:
            return str(pwd.getpwnam(match[2]).pw_uid if match[1] == "uid" else grp.getgrnam(match[2]).gr_gid)
        except KeyError:
            return match[0]

    return re.sub(r"@(uid|gid):([^@\s]+)@", number, content)


def _check_paths(files: Sequence[RenderedFile], place: SlotPaths) -> None:
    seen = set()
    for item in files:
        ours = item.path.parent == place.profiles_dir and item.path.suffix in (".json", ".env")
        unit = item.path.parent == place.unit_dir and item.path.name.startswith(place.prefix)
        boot = item.path.parent.name == "tmpfiles.d" and item.path.name == f"b70-slot-{place.slot}.conf"
        program = item.path in (place.command, place.completion) or (
            item.path.is_relative_to(place.program_dir) and item.path.suffix == ".py" and ".." not in item.path.parts
        )
        account = item.path == place.profiles_dir.parent / "account.env"
        known = ours or boot or program or account or item.path in (*place.own_units, place.slot_file)
        if not known and not (unit and item.path.suffix == ".service"):
            raise SlotFilesError(f"{item.path} is no file of slot {place.slot}; leave the files to the option settings")
        if item.path in seen:
            raise SlotFilesError(f"{item.path} is given twice")
        seen.add(item.path)


def lacking(directories: Sequence[Directory]) -> list[Directory]:
    """Return the directories that are missing, or admit others although their mode does not; raise SlotFilesError for
    what is in the way of one."""
    for directory in directories:
        if directory.path.exists() and not directory.path.is_dir():
            raise SlotFilesError(f"{directory.path} exists and is no directory; move it away")
    return [directory for directory in directories if not directory.path.exists() or _admits_others(directory)]


def _admits_others(directory: Directory) -> bool:
    return not int(directory.mode, 8) & stat.S_IRWXO and bool(directory.path.stat().st_mode & stat.S_IRWXO)


def planned_files(plan: SlotFilesPlan, place: SlotPaths) -> list[dict[str, str]]:
    """Return ``[{path, content}]`` of profiles, environments, units and what waits: what check mode tells a switch.

    A file that would wait no longer has an empty text.
    """
    ours = (".json", ".env", ".service")
    files = {str(item.path): item.content for item in plan.writes if item.path.suffix in ours}
    gone = [path for path in plan.removals if path.parent == Path(place.layout.pending_dir)]
    files |= {str(held.file): held.new.to_json() for held in plan.held} | {str(path): "" for path in gone}
    return [{"path": path, "content": content} for path, content in files.items()]


def make_plan(
    files: Sequence[RenderedFile],
    place: SlotPaths,
    owner: tuple[int, int],
    run: Run,
    directories: Sequence[Directory] = (),
) -> SlotFilesPlan:
    """Compare the host with ``files`` (all files of the slot) and return what is to be done; changes nothing.

    :param owner: user id and group id of the files.
    :param directories: those to make or to close, see `lacking`.
    """
    _check_paths(files, place)
    check_slot(place)
    units = [item for item in files if item.path.suffix == ".service"]
    plan = SlotFilesPlan(directories=list(directories), units=units)
    engines = {item.path for item in plan.units if item.path not in place.own_units}
    names = {place.profile_of(unit) for unit in engines}
    stale = written_profiles(place) - names
    mine = [unit for name in sorted(names | stale) for unit in place.units_of(name)]
    on_disk = [*mine, *(unit for unit in place.own_units if unit.exists())]
    shown = show([unit.name for unit in on_disk], run)
    memory = remembered(HostFiles(), place.layout)
    why = in_use(place, names | stale, shown, None if memory.verified is None else memory.verified.profile)
    plan.kept = sorted(stale & set(why))
    plan.warnings += [
        f"Profile {name} left the catalogue, but its files stay because {why[name]}: switch to another one, run again."
        for name in plan.kept
    ]
    # One that is only named, as the target of a switch that failed, is not what the slot goes back to.
    held = {name for name in names & set(why) if why[name] != NAMED}
    plan.held = stay(place, held, {item.path: item.content for item in files}, memory)
    # New files of a profile that is held are written: a switch finds its units, and nothing starts them before.
    texts = {path: text for held in plan.held for path, text in held.stays.items()}
    here = [dataclasses.replace(item, content=texts.pop(item.path, item.content)) for item in files]
    here += [RenderedFile(path, text) for path, text in texts.items()]
    pending = [RenderedFile(place.pending(held.name), held.new.to_json()) for held in plan.held]
    legacy: list[str] = next(
        (json.loads(item.content)["legacy_units"] for item in files if item.path == place.slot_file), []
    )
    kept = [unit for name in plan.kept for unit in place.units_of(name)]
    # The manager reads all drop-ins at each reload: the units of engines that are not installed yet have none. Each of
    # the others names them, so that one that is installed after this is exclusive at once.
    exclusive: list[Path] = []
    idle: list[Path] = []
    for item in here:
        if item.path.suffix == ".service" and item.path not in place.own_units:
            runs = place.profile_of(item.path) in why or _has_program(item.content)
            (exclusive if runs else idle).append(item.path)
    profiles = [item.content for item in [*files, *here] if item.path.suffix == ".json"]
    profiles += [text_of(Path(place.layout.profile_json(name))) or "" for name in plan.kept]
    exclusion = drop_ins(place, [*exclusive, *kept], legacy, dict.fromkeys(profiles), idle=idle)
    everything = [*here, *pending, *exclusion]
    for item in everything:
        if _differs(item, owner):
            plan.writes.append(item)
            present = text_of(item.path)
            if present is not None:
                plan.before[item.path] = present
    stays, used = {item.path for item in everything}, {*plan.kept, *held}
    # Of one in use whose files can't be held back, what may run keeps its unit.
    gone = [path for name in sorted((names | stale) - used) for path in place.files_of(name)]
    gone += [path for name in sorted(used) for path in (*place.drop_ins_of(name), place.pending(name))]
    if place.node not in stays:
        # The host left its group, and the service ends by itself.
        gone += [place.at_boot(place.node), place.node]
    plan.removals = [path for path in dict.fromkeys(gone) if path not in stays and path.exists()]
    if any(item.path.is_relative_to(place.program_dir) for item in files):
        wanted = {item.path for item in files}
        plan.removals += [path for path in sorted(place.program_dir.rglob("*.py")) if path not in wanted]
    for unit in place.own_units:
        if any(item.path == unit for item in files) and not place.at_boot(unit).is_symlink():
            plan.links[place.at_boot(unit)] = unit
    if any(item.path == place.controller for item in files) and shown is not None:
        known = shown.get(place.controller.name, {})
        plan.starts = known.get("ActiveState", "inactive") in ("inactive", "failed")
    plan.links |= _command_links(place, files)
    # A reload that an interrupted run still owes.
    plan.reload_needed = plan.units_changed or any(
        item.get("NeedDaemonReload") == "yes" or item.get("LoadState") != "loaded" for item in (shown or {}).values()
    )
    return plan


def _command_links(place: SlotPaths, files: Sequence[RenderedFile]) -> dict[Path, Path]:
    """Return the links, wanted and not there, that put the command into people's PATH and its completion where bash
    looks for it on the first Tab."""
    link = place.command_link
    if link is None or not any(item.path == place.command for item in files):
        return {}
    completed = link.parents[1] / "share/bash-completion/completions" / link.name
    links = {link: place.command, completed: place.completion}
    for link in links:
        if link.exists() and not link.is_symlink():
            raise SlotFilesError(f"{link} exists and is no link; move it away, or name another place for the link")
    return {link: target for link, target in links.items() if not link.is_symlink() or link.readlink() != target}


def validate(plan: SlotFilesPlan, run: Run) -> None:
    """Check every file that would be written; raise SlotFilesError with all complaints. Adds to the plan's warnings."""
    faults = []
    waiting = [RenderedFile(path, text) for held in plan.held for path, _stays, text in held.differences() if text]
    for item in [*plan.writes, *waiting]:
        if item.path.suffix == ".json":
            try:
                json.loads(item.content)
            except ValueError as error:
                faults.append(f"{item.path} is not JSON: {error}")
        elif item.path.suffix == ".env":
            lines = item.content.splitlines()
            shape = _PLAIN_ENV_LINE if f"# {PLAIN}" in lines else _ENV_LINE
            wrong = [line for line in lines if not shape.fullmatch(line)]
            faults += [f"{item.path} is no environment file: {line!r}" for line in wrong]
    changed = [item for item in [*plan.writes, *waiting] if _of_unit(item.path)]
    if changed and not faults:
        faults += _verify_units(plan, changed, run)
    if faults:
        raise SlotFilesError("nothing was written, because\n" + "\n".join(faults))


def _verify_units(plan: SlotFilesPlan, changed: Sequence[RenderedFile], run: Run) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="b70-units-") as folder:
        for item in [*plan.units, *(item for item in changed if _is_drop_in(item.path))]:
            copy = Path(folder, *item.path.parts[-2 if _is_drop_in(item.path) else -1 :])
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(item.content, encoding="utf-8")
        targets = []
        for item in changed:
            unit = item.path if item.path.suffix == ".service" else item.path.parent.with_suffix("")
            if not Path(folder, unit.name).exists():
                Path(folder, unit.name).write_text(text_of(unit) or "", encoding="utf-8")
            targets.append(str(Path(folder, unit.name)))
        code, output, errors = run(["systemd-analyze", "verify", "--man=no", *dict.fromkeys(targets)])
    if code == 127:
        plan.warnings.append("The units were not checked, because this host has no systemd-analyze.")
        return []
    return _complaints(code, f"{output}\n{errors}", {Path(target).name for target in targets}, folder)


def _complaints(code: int, text: str, ours: set[str], folder: str) -> list[str]:
    """Return what systemd-analyze says about our units; units of the system and missing programs are not ours."""
    found, tolerated = [], False
    for line in filter(None, map(str.strip, text.splitlines())):
        if _NO_PROGRAM.match(line):
            tolerated = True
        elif folder in line or any(line.startswith(f"{unit}:") or f" {unit}" in line for unit in ours):
            found.append(line.replace(f"{folder}/", ""))
    if code and not found and not tolerated and not re.search(r"^(/|\S+\.\w+:)", text.strip(), re.MULTILINE):
        found.append(f"systemd-analyze verify ended with {code}: {text.strip()}")
    return found


def apply(plan: SlotFilesPlan, owner: tuple[int, int]) -> None:
    """Write and remove what the plan says; each file is replaced in one step, units after what they refer to."""
    owners = [owner_ids(directory.owner, directory.group) for directory in plan.directories]
    for directory, ids in zip(plan.directories, owners, strict=True):
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.path.chmod(int(directory.mode, 8))
        os.chown(directory.path, *ids)
    for item in sorted(plan.writes, key=lambda item: _of_unit(item.path)):
        if _is_drop_in(item.path):
            item.path.parent.mkdir(mode=0o755, exist_ok=True)
        _replace(item, owner)
    for link, target in plan.links.items():
        link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for path in plan.removals:
        path.unlink(missing_ok=True)
        if _is_drop_in(path):
            with contextlib.suppress(OSError):  # somebody else's drop-ins stay
                path.parent.rmdir()


def reload(plan: SlotFilesPlan, run: Run) -> None:
    """Have systemd read its units again where it must; raise SlotFilesError where it does not take them as written."""
    if not plan.reload_needed:
        return
    code, _output, errors = run(["systemctl", "daemon-reload"])
    if code:
        raise SlotFilesError(f"systemctl daemon-reload ended with {code}: {errors.strip()}")
    shown = show([unit.path.name for unit in plan.units], run) or {}
    wanted = {"LoadState": "loaded", "NeedDaemonReload": "no"}
    strange = []
    for unit in plan.units:
        known = {key: shown.get(unit.path.name, {}).get(key, "unknown") for key in wanted}
        if known != wanted:
            strange.append(f"{unit.path.name} {' '.join(f'{key}={value}' for key, value in known.items())}")
    if strange:
        raise SlotFilesError(
            f"systemd does not use the units as written: {'; '.join(strange)}. Read: systemctl status UNIT"
        )


@contextlib.contextmanager
def locked(place: SlotPaths, patience_s: float) -> Iterator[None]:
    """Hold the slot's lock: no switch may find files that are being replaced. Raise SlotFilesError with its holder."""
    clock = SystemClock()
    note = f"pid {os.getpid()} ({caller()}) since {stamp(clock.now())}: {RENDERING}"
    try:
        with FileLocks(clock).hold(place.layout.lock_file, note, patience_s):
            yield
    except SlotFault as fault:
        raise SlotFilesError(f"nothing was written: {fault.message}; run again when it is done") from fault


def start(plan: SlotFilesPlan, place: SlotPaths, run: Run) -> None:
    """Start the slot's controller where it does not run; raise SlotFilesError where systemd refuses."""
    if not plan.starts:
        return
    code, _output, errors = run(["systemctl", "start", "--no-block", place.controller.name])
    if code:
        raise SlotFilesError(f"systemctl start {place.controller.name} ended with {code}: {errors.strip()}")


def _replace(item: RenderedFile, owner: tuple[int, int]) -> None:
    if not item.path.parent.is_dir():
        raise SlotFilesError(f"the directory {item.path.parent} does not exist; name it in directories")
    _files.replace(item.path, item.content.encode(), int(item.mode, 8), owner)


def diff(plan: SlotFilesPlan) -> list[dict[str, str]]:
    """Return Ansible's diff: full texts of files that change, one list of programs and of files that come or go."""
    waiting = [held.file for held in plan.held]
    entries = [
        {
            "before_header": str(item.path),
            "after_header": str(item.path),
            "before": plan.before[item.path],
            "after": item.content,
        }
        for item in plan.writes
        if item.path in plan.before and item.path.suffix != ".py" and item.path not in waiting
    ]
    for held in plan.held:
        if any(item.path == held.file for item in plan.writes):
            entries += [
                {"before_header": str(path), "after_header": f"{path}, at the next switch", "before": old, "after": new}
                for path, old, new in held.differences()
            ]
    new = [f"{item.path}/\n" for item in plan.directories]
    new += [f"{item.path}\n" for item in plan.writes if item.path not in plan.before or item.path.suffix == ".py"]
    new += [f"{link} -> {target}\n" for link, target in plan.links.items()]
    if new or plan.removals:
        gone = "".join(f"{path}\n" for path in plan.removals)
        entries.append({"before_header": "files", "after_header": "files", "before": gone, "after": "".join(new)})
    return entries
