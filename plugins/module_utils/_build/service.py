# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a build that runs on the host: its unit, the wheel that it makes, and why it made none."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import _files
from .._slot.host.commands import ran
from .._slot.words.types import HostFault
from .._transient import ANSWER_LIMIT_S, Task, TransientState
from .._work.folder import WorkError, WorkFolder
from .._work.protocol import Beginning, Job
from . import memory, source
from .log import explain, first_error, progress
from .recipe import BuildError, Recipe, command, parse_environment
from .room import here
from .sample import sample

LOG_BYTES = 64 * 2**10
TAIL_LINES = 12
LINE_CHARS = 300
COMPILER_S = 60.0
SWAP_UNIT = "b70-build-swap.service"
SWAP_LIMIT_S = 3660.0  # what that unit may take where a swap file is made by writing every byte
_SCHEMA = 1


@dataclass(frozen=True)
class BuildPaths:
    """The paths of builds on the host. work_dir: checkouts and objects. wheel_dir: finished wheels. uv: the program.

    swap_file: where swap for the time of a build would be made, so that RAM and swap are swap_gib together and
    swap_reserve_gib stay free on that disk; empty where none is made.
    """

    work_dir: Path
    wheel_dir: Path
    ccache_dir: Path
    uv: str
    user: str
    group: str
    environment_file: str = ""
    swap_file: str = ""
    swap_gib: int = 0
    swap_reserve_gib: int = 0

    def folder(self, recipe: Recipe) -> Path:
        return self.work_dir / f"{recipe.name}-{recipe.key()}"

    def tree(self, recipe: Recipe) -> Path:
        return self.folder(recipe) / "src"

    def source_record(self, recipe: Recipe) -> Path:
        return self.folder(recipe) / "source.json"

    def work(self, recipe: Recipe) -> WorkFolder:
        return WorkFolder(self.folder(recipe) / "work")

    def log(self, recipe: Recipe) -> Path:
        return self.folder(recipe) / "build.log"

    def wheels(self, recipe: Recipe) -> Path:
        return self.wheel_dir / f"{recipe.name}-{recipe.key()}"


