# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what installing a stack on a host means: runs on the controller, reads locks and has no effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _stack_build
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.stacks import locked_versions
from ansible_collections.arcpro.b70.plugins.module_utils._host import version_key


def plan(
    stacks: Iterable[tuple[str, Mapping[str, Any]]],
    host: Mapping[str, Any],
    root: str,
    patch_url: str = "",
    patch_dir: str = "",
) -> list[dict[str, Any]]:
    """What is to be done for each of `stacks` (id and manifest) on a host.

    `host` is what b70_host_info returned, with `root` among its paths. Each answer has `id`, `dir`, `name`, `manifest`,
    `installed`, `reason` (what is wrong with an incomplete installation, else empty), `steps` (what goes before the
    lock), `patches` and `builds` (what is built after it) and `problems` (why it cannot be installed; empty for an
    installed one, which is never touched).
    """
    present = {item["id"]: item for item in host["stacks"]}
    answers = []
    for stack_id, manifest in stacks:
        found = present.get(stack_id, {"complete": False, "reason": ""})
        patches = _stack_build.patches(manifest, patch_url, patch_dir)
        answers.append(
            {
                "id": stack_id,
                "dir": f"{root}/{stack_id}",
                "name": manifest["name"],
                "manifest": dict(manifest),
                "installed": found["complete"],
                "reason": found["reason"],
                "steps": [_step(item, host) for item in manifest.get("first", [])],
                "patches": patches,
                "builds": _stack_build.builds(manifest, _pinned(manifest), host, patches),
                "problems": [] if found["complete"] else problems(manifest, host, root),
            }
        )
    return answers


def _pinned(manifest: Mapping[str, Any]) -> dict[str, str]:
    if not manifest.get("sources") or not manifest.get("lock_file"):
        return {}
    return locked_versions(Path(manifest["lock_file"]).read_text(encoding="utf-8"))


def problems(manifest: Mapping[str, Any], host: Mapping[str, Any], root: str) -> list[str]:
    """Why a stack cannot be installed on a host: one sentence each, with what to do; empty when it can."""
    name = f"Stack {manifest['name']}"
    if not manifest["installable"]:
        return [f"{name} cannot be installed: {manifest['reason']}"]
    found = []
    machine = host["system"]["machine"]
    if machine not in manifest["machines"]:
        found.append(
            f"{name} is for {' or '.join(manifest['machines'])}, this host is {machine}: choose another stack."
        )
    lowest, below = manifest["python"]["min"], manifest["python"]["below"]
    if not version_key(lowest) <= version_key(host["python"] or "0") < version_key(below):
        found.append(
            f"{name} needs Python >= {lowest} and < {below}, this host's is {host['python']}: "
            "set stack_python to one that fits."
        )
    free = host["paths"][root]["free_mib"]
    if free < manifest["disk_mib"]:
        found.append(
            f"{name} needs {manifest['disk_mib']} MiB below {root}, {free} MiB are free: free some, or set stack_root."
        )
    return found


def _step(item: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Any]:
    """One requirement with the hashes known for the host's Python and machine, as a line for a requirements file."""
    tag = "cp" + "".join(str(part) for part in version_key(host["python"] or "")[:2]) + "-" + host["system"]["machine"]
    hashes = item.get("hashes", {}).get(tag, [])
    return {
        "requirement": item["requirement"],
        "line": " ".join([item["requirement"], *(f"--hash={digest}" for digest in hashes)]),
        "hashed": bool(hashes),
        "source": item.get("source", ""),
    }


def lock_requirements(lock: str, host: Mapping[str, Any]) -> list[str]:
    """The requirements (`name==version`) of a lock that apply to a host, markers evaluated for its Python and machine.

    Raises `ValueError` with the line where one cannot be understood.
    """
    # Only on the controller, where ansible-core brings it.
    from packaging.requirements import InvalidRequirement, Requirement

    python = host["python"] or ""
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": host["system"]["machine"],
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }
    found = []
    for line in lock.splitlines():
        if not re.match(r"[A-Za-z0-9]", line):
            continue
        try:
            requirement = Requirement(line.removesuffix("\\").strip())
        except InvalidRequirement as error:
            raise ValueError(f"the lock's line {line!r} is not a requirement: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found.append(f"{requirement.name}{requirement.specifier}")
    return found
