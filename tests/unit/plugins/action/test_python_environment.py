# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half, with a host that is played: what it asks, what it says, and what it does without an answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_python_environment as action
from ansible_collections.arcpro.b70.plugins.plugin_utils import _work

BEGUN = {"changed": False, "state": "running", "joined": False, "progress": {}}
FURTHER = {**BEGUN, "progress": {"text": "step 2 of 3: torch from https://vendor/xpu", "written_mib": 700}}
DONE = {**BEGUN, "state": "ended", "changed": True, "reason": "there is no finished environment"}


class Host:
    """Answers modules: a prediction, and one answer after the other of an installation; exceptions are raised."""

    def __init__(self, prediction, *watched):
        self.prediction, self.watched = prediction, list(watched)
        self.asked = []

    def answer(self, module_name, module_args=None, wrap_async=False, **_more):
        part = (module_args or {}).get("part", "make")
        self.asked.append("async" if wrap_async else part)
        answer = self.watched.pop(0) if part in ("start", "look") else {} if part == "acknowledge" else self.prediction
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture
def said(monkeypatch):
    lines, now = [], [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(action, "time", clock)
    monkeypatch.setattr(_work, "time", clock)
    monkeypatch.setattr(action.display, "display", lambda text, color=None: lines.append(text))
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    return lines


def run(host, **task):
    given = {
        "check_mode": False,
        "async_val": 0,
        "args": {"path": "/opt/b70/env", "steps": [{"label": "torch"}, {"label": "the lock"}], "timeout": 100},
    }
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(**{**given, **task})
    plugin._connection = SimpleNamespace(transport="local", has_native_async=False, reset=lambda: None)
    plugin._execute_module = host.answer
    return plugin.run(None, {"inventory_hostname": "b70-1"})


def test_a_converged_environment_takes_one_look(said):
    host = Host({"changed": False, "wheels": {}})
    assert run(host) == {"changed": False, "wheels": {}}
    assert host.asked == ["predict"]


def test_what_is_wrong_from_the_start_is_told_at_once(said):
    host = Host({"failed": True, "msg": "there is no uv"})
    assert run(host)["msg"] == "there is no uv"
    assert host.asked == ["predict"]


def test_the_work_is_the_host_s_and_its_progress_is_shown(said):
    host = Host({"changed": True}, BEGUN, AnsibleConnectionFailure("gone"), *[FURTHER] * 8, DONE)
    assert run(host) == {"changed": True, "reason": "there is no finished environment"}
    assert (host.asked[:3], host.asked[-1]) == (["predict", "start", "look"], "acknowledge")
    assert [line.split(": ", 1)[1][:15] for line in said[:2]] == ["connection lost", "connected again"]
    shown = "b70-1 | /opt/b70/env: step 2 of 3: torch from https://vendor/xpu, 700 MiB written, "
    assert said[2:]
    assert all(line.startswith(shown) for line in said[2:])


def test_an_installation_that_vanished_says_what_to_do(said):
    result = run(Host({"changed": True}, BEGUN, {**BEGUN, "state": "none"}))
    assert result["failed"]
    assert "run again" in result["msg"]


@pytest.mark.parametrize("task", [{"check_mode": True}, {"async_val": 60}])
def test_a_prediction_and_an_async_of_the_callers_are_the_module_alone(said, task):
    host = Host({"changed": True, "reason": "there is no finished environment"})
    run(host, **task)
    assert host.asked == (["async"] if "async_val" in task else ["make"])
    predicted = "b70-1 | /opt/b70/env: would install torch, the lock, because there is no finished environment"
    assert said == ([predicted] if "check_mode" in task else [])
