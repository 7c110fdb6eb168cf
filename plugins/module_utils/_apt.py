# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds an apt repository to a host: its files, other files that name it, and packages that are not as pinned.

Pure functions of texts and plain values. The module b70_apt_source has the effects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

# A priority above 1000 also keeps a version against newer ones, so that only a new pin changes it. A name has
# precedence over a matching pattern, also by its position: of several pins for one version apt uses the first.
PIN_PRIORITY = 1001
NAME_PRIORITY = 1002
ANY_VERSION = "*"
DPKG_FORMAT = "${db:Status-Status} ${Package} ${Version}\\n"


@dataclass(frozen=True)
class Source:
    """One repository: base `url` without a slash at its end, `suites`, `components`, `architectures`."""

    url: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    architectures: tuple[str, ...]

    def text(self, title: str, keyring: str) -> str:
        """Return the deb822 file. `keyring` is the path of the only keys that may sign this repository."""
        lines = [
            f"# {title}. Written by the collection arcpro.b70; what you change here is changed back.",
            "Types: deb",
            f"URIs: {self.url}",
            f"Suites: {' '.join(self.suites)}",
            *([f"Components: {' '.join(self.components)}"] if self.components else []),
            *([f"Architectures: {' '.join(self.architectures)}"] if self.architectures else []),
            f"Signed-By: {keyring}",
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class AptEntry:
    """A repository that a file of the host names. `signed_by` is a path, the armoured keys, or empty."""

    file: str
    url: str
    suites: tuple[str, ...]
    signed_by: str


@dataclass(frozen=True)
class Pending:
    """A package that is not installed at its pinned version. `installed` is empty if it is not installed at all."""

    name: str
    wanted: str
    installed: str
    newer: bool

    @property
    def specification(self) -> str:
        """The package as requested from apt."""
        return self.name if self.wanted == ANY_VERSION else f"{self.name}={self.wanted}"


def preferences(packages: Mapping[str, str], title: str, url: str = "") -> str:
    """Return the apt preferences that pin `packages` (name or pattern -> version, `*` as a wildcard).

    Packages of any version are pinned to the repository at `url`, if there is one.
    """
    said = f"Explanation: {title}. Written by the collection arcpro.b70; what you change here is changed back."
    stanzas = [
        f"{said}\nPackage: {name}\nPin: version {version}\n"
        f"Pin-Priority: {PIN_PRIORITY if '*' in name else NAME_PRIORITY}\n"
        for name, version in sorted(packages.items(), key=lambda item: ("*" in item[0], item[0]))
        if version != ANY_VERSION
    ]
    free = [name for name, version in sorted(packages.items()) if version == ANY_VERSION]
    origin = urlsplit(url).hostname
    if free and origin:
        stanzas.append(f'{said}\nPackage: {" ".join(free)}\nPin: origin "{origin}"\nPin-Priority: {PIN_PRIORITY}\n')
    return "\n".join(stanzas)


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    """Yield the stanzas of a deb822 file: field in lower case -> value, continuation lines with their line breaks."""
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and last:
                fields[last] += "\n" + ("" if line.strip() == "." else line.strip())
            elif ":" in line:
                name, _colon, value = line.partition(":")
                last = name.strip().lower()
                fields[last] = value.strip()
        if fields:
            yield fields


def source_files(apt_dir: Path, sources_dir: Path) -> list[Path]:
    """Return the files in which apt looks for repositories."""
    return [apt_dir / "sources.list", *sorted(sources_dir.glob("*.list")), *sorted(sources_dir.glob("*.sources"))]


def entries(files: Mapping[str, str]) -> list[AptEntry]:
    """Return the enabled binary repositories that `files` (path -> text of sources.list, *.list, *.sources) name."""
    found = []
    for file, text in sorted(files.items()):
        if file.endswith(".sources"):
            for fields in _stanzas(text):
                if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
                    continue
                suites = tuple(fields.get("suites", "").split())
                for url in fields.get("uris", "").split():
                    found.append(AptEntry(file, url.rstrip("/"), suites, fields.get("signed-by", "").strip()))
        else:
            for line in text.splitlines():
                match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)", line.strip())
                if match:
                    options = dict(pair.split("=", 1) for pair in (match[1] or "").split() if "=" in pair)
                    found.append(AptEntry(file, match[2].rstrip("/"), (match[3],), options.get("signed-by", "")))
    return found


def others(found: Iterable[AptEntry], source: Source, own_file: str) -> list[AptEntry]:
    """Return the entries of other files for the same repository.

    apt fails if two entries for one repository name different keys, so the module cannot just add its own entry.
    """
    return [
        entry
        for entry in found
        if entry.file != own_file and entry.url == source.url and set(entry.suites) & set(source.suites)
    ]


def installed_versions(dpkg_output: str) -> dict[str, str]:
    """Return the installed packages and their versions, from `dpkg-query --show --showformat=DPKG_FORMAT`."""
    rows = (line.split() for line in dpkg_output.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}


def pending(
    packages: Mapping[str, str], installed: Mapping[str, str], greater: Callable[[str, str], bool]
) -> list[Pending]:
    """Return the `packages` that are not installed at their version; `greater(a, b)` compares versions as dpkg does."""
    found = []
    for name, wanted in sorted(packages.items()):
        has = installed.get(name, "")
        if has and fnmatchcase(has, wanted):
            continue
        newer = bool(has) and greater(has, wanted.partition("*")[0].rstrip("-~+."))
        found.append(Pending(name, wanted, has, newer))
    return found


def problems(packages: Mapping[str, str], suites: Sequence[str], url: str) -> list[str]:
    """Return the errors in the options themselves, one sentence each."""
    found = []
    for name, version in sorted(packages.items()):
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.*-]+", name):
            found.append(f"{name!r} is not the name of a package.")
        if not re.fullmatch(r"[A-Za-z0-9.+:~*-]+", version):
            found.append(f"{version!r} is not a version of {name}; '*' means any.")
        if "*" in name and version == ANY_VERSION:
            found.append(
                f"{name} is a pattern of names, and '*' would hold any version of any of them: name a version."
            )
    if url and not re.match(r"(https?|file):/", url):
        found.append(f"{url} is not the address of a repository: it begins with neither https: nor http: nor file:.")
    if url and not suites:
        found.append(f"No suite is named for {url}.")
    return found
