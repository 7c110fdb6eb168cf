# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transient units of systemd for long work: a lost connection does not end it, and it gives way to a served engine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIMIT_S = 60.0
RUNNING = ("active", "activating", "deactivating", "reloading")
# What every such unit has, whatever it runs.
COMMON = {
    "Type": "exec",
    "TimeoutStopSec": "30",
    "Nice": "10",
    "CPUWeight": "20",
    "IOWeight": "20",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "RestrictSUIDSGID": "yes",
    "UMask": "0022",
}


def run_argv(
    name: str,
    description: str,
    properties: Mapping[str, str],
    environment: Mapping[str, str],
    argv: Sequence[str],
) -> tuple[str, ...]:
    """The argv of systemd-run for a unit with the common properties and these."""
    return (
        "systemd-run",
        "--quiet",
        f"--unit={name}",
        f"--description={description}",
        *(f"--property={key}={value}" for key, value in {**COMMON, **properties}.items()),
        *(f"--setenv={key}={value}" for key, value in sorted(environment.items())),
        "--",
        *argv,
    )


@dataclass(frozen=True)
class Systemd:
    """The commands of systemd for one kind of work. fault: raised with what went wrong. what: names the work."""

    fault: type[Exception]
    what: str

    def ask(self, argv: Sequence[str], *, check: bool = True, limit_s: float = LIMIT_S) -> str:
        """What a command says; its exit status counts only with `check`."""
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise self.fault(f"{argv[0]} is not installed; {self.what} runs as a unit of systemd") from error
        except subprocess.TimeoutExpired as error:
            raise self.fault(f"`{argv[0]} {argv[1]}` gave no answer within {limit_s:g} s") from error
        if check and done.returncode != 0:
            raise self.fault(f"`{argv[0]} {argv[1]}` failed: {done.stderr.strip()[-300:]}")
        return done.stdout

    def stop(self, name: str) -> None:
        self.ask(["systemctl", "stop", name])

    def forget(self, name: str) -> None:
        """Lets systemd drop a failed unit once its result was read."""
        self.ask(["systemctl", "reset-failed", name], check=False)

    def show(self, name: str, *properties: str) -> dict[str, str]:
        text = self.ask(["systemctl", "show", f"--property={','.join(properties)}", name])
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
