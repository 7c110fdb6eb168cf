# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One control group per host.

systemd-nspawn without a service manager puts every container into `payload` below its own group; two hosts started from
one shell would share it, and the systemd of one would kill the services of the other. The group also is the one
reliable list of a host's processes, whatever became of the one that started them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

from .common import LabError, run, wait_for


def systemd_is_init() -> bool:
    """Whether this machine itself runs systemd, which then owns the control groups."""
    return Path("/run/systemd/system").is_dir()


def hierarchies(mountinfo: str, own: str) -> list[Path]:
    """Directories of this process in the hierarchies systemd uses: the unified one and `name=systemd`, as mounted.

    `mountinfo` and `own` are the texts of /proc/self/mountinfo and /proc/self/cgroup.
    """
    paths = {}
    for line in own.splitlines():
        _number, controllers, path = line.split(":", 2)
        paths[controllers] = path
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        root, point = left.split()[3:5]
        named = "name=systemd" if "name=systemd" in options.split(",") else ""
        if kind not in ("cgroup2", "cgroup") or (kind == "cgroup" and not named) or named not in paths:
            continue
        path = paths[named]
        inside = path.removeprefix(root.rstrip("/")) if root != "/" else path
        found.append(Path(point) / inside.lstrip("/"))
    return found


class Cgroup:
    """The group `name` of one host, in every hierarchy that counts.

    Where the machine runs systemd the group is the delegated scope of that name, which systemd-run makes.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        if systemd_is_init():
            answer = run(["systemctl", "show", "-P", "ControlGroup", self.scope], check=False).stdout.strip()
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
            tops = hierarchies(mounts, "0::/\n1:name=systemd:/")
            self.directories = [top / answer.lstrip("/") for top in tops] if answer else []
        else:
            # The top of what we see, not our own group: whoever takes the lab down later may sit in another one.
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
            self.directories = [top / name for top in hierarchies(mounts, "0::/\n1:name=systemd:/")]
            if not self.directories:
                raise LabError("no unified cgroup hierarchy and none of systemd is mounted", "mount cgroup2", 2)

    @property
    def scope(self) -> str:
        return f"{self.name}.scope"

    def make(self) -> Cgroup:
        for directory in self.directories:
            directory.mkdir(parents=True, exist_ok=True)
        return self

    def enter(self) -> None:
        """Move this process into the group."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def processes(self) -> set[int]:
        """Every process in the group and below it, as this machine numbers them."""
        found: set[int] = set()
        for directory in self.directories:
            for below, _names, _files in os.walk(directory):  # groups may vanish meanwhile; walk does not mind
                with contextlib.suppress(OSError):
                    listing = Path(below, "cgroup.procs").read_text(encoding="ascii")
                    found.update(int(word) for word in listing.split())
        return found - {0, os.getpid()}

    def kill(self, timeout: float = 60) -> None:
        """End every process in the group, by number, until none is left."""

        def gone() -> bool:
            left = self.processes()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        if not wait_for(gone, timeout, 0.1):
            raise LabError(f"processes of {self.name} do not end: {sorted(self.processes())}")

    def remove(self) -> None:
        """Remove the empty group with all below it; an absent one is fine."""
        if systemd_is_init():
            run(["systemctl", "stop", self.scope], check=False, timeout=90)
        for directory in self.directories:
            if not directory.is_dir():
                continue
            below = [Path(entry) for entry, _names, _files in os.walk(directory, topdown=False)]
            for entry in below:
                with contextlib.suppress(FileNotFoundError):
                    wait_for(lambda entry=entry: _removed(entry), 3, 0.05)  # type: ignore[misc]

    def exists(self) -> bool:
        return any(directory.is_dir() for directory in self.directories)


def _removed(entry: Path) -> bool:
    """A group can stay busy for a moment after its last process ended."""
    try:
        entry.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def start_in_scope(scope: str, argv: list[str]) -> list[str]:
    """`argv`, to be run in a delegated scope of systemd where it is the machine's service manager."""
    if not systemd_is_init() or shutil.which("systemd-run") is None:
        return argv
    return ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={scope}", "--property=Delegate=yes", *argv]
