# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: the collection as it is shipped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.sanity import export_tree

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that git tracks or would track."""
    place = tmp_path_factory.mktemp("source") / "ansible_collections" / "arcpro" / "b70"
    export_tree(ROOT, place)
    return place


@pytest.fixture(scope="session")
def tarball(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the collection."""
    place = tmp_path_factory.mktemp("build")
    galaxy("build", "--output-path", str(place), cwd=source)
    (built,) = place.glob("arcpro-b70-*.tar.gz")
    return built


@pytest.fixture(scope="session")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the tarball into an empty collections path, without a network, and return that path."""
    place = tmp_path_factory.mktemp("collections")
    galaxy("install", "--offline", "--collections-path", str(place), str(tarball), cwd=place)
    return place


def galaxy(*arguments: str, cwd: Path) -> None:
    """Run ``ansible-galaxy collection``; fail with what it said."""
    command = ["ansible-galaxy", "collection", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
