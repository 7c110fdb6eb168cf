# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipe of a build, and the key under which the result is kept. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

WRAPPER = "b70-wheel"  # the folder of the checkout in which CMake's programs become a wheel
FORM = 1  # of the files in that folder; another one makes another wheel
FORGE = "https://github.com/"  # where the repositories of stacks are
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CMAKE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_PROBLEMS_SHOWN = 8


class BuildError(Exception):
    """A build is impossible or has failed. The text says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Patch:
    """A change to the sources: a file of a repository at a commit. subdirectory: where in the checkout it applies.

    sha256: a digest of the decoded patch that is checked too. without_context: its hunks have no lines around them.
    """

    name: str
    repository: str
    commit: str
    path: str
    encoding: str = "plain"
    sha256: str = ""
    subdirectory: str = ""
    without_context: bool = False

    @property
    def place(self) -> str:
        """The place of the patch, for messages."""
        return f"{self.path} of {self.repository} at {self.commit[:12]}"


@dataclass(frozen=True)
class Tree:
    """Another repository that the build looks for in a directory of the checkout."""

    repository: str
    commit: str
    directory: str


@dataclass(frozen=True)
class PatchProbe:
    """Text that a file of the patched sources must contain: it proves that the patches fit these sources."""

    file: str
    contains: str


@dataclass(frozen=True)
class Cmake:
    """Programs that CMake builds, targets of the checkout's own project, and the cache entries to build them with."""

    programs: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Recipe:
    """One wheel from one checkout.

    cmake: set where the checkout is a CMake project whose programs and libraries become the wheel. repository: where
    Git finds it; a mirror is as good, so it does not count into the key. uses: names and versions of what the result
    depends on, such as torch and the compiler. script: a setup script below `subdirectory` in place of the project's
    own build system. peak_gib: memory of the largest single compiler process; job_gib: of any other.
    """

    name: str
    repository: str
    commit: str
    python: str
    submodules: bool = False
    subdirectory: str = ""
    script: str = ""
    trees: tuple[Tree, ...] = ()
    patches: tuple[Patch, ...] = ()
    probes: tuple[PatchProbe, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    uses: tuple[tuple[str, str], ...] = ()
    max_jobs: int = 4
    peak_gib: float = 2.0
    job_gib: float = 2.0
    disk_gib: float = 2.0
    network: bool = False
    distribution: str = ""
    cmake: Cmake | None = None

    def key(self) -> str:
        """Return 16 hex digits over everything that can change the wheel."""
        counted = asdict(self)
        for uncounted in ("repository", "python", "max_jobs", "peak_gib", "job_gib", "disk_gib", "network", "probes"):
            del counted[uncounted]
        if self.cmake is None:
            # A wheel that its own project makes has a name of its own.
            del counted["cmake"], counted["distribution"]
        else:
            counted["form"] = FORM
        for patch in counted["patches"]:
            del patch["repository"], patch["sha256"]
        for tree in counted["trees"]:
            del tree["repository"]
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def directory(self) -> str:
        """The directory of the checkout where the wheel is made."""
        return WRAPPER if self.cmake else self.subdirectory

    @property
    def unit(self) -> str:
        """The transient unit that builds it. The key is part of it, so that another build is never taken for this."""
        return f"b70-build-{self.name}-{self.key()}.service"


def _inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def parse(given: Mapping[str, Any]) -> Recipe:
    """Return the recipe in a module's parameters; raise BuildError with all problems."""
    name = str(given["name"])
    found = []
    if not _NAME.fullmatch(name):
        found.append(f"name {name!r} is not made of lower-case letters, digits, dots, dashes and underscores")
    if not _COMMIT.fullmatch(given["commit"]):
        found.append(f"commit {given['commit']!r} is not a full one of 40 lower-case hex digits")
    if not given["repository"] or given["repository"].startswith("-"):
        found.append(f"repository {given['repository']!r} is not an address")
    inner = [given["subdirectory"], given["script"], *(patch["subdirectory"] for patch in given["patches"])]
    inner += [patch["path"] for patch in given["patches"]]
    inner += [probe["file"] for probe in given["probes"]] + [tree["directory"] for tree in given["trees"]]
    for tree in given["trees"]:
        if not _COMMIT.fullmatch(tree["commit"]) or tree["repository"].startswith("-"):
            found.append(
                f"tree {tree['directory']}: {tree['repository']} at {tree['commit']} is not a pinned repository"
            )
    found += [f"{path!r} leads out of the checkout" for path in inner if path and not _inside(path)]
    for patch in given["patches"]:
        if not _COMMIT.fullmatch(patch["commit"]) or patch["repository"].startswith("-"):
            found.append(
                f"patch {patch['name']}: {patch['repository']} at {patch['commit']} is not a pinned repository"
            )
        if patch["sha256"] and not _SHA256.fullmatch(patch["sha256"]):
            found.append(f"patch {patch['name']}: sha256 {patch['sha256']!r} is not one")
    cmake = given.get("cmake")
    if cmake:
        wrong = [word for word in (*cmake["programs"], *cmake["options"]) if not _CMAKE_NAME.fullmatch(str(word))]
        found += [f"cmake: {word!r} is no name of a target or cache entry" for word in wrong]
        if not cmake["programs"]:
            found.append("cmake names no program")
        if given["script"] or given["subdirectory"]:
            found.append("cmake cannot be combined with script or subdirectory")
    found += [f"environment: {key!r} is no name of a variable" for key in given["environment"] if not _variable(key)]
    found += [f"{key} must be positive" for key in ("max_jobs", "peak_gib", "job_gib", "disk_gib") if given[key] <= 0]
    if found:
        raise BuildError(f"the recipe of {name} is wrong: {'; '.join(found[:_PROBLEMS_SHOWN])}")
    return Recipe(
        name=name,
        repository=given["repository"],
        commit=given["commit"],
        python=given["python"],
        submodules=given["submodules"],
        subdirectory=given["subdirectory"],
        script=given["script"],
        trees=tuple(Tree(tree["repository"], tree["commit"], tree["directory"]) for tree in given["trees"]),
        patches=tuple(Patch(**patch) for patch in given["patches"]),
        probes=tuple(PatchProbe(p["file"], p["contains"]) for p in given["probes"]),
        environment=_pairs(given["environment"]),
        uses=_pairs(given["uses"]),
        max_jobs=given["max_jobs"],
        peak_gib=given["peak_gib"],
        job_gib=given["job_gib"],
        disk_gib=given["disk_gib"],
        network=given["network"],
        distribution=given.get("distribution") or name,
        cmake=Cmake(tuple(cmake["programs"]), _pairs(cmake["options"])) if cmake else None,
    )


def _variable(key: object) -> bool:
    return _VARIABLE.fullmatch(str(key)) is not None


def _pairs(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(value)) for key, value in given.items()))


def parse_environment(text: str) -> dict[str, str]:
    """Return the variables of a systemd EnvironmentFile with one assignment on a line, quoted or not."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if not sign or not _VARIABLE.fullmatch(name):
            continue
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = re.sub(r'\\(["\\`$])', r"\1", value[1:-1])
        elif len(value) >= 2 and value[0] == value[-1] == "'":
            value = value[1:-1]
        found[name] = value
    return found


def command(recipe: Recipe, uv: str, out: str) -> tuple[str, ...]:
    """Return the argv that makes the wheel in `out`, run in the checkout's subdirectory.

    The build is not isolated: an extension must be compiled against the very torch that will load it.
    """
    if recipe.script:
        return (recipe.python, recipe.script, "bdist_wheel", "--dist-dir", out)
    return (uv, "build", "--wheel", "--no-build-isolation", "--python", recipe.python, "--out-dir", out, ".")
