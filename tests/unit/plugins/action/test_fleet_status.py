# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action behind the table of all hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_fleet_status
from ansible_collections.arcpro.b70.plugins.modules.b70_fleet_status import DOCUMENTATION


def compared(monkeypatch: pytest.MonkeyPatch, results: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    plugin = object.__new__(b70_fleet_status.ActionModule)
    plugin._task = SimpleNamespace(args={"slots": "now", **arguments})
    hostvars = {host: {"now": result} if result is not None else {} for host, result in results.items()}
    return dict(plugin.run(None, {"hostvars": hostvars, "ansible_play_hosts_all": list(results)}))


def test_every_host_of_the_play_is_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"h1": {"slot": "main", "profile": None, "phase": "stopped"}, "h2": None, "h3": {"unreachable": True}}
    said = compared(monkeypatch, results)
    assert [host["host"] for host in said["fleet"]["hosts"]] == ["h1", "h2", "h3"]
    assert said["not_read"] == ["h2", "h3"]
    assert [line.split()[:1] for line in said["summary"][1:4]] == [["h1"], ["h2"], ["h3"]]
    assert said["changed"] is False


def test_what_should_serve_and_does_not_fails_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"h1": {"slot": "main", "profile": "a", "open": False, "phase": "failed", "reason": "a card was lost"}}
    assert "failed" not in compared(monkeypatch, results)
    said = compared(monkeypatch, results, fail_if_missing=True)
    assert (said["failed"], said["b70_exit_code"]) == (True, 3)
    assert said["msg"] == "h1 does not serve a: a card was lost"


@pytest.mark.parametrize(
    ("columns", "given", "width"), [("90", {}, 100), ("130", {}, 122), ("300", {"width": 110}, 110)]
)
def test_the_table_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, given: dict[str, Any], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = compared(monkeypatch, {"h1": {"failed": True, "msg": "x" * 300}}, **given)
    assert max(map(len, said["summary"])) == width


def test_the_options_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]
    known = ("type", "default", "elements", "required")
    assert {n: {k: one[k] for k in known if k in one} for n, one in said.items()} == b70_fleet_status.OPTIONS
