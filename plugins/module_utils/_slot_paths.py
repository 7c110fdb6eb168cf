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
from ._slot.model.journal import JournalMemory
from ._slot.model.profile import parse_profile
from ._slot.model.rendering import Rendering, committed, engines_in, places, rendering_of
from ._slot.words.types import EXCLUSIVE, Layout, SlotFault

Run = Callable[[list[str]], tuple[int, str, str]]

MARKER = "# Managed by Ansible, collection arcpro.b70, role slot."  # the first line of every file of the role
NAMED = "the slot's state names it"
_OTHER_SLOT = re.compile(r'^    "slot": "([a-z0-9]+)",$', re.MULTILINE)


class SlotFilesError(Exception):
    """Nothing was written: what is wrong with which file."""


@dataclass(frozen=True)
class RenderedFile:
    """One file as it must be; ``mode`` in octal digits."""

    path: Path
    content: str
    mode: str = "0644"


@dataclass(frozen=True)
class Directory:
    """A directory that must exist. One that exists keeps its owner and mode, unless others may look into it against
    ``mode``."""

    path: Path
    owner: str
    group: str
    mode: str = "0755"


@dataclass(frozen=True)
class SlotPaths:
    """The places of a slot's files on the host."""

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
    def completion(self) -> Path:
        """Return what bash reads to complete the command."""
        return self.command.with_name(f"{self.command.name}.bash")

    @property
    def slot_file(self) -> Path:
        return Path(self.layout.slot_file)

    @property
    def node(self) -> Path:
        """The unit that speaks with the other nodes of a group, where the host is in one."""
        return self.unit_dir / self.layout.node_unit

    @property
    def controller(self) -> Path:
        """The unit that keeps the slot serving what was committed."""
        return self.unit_dir / self.layout.controller_unit

    @property
    def own_units(self) -> tuple[Path, ...]:
        """The units that are no engines; they always start at boot."""
        return (self.controller, self.node)

    def at_boot(self, unit: Path) -> Path:
        return self.unit_dir / "multi-user.target.wants" / unit.name

    @property
    def profiles_dir(self) -> Path:
        return Path(self.layout.profiles_dir)

    @property
    def prefix(self) -> str:
        return self.layout.unit_prefix

    def unit(self, name: str, replica: int | None = None) -> Path:
        return self.unit_dir / self.layout.unit(name, replica)

    def drop_in(self, unit: Path) -> Path:
        return Path(self.layout.exclusive(unit.name))

    def profile_of(self, unit: Path) -> str:
        return self.layout.profile_of(unit.name)

    def is_unit_of(self, unit: str, name: str) -> bool:
        return unit.startswith(self.prefix) and self.layout.profile_of(unit) == name

    def units_of(self, name: str) -> list[Path]:
        """Return the units of a profile that are on the host: one, or those of its replicas."""
        found = self.unit_dir.glob(f"{self.prefix}*.service")
        return sorted(path for path in found if self.profile_of(path) == name and path.exists())

    def texts_of(self, name: str, profile: str | None = None) -> list[Path]:
        """Return the files that make a profile's engines what they are, by its JSON text: units and environments, then
        the profile."""
        return [Path(path) for path in places(self.layout, name, engines_in(profile))]

    def pending(self, name: str) -> Path:
        return Path(self.layout.pending(name))

    def drop_ins_of(self, name: str) -> list[Path]:
        """Return the drop-ins of ours for the units of a profile that are on the host."""
        folders = self.unit_dir.glob(f"{self.prefix}*.service.d")
        mine = sorted(folder for folder in folders if self.is_unit_of(folder.stem, name))
        return [folder / EXCLUSIVE for folder in mine]

    def files_of(self, name: str) -> list[Path]:
        """Return every file of a profile on the host, units first: without its unit a profile cannot be started."""
        environments = sorted(path for path in self.profiles_dir.glob("*.env") if path.stem.partition("@")[0] == name)
        profile = Path(self.layout.profile_json(name))
        return [*self.units_of(name), *environments, profile, *self.drop_ins_of(name), self.pending(name)]


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


