# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Executes a plan on the host: one uv at a time per cache, and a record that is written last."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _files
from ansible_collections.arcpro.b70.plugins.module_utils._lock import hold
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import plan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.commands import whole
from ansible_collections.arcpro.b70.plugins.module_utils._weights.fetching.way import way

RECORD = "b70-environment.json"
SERIES = re.compile(r"3\.\d+")
# The top-level entries of an environment. With any other entry it is somebody else's folder.
OURS = frozenset(
    {".gitignore", ".lock", "CACHEDIR.TAG", "bin", "include", "lib", "lib64", "pyvenv.cfg", "share", "etc"}
)
INSTALL = ("pip", "install", "--no-deps")
RESOLVE = ("pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml")
WHEELS = ("--only-binary", ":all:")


class EnvironmentProblem(Exception):
    """The environment cannot be created. The text gives the reason and a fix."""


@dataclass(frozen=True)
class Done:
    """The result of a command. code None: it did not end within its limit."""

    code: int | None
    out: str
    err: str


Run = Callable[[Sequence[str], Mapping[str, str], str, float, Callable[[int], None]], Done]


def run(
    argv: Sequence[str], environment: Mapping[str, str], stdin: str, limit: float, began: Callable[[int], None]
) -> Done:
    """Run a command with all its children within `limit` seconds. `began` gets its process."""
    # The child inherits the lock: if this process is killed, nobody else starts before the child has ended.
    code, out, err = whole(argv, limit, stdin, began, env=dict(environment), close_fds=False)
    # Half of what it says would be taken for the reason.
    return Done(None, "", "") if code is None else Done(code, *(text.decode("utf-8", "replace") for text in (out, err)))


@dataclass
class EnvironmentPaths:
    """The paths on the host. python_mirror: the source of uv's own Pythons. variables: of the caller. say: hears what a
    command is for and its process, and an empty text when it has ended."""

    path: Path
    uv: str
    cache: Path
    python_dir: Path
    python_mirror: str = ""
    timeout: float = 1800
    sources: plan.Sources = field(default_factory=plan.Sources)
    variables: Mapping[str, str] = field(default_factory=dict)
    run: Run = run
    say: Callable[[str, int], None] = lambda text, pid: None
    system_python: str = "/usr/bin/python{}"

    @property
    def python(self) -> Path:
        return self.path / "bin/python"

    def environment(self, alone: bool = False) -> dict[str, str]:
        """Return uv's variables. alone: none that names a source of packages."""
        mine = {
            "UV_CACHE_DIR": str(self.cache),
            "UV_PYTHON_INSTALL_DIR": str(self.python_dir),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }
        kept = {key: value for key, value in self.variables.items() if not (alone and key in plan.NAMES_SOURCES)}
        # As pip does on Debian, uv trusts the host's CA certificates, including those of a company's proxy.
        return {"UV_SYSTEM_CERTS": "true", **kept, **mine}


def look(place: EnvironmentPaths, wanted: plan.WantedEnvironment) -> tuple[plan.Work, dict[str, Any] | None]:
    """Return the plan, and the record that was found."""
    content = _files.content_of(place.path / RECORD)
    found = plan.parse(content.decode(errors="replace") if content is not None else None)
    work = plan.decide(wanted, found, os.access(place.python, os.X_OK))
    if work.kind == "anew" and found is None and place.path.is_dir() and not (place.path / "pyvenv.cfg").exists():
        strange = sorted({entry.name for entry in place.path.iterdir()} - OURS)
        if strange:
            raise EnvironmentProblem(
                f"{place.path} is not an environment: it contains {', '.join(strange[:5])}. Move it, or choose another "
                "path."
            )
    return work, found


