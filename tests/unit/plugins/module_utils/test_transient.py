# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a transient unit, and what is read of systemd's answers."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._transient import State, Systemd, Task

TASK = Task("b70-x.service", "Some work", ("/bin/x", "y"), 60)


class WorkError(Exception):
    pass


class Asked(Systemd):
    """A systemd that answers with one text and keeps what it was asked."""

    asked: list[tuple[list[str], dict[str, Any]]]
    answer = ""

    def ask(self, argv: Any, **given: Any) -> str:
        self.asked.append((list(argv), given))
        return self.answer


@pytest.fixture
def systemd() -> Asked:
    made = Asked(WorkError, "some work")
    object.__setattr__(made, "asked", [])
    return made


def test_a_task_is_hardened_and_gives_way_and_has_a_limit() -> None:
    argv = TASK.run_argv()
    assert argv[:4] == ("systemd-run", "--quiet", "--unit=b70-x.service", "--description=Some work")
    assert argv[-3:] == ("--", "/bin/x", "y")
    for expected in ("ProtectSystem=strict", "NoNewPrivileges=yes", "Nice=10", "RuntimeMaxSec=60"):
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


@pytest.mark.parametrize(
    ("text", "state", "running", "failed"),
    [
        ("ActiveState=active\nResult=success\nExecMainStatus=0\n", State("active", "success", "0"), True, False),
        ("ActiveState=failed\nResult=oom-kill\nExecMainStatus=9\n", State("failed", "oom-kill", "9"), False, True),
        ("", State("inactive", "", ""), False, False),
    ],
)
def test_the_state_is_read_from_systemds_words(
    systemd: Asked, text: str, state: State, running: bool, failed: bool
) -> None:
    object.__setattr__(systemd, "answer", text)
    found = systemd.state("b70-x.service")
    assert (found, found.running, found.failed) == (state, running, failed)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/nowhere/systemctl", "show"], "is not installed; some work runs as a unit of systemd"),
        (["sh", "-c", "echo why >&2; exit 1"], "`sh -c` failed: why"),
        (["sleep", "5"], "`sleep 5` gave no answer within 0.2 s"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_the_work(argv: list[str], words: str) -> None:
    with pytest.raises(WorkError, match=words):
        Systemd(WorkError, "some work").ask(argv, limit_s=0.2)
    if argv[0] == "sh":
        assert Systemd(WorkError, "some work").ask(argv, check=False) == ""


def test_a_caller_that_waits_for_a_task_reads_what_it_prints() -> None:
    argv = TASK.piped_argv()
    assert argv[:4] == ("systemd-run", "--pipe", "--wait", "--collect")
    assert argv[4:] == TASK.run_argv()[1:]
