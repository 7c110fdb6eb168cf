# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FIFO, a directory or a device in the place of a file holds nobody up, and is named."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import serving_state, start_unit

from frontdoor.config import from_table
from frontdoor.slot import regular
from frontdoor.slot.reports import history
from frontdoor.slot.state import StateFile


@pytest.fixture(autouse=True)
def never_blocks() -> Iterator[None]:
    """Whoever waits for the other end of a FIFO is told after some seconds."""
    before = signal.signal(signal.SIGALRM, _held_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _held_up(_number: int, _frame: object) -> None:
    raise AssertionError("held up by what is no file")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = pytest.mark.parametrize("make", [fifo, Path.mkdir, device])


@KINDS
def test_the_state_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "state.json"
    make(path)
    start_unit(tmp_path)
    file = StateFile(from_table({"slot": {"state_file": str(path), "units_dir": str(tmp_path)}}))
    state = file.poll()
    assert state is not None
    assert (state.phase, state.open) == ("stopped", False)
    assert state.reason == f"the state file {path} cannot be read: {regular.NOT_REGULAR}"
    assert file.poll() is None
    (tmp_path / "new").write_text(json.dumps(serving_state("http://h:1")))
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    (tmp_path / "new").rename(path)
    state = file.poll()
    assert state is not None
    assert state.open


@KINDS
def test_the_journal(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "main.jsonl"
    make(path)
    assert history(str(path)).read() == []


def test_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert regular.read(path) == b"0123456789"
    assert (regular.read(path, 3), regular.read(path, 100)) == (b"789", b"0123456789")