def alone(cache: Path, limit: float) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a cache, so that its users download once and any orphaned uv has ended."""
    cache.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return hold(Path(f"{cache}.lock"), limit, EnvironmentProblem, inherited=True)


class Making:
    """One run over an environment, under the lock."""

    def __init__(self, place: EnvironmentPaths, wanted: plan.WantedEnvironment) -> None:
        self.place = place
        self.wanted = wanted
        self.wheels: dict[str, str] = {}
        self.came: list[dict[str, str]] = []

    def uv(
        self,
        words: Sequence[str],
        text: str,
        stdin: str = "",
        attempt: plan.InstallAttempt | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Done:
        """Run uv. `text` names the purpose."""
        place = self.place
        options = plan.options_of(attempt) if attempt else ()
        environment = (
            place.environment(bool(attempt and attempt.alone)) | dict(attempt.variables if attempt else {}) | dict(more)
        )

        try:
            done = place.run(
                [place.uv, *words, *options], environment, stdin, place.timeout, lambda pid: place.say(text, pid)
            )
        except FileNotFoundError as error:
            raise EnvironmentProblem(
                f"there is no uv at {place.uv}: run the role arcpro.b70.host first (in site.yml: the tag host)."
            ) from error
        finally:
            place.say("", 0)
        if done.code is None:
            raise EnvironmentProblem(
                f"{text} did not end within {place.timeout:.0f} s and was ended. Find out why it is slow, or set a "
                "longer limit. Then run again; what was downloaded is kept."
            )
        return done

    def interpreter(self) -> str:
        """Return the Python of the environment: a path, the system's of that series, or one that uv manages."""
        wanted, place = self.wanted.python, self.place
        if not SERIES.fullmatch(wanted):
            if not os.access(wanted, os.X_OK):
                raise EnvironmentProblem(f"there is no Python at {wanted}: install it, or name a series such as 3.12.")
            return wanted
        system = place.system_python.format(wanted)
        if os.access(system, os.X_OK):
            return system
        more = {"UV_PYTHON_DOWNLOADS": "manual"}
        if place.python_mirror:
            more["UV_PYTHON_INSTALL_MIRROR"] = place.python_mirror.rstrip("/")
        words = ("python", "install", "--no-bin", wanted)
        done = self.uv(words, f"installing Python {wanted}", more=more)
        if done.code != 0:
            addresses = plan.unreachable(done.err) or [place.python_mirror]
            raise EnvironmentProblem(
                f"the system has no {system}, and uv could not install Python {wanted} into {place.python_dir}: "
                f"{plan.gist(done.err)} Let the host reach {', '.join(filter(None, addresses)) or 'that address'}, set "
                "a mirror that has the archive below python/ (b70_mirror_url), or install that Python."
            )
        done = self.uv(("python", "find", "--no-project", "--managed-python", wanted), f"looking for Python {wanted}")
        if done.code != 0:
            raise EnvironmentProblem(f"uv does not find the Python {wanted} that it installed: {plan.gist(done.err)}")
        return done.out.strip()

    def anew(self, interpreter: str) -> None:
        """Replace whatever is there with an empty environment."""
        self.place.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        (self.place.path / RECORD).unlink(missing_ok=True)
        words = ("venv", "--clear", "--no-project", "--python", interpreter, str(self.place.path))
        done = self.uv(words, "making an empty environment")
        if done.code != 0:
            raise EnvironmentProblem(f"cannot create an environment at {self.place.path}: {plan.gist(done.err)}")

    def step(self, step: plan.InstallStep, where: str) -> None:
        """Install one step. What only its build needs is in a folder that is removed afterwards."""
        if not step.build_requirements:
            self.install(step, where)
            return
        prefix = f".{self.place.path.name}-build-"
        for left in self.place.path.parent.glob(f"{prefix}*"):
            # of an installation that was killed: the lock of the cache lets in one at a time
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self.place.path.parent) as folder:
            self.install(step.for_build, where, folder)
            self.install(step, where, more={"PYTHONPATH": folder})

    def install(
        self, step: plan.InstallStep, where: str, target: str = "", more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Install a step from the first source that has it, into the environment or a folder."""
        said: list[tuple[plan.InstallAttempt, str]] = []
        for attempt in plan.attempts(step, self.place.sources):
            text = f"{where}: {step.label} from {plan.public(attempt.place)}"
            requirements = plan.requirements_for(step, attempt)
            found: list[plan.Resolved] = []
            if not (step.hashed or step.build):
                done = self.uv(
                    (*RESOLVE, *WHEELS, "--python", str(self.place.python), "-"), text, requirements, attempt
                )
                if done.code != 0:
                    said.append((attempt, done.err))
                    continue
                found = self.resolved(done.out, step)
                requirements = "".join(f"{one.line()}\n" for one in found)
            words = [*INSTALL, "--python", str(self.place.python), "--requirement", "-"]
            words += () if step.build else WHEELS
            words += ("--require-hashes",) if step.hashed or found else ()
            words += ("--compile-bytecode",) if step.compile else ()
            words += ("--target", target) if target else ()
            done = self.uv(words, text, requirements, attempt, more)
            if done.code == 0:
                if not target:
                    self.note(step, attempt, found)
                return
            said.append((attempt, done.err))
        raise EnvironmentProblem(plan.failure(step, str(self.place.path), said, way(self.place.variables)))

    def resolved(self, lock: str, step: plan.InstallStep) -> list[plan.Resolved]:
        """Return the distributions to which uv resolved a step without hashes."""
        # Not at the top, because older Pythons than those of hosts also read the modules' documentation.
        import tomllib

        try:
            return plan.resolved(tomllib.loads(lock))
        except ValueError as error:
            raise EnvironmentProblem(f"{step.label}: what uv resolved cannot be used: {error}") from error

    def note(self, step: plan.InstallStep, attempt: plan.InstallAttempt, found: Sequence[plan.Resolved]) -> None:
        """Record the source of a step, and the digests of requirements without one."""
        self.came.append({"label": step.label, "place": plan.public(attempt.place)})
        for one in found:
            url, digest = plan.file_of(one, self.tags(one))
            self.wheels[plan.key_of(one, step)] = f"sha256:{digest}"
            self.came[-1]["place"] = f"{self.came[-1]['place']} ({plan.public(url)})"

    def site_packages(self) -> Path:
        """Return the folder of the installed distributions."""
        found = sorted(self.place.path.glob("lib/python3*/site-packages"))
        if len(found) != 1:
            raise EnvironmentProblem(f"{self.place.path}/lib has {len(found)} site-packages folders, expected one")
        return found[0]

    def tags(self, one: plan.Resolved) -> list[str]:
        """Return the tags in the metadata of an installed distribution."""
        for folder in self.site_packages().glob("*.dist-info"):
            if plan.normal(folder.name.removesuffix(".dist-info").rsplit("-", 1)[0]) == plan.normal(one.name):
                content = _files.content_of(folder / "WHEEL") or b""
                return re.findall(r"(?m)^Tag: *(\S+)", content.decode(errors="replace"))
        return []

    def aliases(self) -> None:
        """Register distributions under additional names."""
        for alias in self.wanted.aliases:
            # Without dashes, because Python looks for that name.
            stem = plan.normal(alias.name).replace("-", "_")
            folder = self.site_packages() / f"{stem}-{alias.version}.dist-info"
            about = {"Metadata-Version": "2.1", "Name": alias.name, "Version": alias.version}
            about["Summary"] = f"Another name of {alias.of}"
            metadata = "".join(f"{key}: {value}\n" for key, value in about.items())
            _files.write(
                [
                    _files.WantedFile(folder / "METADATA", metadata.encode()),
                    _files.WantedFile(folder / "INSTALLER", b"arcpro.b70\n"),
                ]
            )

    def imports(self) -> None:
        """Fail for an environment that cannot import its required modules."""
        if not self.wanted.imports:
            return
        program = f"import {', '.join(self.wanted.imports)}"
        argv = [str(self.place.python), "-I", "-B", "-c", program]
        done = self.place.run(argv, self.place.variables, "", self.place.timeout, lambda _process: None)
        if done.code != 0:
            why = (done.err.strip().splitlines() or [f"it did not end within {self.place.timeout:.0f} s"])[-1]
            raise EnvironmentProblem(f"`{program}` fails in {self.place.path}, so it is not used: {why}")


def make(place: EnvironmentPaths, wanted: plan.WantedEnvironment) -> tuple[plan.Work, dict[str, Any]]:
    """Create or complete the environment. Return what was done, and its record."""
    os.umask(0o022)
    limit = place.timeout * (len(wanted.steps) + 1)
    with alone(place.cache, limit):
        work, found = look(place, wanted)
        if work.kind == "nothing" and found is not None:
            return work, found
        making = Making(place, wanted)
        interpreter = str(found["interpreter"]) if work.kind == "go on" and found else making.interpreter()
        try:
            if work.kind == "go on" and found is not None:
                making.wheels, making.came = dict(found["wheels"]), list(found["came"])
                # An environment that is interrupted from here on is created again.
                (place.path / RECORD).unlink()
            else:
                making.anew(interpreter)
            for number, step in list(enumerate(wanted.steps, 1))[work.first :]:
                making.step(step, f"step {number} of {len(wanted.steps)}")
            making.aliases()
            making.imports()
        finally:
            # uv leaves this lock file for other installers, and anyone could write to it.
            (place.path / ".lock").unlink(missing_ok=True)
        made = plan.record(wanted, interpreter, making.wheels, making.came)
        _files.write([_files.WantedFile(place.path / RECORD, (json.dumps(made, indent=1) + "\n").encode())])
        return work, made
