# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare copies with the real git, and a server of plain files from which a checkout is made."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build import mirror
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Recipe
from ansible_collections.arcpro.b70.plugins.module_utils._build.source import prepare

LIMIT_S = 60.0


def git(folder: Path, *argv: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


@pytest.fixture
def wanted(tmp_path: Path) -> mirror.MirroredRepository:
    """A repository with a submodule that has one itself, each named by its address on the forge."""
    forge = "https://github.com"
    deep = repository(tmp_path / "origin/o/deep", "deep\n")
    inner = repository(tmp_path / "origin/o/inner", "inner\n")
    git(inner, "submodule", "--quiet", "add", deep.as_uri(), "third/deep")
    git(inner, "config", "--file", ".gitmodules", "submodule.third/deep.url", "../deep.git")
    git(inner, "commit", "--quiet", "-am", "two")
    outer = repository(tmp_path / "origin/o/outer", "outer\n")
    git(outer, "submodule", "--quiet", "add", inner.as_uri(), "inner")
    git(outer, "config", "--file", ".gitmodules", "submodule.inner.url", f"{forge}/o/inner.git")
    git(outer, "commit", "--quiet", "-am", "two")
    pinned = git(outer, "rev-parse", "HEAD")
    git(outer, "commit", "--quiet", "--allow-empty", "-m", "later")
    for name in ("deep", "inner"):
        (tmp_path / f"origin/o/{name}.git").symlink_to(name)
    return mirror.MirroredRepository("o/outer", f"{forge}/o/outer", pinned, submodules=True)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "mirror"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_submodules_come_along_and_files_are_enough_to_check_it_out(
    tmp_path: Path, wanted: mirror.MirroredRepository, served: str
) -> None:
    origin = {"https://github.com/": (tmp_path / "origin").as_uri() + "/"}
    folder = tmp_path / "mirror"
    brought = mirror.bring(folder, wanted, LIMIT_S, origin, write=True)
    assert [item.split()[0] for item in brought] == ["o/outer", "o/inner", "o/deep"]
    assert mirror.bring(folder, wanted, LIMIT_S, {}, write=True) == []
    tree = tmp_path / "work/src"
    recipe = Recipe("outer", wanted.url, wanted.commit, "/python", submodules=True)
    prepare(recipe, tree, tmp_path / "work/source.json", LIMIT_S, {"https://github.com/": served})
    assert (tree / "inner/third/deep/file").read_text() == "deep\n"


def test_check_mode_says_what_it_would_bring_and_brings_nothing(
    tmp_path: Path, wanted: mirror.MirroredRepository
) -> None:
    assert mirror.bring(tmp_path / "mirror", wanted, LIMIT_S, {}, write=False) == [f"o/outer {wanted.commit[:12]}"]
    assert not (tmp_path / "mirror").exists()


def test_a_commit_that_is_nowhere_is_named(tmp_path: Path, wanted: mirror.MirroredRepository) -> None:
    origin = {"https://github.com/": (tmp_path / "origin").as_uri() + "/"}
    lost = mirror.MirroredRepository(wanted.name, wanted.url, "d" * 40)
    with pytest.raises(BuildError, match=f"o/outer has no commit {'d' * 40}"):
        mirror.bring(tmp_path / "mirror", lost, LIMIT_S, origin, write=True)


@pytest.mark.parametrize(
    ("url", "name"),
    [("https://github.com/o/n.git", "o/n"), ("https://github.com/o/n/", "o/n"), ("ssh://git@host/a/b/c", "a/b/c")],
)
def test_the_name_is_the_path_of_the_address(url: str, name: str) -> None:
    assert mirror.name_of(url) == name


@pytest.mark.parametrize("url", ["https://github.com/n", "https://github.com/../../etc", "https://github.com//n"])
def test_an_address_that_leads_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(BuildError, match="is not the address of a repository"):
        mirror.name_of(url)
