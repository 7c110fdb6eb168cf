# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the environment of a stack on the disk: its installed files and its native extensions.

Functions of a directory. Nothing is imported or written.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .abi import misfits, uses_torch
from .elf import Elf

FINGERPRINT = "fingerprint.json"
SHOWN_PROBLEMS = 20
# The loader's default folders, besides those of a file and its environment.
SYSTEM_LIBRARIES = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/usr/lib",
)


def site_packages(stack: Path) -> Path:
    """Return the stack's folder of installed packages; raise LookupError if it has none."""
    found = sorted(stack.glob("venv/lib/python3*/site-packages"))
    if not found:
        raise LookupError(f"{stack}/venv has no site-packages")
    return found[0]


def distributions(folder: Path) -> dict[str, tuple[str, Path]]:
    """Return version and dist-info folder of each installed distribution, by name (lower case, dashes)."""
    found = {}
    for info in sorted(folder.glob("*.dist-info")):
        name, _dash, version = info.name.removesuffix(".dist-info").rpartition("-")
        found[name.lower().replace("_", "-")] = (version, info)
    return found


def record(stack: Path, deep: bool) -> dict[str, Any]:
    """Compare the installed files with their RECORDs, and the distributions with the stack's fingerprint.

    Return `files` (how many were looked at), `problems` (what is missing, changed, added or removed) and
    `distributions` (name -> version). `deep` reads every file, otherwise only sizes are compared.

    `files`: how many were looked at; `problems`: what is missing, changed, added or removed; `distributions`: name ->
    version. `deep` reads every file, otherwise only sizes are compared.
    """
    folder = site_packages(stack)
    installed = distributions(folder)
    problems = _against_fingerprint(stack, {name: version for name, (version, _info) in installed.items()})
    count = 0
    for name, (_version, info) in installed.items():
        for path, digest, size in _rows(info / "RECORD"):
            count += 1
            wrong = _file_problem(folder / path, digest, size, deep)
            if wrong:
                problems.append(f"{name}: {path} {wrong}")
    if len(problems) > SHOWN_PROBLEMS:
        problems = [*problems[:SHOWN_PROBLEMS], f"and {len(problems) - SHOWN_PROBLEMS} more"]
    return {
        "files": count,
        "problems": problems,
        "distributions": {name: version for name, (version, _info) in installed.items()},
    }


def _against_fingerprint(stack: Path, have: dict[str, str]) -> list[str]:
    try:
        listed = json.loads((stack / FINGERPRINT).read_text(encoding="utf-8"))["distributions"]
        want = {str(item["name"]): str(item["version"]) for item in listed}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{FINGERPRINT} does not say what was installed ({type(error).__name__})"]
    problems = [
        f"{name} is {have[name]}, verified was {version}"
        for name, version in want.items()
        if have.get(name, version) != version
    ]
    problems += [f"{name} {version} is gone" for name, version in want.items() if name not in have]
    return problems + [f"{name} {have[name]} was added after the verification" for name in have if name not in want]


def _rows(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the path, digest and size of the rows of a RECORD that have a size; none without a RECORD.

    Bytecode is omitted, because every installation compiles it again.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.reader(stream):
                if len(row) == 3 and row[2].isdigit() and not row[0].endswith(".pyc"):
                    yield row[0], row[1], int(row[2])
    except OSError:
        return


def _file_problem(path: Path, digest: str, size: int, deep: bool) -> str:
    try:
        actual = os.stat(path).st_size
    except OSError:
        return "is missing"
    if actual != size:
        return f"has {actual} bytes instead of {size}"
    if deep and digest.startswith("sha256="):
        with path.open("rb") as stream:
            found = base64.urlsafe_b64encode(hashlib.file_digest(stream, "sha256").digest()).decode().rstrip("=")
        if found != digest.removeprefix("sha256="):
            return "has other contents"
    return ""


class Libraries:
    """Opens each library once, memory-mapped."""

    def __init__(self) -> None:
        self._known: dict[str, Elf | None] = {}

    def open(self, path: str) -> Elf | None:
        real = os.path.realpath(path)
        if real not in self._known:
            self._known[real] = self._map(real)
        return self._known[real]

    @staticmethod
    def _map(path: str) -> Elf | None:
        try:
            with open(path, "rb") as stream:
                return Elf(memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)))
        except (OSError, ValueError):
            return None


def extensions(stack: Path, search: Sequence[str]) -> dict[str, Any]:
    """Compare the stack's native extensions that use torch with it.

    `search`: the folders of the engine's LD_LIBRARY_PATH. Return `torch` (version), `looked_at` (how many extensions)
    and `misfits` (extension, problem, library).

    `search`: the folders of the engine's LD_LIBRARY_PATH. Returns `torch` (version), `looked_at` (how many extensions)
    and `misfits` (extension, problem, library).
    """
    folder = site_packages(stack)
    torch = distributions(folder).get("torch")
    if torch is None:
        raise LookupError(f"no torch is installed in {stack}")
    libraries = Libraries()
    torch_lib = folder / "torch" / "lib"
    own = [str(path) for path in sorted(torch_lib.glob("lib*.so*"))]
    found = []
    for path in _shared_objects(folder):
        relative = path.relative_to(folder)
        # torch's own files come from its wheel.
        if relative.parts[0] in ("torch", "functorch"):
            continue
        elf = libraries.open(str(path))
        if elf is not None and uses_torch(elf):
            found.append((str(relative), str(path), elf))
    places = [*search, str(stack / "venv" / "lib"), *SYSTEM_LIBRARIES]
    wrong = misfits(found, libraries.open, str(torch_lib), own, places)
    return {"torch": torch[0], "looked_at": len(found), "misfits": [vars(item) for item in wrong]}


def _shared_objects(folder: Path) -> Iterator[Path]:
    for where, _folders, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith(".so") or ".so." in name:
                yield Path(where, name)
