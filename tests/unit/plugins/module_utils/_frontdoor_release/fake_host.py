# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in memory: files, links, units of systemd, and a frontdoor that serves what its unit says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release import plan, run, spec
from ansible_collections.arcpro.b70.plugins.module_utils._frontdoor_release.types import (
    SOCKET,
    UNIT,
    Await,
    HostBefore,
    Identity,
    Keep,
    LastRelease,
    MakeDirectory,
    MakeLink,
    Move,
    Release,
    ReleaseFault,
    ReleasePaths,
    ReleasePlan,
    Reload,
    Remove,
    RunCommand,
    ServiceState,
    Step,
    Write,
)

DIGEST = "sha256:" + "a" * 64
ROOT_FILE = {"owner": "root", "group": "root", "mode": "0644", "target": None}


def options(name: str = "one", *, settings: str = "", helper: bool = False, keys: bool = False) -> dict[str, Any]:
    """Return the module's options for a release."""
    environment = f"/opt/b70/door/venv-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return {
        "build": f"build-{name}",
        "certificate": "",
        "environment": environment,
        "status_url": "http://127.0.0.1:8000/status",
        "config": f"name = {settings or name}\n",
        "unit": "Environment=B70_FRONTDOOR_BUILD=\n",
        "helper_unit": "[Service]\n" if helper else "",
        "helper_socket": "[Socket]\n" if helper else "",
        "api_keys": f'[keys]\n"alice" = "{DIGEST}"\n' if keys else "",
        "admin_keys": "",
        "group": "door",
        "directory": "/opt/b70/door",
        "link": "/opt/b70/door/venv",
        "config_dir": "/etc/door",
        "start_timeout": 5,
        "stop_timeout": 5,
    }


def release(name: str = "one", *, settings: str = "", helper: bool = False, keys: bool = False) -> Release:
    """A release whose build is called build-NAME.SETTINGS; those of `fixed` need a restart."""
    made = spec.release(options(name, settings=settings, helper=helper, keys=keys))
    return replace(made, identity=replace(made.identity, build=f"build-{name}.{settings or name}"))


PLACE = release().place


