# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches out of repositories, with the real git: a server that gives parts, one that does not, and plain files."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build import blob, mirror
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import BuildError, Patch

LIMIT_S = 60.0
FORGE = "https://github.com/"
CHANGE = b"--- a/k\n+++ b/k\n@@ -1 +1 @@\n-a\n+\xe4\n"


def git(folder: Path, *argv: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    done = subprocess.run(["git", *who, *argv], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a patch, one that is packed, a large file that nobody asks for, and a later commit."""
    folder = tmp_path / "origin/o/lab"
    (folder / "repro/patches").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "repro/patches/plain.patch").write_bytes(CHANGE)
    packed = base64.encodebytes(gzip.compress(CHANGE, mtime=0))
    (folder / "repro/patches/packed.patch.gz.b64").write_bytes(packed)
    (folder / "large").write_text("large\n" * 1000)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    (folder / "repro/patches/plain.patch").write_text("later\n")
    git(folder, "commit", "--quiet", "-am", "two")
    return folder


@pytest.fixture
def patch(origin: Path) -> Patch:
    commit = git(origin, "rev-parse", "HEAD~1")
    return Patch("p", FORGE + "o/lab", commit, "repro/patches/plain.patch")


def served_from(folder: Path) -> dict[str, str]:
    return {FORGE: folder.as_uri() + "/"}


def packed(patch: Patch) -> Patch:
    return replace(patch, path="repro/patches/packed.patch.gz.b64", encoding="gzip+base64")


def test_both_encodings_give_the_bytes_of_that_commit(origin: Path, patch: Patch, tmp_path: Path) -> None:
    pinned = replace(patch, sha256=hashlib.sha256(CHANGE).hexdigest())
    found = blob.read([patch, packed(pinned)], tmp_path / "work", LIMIT_S, served_from(tmp_path / "origin"))
    assert [content for _patch, content in found] == [CHANGE, CHANGE]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(("allowed", "large"), [("true", False), ("false", True)], ids=["in parts", "whole"])
def test_only_the_patch_is_fetched_where_the_server_gives_parts(
    origin: Path, patch: Patch, tmp_path: Path, allowed: str, large: bool
) -> None:
    for name in ("allowFilter", "allowAnySHA1InWant"):
        git(origin, "config", f"uploadpack.{name}", allowed)
    place = tmp_path / "bare"
    repository = blob._Repository(place, patch.repository, LIMIT_S, served_from(tmp_path / "origin"))
    assert repository.fetch(patch) == CHANGE
    unwanted = git(origin, "rev-parse", f"{patch.commit}:large")
    assert (unwanted in git(place, "cat-file", "--batch-check", "--batch-all-objects")) is large


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A web server that gives files and nothing else."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_repository_of_plain_files_is_enough(origin: Path, patch: Patch, tmp_path: Path, served: str) -> None:
    git(origin, "update-server-info")
    mirrors = {FORGE: f"{served}origin/"}
    git(tmp_path, "clone", "--quiet", "--bare", str(origin), str(tmp_path / "files/o/lab"))
    git(tmp_path / "files/o/lab", "update-server-info")
    mirrors = {FORGE: f"{served}files/"}
    assert blob.read([patch], tmp_path / "work", LIMIT_S, mirrors) == [(patch, CHANGE)]


def mirrored(patch: Patch, tmp_path: Path) -> tuple[Path, mirror.MirroredRepository]:
    wanted = mirror.MirroredRepository("o/lab", patch.repository, patch.commit, files=(patch.path, packed(patch).path))
    return tmp_path / "mirror", wanted


def test_a_mirror_has_what_pins_the_patches_and_nothing_else(
    origin: Path, patch: Patch, tmp_path: Path, served: str
) -> None:
    folder, wanted = mirrored(patch, tmp_path)
    from_origin = served_from(tmp_path / "origin")
    said = mirror.bring(folder, wanted, LIMIT_S, from_origin, write=False)
    assert said == [f"o/lab {patch.commit[:12]} {path}" for path in wanted.files]
    assert not folder.exists()
    assert mirror.bring(folder, wanted, LIMIT_S, from_origin, write=True) == said
    assert mirror.bring(folder, wanted, LIMIT_S, {}, write=True) == []
    assert [path.suffix for path in (folder / "o/lab").iterdir()] == [".pack", ".pack"]
    mirrors = {FORGE: f"{served}mirror/"}
    found = blob.read([patch, packed(patch)], tmp_path / "work", LIMIT_S, mirrors)
    assert [content for _patch, content in found] == [CHANGE, CHANGE]


def test_a_damaged_pack_of_the_mirror_is_refused_by_name(
    origin: Path, patch: Patch, tmp_path: Path, served: str
) -> None:
    folder, wanted = mirrored(patch, tmp_path)
    mirror.bring(folder, wanted, LIMIT_S, served_from(tmp_path / "origin"), write=True)
    place = folder / "o/lab" / blob.pack_name(patch.commit, patch.path)
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(bytes(content))
    with pytest.raises(BuildError, match=rf"patch p: {served}mirror/o/lab/b70-.*\.pack is damaged"):
        blob.read([patch], tmp_path / "work", LIMIT_S, {FORGE: f"{served}mirror/"})


def test_another_commit_in_the_place_of_the_pinned_one_is_refused(
    origin: Path, patch: Patch, tmp_path: Path, served: str
) -> None:
    later = replace(patch, commit=git(origin, "rev-parse", "HEAD"))
    folder, wanted = mirrored(later, tmp_path)
    mirror.bring(folder, wanted, LIMIT_S, served_from(tmp_path / "origin"), write=True)
    pack = folder / "o/lab" / blob.pack_name(later.commit, later.path)
    pack.rename(pack.with_name(blob.pack_name(patch.commit, patch.path)))
    with pytest.raises(BuildError, match="patch p cannot be had"):
        blob.read([patch], tmp_path / "work", LIMIT_S, {FORGE: f"{served}mirror/"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sha256": "b" * 64}, "patch p .* is not the pinned one: sha256 [0-9a-f]{64}, wanted bbb"),
        ({"path": "repro/nothing"}, "patch p cannot be had: repro/nothing of https://github.com/o/lab at"),
        ({"commit": "d" * 40}, f"https://github.com/o/lab has no commit {'d' * 40}; asked for by patch p"),
        ({"encoding": "gzip+base64"}, "patch p .* is not gzip in base64"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_patch_that_is_not_what_is_said_is_named(
    origin: Path, patch: Patch, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(BuildError, match=words):
        blob.read([replace(patch, **change)], tmp_path / "work", LIMIT_S, served_from(tmp_path / "origin"))
