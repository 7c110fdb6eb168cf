# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of a host as plays meet it: begun once, joined, told to one play, and its own death recorded."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._work import decide
from ansible_collections.arcpro.b70.plugins.module_utils._work.decide import WorkState
from ansible_collections.arcpro.b70.plugins.module_utils._work.folder import WorkError, WorkFolder
from ansible_collections.arcpro.b70.plugins.module_utils._work.protocol import Beginning, Job
from unit.plugins.module_utils._work.units import Systemd, program

NOTHING = {"now": "", "ended": None}
DONE = {"now": "", "ended": {"how": "done", "why": "", "at": "2026-06-07T09:00:00Z"}}


class Digging(Job):
    """A hole, as deep as the play wants it."""

    noun, unit = "hole", "b70-hole.service"

    @property
    def folder(self) -> WorkFolder:
        return WorkFolder(Path(self.params["place"], "hole"))

    def begin(self) -> Beginning:
        if self.params["depth"] < 0:
            raise WorkError("a hole goes down")
        task = self.task(60, log=str(self.folder.path / "log"))
        return Beginning({"depth": self.params["depth"]}, task if self.params["depth"] else None)

    def differs(self, given: Mapping[str, Any]) -> list[str]:
        ours = self.params["depth"]
        return [f"depth {given['depth']}, not {ours}"] if given["depth"] != ours else []

    def outcome(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        return {"why": seen["ended"]["why"], "failed": seen["ended"]["how"] != "done"}


class Host:
    """Plays that want holes on one host, each with its token."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.systemd = place, Systemd()
        self.archive = program(place)
        monkeypatch.setattr(Digging, "systemd", self.systemd)

    def job(self, token: str = "", depth: int = 3) -> Digging:
        return Digging({"place": str(self.place), "token": token, "depth": depth})

    def start(self, token: str = "", depth: int = 3) -> tuple[str, bool]:
        found = self.job(token, depth).start(self.archive)
        return found.state, found.joined

    def end(self, seen: Mapping[str, Any] = DONE) -> None:
        self.job().folder.save_seen(seen)
        self.systemd.end()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_work_is_begun_once_and_joined(host: Host) -> None:
    assert [host.start("1"), host.start("1"), host.start("2")] == [
        ("running", False), ("running", False), ("running", True),
    ]  # fmt: skip
    (task,) = host.systemd.started
    folder = host.job().folder
    assert (task.unit, task.description, task.writable) == ("b70-hole.service", "Hole", (str(folder.out),))
    assert (folder.path / "program.zip").read_bytes() == b"program"


def test_other_work_is_not_joined_and_its_folder_is_left_alone(host: Host) -> None:
    host.start("1")
    with pytest.raises(WorkError, match=r"another hole is under way, with depth 3, not 5.*`systemctl stop b70-hole"):
        host.start("2", depth=5)
    assert (host.job().folder.given() or {})["depth"] == 3
    host.end()
    # Nobody was told, but nobody asks for that depth any more.
    assert host.start("2", depth=5) == ("running", False)


def test_a_result_is_told_to_one_play_as_often_as_it_asks(host: Host) -> None:
    host.start("killed")
    host.end()
    assert [host.start("2") for _lost in range(3)] == [("ended", True)] * 3
    assert host.job("2").look().waits
    host.job("2").acknowledge()
    host.job("3").acknowledge()
    assert [host.start("killed"), host.start("2")] == [("ended", False), ("ended", True)]
    assert host.start("3") == ("running", False)
    assert len(host.systemd.started) == 2


def test_a_failure_that_nobody_was_told_is_begun_again_and_its_own_play_is_told(host: Host) -> None:
    host.start("1")
    host.end(NOTHING)
    assert host.start("1") == ("ended", False)
    assert host.start("2") == ("running", False)


def test_two_plays_at_once_begin_one_piece_of_work(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes while the first one makes the folder."""
    found: dict[str, tuple[str, bool]] = {}
    other = Thread(target=lambda: found.update(second=host.start("2")))
    prepare = WorkFolder.prepare

    def with_another(self: WorkFolder, archive: Path) -> None:
        if not other.ident:
            other.start()
            other.join(0.2)  # it has found no work, or waits until this one has begun
        prepare(self, archive)

    monkeypatch.setattr(WorkFolder, "prepare", with_another)
    assert host.start("1") == ("running", False)
    other.join()
    assert (found["second"], len(host.systemd.started)) == (("running", True), 1)


def test_work_that_cannot_begin_leaves_nothing(host: Host) -> None:
    with pytest.raises(WorkError, match="a hole goes down"):
        host.start(depth=-1)
    host.systemd.refuses = "`systemd-run --quiet` failed: no bus"
    with pytest.raises(WorkError, match="no bus"):
        host.start()
    assert not host.job().folder.path.exists()
    host.systemd.slow = True  # to say that it has begun
    assert host.start() == ("running", False)


def test_nothing_to_do_needs_no_unit(host: Host) -> None:
    assert (host.start(depth=0), host.systemd.started) == (("ended", False), [])


@pytest.mark.parametrize(
    ("result", "log", "why"),
    [
        ("timeout", "", "it took longer than its limit"),
        ("oom-kill", "x", "the kernel ended it for memory"),
        ("exit-code", "Traceback\nMemoryError\n", "MemoryError"),
        ("success", "", "its process was killed, or the host restarted"),
    ],
)
def test_its_own_death_is_recorded(host: Host, result: str, log: str, why: str) -> None:
    host.start()
    (host.job().folder.path / "log").write_text(log)
    host.systemd.end(result)
    assert host.job().look().result == {"why": f"the hole broke off: {why}", "failed": True}
    host.systemd.end()  # which forgets it
    assert host.job().look().result["why"].endswith(why)


def test_a_look_that_may_not_write_collects_nothing(host: Host) -> None:
    assert host.job().look() == WorkState("none")
    host.start()
    host.end()
    assert host.job().look(write=False).result == {}
    assert not (host.job().folder.path / "result.json").exists()


def test_what_could_not_be_collected_is_collected_by_the_next_play(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.start("1")
    host.end()
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "save_result", lambda *_given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            host.start("2")
    assert host.start("2") == ("ended", True)


def test_it_is_stopped_once(host: Host) -> None:
    assert host.job().stop().state == "none"
    host.start()
    assert [host.job().stop().state, host.job().stop().state] == ["ended", "ended"]


RUNNING = WorkState("running", {"token": "1"})
ENDED = WorkState("ended", {"token": "1"}, result={"verdict": "passed"})
TOLD = replace(ENDED, result={"told_to": "2"})


@pytest.mark.parametrize(
    ("found", "token", "other", "step"),
    [
        (WorkState("none"), "1", False, decide.BEGIN),
        (RUNNING, "2", False, decide.JOIN),
        (RUNNING, "2", True, decide.REFUSE),
        (ENDED, "2", False, decide.JOIN),
        (ENDED, "2", True, decide.BEGIN),
        (TOLD, "1", False, decide.JOIN),
        (TOLD, "2", False, decide.JOIN),
        (TOLD, "3", False, decide.BEGIN),
        (replace(ENDED, result={"told_to": ""}), "", False, decide.BEGIN),
        (replace(ENDED, result={"failed": True}), "1", False, decide.JOIN),
        (replace(ENDED, result={"failed": True}), "2", False, decide.BEGIN),
    ],
)
def test_what_a_play_gets(found: WorkState, token: str, other: bool, step: str) -> None:
    assert decide.on_begin(found, token, other=other) == step
