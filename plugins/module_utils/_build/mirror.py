# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare copies of repositories at pinned commits, with those of their submodules, for any web server that gives files.

A commit gets a branch of its own, because a server of files gives nothing that no branch leads to. Of a repository of
which only some files are wanted, the mirror has packs of just those instead.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from .blob import pack, pack_name
from .git import Git
from .recipe import BuildError, Patch

_DEPTH = 8


@dataclass(frozen=True)
class MirroredRepository:
    """name: OWNER/NAME, the path in the mirror. url: where it comes from. files: only these files of the commit."""

    name: str
    url: str
    commit: str
    submodules: bool = False
    files: tuple[str, ...] = ()


def name_of(url: str) -> str:
    """Return OWNER/NAME of an address such as https://github.com/OWNER/NAME.git."""
    path = url.split("://", 1)[-1].split("/", 1)[-1].rstrip("/").removesuffix(".git")
    parts = path.split("/")
    if len(parts) < 2 or ".." in parts or not all(parts):
        raise BuildError(f"{url} is not the address of a repository of an owner")
    return path


def submodule_url(parent: str, url: str) -> str:
    """Return the whole address of a submodule; relative ones begin at the repository that names them."""
    return urljoin(parent.rstrip("/") + "/", url) if url.startswith(("./", "../")) else url


def branch(commit: str) -> str:
    return f"refs/heads/b70-{commit[:12]}"


def missing(folder: Path, wanted: MirroredRepository) -> bool:
    """Tell whether the mirror lacks the commit, or a branch that leads to it."""
    try:
        return (folder / wanted.name / branch(wanted.commit)).read_text().strip() != wanted.commit
    except OSError:
        return True


def bring(
    folder: Path, wanted: MirroredRepository, limit_s: float, mirrors: Mapping[str, str], *, write: bool, depth: int = 0
) -> list[str]:
    """Bring a repository, its files or submodules, and return their names and commits.

    Without `write` only tell them.
    """
    if depth > _DEPTH:
        raise BuildError(f"the submodules of {wanted.name} go deeper than {_DEPTH} repositories")
    if wanted.files:
        return [_bring_file(folder, wanted, file, limit_s, mirrors, write) for file in _lacking(folder, wanted)]
    label = f"{wanted.name} {wanted.commit[:12]}"
    brought = []
    if missing(folder, wanted):
        if not write:
            return [label]
        _fetch(folder / wanted.name, wanted, limit_s, mirrors)
        brought.append(label)
    if wanted.submodules:
        for inner in submodules(folder / wanted.name, wanted, limit_s):
            brought += bring(folder, inner, limit_s, mirrors, write=write, depth=depth + 1)
    return brought


def _lacking(folder: Path, wanted: MirroredRepository) -> list[str]:
    return [file for file in wanted.files if not (folder / wanted.name / pack_name(wanted.commit, file)).exists()]


def _bring_file(
    folder: Path, wanted: MirroredRepository, file: str, limit_s: float, mirrors: Mapping[str, str], write: bool
) -> str:
    label = f"{wanted.name} {wanted.commit[:12]} {file}"
    if write:
        place = folder / wanted.name
        content = pack(Patch(file, wanted.url, wanted.commit, file), place, limit_s, mirrors)
        target = place / pack_name(wanted.commit, file)
        new = target.with_suffix(".new")
        new.write_bytes(content)
        new.replace(target)
    return label


def _fetch(place: Path, wanted: MirroredRepository, limit_s: float, mirrors: Mapping[str, str]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    git = Git(place, limit_s, mirrors)
    git("init", "--quiet", "--bare")
    single = git("fetch", "--quiet", "--no-tags", wanted.url, f"+{wanted.commit}:{branch(wanted.commit)}", check=False)
    if single.returncode != 0:
        git("fetch", "--quiet", "--no-tags", wanted.url, "+refs/heads/*:refs/origin/*")
        if git("cat-file", "-e", f"{wanted.commit}^{{commit}}", check=False).returncode != 0:
            raise BuildError(f"{wanted.url} has no commit {wanted.commit}")
        git("update-ref", branch(wanted.commit), wanted.commit)
    git("symbolic-ref", "HEAD", branch(wanted.commit))
    git("update-server-info")
    link = place.with_name(place.name + ".git")
    if not link.is_symlink():
        link.symlink_to(place.name)


def submodules(place: Path, wanted: MirroredRepository, limit_s: float) -> list[MirroredRepository]:
    """Return the submodules of a commit."""
    git = Git(place, limit_s, {})
    entries = git("ls-tree", "-r", "-z", wanted.commit).stdout.split("\0")
    commits = {}
    for entry in entries:
        head, _tab, path = entry.partition("\t")
        if head.startswith("160000 "):
            commits[path] = head.split()[2]
    if not commits:
        return []
    blob = f"{wanted.commit}:.gitmodules"
    listed = git("config", "--null", "--blob", blob, "--get-regexp", r"^submodule\..*\.(path|url)$").stdout
    values = dict(item.split("\n", 1) for item in listed.split("\0") if item)
    found = []
    for key, path in values.items():
        if key.endswith(".path") and path in commits:
            url = submodule_url(wanted.url, values[f"{posixpath.splitext(key)[0]}.url"])
            found.append(MirroredRepository(name_of(url), url, commits[path], submodules=True))
    return found
