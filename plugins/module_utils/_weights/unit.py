# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient unit in which a model is fetched: a lost connection does not end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .. import _transient
from .manifest import WeightsError

_SYSTEMD = _transient.Systemd(WeightsError, "a download")


@dataclass(frozen=True)
class Unit:
    """What is run. writable: folders that it may write to; everything else is read-only. credential: a file or none."""

    name: str
    argv: tuple[str, ...]
    directory: str
    log: str
    user: str
    writable: tuple[str, ...]
    environment: Mapping[str, str]
    limit_s: int
    credential: str = ""


def argv(unit: Unit) -> tuple[str, ...]:
    """The argv of systemd-run. It gives way to an engine that is served meanwhile, and has no rights but its user's."""
    properties = {
        "User": unit.user,
        "WorkingDirectory": unit.directory,
        "StandardOutput": f"append:{unit.log}",
        "StandardError": f"append:{unit.log}",
        "RuntimeMaxSec": str(unit.limit_s),
        "CapabilityBoundingSet": "",
        "ReadWritePaths": " ".join(unit.writable),
        "ProtectHome": "read-only",
        "PrivateDevices": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    }
    if unit.credential:
        properties["LoadCredential"] = f"token:{unit.credential}"
    return _transient.run_argv(unit.name, "Download of a model", properties, unit.environment, unit.argv)


def start(unit: Unit) -> None:
    _SYSTEMD.forget(unit.name)
    _SYSTEMD.ask(argv(unit))


def stop(name: str) -> None:
    _SYSTEMD.stop(name)


def forget(name: str) -> None:
    """Let systemd drop a failed unit."""
    _SYSTEMD.forget(name)


def look(name: str) -> tuple[bool, str]:
    """Whether it runs, and systemd's word for how it ended."""
    values = _SYSTEMD.show(name, "ActiveState", "Result")
    return values.get("ActiveState") in _transient.RUNNING, values.get("Result", "")
