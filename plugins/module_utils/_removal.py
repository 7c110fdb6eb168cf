# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what the collection has made on a host, and removes its files. What somebody else made stays.

Files are ours by their names in directories that the role removal lists. A directory goes when nothing is left in it.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ._transient import RUNNING

# Units that last, in the order in which they stop: nothing may start again what has stopped. What starts others comes
# first.
_LASTING = (
    *("b70-recycle.timer", "b70-card-metrics.*", "b70-controller-*", "b70-node-*"),
    *("b70-slot-*", "b70-build-swap.service"),
)
_OF_THE_FRONTDOOR = ("b70-openai-frontdoor.service", "b70-slot-admin.socket")  # its own role stops them
# Units that do what somebody began. Their names are told first.
_WORKS = (
    *("b70-slot-admin@*", "b70-recycle.service", "b70-switch-*", "b70-build-[!s]*", "b70-image-*", "b70-environment-*"),
    *("b70-weights-*", "b70-benchmark-*", "b70-context-search-*", "b70-evaluate-*", "b70-promotion-*", "b70-soak-*"),
)
_CONTROLLER = ("b70-controller-", ".service")
_SLOT = "{slot}"
_SYSTEM_IDS = 1000  # accounts below are the system's
_NETWORK = ("nfs", "cifs", "smb", "ceph", "9p", "fuse.", "lustre", "glusterfs", "afs")
_MOUNTED = "another file system is mounted there; remove it yourself"
_SHARED = "it is on a network file system, which other hosts may use; remove it yourself"


@dataclass(frozen=True)
class OwnedDirectory:
    """A directory, and what in it is ours.

    :param path: the directory; a pattern names several. `{slot}` here and in entries stands for each slot.
    :param entries: patterns of names in it.
    :param has: an entry is ours only if it has one of these.
    :param links_into: an entry is ours only if it is a link to something in this directory.
    :param stays: why entries stay; empty if they go.
    :param shared: the directory itself is the system's.
    :param unmounted: nothing goes if the directory is a file system of its own, which hosts may have in common.
    """

    path: str
    entries: Sequence[str] = ()
    has: Sequence[str] = ()
    links_into: str = ""
    stays: str = ""
    shared: bool = False
    unmounted: bool = False

    def of(self, slots: Sequence[str]) -> list[OwnedDirectory]:
        """Return the place for each of the slots, or itself if it has nothing to do with them."""
        entries = [name.replace(_SLOT, slot) for name in self.entries for slot in (slots if _SLOT in name else [""])]
        paths = [self.path.replace(_SLOT, slot) for slot in (slots if _SLOT in self.path else [""])]
        return [replace(self, path=path, entries=entries) for path in paths]

    def owns(self, entry: Path) -> bool:
        """Return whether an entry of the directory is ours."""
        if not any(fnmatchcase(entry.name, pattern) for pattern in self.entries):
            return False
        if self.links_into:
            return entry.is_symlink() and Path(os.readlink(entry)).is_relative_to(self.links_into)
        return not self.has or any((entry / name).exists() for name in self.has)


@dataclass(frozen=True)
class Mount:
    """The place where a file system is mounted, and its kind."""

    point: Path
    kind: str


@dataclass
class Leftovers:
    """The findings on a host.

    :param gone: what goes, in this order.
    :param stays: why each path of ours stays.
    :param others: what somebody else has in directories of ours, which stay for it.
    """

    gone: list[Path] = field(default_factory=list)
    stays: dict[Path, str] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)


def mounts(mountinfo: str) -> list[Mount]:
    """Return the mounts in the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        left, _dash, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")
        found.append(Mount(Path(point), right.split()[0]))
    return found


def slots(unit_dir: Path) -> list[str]:
    """Return the names of the slots that a host has."""
    before, after = _CONTROLLER
    return sorted(path.name[len(before) : -len(after)] for path in unit_dir.glob(f"{before}*{after}"))


def images(stack_root: Path) -> list[str]:
    """Return a sentence for each container image that a stack of the host is. It stays in Podman's storage."""
    found = []
    for file in sorted(stack_root.glob("*/fingerprint.json")):
        with contextlib.suppress(ValueError, LookupError, TypeError, OSError):
            reference = json.loads(file.read_text(encoding="utf-8"))["image"]["reference"]
            found.append(f"image {reference}: `podman image rm {reference}` removes it")
    return found


def find(places: Iterable[OwnedDirectory], mounted: Sequence[Mount]) -> Leftovers:
    """Find what of ours is in the places. Changes nothing."""
    found = Leftovers()
    gone: set[Path] = set()
    points = {mount.point for mount in mounted}
    for place in places:
        for folder in _folders(place.path):
            children = sorted(folder.iterdir())
            for entry in children:
                if place.owns(entry):
                    why = place.stays or _why_elsewhere(entry, mounted)
                    if not why and place.unmounted and folder in points:
                        why = _MOUNTED
                    if why:
                        found.stays[entry] = why
                    elif entry not in gone:
                        found.gone.append(entry)
                        gone.add(entry)
            if place.shared:
                continue
            left = [entry for entry in children if entry not in gone]
            if not left and folder not in points and not folder.is_symlink():
                found.gone.append(folder)
                gone.add(folder)
            found.others += [entry for entry in left if entry not in found.stays]
    # A directory that is a place of its own has been told of already.
    told = {Path(place.path) for place in places}
    found.others = [path for path in dict.fromkeys(found.others) if path not in gone and path not in told]
    return found


def _folders(pattern: str) -> list[Path]:
    root = Path("/")
    return [path for path in sorted(root.glob(pattern.lstrip("/"))) if path.is_dir()]


