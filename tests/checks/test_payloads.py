# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible makes of a module is kept for the next run, as long as no module changes."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest
from ansible.executor import module_common

from tools.callback_plugins import payloads


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    for name in ("modules", "module_utils/_slot"):
        folder = tmp_path / "b70/plugins" / name
        folder.mkdir(parents=True)
        (folder / "one.py").write_text("")
    return tmp_path / "b70"


def test_ansible_looks_where_they_are_kept(tmp_path: Path, collection: Path) -> None:
    assert '"ansiballz_cache"' in inspect.getsource(payloads).replace("'", '"')
    assert "'ansiballz_cache'" in inspect.getsource(module_common)
    home, runs = tmp_path / "home", [tmp_path / "first", tmp_path / "second"]
    for used in runs:
        payloads.keep(used, home, collection)
    (runs[0] / "made").write_text("once")
    assert (runs[1] / "made").read_text() == "once"
    assert home.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["modules/one.py", "module_utils/_slot/one.py", "module_utils/two.py"])
def test_a_change_of_any_module_makes_them_anew(tmp_path: Path, collection: Path, name: str) -> None:
    payloads.keep(tmp_path / "before", tmp_path / "home", collection)
    (collection / "plugins" / name).write_text("changed")
    payloads.keep(tmp_path / "after", tmp_path / "home", collection)
    assert (tmp_path / "before").resolve() != (tmp_path / "after").resolve()


def test_those_of_a_day_ago_are_forgotten(tmp_path: Path, collection: Path) -> None:
    old = tmp_path / "home" / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    payloads.keep(tmp_path / "used", tmp_path / "home", collection)
    assert [place.name for place in (tmp_path / "home").iterdir()] == [payloads.version(collection)]


def test_those_of_another_person_are_not_trusted(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    payloads.keep(tmp_path / "used", tmp_path / "home", collection)
    assert not (tmp_path / "used").exists()
