# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the files of a slot on a host to what was rendered: plan, validate all, then write. No Ansible import.

Effects other than the file system go through ``run(argv) -> (exit code, output, errors)``; 127 means "no such program".
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Run = Callable[[list[str]], tuple[int, str, str]]

MARKER = "# Managed by Ansible, collection arcpro.b70, role slot."
KEPT = "50-b70-kept.conf"
_NO_PROGRAM = re.compile(r"^(\S+): Command .* is not executable: No such file or directory$")
_ENV_LINE = re.compile(r'(#.*|[A-Z_][A-Z0-9_]*="(?:[^"\\`$\n]|\\["\\`$])*")?')


class SlotFilesError(Exception):
    """Nothing was written: what is wrong with which file."""


@dataclass(frozen=True)
class Wanted:
    """One file as it must be; ``mode`` in octal digits."""

    path: Path
    content: str
    mode: str = "0644"


@dataclass(frozen=True)
class Directory:
    """A directory that must exist; what exists keeps its owner and mode."""

    path: Path
    owner: str
    group: str
    mode: str = "0755"


@dataclass(frozen=True)
class Place:
    """Where a slot's files are on the host."""

    slot: str
    config_dir: Path
    unit_dir: Path
    run_dir: Path
    program_dir: Path = Path("/opt/b70/lib/b70slot")
    command: Path = Path("/opt/b70/bin/b70ctl")
    command_link: Path | None = None

    @property
    def settle(self) -> Path:
        """The unit that verifies what runs; the only one that always starts at boot."""
        return self.unit_dir / f"b70-settle-{self.slot}.service"

    @property
    def settle_at_boot(self) -> Path:
        return self.unit_dir / "multi-user.target.wants" / self.settle.name

    @property
    def profiles_dir(self) -> Path:
        return self.config_dir / "profiles"

    @property
    def prefix(self) -> str:
        return f"b70-slot-{self.slot}-"

    def unit(self, name: str) -> Path:
        return self.unit_dir / f"{self.prefix}{name}.service"

    def files_of(self, name: str) -> list[Path]:
        """Return every file that belongs to a profile, units first: without its unit a profile cannot be started."""
        unit = self.unit(name)
        return [
            unit,
            unit.with_name(f"{unit.name}.d") / KEPT,
            *(self.profiles_dir / f"{name}{end}" for end in (".json", ".env")),
        ]


