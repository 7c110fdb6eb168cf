# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: the collection as it is shipped."""

from __future__ import annotations

import os
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
    assert (place / "ansible_collections" / "arcpro" / "b70" / "MANIFEST.json").is_file()
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
