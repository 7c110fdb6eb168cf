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

DONE = {"changed": True, "finished": True, "ansible_job_id": "j1", "reason": "there is no finished environment"}


class Host:
    """Answers modules; `status` is what the job says, one after the other, an exception is raised."""

    def __init__(self, look, status=()):
        self.look, self.status = look, list(status)
        self.asked, self.limits = [], []

    def answer(self, task, module_name, module_args=None, wrap_async=False, **_more):
        if module_name == action.STATUS:
            self.asked.append(module_args["mode"])
            if module_args["mode"] == "cleanup":
                return {}
            answer = self.status.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)
        if wrap_async:
            self.asked.append("start")
            self.limits.append(task.async_val)
            return {"ansible_job_id": "j1", "started": 1, "finished": 0}
        part = (module_args or {}).get("part", "make")
        self.asked.append(part)
        if part == "progress":
            return {"progress": {"text": "step 2 of 3: torch from https://vendor/xpu", "written_mib": 700}}
        return dict(self.look)


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
    plugin.get_shell_option = lambda name, default: default
    plugin._execute_module = lambda **arguments: host.answer(plugin._task, **arguments)
    return plugin.run(None, {"inventory_hostname": "b70-1"})


def test_a_converged_environment_takes_one_look(said):
    host = Host({"changed": False, "wheels": {}})
    assert run(host) == {"changed": False, "wheels": {}}
    assert host.asked == ["look"]


def test_what_is_wrong_from_the_start_is_told_at_once(said):
    host = Host({"failed": True, "msg": "there is no uv"})
    assert run(host)["msg"] == "there is no uv"
    assert host.asked == ["look"]


def test_the_work_is_a_job_of_the_hosts_and_its_progress_is_shown(said):
    host = Host({"changed": True}, [{"finished": False}] * 8 + [DONE])
    assert run(host) == {"changed": True, "reason": "there is no finished environment"}
    assert host.asked[:3] == ["look", "start", "status"]
    assert host.asked[-1] == "cleanup"
    assert host.limits == [1200]
    assert said
    assert all(
        line.startswith("b70-1 | /opt/b70/env: step 2 of 3: torch from https://vendor/xpu, 700 MiB written, ")
        for line in said
    )


def test_a_lost_connection_ends_nothing(said):
    host = Host({"changed": True}, [AnsibleConnectionFailure("gone"), {"finished": False}, DONE])
    assert run(host)["changed"]
    assert [line.split(": ", 1)[1][:15] for line in said] == ["connection lost", "connected again"]


def test_a_job_that_vanished_says_what_to_do(said):
    host = Host({"changed": True}, [{"failed": True, "finished": True, "msg": "could not find job"}])
    result = run(host)
    assert result["failed"]
    assert "run again" in result["msg"]


@pytest.mark.parametrize("task", [{"check_mode": True}, {"async_val": 60}])
def test_a_prediction_and_an_async_of_the_callers_are_the_module_alone(said, task):
    host = Host({"changed": True, "reason": "there is no finished environment"})
    run(host, **task)
    assert host.asked == (["start"] if "async_val" in task else ["make"])
    predicted = "b70-1 | /opt/b70/env: would install torch, the lock, because there is no finished environment"
    assert said == ([predicted] if "check_mode" in task else [])