@dataclass
class Plan:
    """What is to be done; ``before`` holds the present text of every file to be written that exists."""

    directories: list[Directory] = field(default_factory=list)
    writes: list[Wanted] = field(default_factory=list)
    removals: list[Path] = field(default_factory=list)
    links: dict[Path, Path] = field(default_factory=dict)
    before: dict[Path, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reload_needed: bool = False
    units: list[Wanted] = field(default_factory=list)

    @property
    def units_changed(self) -> bool:
        return any(_of_unit(path) for path in [*(item.path for item in self.writes), *self.removals])

    @property
    def changed(self) -> bool:
        return bool(self.directories or self.writes or self.removals or self.links or self.reload_needed)


def _of_unit(path: Path) -> bool:
    return path.suffix == ".service" or path.name == KEPT


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SlotFilesError(f"{path} cannot be read: {error}") from error


def _differs(item: Wanted, owner: tuple[int, int]) -> bool:
    try:
        status = item.path.lstat()
    except FileNotFoundError:
        return True
    except NotADirectoryError as error:
        raise SlotFilesError(f"{item.path} cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SlotFilesError(f"{item.path} exists and is no regular file; move it away")
    same = stat.S_IMODE(status.st_mode) == int(item.mode, 8) and (status.st_uid, status.st_gid) == owner
    return not same or _text(item.path) != item.content


def _json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, SlotFilesError):
        data = json.loads(_text(path) or "{}")
        return data if isinstance(data, dict) else {}
    return {}


def owner_ids(user: str, group: str) -> tuple[int, int]:
    """Return the user and group ids of names; raise SlotFilesError when one does not exist."""
    try:
        return pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise SlotFilesError(
            f"the owner {user}:{group} does not exist on this host; run the role host first"
        ) from error


def written_profiles(place: Place) -> set[str]:
    """Return the names of the profiles of which this slot has files of ours on the host."""
    found = set()
    for unit in place.unit_dir.glob(f"{place.prefix}*.service"):
        if (_text(unit) or "").startswith(MARKER):
            found.add(unit.name.removeprefix(place.prefix).removesuffix(".service"))
    for path in place.profiles_dir.glob("*.json"):
        data = _json(path)
        if data.get("slot") == place.slot and data.get("unit") == place.unit(path.stem).name:
            found.add(path.stem)
    for path in place.profiles_dir.glob("*.env"):
        head = (_text(path) or "").split("\n", 2)
        if head[0] == MARKER and len(head) > 1 and place.unit(path.stem).name in head[1]:
            found.add(path.stem)
    return found


def _show(units: Iterable[str], run: Run) -> dict[str, dict[str, str]] | None:
    """Return ``{unit: {property: value}}`` as systemd sees it, or None when no systemd answers."""
    names = sorted(units)
    if not names:
        return {}
    wanted = "Id,LoadState,ActiveState,NeedDaemonReload"
    code, output, _errors = run(["systemctl", "show", f"--property={wanted}", "--", *names])
    if code:
        return None
    shown = {}
    for block in output.strip().split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in properties:
            shown[properties["Id"]] = properties
    return shown


def _in_use(place: Place, names: set[str], shown: Mapping[str, Mapping[str, str]] | None) -> dict[str, str]:
    """Return ``{name: why}`` for the profiles whose files must stay."""
    state = _json(place.run_dir / place.slot / "state.json")
    switch = state.get("switch") or {}
    active = {(state.get("profile") or {}).get("name"), switch.get("from"), switch.get("to")}
    why = {}
    for name in names:
        unit = place.unit(name).name
        if shown is None and Path("/run/systemd/system").is_dir():
            why[name] = "systemd does not say whether it runs"
        elif (shown or {}).get(unit, {}).get("ActiveState", "inactive") not in ("inactive", "failed"):
            why[name] = "it is running"
        elif any(place.unit_dir.glob(f"*.wants/{unit}")):
            why[name] = "it starts at boot"
        elif name in active:
            why[name] = "the slot's state names it"
    return why


def _kept_drop_in(place: Place, name: str, others: Sequence[str]) -> Wanted:
    # The rendered units do not know the kept one, so it names all of them: never two engines in one slot.
    unit = place.unit(name)
    lines = [MARKER, "# The profile has left the catalogue, but its unit is still in use.", "[Unit]"]
    lines += [f"{directive}={place.unit(other).name}" for directive in ("Conflicts", "After") for other in others]
    return Wanted(unit.with_name(f"{unit.name}.d") / KEPT, "\n".join(lines) + "\n")


def _check_paths(files: Sequence[Wanted], place: Place) -> None:
    seen = set()
    for item in files:
        ours = item.path.parent == place.profiles_dir and item.path.suffix in (".json", ".env")
        unit = item.path.parent == place.unit_dir and item.path.name.startswith(place.prefix)
        boot = item.path.parent.name == "tmpfiles.d" and item.path.name == f"b70-slot-{place.slot}.conf"
        program = item.path == place.command or (
            item.path.is_relative_to(place.program_dir) and item.path.suffix == ".py" and ".." not in item.path.parts
        )
        known = ours or boot or program or item.path in (place.settle, place.config_dir / "slot.json")
        if not known and not (unit and item.path.suffix == ".service"):
            raise SlotFilesError(
                f"{item.path} is no file of slot {place.slot}; render the files with arcpro.b70.render_slot"
            )
        if item.path in seen:
            raise SlotFilesError(f"{item.path} is given twice")
        seen.add(item.path)


def make_plan(
    files: Sequence[Wanted], place: Place, owner: tuple[int, int], run: Run, directories: Sequence[Directory] = ()
) -> Plan:
    """Compare the host with ``files`` (all files of the slot) and return what is to be done; changes nothing.

    :param owner: user id and group id of the files.
    """
    _check_paths(files, place)
    plan = Plan(units=[item for item in files if item.path.suffix == ".service"])
    for directory in directories:
        if directory.path.exists() and not directory.path.is_dir():
            raise SlotFilesError(f"{directory.path} exists and is no directory; move it away")
        if not directory.path.exists():
            plan.directories.append(directory)
    engines = {item.path.name for item in plan.units if item.path != place.settle}
    names = {name.removeprefix(place.prefix).removesuffix(".service") for name in engines}
    stale = written_profiles(place) - names
    on_disk = [unit for unit in [*map(place.unit, sorted(names | stale)), place.settle] if unit.exists()]
    shown = _show([unit.name for unit in on_disk], run)
    why = _in_use(place, stale, shown)
    plan.kept = sorted(why)
    plan.warnings += [
        f"Profile {name} left the catalogue, but its files stay because {why[name]}: switch to another one, run again."
        for name in plan.kept
    ]
    everything = [*files]
    for name in plan.kept:
        earlier = [other for other in plan.kept if other < name]
        everything.append(_kept_drop_in(place, name, sorted(names | set(earlier))))
    for item in everything:
        if _differs(item, owner):
            plan.writes.append(item)
            present = _text(item.path)
            if present is not None:
                plan.before[item.path] = present
    gone = [path for name in sorted(stale - set(why)) for path in place.files_of(name)]
    gone += [place.files_of(name)[1] for name in sorted(names)]
    plan.removals = [path for path in gone if path.exists()]
    if any(item.path.is_relative_to(place.program_dir) for item in files):
        wanted = {item.path for item in files}
        plan.removals += [path for path in sorted(place.program_dir.rglob("*.py")) if path not in wanted]
    if any(item.path == place.settle for item in files) and not place.settle_at_boot.is_symlink():
        plan.links[place.settle_at_boot] = place.settle
    plan.links |= _command_link(place, files)
    # A reload that an interrupted run still owes.
    plan.reload_needed = plan.units_changed or any(
        item.get("NeedDaemonReload") == "yes" or item.get("LoadState") != "loaded" for item in (shown or {}).values()
    )
    return plan


def _command_link(place: Place, files: Sequence[Wanted]) -> dict[Path, Path]:
    """Return the link that puts the command into people's PATH, where it is wanted and not there."""
    link = place.command_link
    if link is None or not any(item.path == place.command for item in files):
        return {}
    if link.is_symlink():
        return {} if link.readlink() == place.command else {link: place.command}
    if link.exists():
        raise SlotFilesError(f"{link} exists and is no link; move it away, or name another place for the link")
    return {link: place.command}


def validate(plan: Plan, run: Run) -> None:
    """Check every file that would be written; raise SlotFilesError with all complaints. Adds to the plan's warnings."""
    faults = []
    for item in plan.writes:
        if item.path.suffix == ".json":
            try:
                json.loads(item.content)
            except ValueError as error:
                faults.append(f"{item.path} is not JSON: {error}")
        elif item.path.suffix == ".env":
            wrong = [line for line in item.content.splitlines() if not _ENV_LINE.fullmatch(line)]
            faults += [f"{item.path} is no environment file: {line!r}" for line in wrong]
    changed = [item for item in plan.writes if _of_unit(item.path)]
    if changed and not faults:
        faults += _verify_units(plan, changed, run)
    if faults:
        raise SlotFilesError("nothing was written, because\n" + "\n".join(faults))


def _verify_units(plan: Plan, changed: Sequence[Wanted], run: Run) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="b70-units-") as folder:
        for item in [*plan.units, *(item for item in changed if item.path.name == KEPT)]:
            copy = Path(folder, *item.path.parts[-2 if item.path.name == KEPT else -1 :])
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(item.content, encoding="utf-8")
        targets = []
        for item in changed:
            unit = item.path if item.path.suffix == ".service" else item.path.parent.with_suffix("")
            if not Path(folder, unit.name).exists():
                Path(folder, unit.name).write_text(_text(unit) or "", encoding="utf-8")
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


