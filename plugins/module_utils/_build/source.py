# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkout: exactly the pinned commit with exactly the named patches, or made anew.

The record beside a checkout is written last. With it the tree is as the build left it, objects included, and the build
goes on there; without it whatever lies there was interrupted and goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .recipe import BuildError, Patch, Recipe

_GIT_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ASKPASS": "true",
}
_WORDS = 600


class Git:
    """Runs git in one checkout with a limit. mirrors: beginnings of addresses and what stands in their place, for
    submodules too."""

    def __init__(self, tree: Path, limit_s: float, mirrors: Mapping[str, str]) -> None:
        self._tree = tree
        self._limit_s = limit_s
        self._options: list[str] = []
        for address, mirror in sorted(mirrors.items()):
            self._options += ["-c", f"url.{mirror}.insteadOf={address}"]

    def __call__(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        whole = ["git", *self._options, *argv]
        try:
            done = subprocess.run(
                whole,
                cwd=self._tree,
                env={**os.environ, **_GIT_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._limit_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise BuildError("git is not installed on this host") from error
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"`git {argv[0]}` in {self._tree} took longer than {self._limit_s:g} s") from error
        if check and done.returncode != 0:
            raise BuildError(f"`git {' '.join(argv)}` in {self._tree} failed: {done.stderr.strip()[-_WORDS:]}")
        return done


def file_digest(path: str) -> str:
    """sha256 of a file in hex. Raises BuildError when it can't be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror}") from error


def check_patches(patches: Sequence[Patch]) -> None:
    """The patch files are the pinned ones. Raises BuildError before anything is touched."""
    for patch in patches:
        got = file_digest(patch.path)
        if got != patch.sha256:
            raise BuildError(
                f"patch {patch.name} ({patch.path}) is not the pinned one: sha256 {got}, wanted {patch.sha256}; "
                "get it again from its source"
            )


def ready(recipe: Recipe, tree: Path, record: Path) -> bool:
    """Is the checkout complete, patched, and of this recipe?"""
    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return False
    return bool(found.get("key") == recipe.key() and (tree / ".git").is_dir())


def prepare(recipe: Recipe, tree: Path, record: Path, limit_s: float, mirrors: Mapping[str, str]) -> bool:
    """Makes the checkout; False when it was there. Raises BuildError, after which the next run begins anew."""
    check_patches(recipe.patches)
    if ready(recipe, tree, record):
        return False
    record.unlink(missing_ok=True)
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    git = Git(tree, limit_s, mirrors)
    git("init", "--quiet")
    _fetch(git, recipe)
    git("checkout", "--quiet", "--detach", recipe.commit)
    if recipe.submodules:
        git("submodule", "update", "--init", "--recursive", "--quiet")
    for patch in recipe.patches:
        _apply(git, recipe, patch)
    _prove(recipe, tree)
    record.write_text(json.dumps({"key": recipe.key(), "name": recipe.name, "commit": recipe.commit}) + "\n")
    return True


def _fetch(git: Git, recipe: Recipe) -> None:
    """One commit where the server gives it, else everything: not every mirror serves commits by their name."""
    single = git("fetch", "--quiet", "--depth=1", "--no-tags", recipe.repository, recipe.commit, check=False)
    if single.returncode == 0:
        return
    git("fetch", "--quiet", "--no-tags", recipe.repository, "+refs/*:refs/remotes/origin/*")
    if git("cat-file", "-e", f"{recipe.commit}^{{commit}}", check=False).returncode != 0:
        raise BuildError(f"{recipe.repository} has no commit {recipe.commit}; asked for by {recipe.name}")


def _apply(git: Git, recipe: Recipe, patch: Patch) -> None:
    where = [f"--directory={patch.subdirectory}"] if patch.subdirectory else []
    done = git("apply", "--whitespace=nowarn", *where, patch.path, check=False)
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[:_WORDS]
        raise BuildError(f"patch {patch.name} does not apply to {recipe.name} at {recipe.commit[:12]}: {words}")


def _prove(recipe: Recipe, tree: Path) -> None:
    for probe in recipe.probes:
        path = tree / probe.file
        try:
            text = path.read_text(errors="replace")
        except OSError as error:
            raise BuildError(f"the sources of {recipe.name} have no {probe.file}: {error.strerror}") from error
        if probe.contains not in text:
            raise BuildError(
                f"the sources of {recipe.name} are not what they should be: {probe.file} does not hold "
                f"{probe.contains!r} after the patches"
            )
