# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wanted contents of a Python environment, the steps to reach them, and the sources of each step.

Pure functions of plain values. host.py runs uv.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .._slot.words.redact import clean

# Variables that name sources of packages. They must not apply to a step that may come from only one URL.
NAMES_SOURCES = frozenset(
    "UV_CONFIG_FILE UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_INDEX UV_INDEX_STRATEGY UV_INDEX_URL "
    "UV_NO_INDEX UV_TORCH_BACKEND".split()
)
_TOKEN = re.compile(r"[A-Za-z0-9][^\s;\\]*")
_TELLING = re.compile(r"Failed to|mismatch|Because")
_FETCH = re.compile(r"Failed to (?:fetch|download)[^\n]*?(https?://[^\s`')]+|file://[^\s`')]+)")


@dataclass(frozen=True)
class InstallStep:
    """Requirements that are installed together. index, url: their own source. build: a source archive of this host.

    build_requirements: with hashes, what only the build needs. build_variables: of the build. advice: what
    to do if the build fails.
    """

    label: str
    requirements: str
    hashed: bool
    index: str = ""
    url: str = ""
    compile: bool = False
    build: bool = False
    build_requirements: str = ""
    build_variables: Mapping[str, str] = field(default_factory=dict)
    advice: str = ""

    def digest(self) -> str:
        """Return a key over everything that can change the result.

        With hashes the source of the files does not matter.
        """
        address = [] if self.hashed else [self.index, self.url]
        what = [self.requirements.strip(), self.hashed, self.compile, self.build, *address]
        if self.build_requirements or self.build_variables:
            what += [self.build_requirements.strip(), dict(sorted(self.build_variables.items()))]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    @property
    def for_build(self) -> InstallStep:
        """The step that installs what only the build needs."""
        return InstallStep(f"what builds {self.label}", self.build_requirements, True, advice=self.advice)

    def names(self) -> tuple[str, ...]:
        """Return the requirements without hashes and markers."""
        found = (_TOKEN.match(line) for line in self.requirements.splitlines())
        return tuple(match[0] for match in found if match)


@dataclass(frozen=True)
class Alias:
    """A distribution that is registered under an additional name."""

    name: str
    version: str
    of: str


@dataclass(frozen=True)
class WantedEnvironment:
    """An environment. imports: modules that it must be able to import. more_follows: keep steps of a later call."""

    python: str
    steps: tuple[InstallStep, ...]
    aliases: tuple[Alias, ...] = ()
    imports: tuple[str, ...] = ()
    more_follows: bool = False


@dataclass(frozen=True)
class Sources:
    """The sources of packages besides those in uv's configuration on the host."""

    find_links: tuple[str, ...] = ()
    extra_index_urls: tuple[str, ...] = ()
    no_index: bool = False


@dataclass(frozen=True)
class InstallAttempt:
    """One attempt at a step: the source as text, options and variables. own: from the step's own URL."""

    place: str
    offline: bool
    options: tuple[str, ...]
    variables: Mapping[str, str]
    own: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Work:
    """The work to do: nothing, the steps from `first` on, or everything in an empty environment."""

    kind: Literal["nothing", "go on", "anew"]
    first: int = 0
    why: str = ""


