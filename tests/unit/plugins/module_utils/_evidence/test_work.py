# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of work on a host: who may look into it, what is read from the part that the unit writes, and its lock."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._evidence import work as works
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.work import Work, WorkError
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import files


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "module.zip"
    path.write_bytes(b"program")
    return path


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path / "state" / "soak" / "main", "b70-soak-main.service")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_the_unit_s_user_can_read_what_it_runs_whatever_the_umask_is(work: Work, archive: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        work.prepare({"profile": "a"}, archive)
    finally:
        os.umask(before)
    assert {mode(folder) for folder in (work.out, work.folder, *work.folder.parents[:2])} == {0o755}
    assert {mode(work.folder / name) for name in ("program.zip", "given.json")} == {0o644}


def test_a_pipe_in_place_of_what_was_seen_holds_up_nobody(work: Work, archive: Path) -> None:
    work.prepare({}, archive)
    os.mkfifo(work.out / "seen.json")
    with pytest.raises(WorkError, match=r"seen\.json is damaged .*not a regular file.*remove .*main and run"):
        work.seen()


def test_a_link_to_a_file_of_others_is_not_followed(work: Work, archive: Path, tmp_path: Path) -> None:
    work.prepare({}, archive)
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    (work.out / "seen.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(WorkError, match=r"seen\.json is damaged"):
        work.seen()


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"[]", b"\xff", b"{}" + b" " * 200_000])
def test_what_is_no_such_file_is_named(
    work: Work, archive: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(files, "_READ_LIMIT", 150_000)
    work.prepare({}, archive)
    (work.out / "seen.json").write_bytes(content)
    with pytest.raises(WorkError, match=r"seen\.json is damaged"):
        work.seen()


def test_one_call_at_a_time_has_the_folder(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "LOCK_LIMIT_S", 0.0)
    with work.alone():
        lock = next(work.folder.parent.iterdir())
        with pytest.raises(WorkError, match=rf"{lock} .*`fuser {lock}`"), work.alone():
            pass
    with work.alone():
        # Whoever may open it could hold up root.
        assert mode(lock) == 0o600


def test_what_a_play_of_the_former_version_collected_was_told(work: Work, archive: Path) -> None:
    work.prepare({"token": "1"}, archive)
    work.save_result({"record": "x", "verdict": "passed", "reasons": [], "file": "x.json"})
    assert (work.told(), work.told_to_another("2")) == (False, False)
    work.save_result({"record": "x", "verdict": "passed", "reasons": [], "file": "x.json", "collected_by": "1"})
    assert (work.told(), work.told_to_another("2"), work.told_to_another("1")) == (True, True, False)
