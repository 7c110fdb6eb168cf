# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of the execution environment. Building its image takes a registry and is not tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release
DEFINITION = "execution-environment.yml"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def create(checkout: Path) -> subprocess.CompletedProcess[str]:
    return run("ansible-builder", "create", "--context", "context", "--output-filename", "Containerfile", cwd=checkout)


@pytest.fixture
def checkout(tarball: Path, tmp_path: Path) -> Path:
    """Return a folder with what the definition reads: itself, and the tarball where `make build` puts it."""
    shutil.copy(ROOT / DEFINITION, tmp_path)
    (tmp_path / ".cache" / "build").mkdir(parents=True)
    shutil.copy(tarball, tmp_path / ".cache" / "build")
    return tmp_path


def test_ansible_builder_makes_a_context_with_the_collection(checkout: Path, tarball: Path) -> None:
    done = create(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    context = checkout / "context"
    assert (context / "_build" / "collection" / tarball.name).read_bytes() == tarball.read_bytes()
    (wanted,) = yaml.safe_load((context / "_build" / "requirements.yml").read_text())["collections"]
    assert wanted == {"name": f"/build/collection/{tarball.name}", "type": "file"}
    containerfile = (context / "Containerfile").read_text()
    assert "ansible-galaxy collection install" in containerfile
    (core,) = [line for line in (ROOT / "meta" / "requirements.txt").read_text().splitlines() if line[0] != "#"]
    assert core in containerfile


def test_the_collection_tells_the_builder_what_a_controller_needs(checkout: Path, installed: Path) -> None:
    assert create(checkout).returncode == 0
    script = checkout / "context" / "_build" / "scripts" / "introspect.py"
    done = run(sys.executable, str(script), "introspect", str(installed), cwd=checkout)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout) == {
        # ansible-core is the image's own matter: the builder leaves it out of what collections ask for.
        "python": [],
        "system": [
            "openssh-client [platform:dpkg]  # from collection arcpro.b70",
            "openssh-clients [platform:rpm]  # from collection arcpro.b70",
        ],
    }
