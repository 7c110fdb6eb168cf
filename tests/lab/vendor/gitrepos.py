# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Git repositories to be served as files: a commit has the same name on every machine and in every run."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

GITHUB = "https://github.com"
_PERSON = {
    f"GIT_{role}_{word}": value
    for role in ("AUTHOR", "COMMITTER")
    for word, value in (("NAME", "The lab"), ("EMAIL", "lab@localhost"), ("DATE", "2026-05-23T00:00:00+00:00"))
}
_LIMIT_S = 480


def git(tree: Path, *argv: str) -> str:
    """Run git as if this machine had no settings for it."""
    own = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C.UTF-8"}
    command = ["git", "-c", "core.autocrlf=false", "-c", "core.fileMode=true", "-c", "init.defaultBranch=main", *argv]
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **_PERSON, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(argv)} in {tree}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Submodule:
    """Another repository (OWNER/NAME) at a commit, at `path` of a tree."""

    path: str
    repo: str
    commit: str


def copy_tree(source: Path, tree: Path) -> None:
    """Copy files with the mode that Git has for files, so that no umask gets into a commit."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            target = tree / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o644)


def publish(tree: Path, root: Path, repo: str, message: str, submodules: tuple[Submodule, ...] = ()) -> str:
    """Commit `tree` and serve it as `root`/OWNER/NAME, as any web server can; returns the commit."""
    git(tree, "init", "--quiet")
    for module in submodules:
        text = f'[submodule "{module.path}"]\n\tpath = {module.path}\n\turl = {GITHUB}/{module.repo}\n'
        (tree / ".gitmodules").write_text(text, encoding="utf-8")
        (tree / ".gitmodules").chmod(0o644)
    git(tree, "add", "--all", "--force")
    for module in submodules:
        git(tree, "update-index", "--add", "--cacheinfo", f"160000,{module.commit},{module.path}")
    git(tree, "commit", "--quiet", "--no-verify", "--no-gpg-sign", f"--message={message}")
    commit = git(tree, "rev-parse", "HEAD")
    bare = root / repo
    bare.parent.mkdir(parents=True, exist_ok=True)
    git(bare.parent, "clone", "--quiet", "--bare", str(tree), str(bare))
    git(bare, "repack", "-a", "-d", "--quiet")
    git(bare, "update-server-info")
    return commit