def written_profiles(place: SlotPaths) -> set[str]:
    """Return the names of the profiles of which this slot has files of ours on the host."""
    found = set()
    for unit in place.unit_dir.glob(f"{place.prefix}*.service"):
        if (text_of(unit) or "").startswith(MARKER):
            found.add(place.profile_of(unit))
    for path in place.profiles_dir.glob("*.json"):
        data = json_of(path)
        if data.get("slot") == place.slot and place.is_unit_of(str(data.get("unit")), path.stem):
            found.add(path.stem)
    for path in place.profiles_dir.glob("*.env"):
        head = (text_of(path) or "").split("\n", 2)
        if head[0] == MARKER and len(head) > 1 and f"{place.prefix}{path.stem}.service" in head[1]:
            found.add(path.stem.partition("@")[0])
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
    place: SlotPaths, names: set[str], shown: Mapping[str, Mapping[str, str]] | None, verified: str | None
) -> dict[str, str]:
    """Return ``{name: why}`` for the profiles whose files must stay: the slot runs, boots or goes back to them.

    :param verified: the profile that the journal says was verified last.
    """
    state = json_of(place.run_dir / place.slot / "state.json")
    switch = state.get("switch") or {}
    active = {(state.get("profile") or {}).get("name"), switch.get("from"), switch.get("to")}
    why = {}
    states = [(place.profile_of(Path(unit)), known.get("ActiveState")) for unit, known in (shown or {}).items()]
    running = {name for name, state in states if state not in (None, "inactive", "failed")}
    boots = {place.profile_of(link) for link in place.unit_dir.glob(f"*.wants/{place.prefix}*.service")}
    for name in names:
        if shown is None and Path("/run/systemd/system").is_dir():
            why[name] = "systemd does not say whether it runs"
        elif name in running:
            why[name] = "it is running"
        elif name in boots:
            why[name] = "it starts at boot"
        elif name in active:
            why[name] = NAMED
        elif name == verified:
            why[name] = "it was verified last"
    return why


def drop_ins(
    place: SlotPaths,
    units: Iterable[Path],
    legacy: Sequence[str],
    profiles: Iterable[str | None] = (),
    *,
    idle: Iterable[Path] = (),
) -> list[RenderedFile]:
    """Return what keeps the units of a slot, and legacy ones, from running beside each other.

    It is no part of the units, so that a profile in use is exclusive with those that were rendered since. Each pair is
    named on one side only: mutual ``After=`` makes a transaction cyclic, while ``Conflicts=`` works both ways.
    Replicas of one profile run beside each other, and so do a first and a second side without a port or card in common,
    and engines that may sleep: of these the slot keeps all but one asleep.

    :param profiles: the JSON texts of the slot's profiles, those that are in place and those that wait.
    :param idle: units whose engine is not installed. The others exclude them, and they have no drop-in.
    """
    texts = list(profiles)
    claims, sleepers = _claims(texts), _sleepers(texts)
    found: list[RenderedFile] = []
    earlier = [*legacy, *sorted({unit.name for unit in idle})]
    for unit in sorted(set(units)):
        others = [
            other
            for other in earlier
            if not _replicas_of_one(place, other, unit.name)
            and not _apart(claims, other, unit.name)
            and not (other in sleepers and unit.name in sleepers and not sleepers[other] & sleepers[unit.name])
        ]
        if others:
            lines = [MARKER, "[Unit]"]
            lines += [f"{directive}={other}" for directive in ("Conflicts", "After") for other in others]
            found.append(RenderedFile(place.drop_in(unit), "\n".join(lines) + "\n"))
        earlier.append(unit.name)
    return found


def _replicas_of_one(place: SlotPaths, one: str, other: str) -> bool:
    numbers = [unit.removesuffix(".service").partition("@")[2].isdigit() for unit in (one, other)]
    return all(numbers) and place.layout.profile_of(one) == place.layout.profile_of(other)


