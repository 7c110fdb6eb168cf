# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release as it is wanted, a host as it is found, and the steps from one to the other. No effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeAlias

UNIT = "b70-openai-frontdoor.service"
HELPER = "b70-slot-admin@.service"
SOCKET = "b70-slot-admin.socket"
# For a command that waits for nobody.
COMMAND_LIMIT_S = 60.0

# The facts of a path, as `_desired_state.file_facts` returns them.
Facts = Mapping[str, Any]


class ReleaseFault(Exception):
    """Something went wrong. The text says what, and where. evidence: what else the result has."""

    def __init__(self, text: str, evidence: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.evidence = dict(evidence or {})


@dataclass(frozen=True)
class File:
    """A text file of root as it must be; without content it must not exist.

    check: the command that judges it, to which the path of a copy is appended. secret: its content is never shown.
    """

    path: str
    content: str | None
    mode: str = "0644"
    group: str = "root"
    secret: bool = False
    check: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleasePaths:
    """The places of the frontdoor on a host. link: names the environment in use. directory: holds the environments."""

    link: str
    directory: str
    config_dir: str
    unit_dir: str
    group: str

    @property
    def unit_files(self) -> tuple[str, ...]:
        return tuple(f"{self.unit_dir}/{unit}" for unit in (UNIT, HELPER, SOCKET))

    @property
    def config_file(self) -> str:
        return f"{self.config_dir}/frontdoor.toml"

    @property
    def key_files(self) -> tuple[str, str]:
        return f"{self.config_dir}/keys.toml", f"{self.config_dir}/admin-keys.toml"

    @property
    def kept_files(self) -> tuple[str, ...]:
        """The files that the way back needs; keys are none of them, a revoked one stays revoked."""
        return self.config_file, *self.unit_files

    @property
    def kept_dir(self) -> str:
        return f"{self.config_dir}/served"

    @property
    def record_file(self) -> str:
        return f"{self.kept_dir}/record"

    def kept(self, path: str) -> str:
        """Return the path of the copy of one of `kept_files`."""
        return f"{self.kept_dir}/{PurePosixPath(path).name}"


def program_of(build: str) -> str:
    """Return the part of a build that only another process changes; a running process can read its settings again."""
    return build.partition(".")[0]


@dataclass(frozen=True)
class Identity:
    """The answer of a release, the environment it runs from, and the address at which the host asks it.

    build: names the program and its unit and, behind a dot, its settings.
    """

    build: str
    environment: str
    url: str

    @property
    def program(self) -> str:
        return program_of(self.build)

    @property
    def text(self) -> str:
        return f"{self.build}\n{self.environment}\n{self.url}\n"

    @classmethod
    def parse(cls, text: str) -> Identity | None:
        lines = text.splitlines()
        return cls(*lines) if len(lines) == 3 else None


@dataclass(frozen=True)
class Release:
    """The release that must serve. start_timeout, stop_timeout: limits of the service in seconds."""

    place: ReleasePaths
    identity: Identity
    config: File
    units: tuple[File, File, File]
    keys: tuple[File, File]
    start_timeout: int
    stop_timeout: int


@dataclass(frozen=True)
class ServiceState:
    """A unit of systemd."""

    enabled: bool = False
    active: bool = False


@dataclass(frozen=True)
class HostBefore:
    """A host as it was before anything was touched.

    files: facts by path. texts: contents of `ReleasePaths.kept_files` and of the record, where they exist. children:
    paths in each of the directories. answers: the build that answers at the wanted address, or empty. own_folder:
    whether the link, or the folder in its place, is an environment of ours.
    """

    files: Mapping[str, Facts]
    texts: Mapping[str, str]
    children: Mapping[str, tuple[str, ...]]
    units: Mapping[str, ServiceState]
    group: bool
    answers: str = ""
    own_folder: bool = False


@dataclass(frozen=True)
class LastRelease:
    """The known parts of the release that served last. folder: a folder is where its link belongs."""

    identity: Identity | None
    texts: Mapping[str, str]
    folder: bool


# Each step says in `told` what it does, so that "would" can stand before it.


@dataclass(frozen=True)
class Write:
    file: File

    @property
    def told(self) -> str:
        return f"write {self.file.path}"


@dataclass(frozen=True)
class MakeDirectory:
    path: str

    @property
    def told(self) -> str:
        return f"make the directory {self.path}"


@dataclass(frozen=True)
class Move:
    source: str
    target: str

    @property
    def told(self) -> str:
        return f"move {self.source} to {self.target}"


@dataclass(frozen=True)
class MakeLink:
    path: str
    target: str

    @property
    def told(self) -> str:
        return f"link {self.path} to {self.target}"


@dataclass(frozen=True)
class Remove:
    """A file, a link or a whole folder goes."""

    path: str

    @property
    def told(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True)
class RunCommand:
    argv: tuple[str, ...]
    told: str
    limit_s: float = COMMAND_LIMIT_S


@dataclass(frozen=True)
class Keep:
    """Copies `ReleasePaths.kept_files` as they are now, and says of whom."""

    place: ReleasePaths
    identity: Identity

    @property
    def told(self) -> str:
        return f"record what {self.identity.environment} serves with"


@dataclass(frozen=True)
class Await:
    """Waits until a release answers with its build."""

    identity: Identity
    limit_s: int

    @property
    def told(self) -> str:
        return f"see that {UNIT} answers at {self.identity.url}"


@dataclass(frozen=True)
class Reload:
    """Has the service read its settings again, and starts it anew where it says that they need that."""

    identity: Identity
    limit_s: int
    restart: RunCommand

    @property
    def told(self) -> str:
        return f"make sure that {UNIT} uses its settings"


Step: TypeAlias = "Write | MakeDirectory | Move | MakeLink | Remove | RunCommand | Keep | Await | Reload"


@dataclass(frozen=True)
class ReleasePlan:
    """Steps in their order. Only what fails in `activate` leads to the way back."""

    prepare: tuple[Step, ...] = ()
    activate: tuple[Step, ...] = ()
    finish: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.prepare + self.activate + self.finish


class ReleaseEffects(Protocol):
    """The effects of a release on the host."""

    def do(self, step: Step) -> None:
        """Take a step. Raise ReleaseFault, also for a limit that has passed."""

    def kept(self, place: ReleasePaths) -> LastRelease: ...

    def answers(self, url: str) -> str:
        """Return the build that answers at an address; empty where none does."""

    def journal(self) -> list[str]:
        """Return the last lines that the last start of the service wrote; none where nothing is known."""
