# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of work on a host: who may look into it, what is read from the part that the unit writes, and its lock."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import files
from ansible_collections.arcpro.b70.plugins.module_utils._work import folder as folders
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError, WorkFolder
from unit.plugins.module_utils._work.units import program


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    made = WorkFolder(tmp_path / "state" / "soak" / "main")
    made.prepare(program(tmp_path))
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_the_unit_s_user_can_read_what_it_runs_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    work = WorkFolder(tmp_path / "state" / "soak" / "main")
    before = os.umask(umask)
    try:
        work.prepare(program(tmp_path))
        work.give({"profile": "a"})
    finally:
        os.umask(before)
    assert {mode(folder) for folder in (work.out, work.path, *work.path.parents[:2])} == {0o755}
    assert {mode(work.path / name) for name in ("program.zip", "given.json")} == {0o644}


def test_a_pipe_in_place_of_what_was_seen_holds_up_nobody(work: WorkFolder) -> None:
    os.mkfifo(work.out / "seen.json")
    with pytest.raises(WorkError, match=r"seen\.json is damaged .*not a regular file.*remove .*main and run"):
        work.seen()


def test_a_link_to_a_file_of_others_is_not_followed(work: WorkFolder, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    (work.out / "seen.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(WorkError, match=r"seen\.json is damaged"):
        work.seen()


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"[]", b"\xff", b"{}" + b" " * 200_000])
def test_what_is_no_such_file_is_named(work: WorkFolder, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(files, "_READ_LIMIT", 150_000)
    (work.out / "seen.json").write_bytes(content)
    with pytest.raises(WorkError, match=r"seen\.json is damaged"):
        work.seen()


def test_one_call_at_a_time_has_the_folder(work: WorkFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LOCK_LIMIT_S", 0.0)
    lock = work.path.with_name(".main.lock")
    with work.alone(), pytest.raises(WorkError, match=rf"{lock} .*`fuser {lock}`"), work.alone():
        pass
    with work.alone():
        # Whoever may open it could hold up root.
        assert mode(lock) == 0o600