def tail(path: Path, size: int = LOG_BYTES) -> list[str]:
    """Return the last complete lines of a file, each shortened; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rsplit("\r", 1)[-1][:LINE_CHARS] for line in text.splitlines() if line.strip()]


def finished(recipe: Recipe, place: BuildPaths) -> dict[str, Any] | None:
    """Return the record of a finished wheel, built here or copied from another host; None if it is not as recorded."""
    folder = place.wheels(recipe)
    try:
        record = json.loads((folder / "build.json").read_text())
        wheel = folder / record["file"]
        right = record["key"] == recipe.key() and _files.sha256(wheel) == record["sha256"]
    except (OSError, ValueError, LookupError, TypeError, BuildError):
        return None
    return {**record, "path": str(wheel)} if right else None


def damage(recipe: Recipe, place: BuildPaths) -> str:
    """Return why a wheel among the finished ones is damaged; empty if it is whole or absent."""
    folder = place.wheels(recipe)
    if not (folder / "build.json").exists() or finished(recipe, place) is not None:
        return ""
    try:
        record = json.loads((folder / "build.json").read_text())
        wheel = folder / record["file"]
        return f"{wheel} has sha256 {_files.sha256(wheel)}, its record says {record['sha256']}"
    except (OSError, ValueError, LookupError, TypeError, BuildError) as error:
        return f"{folder} is not whole: {error}"


def estimate(recipe: Recipe, place: BuildPaths) -> dict[str, Any]:
    """Return what the build would need on this host, whether swap is made for it, and what prevents it."""
    here = room(place)
    try:
        made = memory.budget(recipe, here)
    except BuildError as error:
        return {"estimate": "", "swap": False, "problems": [str(error)]}
    return {"estimate": made.describe(recipe, here), "swap": made.adding, "problems": []}


@dataclass(frozen=True)
class SourceBuild(Job):
    """The build of a recipe. What was finished or begun counts, whoever did it."""

    noun = "build"
    recipe: Recipe
    place: BuildPaths

    @property
    def unit(self) -> str:
        return self.recipe.unit

    @property
    def folder(self) -> WorkFolder:
        return self.place.work(self.recipe)

    def answer(self, *, check_mode: bool) -> dict[str, Any]:
        """Take the step and return the build's state: built, running, failed or absent."""
        recipe, place, step = self.recipe, self.place, self.params["step"]
        if (record := finished(recipe, place)) is not None:
            return {"state": "built", "wheel": record}
        if step == "start" and not check_mode:
            found = self.start()
        else:
            found = self.stop() if step == "stop" else self.look(write=not check_mode)
        if found.state == "running":
            told = {key: found.given[key] for key in ("resumed", "budget")}
            return {"state": "running", "joined": found.joined, **told, **_progress(recipe, place)}
        if (record := finished(recipe, place)) is not None:
            return {"state": "built", "wheel": record}
        lacks = {"damage": damage(recipe, place), **estimate(recipe, place)}
        if failed := found.result.get("failed"):
            lines = tail(place.log(recipe))[-TAIL_LINES:]
            return {"state": "failed", "message": failed, "log": str(place.log(recipe)), "log_tail": lines, **lacks}
        return {"state": "absent", **lacks}

    def begin(self) -> Beginning:
        """Check the room and make the checkout."""
        recipe, place, params = self.recipe, self.place, self.params
        here = room(place)
        budget = memory.budget(recipe, here)
        variables = _variables(place)
        tree, log = place.tree(recipe), place.log(recipe)
        place.ccache_dir.mkdir(parents=True, exist_ok=True)
        fresh = source.prepare(recipe, tree, place.source_record(recipe), params["source_timeout"], params["mirrors"])
        log.touch()
        for path in (place.ccache_dir, log):
            shutil.chown(path, place.user, place.group)
        _give(tree, place.user, place.group)
        given = {"resumed": not fresh, "budget": budget.describe(recipe, here)}
        return Beginning(given, task(recipe, place, budget, variables, params["build_timeout"]))

    def launch(self, task: Task) -> None:
        """Start the unit; where it needs swap, say why none could be made for it."""
        swap = "Requires" in task.properties
        try:
            self.systemd.start(task, limit_s=SWAP_LIMIT_S if swap else ANSWER_LIMIT_S)
        except WorkError as error:
            if not swap:
                raise
            asked = ["journalctl", f"--unit={SWAP_UNIT}", "--lines=20", "--output=cat"]
            said = self.systemd.ask(asked, check=False).splitlines()
            why = [line for line in said if "no swap for the build" in line][-1:]
            raise BuildError(why[0] if why else f"{error}; the build wants the swap of {SWAP_UNIT}") from error

    def outcome(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        made = sorted(self.folder.out.glob("*.whl"))
        try:
            # The wheel itself tells every play.
            return {"wheel": keep(self.recipe, self.place, made)["path"], "told_to": ""}
        except BuildError as error:
            state = self.systemd.state(self.unit)
            why = _failure(self.recipe, self.place, state) if state.failed else seen["ended"]["why"]
            return {"failed": str(error) if made else why}


def _progress(recipe: Recipe, place: BuildPaths) -> dict[str, Any]:
    log = place.log(recipe)
    age = time.time() - log.stat().st_mtime if log.exists() else 0.0
    seen = progress(tail(log))
    return {"progress": asdict(seen), "sample": asdict(sample(recipe.unit)), "quiet_s": max(0.0, age)}


def _failure(recipe: Recipe, place: BuildPaths, state: TransientState) -> str:
    """Return why a build failed."""
    lines = tail(place.log(recipe))
    why = explain(lines, state.result) or first_error(lines) or "its log says why"
    return (
        f"the build of {recipe.name} failed ({state.result}, exit status {state.status}): {why}. All of it is in "
        f"{place.log(recipe)}"
    )


def keep(recipe: Recipe, place: BuildPaths, made: list[Path]) -> dict[str, Any]:
    """Move the new wheel to the finished ones. Its record is written last."""
    if len(made) != 1:
        raise BuildError(f"{recipe.name} made {len(made)} wheels in {place.work(recipe).out} where one was expected")
    try:
        with zipfile.ZipFile(made[0]) as archive:
            broken = archive.testzip()
    except zipfile.BadZipFile as error:
        broken = str(error)
    if broken:
        made[0].unlink()
        raise BuildError(f"the wheel {made[0].name} is damaged ({broken}) and was removed; run again")
    folder = place.wheels(recipe)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = folder / made[0].name
    shutil.move(made[0], target)
    os.chown(target, 0, 0, follow_symlinks=False)
    record = {
        "schema": _SCHEMA,
        "name": recipe.name,
        "key": recipe.key(),
        "commit": recipe.commit,
        "file": target.name,
        "sha256": _files.sha256(target),
        "size": target.stat().st_size,
        "uses": dict(recipe.uses),
        "environment": dict(recipe.environment),
        "compiler": compiler(place),
        "patches": source.patches_in(place.source_record(recipe)),
    }
    (folder / "build.json").write_text(json.dumps(record, indent=1) + "\n")
    return {**record, "path": str(target)}


def room(place: BuildPaths) -> memory.Room:
    return here(place.work_dir, place.swap_file, place.swap_gib, place.swap_reserve_gib)


def _give(tree: Path, user: str, group: str) -> None:
    shutil.chown(tree, user, group)
    for root, folders, files in os.walk(tree):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            if not os.path.islink(path):
                shutil.chown(path, user, group)


def _variables(place: BuildPaths) -> dict[str, str]:
    """Return the variables of the environment file. systemd does not read it, or it would override PATH and others."""
    if not place.environment_file:
        return {}
    try:
        text = Path(place.environment_file).read_text()
    except OSError as error:
        raise BuildError(
            f"{place.environment_file} cannot be read ({error.strerror}): it has the compiler's environment; run the "
            "role arcpro.b70.oneapi first (in site.yml: the tag oneapi; on a host without cards with oneapi_force)"
        ) from error
    return parse_environment(text)


def _path(place: BuildPaths, variables: Mapping[str, str], first: str = "") -> str:
    # Debian's links in /usr/lib/ccache stand for the compilers; harmless where they are not installed.
    parts = [first, *variables.get("PATH", "").split(":"), "/usr/lib/ccache", "/usr/local/bin", "/usr/bin", "/bin"]
    return ":".join(dict.fromkeys(part for part in parts if part))


def compiler(place: BuildPaths) -> str:
    """Return the first line of the compiler's version; empty if there is no compiler."""
    variables = _variables(place) if place.environment_file and Path(place.environment_file).exists() else {}
    path = _path(place, variables)
    program = shutil.which("icpx", path=path) or shutil.which("c++", path=path)
    if program is None:
        return ""
    try:
        told = ran([program, "--version"], COMPILER_S, env={**variables, "PATH": path}).stdout
    except HostFault:
        return ""
    return told.splitlines()[0][:LINE_CHARS] if told.strip() else ""


def task(recipe: Recipe, place: BuildPaths, budget: memory.Budget, variables: Mapping[str, str], limit_s: int) -> Task:
    """Return the unit of a build. It is ended before an engine when memory runs out."""
    environment = {
        "HOME": "/tmp",
        **variables,
        "PATH": _path(place, variables, os.path.dirname(recipe.python)),
        "CCACHE_DIR": str(place.ccache_dir),
        "MAX_JOBS": str(budget.jobs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(budget.jobs),
        "PYTHONUNBUFFERED": "1",
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "0" if recipe.network else "1",
        "UV_PYTHON_DOWNLOADS": "never",
        **dict(recipe.environment),
    }
    properties = {
        "OOMPolicy": "stop",
        "OOMScoreAdjust": "800",
        "ProtectHome": "yes",
        "PrivateNetwork": "no" if recipe.network else "yes",
    }
    if budget.adding:
        properties |= {"Requires": SWAP_UNIT, "After": SWAP_UNIT}
    return Task(
        unit=recipe.unit,
        description=f"Build of {recipe.unit.removeprefix('b70-build-').removesuffix('.service')}",
        argv=command(recipe, place.uv, str(place.work(recipe).out)),
        limit_s=limit_s,
        directory=str(place.tree(recipe) / recipe.directory),
        log=str(place.log(recipe)),
        user=place.user,
        group=place.group,
        writable=(str(place.tree(recipe)), str(place.work(recipe).out), str(place.ccache_dir)),
        environment=environment,
        properties=properties,
    )
