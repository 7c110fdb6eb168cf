# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's effects on a real host: programs, files, inspections. Everything here only reads."""

from __future__ import annotations

import contextlib
import glob
import grp
import json
import os
import platform
import pwd
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _host
from .._build import room
from .._environment import SYSTEM_PATH
from .._oneapi import releases
from .._slot.host.commands import whole
from .._slot.host.http import HttpClient
from .._slot.host.images import PodmanImages
from .._slot.words.types import layout_of
from .._slot_module import run_info
from .._weights.host import inspect as inspect_weights
from .._weights.manifest import WeightsError
from . import environment
from .checks.links import SUBSTATES
from .checks.runtime import DRIVER_LIBRARY, LDCONFIG, ONEAPI
from .model import Command, Look, Output, Read, Site
from .parse import libraries

SYSFS = "/sys"
KEPT_BYTES = 8 * 2**20
HTTP_LIMIT_S = 3.0
LINK_FILES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width", *SUBSTATES)

# Runs as the service user and tests whether it may create files. The kernel considers read-only mounts and ACLs.
ACCESS = """
import json, os, sys
print(json.dumps({path: os.access(path, int(mode)) for path, mode in json.loads(sys.argv[1]).items()}))
"""


def survey(settings: Mapping[str, Any], manifests: Mapping[str, Mapping[str, Any]]) -> Site:
    """Return the facts before the probes: cards, stacks, and profiles that serve, start at boot or were named."""
    release = _host.parse_os_release(_text(Path("/etc/os-release")))
    state = slot_state(settings)
    return Site(
        settings=settings,
        cards=_host.cards(Path(SYSFS)),
        others=_host.other_cards(Path(SYSFS)),
        stacks=_host.stacks(Path(settings["stack_root"]), PodmanImages().id_of),
        wanted=wanted_profiles(settings, state),
        manifests=manifests,
        account=_host.account_facts(settings["user"], pwd.getpwnam, grp.getgrall()),
        system={
            "id": release.get("ID", ""),
            "version": release.get("VERSION_ID", ""),
            "name": release.get("PRETTY_NAME", ""),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "kernel_arguments": _text(Path("/proc/cmdline")).split(),
            "next_kernel": _host.next_kernel(Path("/")),
            "guc_file": _host.guc_of_file(Path("/") / _host.GUC_FILE),
        },
        installed=os.path.isdir(settings["config_dir"]),
        serving=str((state.get("profile") or {}).get("name", "")) if state.get("verified") else "",
    )


