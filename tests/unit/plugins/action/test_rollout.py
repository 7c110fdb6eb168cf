# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a rollout on the controller: what they read of the hosts, say, and write down."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_rollout

PREDICTED = {"outcome": "committed", "previous_profile": "old", "verified": False, "actions": ["start new"]}
SERVED: dict[str, Any] = {
    "outcome": "committed",
    "profile": "new",
    "verified": True,
    "fingerprint": "f",
    "phases": [],
    "verified_by": [{"name": "ok", "repeats": 3, "sha256": "a", "request": "q", "steady": True}],
    "layout": {"slot": "main", "state_dir": "/srv/state", "frontdoor_url": "https://127.0.0.1:8443"},
}
ODD = {**SERVED, "verified_by": [{**SERVED["verified_by"][0], "sha256": "b"}]}
FAILED = {"failed": True, "outcome": "rolled_back", "profile": "old", "msg": "wrong answers"}


@pytest.fixture(autouse=True)
def plain_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})


class Steps:
    """The steps of one rollout over h1, h2 …, each with what the hosts returned before it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self.settings = folder, settings
        self.record = ""

    def run(
        self, step: str, hosts: dict[str, Any], *, check_mode: bool = False, others: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """hosts: what each host of the play returned. others: variables of the hosts that a limit leaves out."""
        arguments = {"step": step, "results": "switched", "record": self.record}
        if step == "plan":
            arguments |= {"profile": "new", "dir": str(self.folder), "waves": "1,1,2", **self.settings}
        plugin = object.__new__(b70_rollout.ActionModule)
        plugin._task = SimpleNamespace(args=arguments, check_mode=check_mode)
        hostvars = {host: {} if returned is None else {"switched": returned} for host, returned in hosts.items()}
        hostvars |= others or {}
        found = plugin.run(None, {"ansible_play_hosts_all": list(hosts), "hostvars": hostvars, "ansible_forks": 5})
        self.record = found.get("record", self.record)
        return dict(found)

    def written(self) -> dict[str, Any]:
        return dict(json.loads(Path(self.record).read_text()))


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path / "rollouts", on_failure="rollback_all")


def of_four(**changed: Any) -> dict[str, Any]:
    return {**dict.fromkeys(("h1", "h2", "h3", "h4"), PREDICTED), **changed}


def test_a_plan_is_written_before_anything_begins(steps: Steps) -> None:
    planned = steps.run("plan", of_four())
    assert (planned["hosts"], planned["sizes"]) == (["h1", "h2", "h3", "h4"], [1, 1, 2])
    assert steps.written()["status"] == "running"
    assert Path(steps.record).parent.stat().st_mode & 0o077 == 0


def test_a_prediction_writes_nothing_and_hands_out_no_host(steps: Steps) -> None:
    planned = steps.run("plan", of_four(), check_mode=True)
    assert (planned["hosts"], steps.folder.exists()) == ([], False)


@pytest.mark.parametrize("returned", [None, {"unreachable": True}, {"failed": True, "msg": "no weights"}])
def test_a_host_that_would_refuse_ends_it_before_it_begins(steps: Steps, returned: Any) -> None:
    with pytest.raises(AnsibleActionFail, match=r"1 of 4 hosts would refuse(.|\n)*h3: (.|\n)*site.yml -e profile=new"):
        steps.run("plan", of_four(h3=returned))
    assert not steps.folder.exists()


def test_a_rollout_goes_through_its_waves_and_back(steps: Steps) -> None:
    steps.run("plan", of_four())
    judged = steps.run("judge", of_four(h1=SERVED))
    assert (judged["next"], judged["ended"]) == ("h2", False)
    judged = steps.run("judge", of_four(h1=SERVED, h2=SERVED))
    assert (judged["next"], judged["ended"]) == ("h3, h4", False)
    # What h3 returned is still the prediction: its switch never began.
    judged = steps.run("judge", of_four(h4=SERVED))
    assert (judged["ended"], judged["back"]) == (True, {"h1": "old", "h2": "old", "h4": "old"})
    back = {**SERVED, "profile": "old"}
    steps.run("back", of_four(h1=back, h2=back, h4=back))
    report = steps.run("report", of_four())
    assert report["failed"]
    assert "rolled back" in report["msg"]
    assert [member["result"]["verdict"] for member in steps.written()["members"]] == [
        "rolled back",
        "rolled back",
        "failed",
        "rolled back",
    ]


def test_a_host_that_disagrees_is_handed_out_for_quarantine(steps: Steps) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    judged = steps.run("judge", of_four(h2=ODD))
    assert list(judged["quarantine"]) == ["h2"]
    assert "canary case ok" in judged["quarantine"]["h2"].pop("reason")
    assert judged["quarantine"]["h2"] == SERVED["layout"]
    assert judged["back"] == {"h1": "old"}


def test_the_next_run_goes_on_with_the_record(steps: Steps) -> None:
    first = steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    steps.run("judge", of_four(h2=FAILED))
    again = steps.run("plan", of_four(h1={**SERVED, "outcome": "unchanged"}))
    assert (again["id"], again["hosts"]) == (first["id"], ["h2", "h3", "h4"])
    steps.run("judge", of_four(h2=SERVED))
    steps.run("judge", of_four(h3=SERVED, h4=SERVED))
    assert not steps.run("report", of_four())["failed"]
    assert steps.run("plan", of_four())["hosts"] == ["h1", "h2", "h3", "h4"]


def test_a_run_with_a_limit_keeps_the_others_in_the_record(steps: Steps) -> None:
    first = steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    others: dict[str, Any] = {"h1": {}, "h2": {}, "h4": {}}
    again = steps.run("plan", {"h3": PREDICTED}, others=others)
    assert (again["id"], again["hosts"]) == (first["id"], ["h3"])
    assert "outside the limit, left as they are: h1, h2, h4" in again["summary"]
    judged = steps.run("judge", {"h3": SERVED}, others=others)
    assert (judged["ended"], judged["back"]) == (True, {})
    report = steps.run("report", {"h3": SERVED}, others=others)
    assert (report["failed"], steps.written()["status"]) == (True, "running")
    assert "h2, h4 are outside the limit of this run" in report["msg"]
    served = {**SERVED, "outcome": "unchanged"}
    full = steps.run("plan", of_four(h1=served, h3=served))
    assert (full["id"], full["hosts"]) == (first["id"], ["h2", "h4"])
    stopped = steps.run("judge", of_four(h1=served, h2=FAILED, h3=served))
    assert stopped["back"] == {"h1": "old", "h3": "old"}


def test_a_host_that_left_the_inventory_leaves_the_record(steps: Steps) -> None:
    first = steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    again = steps.run("plan", {"h1": {**SERVED, "outcome": "unchanged"}, "h2": PREDICTED})
    assert (again["id"], again["hosts"]) == (first["id"], ["h2"])
    assert [member["host"] for member in steps.written()["members"]] == ["h1", "h2"]


def test_a_record_that_is_torn_is_named(steps: Steps) -> None:
    steps.run("plan", of_four())
    Path(steps.record).write_text("{")
    with pytest.raises(AnsibleActionFail, match=r"rollout.json cannot be read .* move it away"):
        steps.run("plan", of_four())


def test_a_setting_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match="canary is h9"):
        Steps(tmp_path, canary="h9").run("plan", of_four())