def record(
    wanted: WantedEnvironment, interpreter: str, wheels: Mapping[str, str], came: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Return the record of a finished environment."""
    return {
        "schema": 1,
        "python": wanted.python,
        "interpreter": interpreter,
        "steps": [{"label": step.label, "digest": step.digest(), "names": list(step.names())} for step in wanted.steps],
        "aliases": [[alias.name, alias.version, alias.of] for alias in wanted.aliases],
        "wheels": dict(wheels),
        "came": [dict(item) for item in came],
    }


def parse(text: str | None) -> dict[str, Any] | None:
    """Return the record in a text, or None for anything else."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("schema") == 1 else None


def decide(wanted: WantedEnvironment, found: Mapping[str, Any] | None, usable: bool) -> Work:
    """Compare the wanted environment with the record that was found. usable: the environment's Python runs."""
    if found is None:
        return Work("anew", why="there is no finished environment")
    if not usable:
        return Work("anew", why="its Python cannot be run")
    if found["python"] != wanted.python:
        return Work("anew", why=f"it is for Python {found['python']}")
    have = [step["digest"] for step in found["steps"]]
    want = [step.digest() for step in wanted.steps]
    aliases = [[alias.name, alias.version, alias.of] for alias in wanted.aliases]
    if have == want and found["aliases"] == aliases:
        return Work("nothing")
    if wanted.more_follows and have[: len(want)] == want and found["aliases"] == aliases:
        return Work("nothing")
    if want[: len(have)] == have and found["aliases"] == aliases:
        return Work("go on", len(have), "there are further steps")
    return Work("anew", why="it holds something else")


def listing(found: Mapping[str, Any] | None) -> str:
    """Return a record as lines, for a diff."""
    if found is None:
        return ""
    lines = [f"python {found['python']}"]
    lines += [name for step in found["steps"] for name in step["names"]]
    lines += [f"{name}=={version} is {of}" for name, version, of in found["aliases"]]
    return "".join(f"{line}\n" for line in lines)


def attempts(step: InstallStep, sources: Sources) -> list[InstallAttempt]:
    """Return the sources of a step, in order: the cache, the usual sources, its own URL.

    Without a hash a name alone is not enough: then only the step's own URL and find_links are used.
    """
    if step.build:
        # Otherwise uv would take a wheel that it built from the same archive with other variables.
        fresh = ("--no-cache",) if step.build_variables else ()
        return [InstallAttempt("this host", False, ("--offline", "--no-build-isolation", *fresh), step.build_variables)]
    online = []
    own = step.url or step.index
    # Addresses may have a password in them, which everybody could read in the arguments of a process.
    links = {"UV_FIND_LINKS": ",".join(sources.find_links)} if sources.find_links else {}
    if not own or step.hashed:
        extra = () if sources.no_index else sources.extra_index_urls
        variables = links | ({"UV_INDEX_STRATEGY": "unsafe-best-match"} if step.hashed else {})
        variables |= {"UV_EXTRA_INDEX_URL": " ".join(extra)} if extra else {}
        options: tuple[str, ...] = ("--no-index",) if sources.no_index else ()
        named = public(", ".join([*sources.find_links, *extra]))
        usual = "" if sources.no_index else "the indexes that uv is configured for on this host"
        place = (
            " and ".join(part for part in (named, usual) if part)
            or "no source (no index is allowed, find_links is empty)"
        )
        online.append(InstallAttempt(place, False, options, variables))
    elif sources.find_links:
        place = public(", ".join(sources.find_links))
        online.append(InstallAttempt(place, False, ("--no-index",), links, alone=True))
    if own:
        options = ("--no-index",) if step.url else ("--default-index", step.index)
        online.append(InstallAttempt(own, False, options, {}, own=True, alone=True))
    cached = [
        InstallAttempt("the cache", True, (*one.options, "--offline"), one.variables, one.own, one.alone)
        for one in online
    ]
    return cached + [one for one in online if not (one.own and sources.no_index)]


def options_of(attempt: InstallAttempt) -> tuple[str, ...]:
    """Return uv's options for an attempt; an attempt at a single URL ignores the host's configuration."""
    return (*attempt.options, *(("--no-config",) if attempt.alone else ()))


def requirements_for(step: InstallStep, attempt: InstallAttempt) -> str:
    """Return the step's requirements in the form of this attempt: by URL for a file's own URL."""
    if not (attempt.own and step.url):
        return step.requirements.strip() + "\n"
    name = re.split(r"[=<>!~\[; ]", step.requirements.strip(), maxsplit=1)[0]
    hashes = re.findall(r"--hash=\S+", step.requirements)
    return " ".join([f"{name} @ {step.url}", *hashes]) + "\n"


def normal(name: str) -> str:
    """Return a distribution's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True)
class Resolved:
    """One distribution that an index offers: its files (name and sha256)."""

    name: str
    version: str
    files: tuple[tuple[str, str], ...]
    archive: str = ""

    def line(self) -> str:
        """Return the requirement with the digests of all acceptable files."""
        what = f"{self.name} @ {self.archive}" if self.archive else f"{self.name}=={self.version}"
        return " ".join([what, *(f"--hash=sha256:{digest}" for _url, digest in self.files)])


def resolved(lock: Mapping[str, Any]) -> list[Resolved]:
    """Return the distributions in a pylock.toml; raise ValueError for a file without sha256."""
    found = []
    for package in lock.get("packages", []):
        files = package.get("wheels") or [package[key] for key in ("archive",) if key in package]
        pairs = []
        for file in files:
            digest = file.get("hashes", {}).get("sha256", "")
            if not digest:
                raise ValueError(f"{file.get('url', package['name'])} has no sha256")
            pairs.append((file.get("url") or file.get("path", ""), digest))
        if not pairs:
            raise ValueError(f"{package['name']} has no wheel")
        archive = package["archive"].get("url", "") if "archive" in package else ""
        found.append(Resolved(package["name"], package.get("version", ""), tuple(pairs), archive))
    return found


def file_of(one: Resolved, tags: Sequence[str]) -> tuple[str, str]:
    """Return the file (URL and sha256) of an installed distribution, by the tags in its metadata."""
    for url, digest in one.files:
        stem = re.split(r"[?#]", url)[0].rsplit("/", 1)[-1].removesuffix(".whl")
        python, abi, platform = (
            (part.split(".") for part in stem.split("-")[-3:]) if stem.count("-") >= 3 else ([], [], [])
        )
        if {f"{p}-{a}-{m}" for p in python for a in abi for m in platform} & set(tags):
            return url, digest
    return one.files[0]


def key_of(one: Resolved, step: InstallStep) -> str:
    """Return the requirement as the step writes it."""
    for name in step.names():
        if normal(re.split(r"[=<>!~\[@]", name, maxsplit=1)[0]) == normal(one.name):
            return name
    return f"{one.name}=={one.version}"


def public(text: str) -> str:
    """Return a text without the credentials in its URLs."""
    return clean(text)


def unreachable(said: str) -> list[str]:
    """Return the URLs that uv could not read."""
    return list(dict.fromkeys(public(url) for url in _FETCH.findall(said)))


def gist(said: str) -> str:
    """Return uv's message as one line, without the causes between the first one that names something and the last."""
    lines = [line.strip() for line in public(said).splitlines()]
    lines = [
        line
        for line in lines
        if line and not line.startswith(("Using Python", "Using CPython", "warning:", "Resolved "))
    ]
    causes = [line for line in lines if line.startswith("cause:")]
    dropped = [line for line in causes[:-1] if not _TELLING.search(line)]
    return " ".join(line for line in lines if line not in dropped)[:700] or "it said nothing"


def last_lines(said: str) -> str:
    """Return the end of a build's output, where compilers and build backends name the error."""
    lines = [line.rstrip() for line in public(said).splitlines() if line.strip()]
    return "\n".join(line for line in lines if not line.lstrip().startswith("hint:"))[-1500:] or "it said nothing"


def failure(step: InstallStep, path: str, said: Sequence[tuple[InstallAttempt, str]], went: str = "directly") -> str:
    """Return why a step failed: each source with its result, and a fix. went: the way to the network, in words."""
    lines = [f"{step.label} could not be installed into {path}."]
    if step.build:
        lines += [last_lines(text) for _attempt, text in said]
        return "\n".join([*lines, step.advice or "Mend what the last lines name. Then run again."])
    every = []
    for attempt, text in said:
        if not attempt.offline:
            every += unreachable(text)
            lines.append(f"{public(attempt.place)}: {gist(text)}")
    if any("ash mismatch" in text for _attempt, text in said):
        lines.append(
            "The offered file is not what is pinned, so nothing was installed. Find out who changed it before you "
            "change a pin."
        )
    elif every:
        lines.append(
            f"uv went {went}. Let the host reach {', '.join(dict.fromkeys(every))}, set a proxy (b70_proxy) or a "
            "mirror (b70_mirror_url), or put the wheel into a folder that find_links names. Then run again; what was "
            "downloaded is kept."
        )
    else:
        lines.append(
            f"Put {', '.join(step.names()[:3]) or step.label} into one of these places, or into a folder that "
            "find_links names. Then run again; what was downloaded is kept."
        )
    return "\n".join([*lines, *filter(None, [step.advice])])
