# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a report: the archive of each host, and the page over all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_report, b70_report_page
from ansible_collections.arcpro.b70.plugins.modules.b70_report_page import DOCUMENTATION

FINDING = {
    "id": "card-power",
    "level": "FAIL",
    "summary": "<b>off</b>",
    "evidence": [],
    "meaning": "",
    "fix": "plug it in",
    "source": "",
}


@pytest.fixture(autouse=True)
def plain_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})


class Host:
    """What the other modules and actions answer, and what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: dict[str, Any]) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = {"tempfile": {"path": "/tmp/b70-report-x"}, **answers}
        monkeypatch.setattr(b70_report, "run_other", self.other)

    def other(self, _action: Any, name: str, arguments: dict[str, Any], _variables: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((name.rpartition(".")[2], arguments))
        return self.answers.get(self.asked[-1][0], {})

    def run(self, *, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        plugin = object.__new__(b70_report.ActionModule)
        plugin._task = SimpleNamespace(args=arguments, check_mode=check_mode)
        plugin._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        plugin._execute_module = lambda module_name, task_vars, module_args=None: self.other(
            None, module_name, module_args or arguments, task_vars
        )
        return dict(plugin.run(None, {}))


def test_the_archive_is_brought_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, b70_report={"size": 7}, fetch={"changed": True})
    assert host.run(folder="/r", name="h1") == {"size": 7, "changed": False}
    assert [name for name, _arguments in host.asked] == ["tempfile", "b70_report", "fetch", "file"]
    assert host.asked[1][1]["dest"] == "/tmp/b70-report-x/report.tar.gz"
    assert host.asked[2][1] == {"src": "/tmp/b70-report-x/report.tar.gz", "dest": "/r/h1.tar.gz", "flat": True}
    assert host.asked[3][1] == {"path": "/tmp/b70-report-x", "state": "absent"}


@pytest.mark.parametrize("broken", ["b70_report", "fetch"])
def test_nothing_is_left_of_a_report_that_failed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    host = Host(monkeypatch, **{broken: {"failed": True, "msg": "no space"}})
    result = host.run(folder="/r", name="h1")
    assert (result["failed"], result["msg"]) == (True, "no space")
    assert host.asked[-1] == ("file", {"path": "/tmp/b70-report-x", "state": "absent"})


@pytest.mark.parametrize("given", [{"check_mode": True, "folder": "/r"}, {"dest": "/var/tmp/report.tar.gz"}])
def test_a_prediction_and_a_report_that_stays_are_the_module_alone(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    host = Host(monkeypatch, b70_report={"size": 0})
    assert host.run(**given) == {"size": 0}
    assert [name for name, _arguments in host.asked] == ["b70_report"]


def page(folder: Any, results: dict[str, Any], *, check_mode: bool = False) -> dict[str, Any]:
    plugin = object.__new__(b70_report_page.ActionModule)
    args = {"dest": str(folder / "index.html"), "reports": "made"}
    plugin._task = SimpleNamespace(args=args, check_mode=check_mode)
    hostvars = {host: {"made": result} if result is not None else {} for host, result in results.items()}
    return dict(plugin.run(None, {"hostvars": hostvars, "ansible_play_hosts_all": list(results)}))


def test_the_page_has_every_host_with_its_archive_or_the_reason(tmp_path: Any) -> None:
    results = {
        "good": {"size": 2048, "findings": [FINDING], "contents": [], "redactions": {"header": 2}},
        "bad": {"failed": True, "msg": "no <space>", "size": 1},
        "gone": None,
        "lost": {"unreachable": True, "msg": "timed out"},
    }
    made = page(tmp_path, results)
    text = (tmp_path / "index.html").read_text()
    assert (tmp_path / "index.html").stat().st_mode & 0o777 == 0o600
    assert "Report of 4 hosts" in text
    assert '<a href="good.tar.gz">good.tar.gz</a> (2 kB)' in text
    assert "&lt;b&gt;off&lt;/b&gt;" in text
    assert "none: no &lt;space&gt;" in text
    assert text.count("none: the host could not be reached") == 2
    assert "bad.tar.gz" not in text
    assert made["summary"] == [
        "bad: no archive: no <space>",
        "gone: no archive: the host could not be reached",
        "lost: no archive: the host could not be reached",
        f"written: {tmp_path}/index.html",
    ]


def test_a_prediction_writes_no_page(tmp_path: Any) -> None:
    assert page(tmp_path, {"h": {"size": 0}}, check_mode=True)["summary"] == [f"would write: {tmp_path}/index.html"]
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_says_why(tmp_path: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"index.html cannot be written: No such file or directory"):
        page(tmp_path / "missing", {"h": {}})


def test_the_options_are_those_of_the_documentation() -> None:
    said = yaml.safe_load(DOCUMENTATION)["options"]
    known = ("type", "default", "elements", "required")
    assert {n: {k: one[k] for k in known if k in one} for n, one in said.items()} == b70_report_page.OPTIONS
