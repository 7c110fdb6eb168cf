# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a transient unit, and what is read of systemd's answers."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils import _transient
from ansible_collections.arcpro.b70.plugins.module_utils._transient import Task, TransientState, TransientUnits

TASK = Task("b70-x.service", "Some work", ("/bin/x", "y"), 60)


class WorkError(Exception):
    pass


class Asked(TransientUnits):
    """A systemd that answers with one text and keeps what it was asked."""

    asked: list[tuple[list[str], dict[str, Any]]]
    files: dict[Path, str]
    modes: list[int]
    answer = ""
    refuses = ""

    def ask(self, argv: Any, **given: Any) -> str:
        if argv[0] == self.refuses:
            raise WorkError("refused")
        self.files.update({path: path.read_text() for path in Path(_transient.ENVIRONMENTS).glob("*")})
        self.modes.extend(stat.S_IMODE(path.stat().st_mode) for path in self.files)
        self.asked.append((list(argv), given))
        return self.answer


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    monkeypatch.setattr(_transient, "ENVIRONMENTS", str(tmp_path / "environments"))
    made = Asked(WorkError, "some work")
    for name, empty in (("asked", []), ("files", {}), ("modes", [])):
        object.__setattr__(made, name, empty)
    return made


def test_a_task_is_hardened_and_gives_way_and_has_a_limit() -> None:
    argv = TASK.run_argv()
    assert argv[:4] == ("systemd-run", "--quiet", "--unit=b70-x.service", "--description=Some work")
    assert argv[-3:] == ("--", "/bin/x", "y")
    for expected in (
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "Nice=10",
        "OOMScoreAdjust=500",
        "RuntimeMaxSec=60",
    ):
        assert f"--property={expected}" in argv


def test_what_is_left_empty_is_not_asked_for_and_own_properties_win() -> None:
    words = Task("u", "d", ("x",), 1, properties={"ProtectSystem": "no", "CapabilityBoundingSet": ""}).run_argv()
    properties = [word.removeprefix("--property=") for word in words if word.startswith("--property=")]
    names = [word.partition("=")[0] for word in properties]
    assert len(names) == len(set(names))
    assert {"ProtectSystem=no", "CapabilityBoundingSet="} < set(properties)
    assert not {"User", "Group", "WorkingDirectory", "StandardOutput", "ReadWritePaths"} & set(names)


def test_a_start_drops_what_failed_under_the_name_before(systemd: Asked) -> None:
    systemd.start(TASK, limit_s=9.0)
    (forgotten, loose), (started, limit) = systemd.asked
    assert forgotten == ["systemctl", "reset-failed", "b70-x.service"]
    assert (loose, limit) == ({"check": False}, {"limit_s": 9.0})
    assert tuple(started) == TASK.run_argv()


PROXIED = replace(TASK, environment={"https_proxy": 'http://me:pa"$s@proxy:3128', "HOME": "/tmp"})


def test_variables_reach_a_unit_by_a_file_for_root_alone_that_is_gone_when_it_runs(systemd: Asked) -> None:
    systemd.start(PROXIED)
    started = systemd.asked[-1][0]
    assert not [word for word in started if "proxy" in word or "--setenv" in word]
    ((path, text),) = systemd.files.items()
    assert f"--property=EnvironmentFile={path}" in started
    assert (set(systemd.modes), stat.S_IMODE(path.parent.stat().st_mode)) == ({0o600}, 0o700)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'HOME="/tmp"', r'https_proxy="http://me:pa\"\$s@proxy:3128"',
    ]  # fmt: skip
    assert not path.exists()


def test_variables_of_a_unit_that_does_not_start_are_gone_too(systemd: Asked) -> None:
    object.__setattr__(systemd, "refuses", "systemd-run")
    with pytest.raises(WorkError, match="refused"):
        systemd.start(PROXIED)
    assert list(Path(_transient.ENVIRONMENTS).iterdir()) == []


@pytest.mark.parametrize(
    ("text", "state", "running", "failed"),
    [
        (
            "ActiveState=active\nResult=success\nExecMainStatus=0\n",
            TransientState("active", "success", "0"),
            True,
            False,
        ),
        (
            "ActiveState=failed\nResult=oom-kill\nExecMainStatus=9\n",
            TransientState("failed", "oom-kill", "9"),
            False,
            True,
        ),
        ("", TransientState("inactive", "", ""), False, False),
    ],
)
def test_the_state_is_read_from_systemds_words(
    systemd: Asked, text: str, state: TransientState, running: bool, failed: bool
) -> None:
    object.__setattr__(systemd, "answer", text)
    found = systemd.state("b70-x.service")
    assert (found, found.running, found.failed) == (state, running, failed)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/nowhere/systemctl", "show"], "is not installed; some work runs as a unit of systemd"),
        (["sh", "-c", "echo why >&2; exit 1"], "exit 1` ended with 1: why"),
        (["sleep", "5"], "`sleep 5` gave no answer within 0.2 s"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_the_work(argv: list[str], words: str) -> None:
    with pytest.raises(WorkError, match=words):
        TransientUnits(WorkError, "some work").ask(argv, limit_s=0.2)
    if argv[0] == "sh":
        assert TransientUnits(WorkError, "some work").ask(argv, check=False) == ""


def test_a_caller_that_waits_for_a_task_reads_what_it_prints() -> None:
    argv = TASK.piped_argv()
    assert argv[:4] == ("systemd-run", "--pipe", "--wait", "--collect")
    assert argv[4:] == TASK.run_argv()[1:]
