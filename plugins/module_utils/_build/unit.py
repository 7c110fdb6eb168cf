# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient unit in which a build runs, and looks at it: a lost connection does not end a build."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import _transient
from .recipe import BuildError
from .watch import Sample

SWAP_UNIT = "b70-build-swap.service"
_SYSTEMD = _transient.Systemd(BuildError, "a build")
_SWAP_LIMIT_S = 3660.0  # what that unit may take, where nothing but writing every byte makes a swap file
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_GIB = os.sysconf("SC_PAGE_SIZE") / 2**30
_SHOWN = 160


@dataclass(frozen=True)
class Job:
    """What the unit runs. writable: directories that it may write to; everything else is read-only. swap: whether it
    runs only with the swap that is made for it."""

    unit: str
    argv: tuple[str, ...]
    directory: str
    log: str
    user: str
    group: str
    writable: tuple[str, ...]
    environment: Mapping[str, str]
    limit_s: int
    network: bool
    swap: bool = False


@dataclass(frozen=True)
class UnitLook:
    """active: systemd's word, `inactive` for a unit it doesn't know. result: `success`, `exit-code`, `oom-kill`, ..."""

    active: str
    result: str
    status: str

    @property
    def running(self) -> bool:
        return self.active in _transient.RUNNING

    @property
    def failed(self) -> bool:
        return self.active == "failed"


def run_argv(job: Job) -> tuple[str, ...]:
    """The argv of systemd-run. The build gives way to an engine that is served meanwhile, and is ended before it when
    memory runs out."""
    properties = {
        "User": job.user,
        "Group": job.group,
        "WorkingDirectory": job.directory,
        "StandardOutput": f"append:{job.log}",
        "StandardError": f"append:{job.log}",
        "RuntimeMaxSec": str(job.limit_s),
        "OOMPolicy": "stop",
        "OOMScoreAdjust": "800",
        "ReadWritePaths": " ".join(job.writable),
        "ProtectHome": "yes",
        "PrivateNetwork": "no" if job.network else "yes",
    }
    if job.swap:
        properties |= {"Requires": SWAP_UNIT, "After": SWAP_UNIT}
    description = f"Build of {job.unit.removeprefix('b70-build-').removesuffix('.service')}"
    return _transient.run_argv(job.unit, description, properties, job.environment, job.argv)


def start(job: Job) -> None:
    _SYSTEMD.forget(job.unit)
    if not job.swap:
        _SYSTEMD.ask(run_argv(job))
        return
    try:
        _SYSTEMD.ask(run_argv(job), limit_s=_SWAP_LIMIT_S)
    except BuildError as error:
        said = _SYSTEMD.ask(["journalctl", f"--unit={SWAP_UNIT}", "--lines=20", "--output=cat"], check=False).splitlines()
        why = [line for line in said if "no swap for the build" in line][-1:]
        raise BuildError(why[0] if why else f"{error}; the build wants the swap of {SWAP_UNIT}") from error


def stop(unit: str) -> None:
    _SYSTEMD.stop(unit)


def forget(unit: str) -> None:
    """Lets systemd drop a failed unit once its result was read."""
    _SYSTEMD.forget(unit)


def look(unit: str) -> UnitLook:
    values = _SYSTEMD.show(unit, "ActiveState", "Result", "ExecMainStatus")
    return UnitLook(values.get("ActiveState", "inactive"), values.get("Result", ""), values.get("ExecMainStatus", ""))


def parse_stat(text: str) -> tuple[float, float]:
    """(processor seconds with ended children, resident GiB) from /proc/PID/stat."""
    fields = text.rpartition(")")[2].split()
    ticks = sum(int(fields[index]) for index in (11, 12, 13, 14))
    return ticks / _TICKS, int(fields[21]) * _PAGE_GIB


def sample(unit: str, proc: Path = Path("/proc")) -> Sample:
    """What the unit's processes use now."""
    cpu_s, rss, largest, largest_gib, count = 0.0, 0.0, "", 0.0, 0
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"/{unit}" not in (entry / "cgroup").read_text():
                continue
            used, gib = parse_stat((entry / "stat").read_text())
            if gib > largest_gib:
                largest_gib = gib
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                largest = words.strip()[:_SHOWN]
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
        cpu_s, rss, count = cpu_s + used, rss + gib, count + 1
    return Sample(time.monotonic(), cpu_s, rss, count, largest)
