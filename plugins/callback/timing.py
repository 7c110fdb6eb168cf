# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: timing
type: aggregate
short_description: Say where the time of a run went
version_added: 0.2.0
author: arcpro.b70 contributors (@arcpro-b70)
description:
  - At the end of a run prints its duration and the tasks that took longest, in a few lines.
  - A task that ran on many hosts counts from its start to its last result.
options:
  longest:
    description: How many tasks to name.
    type: int
    default: 5
    env:
      - name: ARCPRO_B70_TIMING_LONGEST
    ini:
      - section: arcpro_b70_timing
        key: longest
  min_seconds:
    description: Tasks faster than this are not named.
    type: float
    default: 2
    env:
      - name: ARCPRO_B70_TIMING_MIN_SECONDS
    ini:
      - section: arcpro_b70_timing
        key: min_seconds
requirements:
  - enable it with C(callbacks_enabled=arcpro.b70.timing) in C(ansible.cfg)
"""

import time
import typing as t

from ansible.plugins.callback import CallbackBase


def human_seconds(seconds: float) -> str:
    """Render a duration: V(4.2 s) below a minute, V(3 min 07 s) from there on."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def longest_tasks(durations: t.Iterable[tuple[str, float]], count: int, min_seconds: float) -> list[tuple[str, float]]:
    """Return at most O(count) pairs (task name, seconds) of at least O(min_seconds), the longest first."""
    slow = [pair for pair in durations if pair[1] >= min_seconds]
    return sorted(slow, key=lambda pair: -pair[1])[:count]


class CallbackModule(CallbackBase):
    """Measure tasks with a monotonic clock and report at the end of the run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "arcpro.b70.timing"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: t.Any = None, options: t.Any = None, clock: t.Callable[[], float] = time.monotonic):
        super().__init__(display=display, options=options)
        self._clock = clock
        self._began = clock()
        self._names: dict[str, str] = {}
        self._started: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        # of tasks that began again
        self._spent: dict[str, float] = {}

    def _start(self, task: t.Any) -> None:
        # A handler or an included task keeps its uuid over hosts, and every task over the waves of a play: what lies
        # between the end of one and the start of the next does not count.
        uuid = task._uuid
        self._names.setdefault(uuid, task.get_name().strip())
        if uuid in self._ended:
            self._spent[uuid] = self._spent.get(uuid, 0.0) + self._ended.pop(uuid) - self._started.pop(uuid)
        self._started.setdefault(uuid, self._clock())

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self._start(task)

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        self._start(task)

    def _end(self, result: t.Any) -> None:
        self._ended[result.task._uuid if hasattr(result, "task") else result._task._uuid] = self._clock()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._end(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._end(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._end(result)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._end(result)

    def durations(self) -> list[tuple[str, float]]:
        """Return (task name, seconds) for every task that gave a result, in the order they began."""
        spent = {uuid: self._spent.get(uuid, 0.0) for uuid in self._names}
        for uuid, ended in self._ended.items():
            spent[uuid] += ended - self._started[uuid]
        return [(self._names[uuid], seconds) for uuid, seconds in spent.items() if uuid in self._ended or seconds]

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        named = longest_tasks(self.durations(), self.get_option("longest"), self.get_option("min_seconds"))
        self._display.display(f"Took {human_seconds(self._clock() - self._began)}{', most of it in:' if named else ''}")
        for name, seconds in named:
            self._display.display(f"  {human_seconds(seconds):>12}  {name}")
