# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: the collection as it is shipped."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.sanity import export_tree, tracked

ROOT = Path(__file__).resolve().parent.parent


CACHE = ROOT / ".cache"
COLLECTION = Path("ansible_collections/arcpro/b70")
KEPT = 3  # versions of each thing


@functools.cache
def version() -> str:
    """Return a digest over the files that git tracks or would track."""
    state = hashlib.sha256()
    for name in tracked(ROOT):
        state.update(f"{name}\0{(ROOT / name).stat().st_mode}\0".encode() + (ROOT / name).read_bytes())
    return state.hexdigest()[:16]


def kept(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder with what ``make`` puts into a new one, made once for each key; nobody writes to it."""
    home = CACHE / name
    wanted, new = home / key, home / "new"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            older = sorted((place for place in home.iterdir() if place.is_dir()), key=lambda one: one.stat().st_mtime)
            for place in older[: 1 - KEPT]:
                shutil.rmtree(place)
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            make(new)
            new.rename(wanted)
    os.utime(wanted)
    return wanted


@functools.cache
def shipped() -> Path:
    """Copy the checkout, build the collection from it and install that, unless it was done before."""

    def make(place: Path) -> None:
        tree, empty = place / "source" / COLLECTION, place / "collections"
        export_tree(ROOT, tree)
        galaxy("build", "--output-path", str(place), cwd=tree)
        (built,) = place.glob("arcpro-b70-*.tar.gz")
        empty.mkdir()
        galaxy("install", "--offline", "--collections-path", str(empty), str(built), cwd=empty)

    return kept("shipped", version(), make)


@pytest.fixture(scope="session")
def source() -> Path:
    """Return a copy of the files that git tracks or would track."""
    return shipped() / "source" / COLLECTION


@pytest.fixture(scope="session")
def tarball() -> Path:
    """Return the built collection."""
    (built,) = shipped().glob("arcpro-b70-*.tar.gz")
    return built


@pytest.fixture(scope="session")
def installed() -> Path:
    """Return a collections path into which the tarball alone was installed, without a network."""
    place = shipped() / "collections"
    assert (place / COLLECTION / "MANIFEST.json").is_file()
    return place


def elsewhere(place: Path, collections: Path) -> dict[str, str]:
    """Return variables for a process that finds only ``collections`` and no setting of this checkout."""
    settings = place / "ansible.cfg"
    settings.write_text("[defaults]\n")
    return {"ANSIBLE_CONFIG": str(settings), "ANSIBLE_COLLECTIONS_PATH": str(collections)}


def galaxy(*arguments: str, cwd: Path) -> None:
    """Run ``ansible-galaxy collection``; fail with what it said."""
    command = ["ansible-galaxy", "collection", *arguments]
    # Beside a collection that it can find already it would install nothing, and be content.
    environment = {**os.environ, **elsewhere(cwd.parent, cwd.parent / "none")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
