# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemctl and journalctl as they answer, and as they don't: the runner is replaced, the reading is real."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import systemd
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import SlotFault, UnitState

FILES = "b70-slot-main-a.service enabled enabled\nminimax-vllm.service disabled enabled\n"
SHOWN = """\
Id=b70-slot-main-ghost.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=7
InvocationID=0123456789abcdef0123456789abcdef

Id=b70-slot-main-a.service
LoadState=loaded
ActiveState=inactive
SubState=dead

Id=minimax-vllm.service
LoadState=loaded
ActiveState=active
SubState=running

Id=none.service
LoadState=not-found
ActiveState=inactive
"""


class Runner:
    """Answers by the second word of the command line; `failing` calls fail first."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.calls: list[list[str]] = []

    def __call__(self, argv, limit_s=60.0):
        self.calls.append(list(argv))
        if self.failing:
            self.failing -= 1
            return subprocess.CompletedProcess(argv, 1, "", "Failed to connect to bus: Connection refused")
        text = {"list-unit-files": FILES, "show": SHOWN}.get(argv[1], "")
        return subprocess.CompletedProcess(argv, 0, text, "")


@pytest.fixture
def runner(monkeypatch):
    found = Runner()
    monkeypatch.setattr(systemd, "_run", found)
    monkeypatch.setattr(systemd, "_AGAIN_S", 0.0)
    return found


def test_a_survey_takes_two_questions(runner):
    seen = systemd.Systemd().survey("b70-slot-main-", ["minimax-vllm.service", "none.service"])
    assert [(unit.name, unit.active, unit.file_state) for unit in seen] == [
        ("b70-slot-main-a.service", "inactive", "enabled"),
        # It runs without a file of its own.
        ("b70-slot-main-ghost.service", "active", ""),
        ("minimax-vllm.service", "active", "disabled"),
        ("none.service", "inactive", ""),
    ]
    assert [call[1] for call in runner.calls] == ["list-unit-files", "show"]
    assert not seen[-1].exists


def test_a_question_that_systemd_misses_is_asked_again(runner):
    runner.failing = 2
    (unit,) = systemd.Systemd().show(["b70-slot-main-a.service"])
    assert (unit.active, len(runner.calls)) == ("inactive", 3)
    runner.failing = 3
    with pytest.raises(SlotFault, match=r"`systemctl show .* failed with 1"):
        systemd.Systemd().show(["b70-slot-main-a.service"])


def test_a_change_that_is_refused_is_not_tried_again(runner):
    runner.failing = 1
    with pytest.raises(SlotFault) as refused:
        systemd.Systemd().stop("b70-slot-main-a.service")
    assert (len(runner.calls), refused.value.got) == (1, "Failed to connect to bus: Connection refused")


def test_a_log_that_cannot_be_read_in_time_says_nothing(monkeypatch):
    def hang(argv, limit_s=60.0):
        raise SlotFault(f"`{' '.join(argv)}` gave no answer within {limit_s:g} s")

    monkeypatch.setattr(systemd, "_done", hang)
    assert systemd.Systemd().log(UnitState("b70-slot-main-a.service"), 12) == ()
    assert systemd.Systemd().kernel_log(12) == ()


def test_a_command_that_hangs_is_given_up():
    with pytest.raises(SlotFault, match=r"gave no answer within 0\.05 s"):
        systemd._run(["sleep", "5"], 0.05)
    with pytest.raises(SlotFault, match="is not installed; a slot needs systemd"):
        systemd._run(["no-such-program"])
