# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.callback.timing import CallbackModule, human_seconds, longest_tasks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (4.25, "4.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (187, "3 min 07 s"),
        (3600, "60 min 00 s"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


def test_only_the_longest_tasks_are_named() -> None:
    durations = [("a", 1.0), ("b", 9.0), ("c", 3.0), ("d", 5.0)]
    assert longest_tasks(durations, 2, 2.0) == [("b", 9.0), ("d", 5.0)]
    assert longest_tasks(durations, 9, 4.0) == [("b", 9.0), ("d", 5.0)]


class Task:
    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def get_name(self) -> str:
        return f"task {self._uuid} "


def test_a_task_counts_from_its_start_to_its_last_result() -> None:
    now = [100.0]
    lines: list[str] = []
    callback = CallbackModule(
        display=SimpleNamespace(display=lines.append, verbosity=0), options=None, clock=lambda: now[0]
    )
    callback.get_option = {"longest": 5, "min_seconds": 2.0}.__getitem__
    task = Task("one")

    def result_after(seconds: float, event: str, **more: Any) -> None:
        now[0] += seconds
        getattr(callback, event)(SimpleNamespace(task=task, _task=task), **more)

    callback.v2_playbook_on_task_start(task, is_conditional=False)
    result_after(3.0, "v2_runner_on_ok")
    result_after(4.0, "v2_runner_on_failed", ignore_errors=False)
    callback.v2_playbook_on_task_start(Task("never answered"), is_conditional=False)

    assert callback.durations() == [("task one", 7.0)]
    callback.v2_playbook_on_stats(None)
    assert lines == ["Took 7.0 s, most of it in:", "         7.0 s  task one"]


def test_the_time_between_the_waves_of_a_play_does_not_count() -> None:
    now = [100.0]
    callback = CallbackModule(display=SimpleNamespace(verbosity=0), options=None, clock=lambda: now[0])
    task, switch = Task("drain"), Task("switch")

    def run(one: Task, seconds: float) -> None:
        callback.v2_playbook_on_task_start(one, is_conditional=False)
        now[0] += seconds
        callback.v2_runner_on_ok(SimpleNamespace(task=one, _task=one))

    for _wave in range(3):
        run(task, 1.0)
        run(switch, 60.0)
    assert callback.durations() == [("task drain", 3.0), ("task switch", 180.0)]
