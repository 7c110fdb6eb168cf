# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work on a host as a transient unit of systemd: a lost connection does not end it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._environment import Variable, environment_file
from ._slot.host.commands import ran, said

ANSWER_LIMIT_S = 60.0
# Has the variables of units while they start. For root alone: a proxy's address may have a password in it.
ENVIRONMENTS = "/run/b70-environments"
RUNNING = ("active", "activating", "deactivating", "reloading")
# Every task has these properties unless its own say otherwise. It gives way to an engine that is served meanwhile.
_COMMON = {
    "Type": "exec",
    "TimeoutStopSec": "30",
    "Nice": "10",
    "OOMScoreAdjust": "500",
    "CPUWeight": "20",
    "IOWeight": "20",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "RestrictSUIDSGID": "yes",
    "UMask": "0022",
}


def sealed(allowed: Iterable[str]) -> dict[str, str]:
    """Return the properties of a task without rights that only speaks with the hosts at these addresses.

    Its user exists only while it runs.
    """
    return {
        "DynamicUser": "yes",
        "CapabilityBoundingSet": "",
        "IPAddressAllow": " ".join(sorted(allowed)),
        "IPAddressDeny": "any",
        "LockPersonality": "yes",
        "MemoryDenyWriteExecute": "yes",
        "PrivateDevices": "yes",
        "ProtectControlGroups": "yes",
        "ProtectHome": "read-only",
        "ProtectKernelModules": "yes",
        "ProtectKernelTunables": "yes",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "RestrictNamespaces": "yes",
        "SystemCallArchitectures": "native",
        "SystemCallFilter": "@system-service",
    }


@dataclass(frozen=True)
class Task:
    """One command as a transient unit. What is left empty stays as systemd has it.

    :param unit: the name of the unit, ending in ``.service``.
    :param limit_s: seconds after which systemd ends the command.
    :param writable: directories that the command may write to; with none named, ``properties`` decide.
    :param environment: variables, which may hold secrets. Everybody may read the properties of a unit and the command
        line of systemd-run, so the unit reads them from a file.
    :param properties: what this kind of work needs beside the common properties, or instead of them.
    """

    unit: str
    description: str
    argv: Sequence[str]
    limit_s: int
    directory: str = ""
    log: str = ""
    user: str = ""
    group: str = ""
    writable: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment_file(self) -> str:
        return f"{ENVIRONMENTS}/{self.unit}"

    def run_argv(self) -> tuple[str, ...]:
        """Return the argv of systemd-run that starts the unit."""
        log = f"append:{self.log}" if self.log else ""
        own = {
            "User": self.user,
            "Group": self.group,
            "WorkingDirectory": self.directory,
            "StandardOutput": log,
            "StandardError": log,
            "ReadWritePaths": " ".join(self.writable),
            "EnvironmentFile": self.environment_file if self.environment else "",
        }
        properties = {
            **_COMMON,
            **{key: value for key, value in own.items() if value},
            "RuntimeMaxSec": str(self.limit_s),
            **self.properties,
        }
        return (
            "systemd-run",
            "--quiet",
            f"--unit={self.unit}",
            f"--description={self.description}",
            *(f"--property={key}={value}" for key, value in properties.items()),
            "--",
            *self.argv,
        )

    def piped_argv(self) -> tuple[str, ...]:
        """Return the same for a caller that waits for the command, and reads what it prints and its exit status."""
        command, *rest = self.run_argv()
        return (command, "--pipe", "--wait", "--collect", *rest)


@contextlib.contextmanager
def _environment(task: Task) -> Iterator[None]:
    """Have the file with the variables of a task while it starts; systemd has read it by then."""
    if not task.environment:
        yield
        return
    os.makedirs(ENVIRONMENTS, mode=0o700, exist_ok=True)
    variables = {name: Variable(value, task.description) for name, value in sorted(task.environment.items())}
    handle = os.open(task.environment_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(environment_file(variables, task.unit))
        yield
    finally:
        os.unlink(task.environment_file)


@dataclass(frozen=True)
class TransientState:
    """The state of a unit, in the words of systemd.

    :param active: such as ``active`` or ``failed``; ``inactive`` for a unit that systemd does not know.
    :param result: ``success``, ``exit-code``, ``oom-kill``, ``timeout`` and the like.
    :param status: the exit status of the command.
    """

    active: str
    result: str
    status: str

    @property
    def running(self) -> bool:
        return self.active in RUNNING

    @property
    def failed(self) -> bool:
        return self.active == "failed"


@dataclass(frozen=True)
class TransientUnits:
    """The commands of systemd for one kind of work.

    :param fault: the exception that is raised with what went wrong.
    :param what: names the work in messages, such as ``a build``.
    """

    fault: type[Exception]
    what: str

    def ask(self, argv: Sequence[str], *, check: bool = True, limit_s: float = ANSWER_LIMIT_S) -> str:
        """Return what a command prints. Its exit status counts only with `check`."""
        ask: Callable[..., Any] = said if check else ran
        found = ask(argv, limit_s, self.fault, needs=f"; {self.what} runs as a unit of systemd")
        return str(found if check else found.stdout)

    def start(self, task: Task, *, limit_s: float = ANSWER_LIMIT_S) -> None:
        """Start a unit, also where one of that name failed before. `limit_s` bounds the start, not the work."""
        self.forget(task.unit)
        with _environment(task):
            self.ask(task.run_argv(), limit_s=limit_s)

    def stop(self, unit: str) -> None:
        self.ask(["systemctl", "stop", unit])

    def forget(self, unit: str) -> None:
        """Let systemd drop a failed unit once its result is read."""
        self.ask(["systemctl", "reset-failed", unit], check=False)

    def state(self, unit: str) -> TransientState:
        text = self.ask(["systemctl", "show", "--property=ActiveState,Result,ExecMainStatus", unit])
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return TransientState(
            values.get("ActiveState", "inactive"), values.get("Result", ""), values.get("ExecMainStatus", "")
        )