def slot_state(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the slot's state file; empty if there is none or nothing runs."""
    state = _json(Path(layout_of(settings).state_file))
    return state if isinstance(state, dict) and state.get("phase") not in (None, "stopped") else {}


def wanted_profiles(settings: Mapping[str, Any], state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the resolved profiles that are named, start at boot or are served.

    An unreadable one is left to its checks.
    """
    layout = layout_of(settings)
    names = list(settings.get("profiles") or [])
    for link in sorted(glob.glob(f"{settings['unit_dir']}/*.wants/{layout.unit_prefix}*.service")):
        names.append(layout.profile_of(os.path.basename(link)))
    names.append(str((state.get("profile") or {}).get("name", "")))
    found = (_json(Path(layout.profile_json(name))) for name in dict.fromkeys(names) if name)
    return [profile for profile in found if isinstance(profile, dict) and "engine" in profile and "model" in profile]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class DoctorHost:
    """Effects for one run. `site` is the result of `survey`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._looks: Mapping[str, Callable[[str], Any]] = {
            "system": self._system,
            "disks": self._disks,
            "build-room": self._build_room,
            "driver-libraries": self._driver_libraries,
            "device-nodes": self._device_nodes,
            "pci-paths": self._pci_paths,
            "record": lambda stack: environment.record(Path(stack), bool(site.settings.get("deep"))),
            "extensions": self._extensions,
            "compilers": lambda _argument: releases(Path(ONEAPI)),
            "slot": lambda _argument: run_info(site.settings),
            "outdated-services": lambda _argument: _host.outdated_services(Path("/proc")),
            "http": http_get,
            "weights": self._weights,
            "cache-directories": self._cache_directories,
        }

    def run(self, command: Command) -> Output:
        extra: dict[str, Any] = {}
        account = self._site.account
        if command.as_user and account is not None and os.geteuid() == 0:
            primary = pwd.getpwuid(account["uid"]).pw_gid
            extra = {"user": account["uid"], "group": primary, "extra_groups": list(account["gids"])}
        if command.owner_of and os.geteuid() == 0:
            with contextlib.suppress(OSError):  # then the program finds nothing either
                owner = os.stat(command.owner_of)
                extra = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        return run_command(command, extra)

    def read(self, read: Read) -> dict[str, str]:
        found = {}
        for pattern in read.patterns:
            for path in sorted(glob.glob(pattern)):
                with contextlib.suppress(OSError), open(path, "rb") as stream:
                    found[path] = stream.read(read.max_bytes).decode("utf-8", "replace")
        return found

    def look(self, look: Look) -> Any:
        return self._looks[look.name](look.argument)

    def _system(self, _argument: str) -> list[str]:
        python = platform.python_version()
        booted = os.path.isdir("/run/systemd/system")
        return _host.problems(self._site.system, python, sys.executable, booted, os.geteuid() == 0)

    def _disks(self, _argument: str) -> list[dict[str, Any]]:
        return [
            disk(path) for path in dict.fromkeys((*self._site.settings["data_dirs"], self._site.settings["stack_root"]))
        ]

    def _build_room(self, _argument: str) -> dict[str, Any]:
        settings = self._site.settings
        swap = settings["build_swap"] or {}
        return vars(
            room.here(
                Path(settings["build_dir"]),
                str(swap.get("file") or ""),
                int(swap.get("total_gib") or 0),
                int(swap.get("reserve_gib") or 0),
            )
        )

    def _driver_libraries(self, _argument: str) -> list[dict[str, str]]:
        """Return the driver's libraries in the loader's search order, with links resolved."""
        output = self.run(LDCONFIG)
        if not output.ok:
            raise LookupError(f"ldconfig -p: {output.why()}")
        return [
            {"name": name, "path": path, "file": os.path.realpath(path)}
            for name, path in libraries(output.out)
            if DRIVER_LIBRARY.fullmatch(name)
        ]

    def _device_nodes(self, _argument: str) -> list[dict[str, Any]]:
        paths = [card["render_node"] for card in self._site.cards if card["render_node"]]
        usable = self._may(dict.fromkeys(paths, os.R_OK | os.W_OK))
        rows = []
        for path in paths:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                rows.append({"path": path, "mode": "none", "group": "none, it is not there", "usable": False})
                continue
            try:
                group = grp.getgrgid(status.st_gid).gr_name
            except KeyError:
                group = str(status.st_gid)
            rows.append(
                {"path": path, "mode": f"{status.st_mode & 0o7777:04o}", "group": group, "usable": usable[path]}
            )
        return rows

    def _pci_paths(self, _argument: str) -> dict[str, dict[str, dict[str, str]]]:
        """Return, by card, the link files of every PCI device on its way from the root port, by device."""
        found = {}
        for address in self._site.addresses:
            parts = [
                part
                for part in os.path.realpath(f"{SYSFS}/bus/pci/devices/{address}").split("/")
                if part.count(":") == 2
            ]
            found[address] = {
                part: {name: _text(Path(f"{SYSFS}/bus/pci/devices/{part}/{name}")).strip() for name in LINK_FILES}
                for part in parts
            }
        return found

    def _extensions(self, stack: str) -> dict[str, Any]:
        env: Mapping[str, Any] = next(
            (p["engine"].get("env", {}) for p in self._site.wanted if p.get("stack", {}).get("dir") == stack), {}
        )
        search = [part for part in str(env.get("LD_LIBRARY_PATH", "")).split(":") if part]
        return environment.extensions(Path(stack), search)

    def _weights(self, path: str) -> dict[str, Any]:
        try:
            return inspect_weights(path, None, {}, bool(self._site.settings.get("deep")), False).as_result()
        except WeightsError as error:
            return {"state": "incomplete", "reason": str(error)}

    def _cache_directories(self, _argument: str) -> list[dict[str, str]]:
        paths = list(self._site.settings["cache_dirs"])
        paths += [
            root for profile in self._site.wanted if (root := profile["engine"].get("env", {}).get("VLLM_CACHE_ROOT"))
        ]
        nearest = {path: existing(path) for path in dict.fromkeys(paths)}
        may = self._may(dict.fromkeys(nearest.values(), os.W_OK | os.X_OK))
        return [{"path": path, "problem": cache_problem(path, found, may[found])} for path, found in nearest.items()]

    def _may(self, wanted: Mapping[str, int]) -> dict[str, bool]:
        """Return, by path, whether the service user has the wanted access; for root the answer would always be yes."""
        command = Command(
            (sys.executable, "-I", "-c", ACCESS, json.dumps(dict(wanted))),
            limit_s=10,
            as_user=True,
            env=(("HOME", "/"),),
        )
        output = self.run(command)
        if not output.ok:
            raise LookupError(f"the user {self._site.settings['user']} could not be asked: {output.why()}")
        answer: dict[str, bool] = json.loads(output.out)
        return answer


def existing(path: str) -> str:
    """Return the path, or its nearest existing parent folder."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def cache_problem(path: str, found: str, writable: bool) -> str:
    """Return why a cache directory is not writable, else empty."""
    if not os.path.isdir(found):
        return "it is not a directory"
    if writable:
        return ""
    if os.statvfs(found).f_flag & os.ST_RDONLY:
        return "the file system is mounted read-only"
    if found != path:
        return f"it does not exist and {found} is not writable"
    status = os.stat(found)
    return f"mode {status.st_mode & 0o7777:04o}, owner uid {status.st_uid} gid {status.st_gid}"


def disk(path: str) -> dict[str, Any]:
    """Free space and inodes of the file system of a path, which need not exist."""
    status = os.statvfs(existing(path))
    inodes = 100 * status.f_favail // status.f_files if status.f_files else 100
    return {
        "path": path,
        "size_mib": status.f_blocks * status.f_frsize // 2**20,
        "free_mib": status.f_bavail * status.f_frsize // 2**20,
        "free_inodes_percent": inodes,
    }


def http_get(url: str) -> dict[str, Any]:
    """Return `status` (0: no answer), `body` and `error` of a GET from this host."""
    reply = HttpClient().get(url, HTTP_LIMIT_S)
    return {"status": reply.status, "body": reply.text[: 2**20], "error": reply.error}


def run_command(command: Command, extra: Mapping[str, Any]) -> Output:
    """Run a program to its end or its limit, then end its whole process group."""
    env = {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8", "HOME": "/", **dict(command.env)}
    try:
        code, out, err = whole(command.argv, command.limit_s, command.stdin, env=env, cwd="/", **extra)
    except FileNotFoundError:
        return Output(problem=f"{command.argv[0]} is not installed")
    except OSError as error:
        return Output(problem=f"{command.argv[0]} cannot be run: {error.strerror}")
    if code is None:
        name = os.path.basename(command.argv[0])
        return Output(problem=f"{name} did not end within {command.limit_s:.0f} s", late=True)
    return Output(code, _decode(out), _decode(err))


def _decode(data: bytes) -> str:
    return data[-KEPT_BYTES:].decode("utf-8", "replace")


def names_of_people(minimum: int = 1000) -> Sequence[str]:
    """Return the accounts of people on this host, which a report must not name."""
    return [entry.pw_name for entry in pwd.getpwall() if minimum <= entry.pw_uid < 60000]
