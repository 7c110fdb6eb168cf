# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the slot writes can be read by those it is for, and what is no file in a file's place holds up nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.clock import SystemClock
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.files import HostFiles
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.locks import FileLocks
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.frontdoor import FrontdoorLink, read_state
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Layout, Mode
from unit.plugins.module_utils._slot.calls import host, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT

FIELDS = {"phase": "stopped", "reason": "test"}


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


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(
        config_dir=PurePosixPath(tmp_path / "etc"),
        run_dir=PurePosixPath(tmp_path / "run"),
        state_dir=PurePosixPath(tmp_path / "var"),
    )


@pytest.fixture
def fx() -> Effects:
    return replace(host("a").effects(), clock=SystemClock(), files=HostFiles(), locks=FileLocks(SystemClock()))


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): stat.S_IMODE(path.stat().st_mode) for path in top.rglob("*")}


def write_all(fx: Effects, layout: Layout) -> None:
    FrontdoorLink(fx, layout)._next(FIELDS, 0)
    fx.files.append(layout.journal_file, "{}\n", sync=True)
    fx.files.truncate(layout.progress_file, "{}\n")
    fx.files.write(layout.quarantine_file, "{}")
    fx.files.write(layout.current_env, "x")
    with fx.locks.hold(layout.lock_file, "note", 0):
        pass


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o777])
def test_whatever_the_umask_of_the_caller(fx, layout, tmp_path, mask):
    with umask(mask):
        write_all(fx, layout)
    found = modes(tmp_path)
    wanted = {"run/main/state.json", "var/journal/main.jsonl", "run/main/lock", "run/main/progress.jsonl"}
    assert wanted <= found.keys()
    for name, mode in found.items():
        assert mode == (0o755 if (tmp_path / name).is_dir() else 0o644), name


def test_what_is_hidden_is_repaired_by_the_next_that_writes_it(fx, layout, tmp_path):
    write_all(fx, layout)
    for name in modes(tmp_path):
        path = tmp_path / name
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
    assert fx.files.hidden(layout.state_file) == f"{layout.state_file} has the mode 0600"
    assert fx.files.hidden(layout.slot_run_dir) == f"{layout.slot_run_dir} has the mode 0700"
    write_all(fx, layout)
    assert not any(fx.files.hidden(path) for path in (layout.run_dir, layout.slot_run_dir, layout.state_file))
    assert fx.files.hidden(layout.journal_file) is None
    assert fx.files.hidden(layout.run_dir / "none") is None
    if os.geteuid() == 0:
        os.chown(layout.state_file, 12345, -1)
        assert fx.files.hidden(layout.state_file) == f"{layout.state_file} belongs to user 12345"


def fifo(path: str) -> None:
    os.mkfifo(path)


def device(path: str) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        os.symlink("/dev/zero", path)


@pytest.mark.parametrize("make", [fifo, os.mkdir, device])
def test_what_is_no_file_is_replaced_or_named(fx, layout, make: Callable[[str], None]):
    write_all(fx, layout)
    names = (layout.state_file, layout.journal_file, layout.progress_file, layout.quarantine_file, layout.lock_file)
    for path in names:
        os.unlink(path)
        make(str(path))
    link = FrontdoorLink(fx, layout)
    assert read_state(fx, layout) is None
    assert fx.files.hidden(layout.state_file) is not None or make is os.mkdir
    link._next(FIELDS, 0)
    state = read_state(fx, layout)
    assert state is not None
    assert (state.phase, fx.files.hidden(layout.state_file)) == ("stopped", None)
    fx.files.truncate(layout.progress_file, "begun\n")
    assert fx.files.read(layout.progress_file) == "begun\n"
    held = quarantine.read(fx, layout)
    assert held is not None
    assert (held.symptom, held.since) == ("unknown", "an unknown time")
    quarantine.clear(fx, layout, "me", "test")
    assert quarantine.read(fx, layout) is None
    # The journal and the lock are not given up by themselves.
    assert read_memory(fx, layout).verified is None
    for act in (
        lambda: fx.files.append(layout.journal_file, "{}\n", sync=True),
        lambda: fx.locks.hold(layout.lock_file, "note", 0).__enter__(),
        lambda: fx.files.tail(layout.journal_file, 100),
    ):
        with pytest.raises(OSError, match=str(layout.state_dir.parent)):
            act()


@pytest.mark.parametrize("mode", [Mode.RECOVER, Mode.BOOT, Mode.SWITCH])
@pytest.mark.parametrize("path", [LAYOUT.state_file, LAYOUT.slot_run_dir, LAYOUT.run_dir, LAYOUT.current_env])
def test_a_run_with_nothing_else_to_do_repairs_what_is_hidden(mode, path):
    fake_host = host("a", load_s=1.0)
    switch(fake_host, "a")
    starts, before = fake_host.starts, fake_host.state.sequence
    fake_host.hidden.add(path)
    result = switch(fake_host, "a") if mode is Mode.SWITCH else recover(fake_host, mode)
    fake_host.assert_invariants()
    assert (result["outcome"], fake_host.hidden, fake_host.starts) == ("committed", set(), starts)
    assert "close" not in names(result)
    assert fake_host.state.sequence > before
    assert not switch(fake_host, "a")["changed"]


@pytest.mark.parametrize("path", [LAYOUT.state_file, LAYOUT.journal_file])
def test_a_slot_settles_although_a_file_cannot_be_read(path):
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.unreadable = {path}
    result = recover(fake_host, Mode.BOOT)
    assert not result["failed"]
    assert fake_host.open
    fake_host.unreadable = set()
    fake_host.assert_invariants()