def _why_elsewhere(entry: Path, mounted: Sequence[Mount]) -> str:
    """Return why an entry stays for what is mounted at, below or above it; empty if nothing keeps it."""
    if any(mount.point.is_relative_to(entry) for mount in mounted):
        return _MOUNTED
    above = [mount for mount in mounted if entry.is_relative_to(mount.point)]
    nearest = max(above, key=lambda mount: len(mount.point.parts), default=None)
    return _SHARED if nearest and nearest.kind.startswith(_NETWORK) else ""


def remove(paths: Iterable[Path]) -> None:
    """Remove files, links and directories with what is in them. One that is gone already is fine."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Unit:
    """A unit of ours as systemd lists it."""

    name: str
    active: str
    description: str

    @property
    def running(self) -> bool:
        return self.active in RUNNING


def units(listing: str) -> list[Unit]:
    """Return the units of a listing by `systemctl list-units --all --plain --no-legend`."""
    rows = (line.split(maxsplit=4) for line in listing.splitlines())
    return [Unit(row[0], row[2], row[4] if len(row) > 4 else "") for row in rows if len(row) >= 4]


def to_stop(found: Iterable[Unit]) -> list[str]:
    """Return the lasting units that run, in the order in which they stop."""
    ranked = [(rank, unit.name) for unit in found if unit.running and (rank := _rank(unit.name)) is not None]
    return [name for _rank, name in sorted(ranked)]


def works(found: Iterable[Unit]) -> list[Unit]:
    """Return the units that do work somebody began, such as a switch, a build or a soak."""
    return [unit for unit in found if unit.running and _named(unit.name, _WORKS)]


def failed(found: Iterable[Unit]) -> list[str]:
    """Return the units of ours that have failed, which systemd remembers."""
    return [unit.name for unit in found if unit.active == "failed" and _named(unit.name, (*_WORKS, *_LASTING))]


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rank(name: str) -> int | None:
    """Return the place of a lasting unit in the order; None for another one, and for those of the frontdoor."""
    if _named(name, (*_WORKS, *_OF_THE_FRONTDOOR)):
        return None
    return next((rank for rank, pattern in enumerate(_LASTING) if fnmatchcase(name, pattern)), None)


@dataclass(frozen=True)
class Account:
    """A user as the roles make it, with its group."""

    name: str
    group: str
    home: str
    comment: str

    def is_ours(self, entry: pwd.struct_passwd) -> bool:
        """Return whether an account of this name is as the roles make it."""
        return (
            0 < entry.pw_uid < _SYSTEM_IDS
            and (entry.pw_dir, entry.pw_gecos) == (self.home, self.comment)
            and entry.pw_shell.endswith("/nologin")
        )


def accounts(
    wanted: Iterable[Account],
    users: Mapping[str, pwd.struct_passwd],
    groups: Mapping[str, grp.struct_group],
    owners: frozenset[int],
) -> tuple[list[str], list[str], list[str]]:
    """Return the users and groups to remove, and a sentence for each that stays.

    :param owners: user ids that own something that stays: a later user could get the id of one that is gone.
    """
    gone, gone_groups, stays = [], [], []
    for account in wanted:
        user = users.get(account.name)
        if user is not None and not account.is_ours(user):
            stays.append(f"user {account.name}: it is not as this collection makes it")
            continue
        if user is not None and user.pw_uid in owners:
            stays.append(f"user {account.name}: files that stay belong to it")
            continue
        if user is not None:
            gone.append(account.name)
        group = groups.get(account.group)
        others = {name for name, one in users.items() if group and one.pw_gid == group.gr_gid and name != account.name}
        if group and 0 < group.gr_gid < _SYSTEM_IDS and not others and not set(group.gr_mem) - {account.name}:
            gone_groups.append(account.group)
    return gone, gone_groups, stays


def owners_of(paths: Iterable[Path]) -> frozenset[int]:
    """Return the user ids that own these paths or something below them."""
    found = set()
    for path in paths:
        found.add(path.lstat().st_uid)
        if path.is_dir() and not path.is_symlink():
            for folder, names, files in os.walk(path):
                found.update(Path(folder, name).lstat().st_uid for name in (*names, *files))
    return frozenset(found)


def pinned(preferences: str) -> list[str]:
    """Return the packages, or patterns of their names, that a text of apt's preferences pins."""
    rows = (line.partition(":") for line in preferences.splitlines())
    return [name for key, _colon, value in rows if key == "Package" for name in value.split()]


def apt_places(name: str, apt_dir: Path, installed: Sequence[str]) -> list[OwnedDirectory]:
    """Return the places of a repository that b70_apt_source has added. installed: the packages that it pins."""
    why = ""
    if installed:
        words = " ".join(installed)
        why = f"it has the updates of what is installed; `apt-get purge {words}` removes that, then run this again"
    files = (("sources.list.d", ".sources"), ("keyrings", ".gpg"), ("preferences.d", ""))
    return [
        OwnedDirectory(str(apt_dir / folder), [f"{name}{suffix}"], stays=why, shared=True) for folder, suffix in files
    ]


def summary(found: Leftovers, stays: Iterable[str], *, check_mode: bool) -> list[str]:
    """Return a line for each path that goes or stays. stays: further sentences."""
    lines = [f"{'would remove' if check_mode else 'removed'} {path}" for path in found.gone]
    lines += [f"stays: {path}: {why}" for path, why in found.stays.items()]
    lines += [f"stays: {line}" for line in stays]
    return lines + [f"stays: {path}: it is not of this collection" for path in found.others]
