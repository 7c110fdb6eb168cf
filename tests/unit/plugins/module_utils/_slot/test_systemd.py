# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemctl and journalctl as they answer, and as they don't: the runner is replaced, the reading is real."""

from __future__ import annotations

import subprocess

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import systemd
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import HostFault, SlotFault, UnitState

SHOWN = """\
Id=b70-slot-main-ghost.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=7
InvocationID=0123456789abcdef0123456789abcdef

Id=b70-slot-main-a.service
LoadState=loaded
ActiveState=failed
SubState=dead

Id=minimax-vllm.service
LoadState=loaded
ActiveState=active
SubState=running
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
        return subprocess.CompletedProcess(argv, 0, SHOWN if argv[1] == "show" else "", "")


@pytest.fixture
def runner(monkeypatch):
    found = Runner()
    monkeypatch.setattr(systemd, "_run", found)
    monkeypatch.setattr(systemd, "_AGAIN_S", 0.0)
    return found


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """/etc and /run, in this order."""
    found = [tmp_path / "etc", tmp_path / "run"]
    for folder in found:
        (folder / "multi-user.target.wants").mkdir(parents=True)
    monkeypatch.setattr(systemd, "_UNIT_DIRS", dict(zip(found, ("enabled", "enabled-runtime"), strict=True)))
    return found


def install(folder, name, *, wanted=False):
    (folder / name).write_text("[Service]\n")
    if wanted:
        (folder / "multi-user.target.wants" / name).symlink_to(folder / name)


def test_a_survey_has_what_is_on_disk_and_what_is_loaded_and_the_named_ones(runner, folders):
    etc, run = folders
    install(etc, "b70-slot-main-a.service", wanted=True)
    install(etc, "b70-slot-main-b.service")
    install(etc, "b70-slot-main-c.service")
    (run / "multi-user.target.wants/b70-slot-main-c.service").symlink_to(etc / "b70-slot-main-c.service")
    install(etc, "b70-slot-other-a.service", wanted=True)
    install(etc, "minimax-vllm.service")
    # A link without a file, and one to a file that is masked.
    (etc / "multi-user.target.wants/b70-slot-main-gone.service").symlink_to(etc / "b70-slot-main-gone.service")
    (etc / "b70-slot-main-d.service").symlink_to("/dev/null")
    install(run, "b70-slot-main-d.service", wanted=True)
    seen = systemd.Systemd().survey("b70-slot-main-", ["minimax-vllm.service", "none.service"])
    assert [(unit.name, unit.active, unit.file_state) for unit in seen] == [
        ("b70-slot-main-a.service", "failed", "enabled"),
        ("b70-slot-main-b.service", "inactive", "disabled"),
        ("b70-slot-main-c.service", "inactive", "enabled-runtime"),
        ("b70-slot-main-d.service", "inactive", "masked"),
        # It runs without a file of its own.
        ("b70-slot-main-ghost.service", "active", ""),
        ("minimax-vllm.service", "active", "disabled"),
        ("none.service", "inactive", ""),
    ]
    assert [unit.exists for unit in seen] == [True] * 6 + [False]


def test_a_survey_does_not_have_systemd_load_what_is_down(runner, folders):
    for name in "abc":
        install(folders[0], f"b70-slot-main-{name}.service")
    systemd.Systemd().survey("b70-slot-main-", ["minimax-vllm.service"])
    ((program, verb, *words),) = runner.calls
    asked = ["b70-slot-main-*.service", "[m]inimax-vllm.service"]
    assert (program, verb, words[words.index("--") + 1 :]) == ("systemctl", "show", asked)


def test_a_question_that_systemd_misses_is_asked_again(runner):
    runner.failing = 2
    (unit,) = systemd.Systemd().show(["b70-slot-main-a.service"])
    assert (unit.active, len(runner.calls)) == ("failed", 3)
    runner.failing = 3
    with pytest.raises(SlotFault, match=r"`systemctl show .* failed with 1"):
        systemd.Systemd().show(["b70-slot-main-a.service"])


def test_a_change_that_is_refused_is_not_tried_again(runner):
    runner.failing = 1
    with pytest.raises(SlotFault) as refused:
        systemd.Systemd().stop("b70-slot-main-a.service")
    assert (len(runner.calls), refused.value.got) == (1, "Failed to connect to bus: Connection refused")


def test_a_log_that_cannot_be_read_in_time_says_nothing(monkeypatch):
    def hang(argv, limit_s):
        raise HostFault(f"`{' '.join(argv)}` gave no answer within {limit_s:g} s")

    monkeypatch.setattr(systemd, "done", hang)
    assert systemd.Systemd().log(UnitState("b70-slot-main-a.service"), 12) == ()
    assert systemd.Systemd().kernel_log(12) == ()


def test_a_command_that_hangs_is_given_up():
    with pytest.raises(SlotFault, match=r"gave no answer within 0\.05 s"):
        systemd._run(["sleep", "5"], 0.05)
    with pytest.raises(SlotFault, match="is not installed; a slot needs systemd"):
        systemd._run(["no-such-program"])
