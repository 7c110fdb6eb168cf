# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection that is told to notice its own end, and questions that outlive it."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.arcpro.b70.plugins.plugin_utils._work import (
    MARK,
    HostJob,
    glance_script,
    keep_alive,
    read_glance,
)


class Connection:
    def __init__(self, folder: Path, ssh_args: str | None = "-C -o ControlMaster=auto -o ControlPersist=60s") -> None:
        self.transport = "ssh"
        self.resets = 0
        self.options: dict[str, Any] = {
            "ssh_args": ssh_args,
            "control_path_dir": str(folder),
            "host": "h",
            "port": 22,
            "remote_user": "root",
            "ssh_common_args": "",
            "ssh_extra_args": "",
            "reconnection_retries": 2,
        }

    def get_option(self, name: str) -> Any:
        return self.options[name]

    def set_option(self, name: str, value: Any) -> None:
        assert name in self.options
        self.options[name] = value

    def reset(self) -> None:
        self.resets += 1
        raise AnsibleConnectionFailure("there is none")


def words(connection: Connection) -> list[str]:
    return shlex.split(connection.options["ssh_args"])


@pytest.mark.parametrize("given", [None, "", "-o ServerAliveInterval=900 -o ControlPath=/theirs -o ControlPersist=60s"])
def test_our_options_come_first_and_the_socket_is_our_own(tmp_path: Path, given: str | None) -> None:
    connection = Connection(tmp_path / "cp", given)
    keep_alive(connection)
    found = words(connection)
    options = [found[index + 1] for index, word in enumerate(found) if word == "-o"]
    assert options[:3] == ["ServerAliveInterval=5", "ServerAliveCountMax=3", "ConnectTimeout=10"]
    assert options[3].startswith(f'ControlPath="{tmp_path}/cp/b70-')
    assert (tmp_path / "cp").stat().st_mode & 0o777 == 0o700
    assert found[8:] == shlex.split(given or "")
    assert connection.options["reconnection_retries"] == 0


def test_it_is_told_once_and_two_hosts_share_no_socket(tmp_path: Path) -> None:
    one, other = Connection(tmp_path), Connection(tmp_path)
    other.options["host"] = "other"
    keep_alive(one)
    keep_alive(other)
    first = one.options["ssh_args"]
    keep_alive(one)
    assert one.options["ssh_args"] == first
    assert words(one)[7] != words(other)[7]


def test_what_is_not_ssh_is_left_alone() -> None:
    class Local:
        transport = "local"

    local = Local()
    keep_alive(local)
    assert vars(local) == {}


class Host:
    """Loses its connection as often as it is told."""

    def __init__(self, losses: int) -> None:
        self.losses = losses

    def __call__(self) -> str:
        if self.losses:
            self.losses -= 1
            raise AnsibleConnectionFailure("lost")
        return "answer"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were slept; a clock that a failed attempt moves on by ten."""
    slept: list[float] = []
    ticks = itertools.count()
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("time.monotonic", lambda: 10.0 * next(ticks))
    return slept


def test_a_lost_connection_is_made_again_and_that_is_said_once(tmp_path: Path, clock: list[float]) -> None:
    connection = Connection(tmp_path)
    said: list[str] = []
    assert HostJob(connection, "the switch x", said.append).ask(Host(3)) == "answer"
    assert said == ["connection lost; the switch x goes on there, connecting again for up to 600 s", "connected again"]
    assert (connection.resets, len(clock)) == (3, 3)


def test_patience_has_an_end(tmp_path: Path, clock: list[float]) -> None:
    said: list[str] = []
    with pytest.raises(AnsibleConnectionFailure, match="lost for 600 s while the switch x went on"):
        HostJob(Connection(tmp_path), "the switch x", said.append).ask(Host(1000))
    assert len(said) == 1


def test_nothing_is_said_of_a_connection_that_holds(tmp_path: Path) -> None:
    said: list[str] = []
    assert HostJob(Connection(tmp_path), "x", said.append).ask(Host(0)) == "answer"
    assert said == []


def test_the_connection_of_a_job_notices_its_own_end(tmp_path: Path) -> None:
    connection = Connection(tmp_path)
    HostJob(connection, "x", print)
    assert "ServerAliveInterval=5" in words(connection)


def test_looks_come_soon_at_first_and_outlive_a_lost_connection(tmp_path: Path, clock: list[float]) -> None:
    said: list[str] = []
    host = Host(0)
    job = HostJob(Connection(tmp_path), "the build", said.append, (1.0, 5.0))
    assert [job.look(host) for _look in range(4)] == ["answer"] * 4
    host.losses = 1
    assert job.look(host) == "answer"
    assert clock == [1.0, 2.0, 4.0, 5.0, 5.0, 2.0]
    assert [line.split(";")[0] for line in said] == ["connection lost", "connected again"]


def test_a_worker_whose_play_was_killed_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    job = HostJob(Connection(tmp_path), "the build", lambda text: None)
    job.ask(lambda: asked.append(1))
    monkeypatch.setattr("os.getppid", lambda: 1)
    with pytest.raises(AnsibleError, match="the play that watched has ended; the build goes on there"):
        job.ask(lambda: asked.append(2))
    assert asked == [1]


def test_a_glance_is_one_shell_command(tmp_path: Path) -> None:
    progress, word, systemctl = (tmp_path / name for name in ("progress file.jsonl", "word", "systemctl"))
    systemctl.write_text(f'#!/bin/sh\ntest "$*" = "is-active a unit" && cat {word}\ntest "$(cat {word})" = active\n')
    systemctl.chmod(0o755)

    def glance(said: str = "active", offset: int = 0) -> tuple[str, bool]:
        word.write_text(f"{said}\n")
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        script = glance_script(str(progress), offset, "a unit")
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=environment)
        return read_glance(done.stdout)

    assert glance() == ("", True)
    progress.write_text("one\ntwo\n")
    assert glance("activating") == ("one\ntwo\n", True)
    assert glance(offset=4) == ("two\n", True)
    assert [glance(said)[1] for said in ("inactive", "failed", "unknown", "")] == [False] * 4
    # The module knows what a cut answer does not say.
    assert read_glance(f"abc\n{MARK}") == ("", False)
