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
from collections.abc import Mapping
from pathlib import Path

from . import blob, cmake
from .git import WORDS, Git
from .recipe import BuildError, Patch, Recipe


def ready(recipe: Recipe, tree: Path, record: Path) -> bool:
    """Tell whether the checkout is complete, patched, of this recipe, and unchanged in every file.

    Objects don't matter.
    """
    try:
        found = json.loads(record.read_text())
        if found["key"] != recipe.key():
            return False
        return all(_content(tree / name) == digest for name, digest in found["files"].items())
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False


def patches_in(record: Path) -> dict[str, str]:
    """Return the digests of the patches in a checkout, by name; empty without its record."""
    try:
        return {str(name): str(digest) for name, digest in json.loads(record.read_text())["patches"].items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


def _content(path: Path) -> str:
    """Return the digest of a file or link.

    Git is not asked, because it would run what the build user may have configured.
    """
    if path.is_symlink():
        return "link " + os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(tree: Path) -> dict[str, str]:
    found = {}
    for root, folders, names in os.walk(tree):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        folders[:] = [name for name in folders if name != ".git" and name not in links]
        for name in (*names, *links):
            path = Path(root, name)
            if name != ".git" and (path.is_symlink() or path.is_file()):
                found[str(path.relative_to(tree))] = _content(path)
    return found


def prepare(recipe: Recipe, tree: Path, record: Path, limit_s: float, mirrors: Mapping[str, str]) -> bool:
    """Make the checkout; return False when it was there.

    Raise BuildError where it cannot be made; the next run then begins anew.
    """
    if ready(recipe, tree, record):
        _prove(recipe, tree)
        return False
    patches = blob.read(recipe.patches, tree.parent, limit_s, mirrors) if recipe.patches else []
    record.unlink(missing_ok=True)
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    git = Git(tree, limit_s, mirrors)
    _check_out(git, recipe.repository, recipe.commit, recipe.name)
    if recipe.submodules:
        git("submodule", "update", "--init", "--recursive", "--quiet")
    for other in recipe.trees:
        folder = tree / other.directory
        folder.mkdir(parents=True, exist_ok=True)
        _check_out(Git(folder, limit_s, mirrors), other.repository, other.commit, recipe.name)
    for patch, content in patches:
        _apply(git, recipe, patch, content)
    _prove(recipe, tree)
    for name, text in cmake.files(recipe).items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    made = {
        "key": recipe.key(),
        "name": recipe.name,
        "commit": recipe.commit,
        "patches": {patch.name: hashlib.sha256(content).hexdigest() for patch, content in patches},
        "files": _files(tree),
    }
    record.write_text(json.dumps(made) + "\n")
    return True


def _check_out(git: Git, repository: str, commit: str, name: str) -> None:
    """Check out one commit: fetch it alone where the server allows that, else everything, as some mirrors need."""
    git("init", "--quiet")
    single = git("fetch", "--quiet", "--depth=1", "--no-tags", repository, commit, check=False)
    if single.returncode != 0:
        git("fetch", "--quiet", "--no-tags", repository, "+refs/*:refs/remotes/origin/*")
        if git("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode != 0:
            raise BuildError(f"{repository} has no commit {commit}; asked for by {name}")
    git("checkout", "--quiet", "--detach", commit)


def _apply(git: Git, recipe: Recipe, patch: Patch, content: bytes) -> None:
    where = [f"--directory={patch.subdirectory}"] if patch.subdirectory else []
    bare = ["--unidiff-zero"] if patch.without_context else []
    done = git("apply", "--whitespace=nowarn", *bare, *where, "-", check=False, given=content)
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[:WORDS]
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
