# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkout, with the real git and repositories made here."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import (
    BuildError,
    Patch,
    PatchProbe,
    Recipe,
    Tree,
)
from ansible_collections.arcpro.b70.plugins.module_utils._build.source import patches_in, prepare

LIMIT_S = 60.0


def git(folder: Path, *argv: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "-m", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "work" / "src", tmp_path / "work" / "source.json"


def made(origin: Path, commit: str, **changes: Any) -> Recipe:
    return Recipe("kernels", origin.as_uri(), commit, "/python", **changes)


def patch_of(tmp_path: Path, text: str) -> Patch:
    folder = tmp_path / "patches"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    return Patch("one", folder.as_uri(), commit(folder, "one.patch", text), "one.patch")


CHANGE = """\
--- a/k.cpp
+++ b/k.cpp
@@ -1 +1 @@
-int pointer;
+uint64_t pointer;
"""


def test_exactly_the_commit_is_checked_out(origin: Path, place: tuple[Path, Path]) -> None:
    wanted = commit(origin, "k.cpp", "int pointer;\n")
    commit(origin, "k.cpp", "later\n")
    assert prepare(made(origin, wanted), *place, LIMIT_S, {})
    assert (place[0] / "k.cpp").read_text() == "int pointer;\n"


def test_patches_are_applied_and_proven_and_objects_stay(
    origin: Path, place: tuple[Path, Path], tmp_path: Path
) -> None:
    wanted = commit(origin, "k.cpp", "int pointer;\n")
    recipe = made(
        origin, wanted, patches=(patch_of(tmp_path, CHANGE),), probes=(PatchProbe("k.cpp", "uint64_t pointer"),)
    )
    assert prepare(recipe, *place, LIMIT_S, {})
    assert patches_in(place[1]) == {"one": hashlib.sha256(CHANGE.encode()).hexdigest()}
    (place[0] / "k.o").write_text("object")
    assert not prepare(recipe, *place, LIMIT_S, {})
    assert (place[0] / "k.o").exists()


def test_an_interrupted_checkout_is_made_anew(origin: Path, place: tuple[Path, Path], tmp_path: Path) -> None:
    """Half a patch, then a kill: upstream's script refuses such a tree for ever."""
    wanted = commit(origin, "k.cpp", "int pointer;\n")
    recipe = made(origin, wanted, patches=(patch_of(tmp_path, CHANGE),))
    prepare(recipe, *place, LIMIT_S, {})
    place[1].unlink()
    (place[0] / "left.cpp").write_text("left by a patch")
    assert prepare(recipe, *place, LIMIT_S, {})
    assert not (place[0] / "left.cpp").exists()
    assert (place[0] / "k.cpp").read_text() == "uint64_t pointer;\n"


def test_a_patch_that_is_not_the_pinned_one_is_refused_first(
    origin: Path, place: tuple[Path, Path], tmp_path: Path
) -> None:
    wanted = commit(origin, "k.cpp", "int pointer;\n")
    patch = replace(patch_of(tmp_path, CHANGE), sha256="a" * 64)
    with pytest.raises(BuildError, match=r"patch one .* is not the pinned one"):
        prepare(made(origin, wanted, patches=(patch,)), *place, LIMIT_S, {})
    assert not place[0].exists()


def test_a_patch_that_does_not_apply_is_named(origin: Path, place: tuple[Path, Path], tmp_path: Path) -> None:
    wanted = commit(origin, "k.cpp", "something else\n")
    with pytest.raises(BuildError, match=rf"patch one does not apply to kernels at {wanted[:12]}: .*k\.cpp"):
        prepare(made(origin, wanted, patches=(patch_of(tmp_path, CHANGE),)), *place, LIMIT_S, {})
    assert not place[1].exists()


@pytest.mark.parametrize(
    ("probe", "words"),
    [(PatchProbe("k.cpp", "uint64"), "does not hold 'uint64'"), (PatchProbe("no.cpp", "x"), "have no no.cpp")],
)
def test_sources_that_are_not_what_they_should_be_are_refused(
    origin: Path, place: tuple[Path, Path], probe: PatchProbe, words: str
) -> None:
    wanted = commit(origin, "k.cpp", "int pointer;\n")
    with pytest.raises(BuildError, match=words):
        prepare(made(origin, wanted, probes=(probe,)), *place, LIMIT_S, {})
    assert not place[1].exists()


def test_a_commit_that_the_repository_lacks_is_named(origin: Path, place: tuple[Path, Path]) -> None:
    commit(origin, "k.cpp", "x\n")
    with pytest.raises(BuildError, match=f"has no commit {'d' * 40}; asked for by kernels"):
        prepare(made(origin, "d" * 40), *place, LIMIT_S, {})


def test_a_mirror_stands_for_the_address_of_submodules_too(
    origin: Path, place: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "mirror" / "inner"
    inner.mkdir(parents=True)
    git(inner, "init", "--quiet")
    commit(inner, "cutlass.h", "header\n")
    git(origin, "-c", f"url.{tmp_path.as_uri()}/mirror/.insteadOf=https://example.org/", "submodule", "--quiet",
        "add", "https://example.org/inner", "third_party")  # fmt: skip
    wanted = commit(origin, "k.cpp", "x\n")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")  # git refuses local submodules, which a mirror over HTTP is not
    mirrors = {"https://example.org/": f"{tmp_path.as_uri()}/mirror/"}
    prepare(made(origin, wanted, submodules=True), *place, LIMIT_S, mirrors)
    assert (place[0] / "third_party" / "cutlass.h").read_text() == "header\n"


def test_a_checkout_that_was_touched_is_made_anew(origin: Path, place: tuple[Path, Path]) -> None:
    recipe = made(origin, commit(origin, "k.cpp", "int pointer;\n"))
    prepare(recipe, *place, LIMIT_S, {})
    (place[0] / "k.o").write_text("object")
    (place[0] / "k.cpp").write_text("something else\n")
    assert prepare(recipe, *place, LIMIT_S, {})
    assert (place[0] / "k.cpp").read_text() == "int pointer;\n"
    assert not (place[0] / "k.o").exists()


def test_other_repositories_stand_in_their_directories(origin: Path, place: tuple[Path, Path], tmp_path: Path) -> None:
    wanted = commit(origin, "k.cpp", "x\n")
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet", "--initial-branch=main")
    headers = commit(other, "tla.hpp", "headers\n")
    commit(other, "tla.hpp", "later\n")
    recipe = made(origin, wanted, trees=(Tree(other.as_uri(), headers, ".deps/tla"),))
    prepare(recipe, *place, LIMIT_S, {})
    assert (place[0] / ".deps/tla/tla.hpp").read_text() == "headers\n"


def test_a_patch_without_context_applies_where_it_is_said_to_be_one(
    origin: Path, place: tuple[Path, Path], tmp_path: Path
) -> None:
    wanted = commit(origin, "k.cpp", "one\ntwo\nthree\n")
    bare = patch_of(tmp_path, "--- a/k.cpp\n+++ b/k.cpp\n@@ -2,0 +3 @@\n+new\n")
    prepare(made(origin, wanted, patches=(bare,)), *place, LIMIT_S, {})
    assert (place[0] / "k.cpp").read_text() == "one\ntwo\nthree\nnew\n"  # git takes it for an addition at the end
    prepare(made(origin, wanted, patches=(replace(bare, without_context=True),)), *place, LIMIT_S, {})
    assert (place[0] / "k.cpp").read_text() == "one\ntwo\nnew\nthree\n"