class FakeHost:
    """The effects in memory. fails: which steps do. poisoned: builds that do not come up."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.modes: dict[str, tuple[str, str]] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = {"/opt/b70/door"}
        self.groups: set[str] = set()
        self.enabled: set[str] = set()
        self.active: set[str] = set()
        self.known_unit = ""
        self.running = ""
        self.poisoned: set[str] = set()
        self.done: list[Step] = []
        self.fails: Callable[[Step], bool] = lambda step: False

    def install(self, wanted: Release) -> None:
        self.folders.add(wanted.identity.environment)

    def found(self) -> HostBefore:
        place = PLACE
        paths = (*place.kept_files, *place.key_files, place.record_file, place.link, place.config_dir)
        folders = ("/opt/b70/door", "/etc/door")
        everything = {*self.files, *self.links, *self.folders}
        children = {
            folder: tuple(sorted(path for path in everything if str(PurePosixPath(path).parent) == folder))
            for folder in folders
            if folder in self.folders
        }
        return HostBefore(
            files={path: self._facts(path) for path in paths},
            texts={path: self.files[path] for path in (*place.kept_files, place.record_file) if path in self.files},
            children=children,
            units={unit: ServiceState(unit in self.enabled, unit in self.active) for unit in (UNIT, SOCKET)},
            group=place.group in self.groups,
            answers=self.running,
            own_folder=place.link in self.folders or place.link in self.links,
        )

    def _facts(self, path: str) -> dict[str, str | None]:
        nothing = dict.fromkeys(("owner", "group", "mode", "target", "sha256"))
        if path in self.links:
            return {**nothing, "state": "link", "target": self.links[path]}
        if path in self.folders:
            return {**nothing, "state": "directory", "owner": "root", "group": "root", "mode": "0755"}
        if path in self.files:
            mode, group = self.modes.get(path, ("0644", "root"))
            digest = hashlib.sha256(self.files[path].encode()).hexdigest()
            return {**ROOT_FILE, "state": "file", "mode": mode, "group": group, "sha256": digest}
        return {**nothing, "state": "absent"}

    def do(self, step: Step) -> None:
        if self.fails(step):
            raise ReleaseFault("no space left on device")
        self.done.append(step)
        match step:
            case Write(file):
                self.files[file.path] = file.content or ""
                self.modes[file.path] = (file.mode, file.group)
            case MakeDirectory(path):
                self.folders.add(path)
            case Move(source, target):
                self.folders = {target if path == source else path for path in self.folders}
            case MakeLink(path, target):
                assert path not in self.folders
                self.links[path] = target
            case Remove(path):
                self._remove(path)
            case RunCommand(argv, _told, _limit):
                self._command(*argv)
            case Keep(place, identity):
                self._keep(place, identity)
            case Await(identity, _limit):
                if self.running != identity.build:
                    raise ReleaseFault("nobody answered within 5 s")
            case Reload(identity, _limit, restart):
                self._reload(identity, restart)

    def _settings(self) -> str:
        return self.files[PLACE.config_file].split()[-1]

    def _reload(self, identity: Identity, restart: RunCommand) -> None:
        if self._settings() == "fixed":
            self._command(*restart.argv)
        elif self._settings() != "bad":
            self.running = f"{self.running.partition('.')[0]}.{self._settings()}"
        if self.running != identity.build:
            raise ReleaseFault("another build answered within 5 s")

    def _remove(self, path: str) -> None:
        self.links.pop(path, None)
        for known in [known for known in self.files if known == path or known.startswith(f"{path}/")]:
            del self.files[known]
        self.folders = {known for known in self.folders if known != path and not known.startswith(f"{path}/")}

    def _command(self, program: str, *words: str) -> None:
        if program in ("groupadd", "groupdel"):
            (self.groups.add if program == "groupadd" else self.groups.discard)(words[-1])
            return
        unit = words[-1]
        if words[0] == "daemon-reload":
            self.known_unit = self.files.get(f"{PLACE.unit_dir}/{UNIT}", "")
        elif f"{PLACE.unit_dir}/{unit}" not in self.files:
            raise ReleaseFault(f"Unit {unit} not found")
        elif words[0] == "enable":
            self.enabled.add(unit)
        elif words[0] == "disable":
            self.enabled.discard(unit)
            self.active.discard(unit)
            self.running = "" if unit == UNIT else self.running
        elif unit == UNIT:
            build = re.search("BUILD=(.*)", self.known_unit)
            assert build, "restarted without a unit that systemd knows"
            self.running = "" if build[1] in self.poisoned else f"{build[1]}.{self._settings()}"
            self.active.add(unit)
        else:
            self.active.add(unit)

    def _keep(self, place: ReleasePaths, identity: Identity) -> None:
        self._remove(place.kept_dir)
        self.folders.add(place.kept_dir)
        self.files |= {place.kept(path): self.files[path] for path in place.kept_files if path in self.files}
        self.files[place.record_file] = identity.text

    def kept(self, place: ReleasePaths) -> LastRelease:
        record = self.files.get(place.record_file)
        texts = {path: self.files.get(place.kept(path)) for path in place.kept_files}
        return LastRelease(
            Identity.parse(record) if record else None,
            {path: text for path, text in texts.items() if text is not None},
            place.link in self.folders,
        )

    def answers(self, url: str) -> str:
        return self.running

    def journal(self) -> list[str]:
        return ["RuntimeError: poisoned", f"key {DIGEST}"]


def converge(host: FakeHost, wanted: Release) -> ReleasePlan:
    """Bring a host to a release; the plan that did."""
    host.install(wanted)
    planned = plan.presence(wanted, host.found())
    host.done.clear()
    run.carry_out(planned, host, wanted)
    return planned
