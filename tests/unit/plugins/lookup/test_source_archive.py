# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.arcpro.b70.plugins.lookup.source_archive import LookupModule, pack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src" / "thing" / "__pycache__").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text('[tool.x]\nname = "no"\n\n[project]\nname = "a-thing"\nversion = "1.2.3"\n')
    (root / "README.md").write_text("# thing\n")
    (root / "src" / "thing" / "__init__.py").write_text("")
    (root / "src" / "thing" / "__pycache__" / "__init__.pyc").write_text("x")
    (root / "tests" / "test_x.py").write_text("")
    return root


def test_what_is_packed(project: Path) -> None:
    found = LookupModule().run([str(project)])[0]
    assert found["name"] == "a_thing-1.2.3.tar.gz"
    with tarfile.open(found["path"]) as archive:
        assert archive.getnames() == [
            "a_thing-1.2.3/pyproject.toml",
            "a_thing-1.2.3/README.md",
            "a_thing-1.2.3/src/thing/__init__.py",
        ]


def test_only_content_counts(project: Path) -> None:
    before = LookupModule().run([str(project)])[0]
    first = Path(before["path"]).read_bytes()
    source = project / "src" / "thing" / "__init__.py"
    os.utime(source, (1, 1))
    source.chmod(0o600)
    (project / "tests" / "test_y.py").write_text("")
    after = LookupModule().run([str(project)])[0]
    assert after == before
    assert Path(after["path"]).read_bytes() == first
    source.write_text("x = 1\n")
    assert LookupModule().run([str(project)])[0]["sha256"] != before["sha256"]


def test_what_is_missing_is_named(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "a"\n')
    with pytest.raises(ValueError, match="has no version in"):
        pack(project)
    with pytest.raises(AnsibleLookupError, match="cannot pack /nowhere"):
        LookupModule().run(["/nowhere"])


def test_what_builds_it_is_packed_too(project: Path) -> None:
    before = pack(project)
    (project / "setup.py").write_text("from setuptools import setup\n\nsetup()\n")
    stem, content = pack(project)
    assert content != before[1]
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert f"{stem}/setup.py" in archive.getnames()
