# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The syntax check of all playbooks and roles at once, which ansible-lint has in the place of one for each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import ansible_lint

SOUND = "- hosts: localhost\n  tasks:\n    - ansible.builtin.debug:\n"
BROKEN = "- hosts: localhost\n  tasks:\n    - ansible.builtin.debug:\n      arcpro.b70.b70_doctor:\n"


@pytest.mark.parametrize("broken", ["", "playbook", "role"])
def test_what_is_broken_is_looked_for_in_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    playbook, role = tmp_path / "play.yml", tmp_path / "role"
    playbook.write_text(BROKEN if broken == "playbook" else SOUND)
    (role / "tasks").mkdir(parents=True)
    (role / "tasks/main.yml").write_text("- [x]\n" if broken == "role" else "- ansible.builtin.debug:\n")
    files = [SimpleNamespace(kind="playbook", path=playbook), SimpleNamespace(kind="role", path=role)]
    runner: Any = SimpleNamespace(_collect_syntax_check_files=lambda: files)
    monkeypatch.setattr(ansible_lint, "_check_each", lambda *_given: "each of them")
    assert ansible_lint.check_all(runner, []) == ("each of them" if broken else files)
