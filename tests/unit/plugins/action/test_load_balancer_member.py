# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a load balancer that cannot be reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_load_balancer_member
from ansible_collections.arcpro.b70.plugins.modules.b70_load_balancer_member import RETURN

WHY = "ssh: connect to host lb-01 port 22: Connection refused\n"


def asked(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | Exception) -> dict[str, Any]:
    def module(self: Any, **_given: Any) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    monkeypatch.setattr(ActionBase, "_execute_module", module)
    monkeypatch.setattr(ActionBase, "_remove_tmp_path", lambda self, path: None)
    plugin = object.__new__(b70_load_balancer_member.ActionModule)
    plugin._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return dict(plugin.run(None, {}))


@pytest.mark.parametrize("answer", [AnsibleConnectionFailure(WHY), {"unreachable": True, "msg": WHY}])
def test_no_connection_is_a_result_of_the_same_form(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    said = asked(monkeypatch, answer)
    assert set(said) == {"changed", *yaml.safe_load(RETURN)}
    assert (said["changed"], said["answered"], said["known"]) == (False, False, False)
    assert said["summary"].startswith("WARNING: this load balancer cannot be reached and was left as it is: ssh: ")
    assert said["summary"].endswith("refused")


@pytest.mark.parametrize("answer", [{"changed": True, "answered": True}, {"failed": True, "msg": "HAProxy refused"}])
def test_what_the_module_returns_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    assert asked(monkeypatch, answer) == answer


def test_another_error_stays_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail):
        asked(monkeypatch, AnsibleActionFail("no module"))
