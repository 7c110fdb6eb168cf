# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient unit in which a model is fetched: a lost connection does not end it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .manifest import WeightsError

_LIMIT_S = 60.0
_RUNNING = ("active", "activating", "deactivating", "reloading")


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
        "Type": "exec",
        "User": unit.user,
        "WorkingDirectory": unit.directory,
        "StandardOutput": f"append:{unit.log}",
        "StandardError": f"append:{unit.log}",
        "RuntimeMaxSec": str(unit.limit_s),
        "TimeoutStopSec": "30",
        "Nice": "10",
        "CPUWeight": "20",
        "IOWeight": "20",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ReadWritePaths": " ".join(unit.writable),
        "ProtectHome": "read-only",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "RestrictSUIDSGID": "yes",
        "UMask": "0022",
    }
    if unit.credential:
        properties["LoadCredential"] = f"token:{unit.credential}"
    return (
        "systemd-run",
        "--quiet",
        f"--unit={unit.name}",
        "--description=Download of a model",
        *(f"--property={key}={value}" for key, value in properties.items()),
        *(f"--setenv={key}={value}" for key, value in sorted(unit.environment.items())),
        "--",
        *unit.argv,
    )


def start(unit: Unit) -> None:
    _run(["systemctl", "reset-failed", unit.name], check=False)
    _run(argv(unit))


def stop(name: str) -> None:
    _run(["systemctl", "stop", name])


def forget(name: str) -> None:
    """Let systemd drop a failed unit."""
    _run(["systemctl", "reset-failed", name], check=False)


def look(name: str) -> tuple[bool, str]:
    """Whether it runs, and systemd's word for how it ended."""
    text = _run(["systemctl", "show", "--property=ActiveState,Result", name])
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return values.get("ActiveState") in _RUNNING, values.get("Result", "")


def _run(words: Sequence[str], *, check: bool = True) -> str:
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise WeightsError(f"{words[0]} is not installed; a download runs as a unit of systemd") from error
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"`{words[0]} {words[1]}` gave no answer within {_LIMIT_S:g} s") from error
    if check and done.returncode != 0:
        raise WeightsError(f"`{words[0]} {words[1]}` failed: {done.stderr.strip()[-300:]}")
    return done.stdout
