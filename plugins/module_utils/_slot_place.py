# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of a slot's files, which files exist on the host, and which are in use."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from . import _paths
from ._slot.host.files import HostFiles
from ._slot.journal import Memory
from ._slot.rendering import Rendering, committed, places
from ._slot.types import Layout

Run = Callable[[list[str]], tuple[int, str, str]]

MARKER = "# Managed by Ansible, collection arcpro.b70, role slot."  # the first line of every file of the role
EXCLUSIVE = "10-b70-exclusive.conf"
NAMED = "the slot's state names it"
OLD_EXCLUSIVE = "50-b70-kept.conf"  # of releases whose units named each other
_OTHER_SLOT = re.compile(r'^    "slot": "([a-z0-9]+)",$', re.MULTILINE)


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
    state_dir: Path = Path(_paths.STATE_DIR)
    program_dir: Path = Path(f"{_paths.LIB_DIR}/b70slot")
    command: Path = Path(f"{_paths.BIN_DIR}/b70ctl")
    command_link: Path | None = None

    @property
    def layout(self) -> Layout:
        """The same, as the slot engine sees it."""
        return Layout(
            self.slot,
            PurePosixPath(self.config_dir),
            PurePosixPath(self.run_dir),
            PurePosixPath(self.state_dir),
            PurePosixPath(self.unit_dir),
        )

    @property
    def slot_file(self) -> Path:
        return Path(self.layout.slot_file)

    @property
    def settle(self) -> Path:
        """The unit that verifies what runs; the only one that always starts at boot."""
        return self.unit_dir / self.layout.settle_unit

    @property
    def settle_at_boot(self) -> Path:
        return self.unit_dir / "multi-user.target.wants" / self.settle.name

    @property
    def profiles_dir(self) -> Path:
        return Path(self.layout.profiles_dir)

    @property
    def prefix(self) -> str:
        return self.layout.unit_prefix

    def unit(self, name: str) -> Path:
        return self.unit_dir / self.layout.unit(name)

    def drop_in(self, name: str, file: str = EXCLUSIVE) -> Path:
        unit = self.unit(name)
        return unit.with_name(f"{unit.name}.d") / file

    def texts_of(self, name: str) -> list[Path]:
        """Return the files that make a profile's engine what it is: unit, environment, profile."""
        return [Path(path) for path in places(self.layout, name)]

    def pending(self, name: str) -> Path:
        return Path(self.layout.pending(name))

    def files_of(self, name: str) -> list[Path]:
        """Return every file that belongs to a profile, units first: without its unit a profile cannot be started."""
        return [*self.texts_of(name), self.drop_in(name), self.pending(name)]


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SlotFilesError(f"{path} cannot be read: {error}") from error


def json_of(path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, SlotFilesError):
        data = json.loads(text_of(path) or "{}")
        return data if isinstance(data, dict) else {}
    return {}


def written_profiles(place: Place) -> set[str]:
    """Return the names of the profiles of which this slot has files of ours on the host."""
    found = set()
    for unit in place.unit_dir.glob(f"{place.prefix}*.service"):
        if (text_of(unit) or "").startswith(MARKER):
            found.add(unit.name.removeprefix(place.prefix).removesuffix(".service"))
    for path in place.profiles_dir.glob("*.json"):
        data = json_of(path)
        if data.get("slot") == place.slot and data.get("unit") == place.unit(path.stem).name:
            found.add(path.stem)
    for path in place.profiles_dir.glob("*.env"):
        head = (text_of(path) or "").split("\n", 2)
        if head[0] == MARKER and len(head) > 1 and place.unit(path.stem).name in head[1]:
            found.add(path.stem)
    return found


def show(units: Iterable[str], run: Run) -> dict[str, dict[str, str]] | None:
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


def in_use(
    place: Place, names: set[str], shown: Mapping[str, Mapping[str, str]] | None, verified: str | None
) -> dict[str, str]:
    """Return ``{name: why}`` for the profiles whose files must stay: the slot runs, boots or goes back to them.

    :param verified: the profile that the journal says was verified last.
    """
    state = json_of(place.run_dir / place.slot / "state.json")
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
            why[name] = NAMED
        elif name == verified:
            why[name] = "it was verified last"
    return why


def drop_ins(place: Place, names: Iterable[str], legacy: Sequence[str]) -> list[Wanted]:
    """Return what keeps the units of a slot, and legacy ones, from running beside each other.

    It is no part of the units, so that a profile in use is exclusive with those that were rendered since. Each pair is
    named on one side only: mutual ``After=`` makes a transaction cyclic, while ``Conflicts=`` works both ways.
    """
    found: list[Wanted] = []
    earlier = list(legacy)
    for name in sorted(names, key=lambda name: place.unit(name).name):
        if earlier:
            lines = [MARKER, "[Unit]"]
            lines += [f"{directive}={unit}" for directive in ("Conflicts", "After") for unit in earlier]
            found.append(Wanted(place.drop_in(name), "\n".join(lines) + "\n"))
        earlier.append(place.unit(name).name)
    return found


@dataclass(frozen=True)
class Held:
    """A profile in use: what stays in place of it, and the rendering that waits in ``file``."""

    file: Path
    paths: tuple[Path, ...]
    stays: tuple[str, ...]
    new: Rendering

    @property
    def name(self) -> str:
        return self.new.name

    def differences(self) -> list[tuple[Path, str, str]]:
        """Return ``[(path, the text that stays, the text that waits)]``."""
        texts = zip(self.paths, self.stays, self.new.texts, strict=True)
        return [(path, stays, new) for path, stays, new in texts if stays != new]


def stay(place: Place, names: Iterable[str], rendered: Mapping[Path, str], memory: Memory) -> list[Held]:
    """Return the profiles in use that were rendered anew.

    What was verified last stays, or comes back, as it was committed. Of another one stays what is in place; where a
    part of that is missing, nothing is held back.
    """
    copy = None if memory.verified is None or memory.interrupted else committed(HostFiles(), place.layout)
    found = []
    for name in sorted(names):
        paths = tuple(place.texts_of(name))
        if not all(path in rendered for path in paths):
            continue
        new = Rendering(name, *(rendered[path] for path in paths))
        texts: Sequence[str | None] = [text_of(path) for path in paths]
        if copy is not None and memory.verified is not None and copy.name == name == memory.verified.profile:
            texts = copy.texts
        stays = tuple(text for text in texts if text is not None)
        if len(stays) == len(paths) and stays != new.texts:
            found.append(Held(place.pending(name), paths, stays, new))
    return found


def check_slot(place: Place) -> None:
    """Refuse the directories of another slot: its profiles, its settings and its command would be overwritten."""
    found = [(place.slot_file, str(json_of(place.slot_file).get("slot") or place.slot))]
    found += [(place.command, slot) for slot in _OTHER_SLOT.findall(text_of(place.command) or "")]
    for path, slot in found:
        if slot != place.slot:
            raise SlotFilesError(
                f"{path} belongs to slot {slot}, not {place.slot}: give slot {place.slot} a slot_config_dir and a "
                f"slot_bin_dir of its own, or remove {path} where slot {slot} has been given up"
            )