def _claims(profiles: Iterable[str | None]) -> dict[str, tuple[set[bool], set[str]]]:
    """Return ``{unit: (which side it is, its ports and cards)}`` of the units of profiles with a second side.

    A profile of which one text has none is left out: its unit may use what that says.
    """
    found: dict[str, tuple[set[bool], set[str]]] = {}
    alone = set()
    for text in profiles:
        try:
            profile = parse_profile(text or "", "a profile")
        except SlotFault:
            continue
        if profile.beside is None:
            alone.add(profile.unit)
        for side in profile.sides[: 2 if profile.beside else 0]:
            is_second, used = found.setdefault(side.unit, (set(), set()))
            is_second.add(side is not profile)
            used.update({f"port {side.engine.port}", *(f"card {number}" for number in side.numbers)})
    return {unit: claim for unit, claim in found.items() if unit not in alone}


def _sleepers(profiles: Iterable[str | None]) -> dict[str, set[int]]:
    """Return the ports of the units whose engine may sleep, as all texts of their profile say."""
    found: dict[str, set[int]] = {}
    awake: set[str] = set()
    for text in profiles:
        with contextlib.suppress(SlotFault):
            profile = parse_profile(text or "", "a profile")
            found.setdefault(profile.unit, set()).add(profile.engine.port)
            if not profile.standby:
                awake.update(profile.units)
    return {unit: ports for unit, ports in found.items() if unit not in awake}


def _apart(claims: Mapping[str, tuple[set[bool], set[str]]], one: str, other: str) -> bool:
    if one not in claims or other not in claims:
        return False
    (first, mine), (second, theirs) = claims[one], claims[other]
    return not first & second and not mine & theirs


@dataclass(frozen=True)
class Held:
    """A profile in use: what stays in place of it, and the rendering that waits in ``file``.

    ``stays``: texts by path, and so is ``comes``: those of the rendering.
    """

    file: Path
    stays: Mapping[Path, str]
    comes: Mapping[Path, str]
    new: Rendering

    @property
    def name(self) -> str:
        return self.new.name

    def differences(self) -> list[tuple[Path, str, str]]:
        """Return ``[(path, the text that stays, the text that waits)]``."""
        paths = dict.fromkeys([*self.stays, *self.comes])
        texts = [(path, self.stays.get(path, ""), self.comes.get(path, "")) for path in paths]
        return [(path, stays, new) for path, stays, new in texts if stays != new]


def stay(place: SlotPaths, names: Iterable[str], rendered: Mapping[Path, str], memory: JournalMemory) -> list[Held]:
    """Return the profiles in use that were rendered anew.

    What was verified last stays, or comes back, as it was committed. Of another one stays what is in place; where a
    part of that is missing, nothing is held back.
    """
    copy = None if memory.verified is None or memory.interrupted else committed(HostFiles(), place.layout)
    found = []
    for name in sorted(names):
        profile = Path(place.layout.profile_json(name))
        comes = {path: rendered.get(path) for path in place.texts_of(name, rendered.get(profile))}
        if None in comes.values():
            continue
        texts = {path: text for path, text in comes.items() if text is not None}
        present = text_of(profile)
        stays: dict[Path, str | None] = {path: text_of(path) for path in place.texts_of(name, present)}
        if copy is not None and memory.verified is not None and copy.name == name == memory.verified.profile:
            stays = dict(zip(place.texts_of(name, copy.profile), copy.texts, strict=True))
        there = {path: text for path, text in stays.items() if text is not None}
        if len(there) == len(stays) and there != texts:
            found.append(Held(place.pending(name), there, texts, rendering_of(name, list(texts.values()))))
    return found


def check_slot(place: SlotPaths) -> None:
    """Refuse the directories of another slot: its profiles, its settings and its command would be overwritten."""
    found = [(place.slot_file, str(json_of(place.slot_file).get("slot") or place.slot))]
    found += [(place.command, slot) for slot in _OTHER_SLOT.findall(text_of(place.command) or "")]
    for path, slot in found:
        if slot != place.slot:
            raise SlotFilesError(
                f"{path} belongs to slot {slot}, not {place.slot}: give slot {place.slot} a slot_config_dir and a "
                f"slot_bin_dir of its own, or remove {path} where slot {slot} has been given up"
            )
