# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plugins `ansible-test sanity` tests after a change."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import record
from tools import sanity

FILES = {
    "plugins/module_utils/low.py": "X = 1\n",
    "plugins/module_utils/middle.py": "from ansible_collections.arcpro.b70.plugins.module_utils.low import X\n",
    "plugins/modules/top.py": "from ansible_collections.arcpro.b70.plugins.module_utils import middle\n",
    "plugins/modules/other.py": "# extends_documentation_fragment: arcpro.b70.words\n",
    "plugins/doc_fragments/words.py": "",
    "roles/one/tasks/main.yml": "[]\n",
}


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one commit."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / record.FILE).parent.mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "One")
    return tmp_path


def test_what_differs_from_a_commit_is_found_and_an_unknown_commit_is_told(root: Path) -> None:
    assert sanity.differing(root, "HEAD") == []
    (root / "roles/one/tasks/main.yml").write_text("---\n")
    (root / "plugins/modules/other.py").unlink()
    (root / "plugins/modules/new.py").write_text("")
    assert sanity.differing(root, "HEAD") == ["plugins/modules/new.py", "plugins/modules/other.py"]
    assert sanity.with_users(root, ["plugins/modules/new.py", "plugins/modules/other.py"]) == ["plugins/modules/new.py"]
    assert sanity.differing(root, "0" * 40) is None


def test_what_uses_a_changed_file_is_tested_with_it(root: Path) -> None:
    low, middle, top, other, words, _task = FILES
    assert sanity.with_users(root, [low]) == [low, middle, top]
    assert sanity.with_users(root, [top]) == [top]
    assert sanity.with_users(root, [words]) == [words, other]


def test_the_last_recorded_pass_is_compared_with(root: Path) -> None:
    low, _middle, top, *_others = FILES
    assert sanity.unproven(root) is None
    first = git(root, "rev-parse", "HEAD")
    (root / low).write_text("X = 2\n")
    git(root, "commit", "-q", "-a", "-m", "Two")
    second = git(root, "rev-parse", "HEAD")
    (root / top).write_text("")
    passes = {
        name: {"date": "2026-06-07", "commit": commit, "seconds": 1, "tests": 1}
        for name, commit in (("sanity-all", first), ("sanity", second))
    }
    (root / record.FILE).write_text(json.dumps(passes))
    assert sanity.unproven(root) == [top]