def apply(plan: Plan, owner: tuple[int, int]) -> None:
    """Write and remove what the plan says; each file is replaced in one step, units after what they refer to."""
    owners = [owner_ids(directory.owner, directory.group) for directory in plan.directories]
    for directory, ids in zip(plan.directories, owners, strict=True):
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.path.chmod(int(directory.mode, 8))
        os.chown(directory.path, *ids)
    for item in sorted(plan.writes, key=lambda item: _of_unit(item.path)):
        if item.path.name == KEPT:
            item.path.parent.mkdir(mode=0o755, exist_ok=True)
        _replace(item, owner)
    for link, target in plan.links.items():
        link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for path in plan.removals:
        path.unlink(missing_ok=True)
        if path.name == KEPT:
            with contextlib.suppress(OSError):  # somebody else's drop-ins stay
                path.parent.rmdir()


def _replace(item: Wanted, owner: tuple[int, int]) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=item.path.parent, prefix=f".{item.path.name}.")
    except FileNotFoundError as error:
        raise SlotFilesError(f"the directory {item.path.parent} does not exist; name it in directories") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(item.content)
            stream.flush()
            os.fchmod(stream.fileno(), int(item.mode, 8))
            os.fchown(stream.fileno(), *owner)
            os.fsync(stream.fileno())
        os.replace(temporary, item.path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def diff(plan: Plan) -> list[dict[str, str]]:
    """Return Ansible's diff: full texts of files that change, one list of programs and of files that come or go."""
    entries = [
        {
            "before_header": str(item.path),
            "after_header": str(item.path),
            "before": plan.before[item.path],
            "after": item.content,
        }
        for item in plan.writes
        if item.path in plan.before and item.path.suffix != ".py"
    ]
    new = [f"{item.path}/\n" for item in plan.directories]
    new += [f"{item.path}\n" for item in plan.writes if item.path not in plan.before or item.path.suffix == ".py"]
    new += [f"{link} -> {target}\n" for link, target in plan.links.items()]
    if new or plan.removals:
        gone = "".join(f"{path}\n" for path in plan.removals)
        entries.append({"before_header": "files", "after_header": "files", "before": gone, "after": "".join(new)})
    return entries
