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
from ansible_collections.arcpro.b70.plugins.plugin_utils import _fleet_run

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

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.settings = folder, settings
        self.record = ""

    def run(
        self,
        step: str,
        hosts: dict[str, Any],
        *,
        check_mode: bool = False,
        others: dict[str, Any] | None = None,
        batch: list[str] | None = None,
        host: str = "h1",
        **given: Any,
    ) -> dict[str, Any]:
        """Run a step.

        hosts: what each host of the play returned. others: further variables, also of hosts that a limit leaves out.
        """
        arguments = {"step": step, "results": "switched", "record": self.record, "foreseen": "foreseen", **given}
        if step == "plan":
            arguments |= {"profile": "new", "dir": str(self.folder), "waves": "1,1,2", **self.settings}
        plugin = object.__new__(b70_rollout.ActionModule)
        plugin._task = SimpleNamespace(args=arguments, check_mode=check_mode)
        hostvars = {host: {} if returned is None else {"switched": returned} for host, returned in hosts.items()}
        hostvars = {host: {**found, **(others or {}).get(host, {})} for host, found in hostvars.items()}
        hostvars |= {host: found for host, found in (others or {}).items() if host not in hostvars}
        batch = batch if batch is not None else [] if step == "judge" else list(hosts)
        play = {"ansible_play_hosts_all": list(hosts), "ansible_play_batch": batch, "inventory_hostname": host}
        found = plugin.run(None, {**play, "hostvars": hostvars, "ansible_forks": 5})
        self.record = found.get("record", self.record)
        return dict(found)

    def recap(self, *hosts: str) -> list[str]:
        """What Ansible counts for each host."""
        told = [self.run("recap", {}, host=host) for host in hosts]
        return ["unreachable" if one.get("unreachable") else "failed" if one.get("failed") else "ok" for one in told]

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
    assert "rolled back" in report["msg"]
    assert steps.recap("h1", "h3") == ["failed", "failed"]
    assert [member["result"]["verdict"] for member in steps.written()["members"]] == [
        "rolled back",
        "rolled back",
        "failed",
        "rolled back",
    ]


KNOWN = {"comparable": True, "summary": ["short-128 c1 frontdoor cold: 71 in r of h7"]}
UNKNOWN = {"comparable": False, "summary": ["there is nothing to compare with"]}
MEASURED = {"id": "r9", "verdict": "passed", "reasons": [], "data": {"expectations": []}}
MEASURED["data"] |= {"comparison": {"with": None, "band": {"rate": 0.1, "ttft": 0.25}, "rows": []}}  # type: ignore[operator]


def gate(folder: Path, **settings: str) -> Steps:
    return Steps(folder, gate="performance", **settings)


@pytest.mark.parametrize("check_mode", [True, False])
def test_the_plan_says_that_a_host_is_measured_and_what_with(tmp_path: Path, check_mode: bool) -> None:
    planned = gate(tmp_path).run("plan", of_four(), check_mode=check_mode, others={"h1": {"foreseen": KNOWN}})
    assert planned["summary"][-2:] == [
        "gate performance: the first host that each wave switches is measured, for 1800 s at most",
        "h1: short-128 c1 frontdoor cold: 71 in r of h7",
    ]


def test_nothing_starts_where_the_gate_could_not_judge_unless_it_may_pass(tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match=r"could not judge h1: .*-e gate_without_record=pass"):
        gate(tmp_path).run("plan", of_four(), others={"h1": {"foreseen": UNKNOWN}})
    assert list(tmp_path.iterdir()) == []
    steps = gate(tmp_path, gate_without_record="pass")
    assert steps.run("plan", of_four(), others={"h1": {"foreseen": UNKNOWN}})["hosts"] == ["h1", "h2", "h3", "h4"]


@pytest.mark.parametrize("settings", [{}, {"gate_without_record": "pass"}])
@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"failed": False, "msg": "the shape 'shrot-128' is not known"}, "the shape 'shrot-128' is not known"),
        ({"unreachable": True, "msg": "no route"}, "no route"),
        ({}, "it left no result"),
    ],
)
def test_nothing_starts_where_nobody_knows_what_the_gate_could_judge(
    tmp_path: Path, settings: dict[str, str], found: dict[str, Any], why: str
) -> None:
    with pytest.raises(AnsibleActionFail, match=f"nothing was started, because the gate could not ask h1.*{why}"):
        gate(tmp_path, **settings).run("plan", of_four(), others={"h1": {"foreseen": found}})
    assert list(tmp_path.iterdir()) == []


def test_a_canary_host_that_is_skipped_need_not_be_judged(tmp_path: Path) -> None:
    served = {**SERVED, "outcome": "unchanged", "previous_profile": "new"}
    assert gate(tmp_path).run("plan", of_four(h1=served))["hosts"] == ["h2", "h3", "h4"]


def test_a_canary_host_that_cannot_be_reached_is_refused_with_the_others(tmp_path: Path) -> None:
    lost = {"unreachable": True, "msg": "no route"}
    with pytest.raises(AnsibleActionFail, match=r"1 of 4 hosts would refuse(.|\n)*h1: unreachable: no route"):
        gate(tmp_path).run("plan", of_four(h1=lost), others={"h1": {"foreseen": lost}})


def test_the_gate_decides_what_follows_a_wave(tmp_path: Path) -> None:
    steps = gate(tmp_path, on_failure="rollback_all")
    steps.run("plan", of_four(), others={"h1": {"foreseen": KNOWN}})
    judged = steps.run("judge", of_four(h1=SERVED))
    assert (judged["measure"], judged["ended"], judged["next"]) == ("h1", False, "")
    judged = steps.run("gate", of_four(h1={"record": MEASURED}))
    assert (judged["measure"], judged["ended"], judged["next"]) == ("", False, "h2")
    assert steps.run("judge", of_four(h2=SERVED))["measure"] == "h2"
    # The result of the switch is none of a benchmark: whatever is not understood holds the rollout.
    judged = steps.run("gate", of_four(h2={"failed": True, "msg": "no room"}))
    assert (judged["ended"], judged["back"]) == (True, {"h1": "old", "h2": "old"})
    assert steps.run("report", of_four())["msg"].startswith(
        "The rollout of new stopped because the gate holds it at h2: no room"
    )


def test_a_run_after_a_kill_measures_one_host_of_each_wave_that_was_switched_and_not_judged(tmp_path: Path) -> None:
    steps = gate(tmp_path)
    known = {"h1": {"foreseen": KNOWN}}
    first = steps.run("plan", of_four(), others=known)
    steps.run("judge", of_four(h1=SERVED))
    # Killed, and somebody switches h3 by hand.
    unchanged = {**SERVED, "outcome": "unchanged"}
    again = steps.run("plan", of_four(h1=unchanged, h3=unchanged), others=known)
    assert (again["id"], again["hosts"], again["sizes"]) == (first["id"], ["h1", "h2", "h3", "h4"], [1, 1, 2])
    assert steps.run("judge", of_four(h1=unchanged, h3=unchanged))["measure"] == "h1"
    assert steps.run("gate", of_four(h1={"record": MEASURED}, h3=unchanged))["next"] == "h2"
    assert steps.run("judge", of_four(h2=SERVED, h3=unchanged))["measure"] == "h2"
    assert steps.run("gate", of_four(h2={"record": MEASURED}, h3=unchanged))["next"] == "h3, h4"
    assert steps.run("judge", of_four(h3=unchanged, h4=SERVED))["measure"] == "h3"
    assert steps.run("gate", of_four(h3={"record": MEASURED}))["ended"]
    steps.run("report", of_four())
    assert (steps.written()["status"], steps.recap("h1", "h4")) == ("finished", ["ok", "ok"])


def test_a_host_that_disagrees_is_handed_out_for_quarantine(steps: Steps) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    steps.run("judge", of_four(h2=SERVED))
    judged = steps.run("judge", of_four(h3=ODD, h4=SERVED))
    assert list(judged["quarantine"]) == ["h3"]
    assert "canary case ok" in judged["quarantine"]["h3"]["reason"]
    assert judged["quarantine"]["h3"]["layout"] == SERVED["layout"]
    assert judged["back"] == {"h1": "old", "h2": "old", "h4": "old"}
    done = {"item": {"key": "h3"}, "quarantine": {"since": "now"}}
    assert steps.run("settle", of_four(), quarantined=[done])["ended"]
    assert steps.written()["members"][2]["result"]["verdict"] == "disagrees, quarantined"


@pytest.mark.parametrize("max_fail", ["0", "100%"])
def test_a_quarantine_that_was_not_set_stops_the_rollout(tmp_path: Path, max_fail: str) -> None:
    steps = Steps(tmp_path, max_fail=max_fail, waves="1,2,1")
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    judged = steps.run("judge", of_four(h2=ODD, h3=SERVED))
    assert judged["ended"] is (max_fail == "0")
    settled = steps.run("settle", of_four(), quarantined=[{"item": {"key": "h2"}, "unreachable": True, "msg": "gone"}])
    assert (settled["ended"], settled["quarantine"]) == (True, {})
    report = steps.run("report", of_four())
    assert "stopped because h2 disagrees and could not be put into quarantine: gone" in report["msg"]
    assert steps.written()["members"][1]["result"]["verdict"] == "disagrees, not quarantined"
    assert steps.recap("h1", "h2", "h4") == ["ok", "failed", "failed"]


def test_a_plan_that_finds_hosts_at_odds_hands_them_out_and_starts_no_other(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    unchanged, odd = ({**found, "outcome": "unchanged"} for found in (SERVED, ODD))
    planned = steps.run("plan", of_four(h1=unchanged, h2=odd, h3=unchanged))
    assert (list(planned["quarantine"]), planned["hosts"], planned["ended"]) == (["h2"], [], True)


NOW_SERVED = {"slot": "main", "profile": "new", "open": True, "verified": True, "quarantine": None}
QUARANTINED = {**NOW_SERVED, "open": False, "quarantine": {"since": "09:00", "reason": "wrong answers"}}
OFF = {"unreachable": True, "msg": "ssh: No route to host"}


def looked(by: str, **seen: Any) -> dict[str, Any]:
    return {by: {"__slot_looked": {"results": [{"item": host, **info} for host, info in seen.items()]}}}


@pytest.mark.parametrize(
    ("found", "verdict", "now", "counted"),
    [
        (QUARANTINED, "no longer served", "new, closed", "failed"),
        ({**NOW_SERVED, "profile": "old"}, "no longer served", "old", "failed"),
        (OFF, "unreachable", "off", "unreachable"),
    ],
)
def test_a_canary_host_that_was_lost_in_the_pause_stops_the_next_wave(
    steps: Steps, found: dict[str, Any], verdict: str, now: str, counted: str
) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    decided = steps.run("look", of_four(), others=looked("h2", h1=found, h2=NOW_SERVED), batch=["h2"])
    assert (decided["ended"], decided["next"]) == (True, "")
    steps.run("report", of_four(), others=looked("h3", h1=found, h3={**NOW_SERVED, "profile": "old"}))
    canary, *_others = steps.written()["members"]
    assert (canary["result"]["verdict"], canary["now"], steps.written()["members"][2]["now"]) == (verdict, now, "old")
    assert (steps.written()["status"], steps.recap("h1", "h3")) == ("stopped", [counted, "failed"])


def test_a_look_that_finds_all_as_it_was_lets_the_wave_begin_whatever_others_saw_before(steps: Steps) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    found = {**looked("h2", h1=NOW_SERVED), **looked("h3", h1=OFF)}
    decided = steps.run("look", of_four(), others=found, batch=["h2"])
    assert (decided["ended"], decided["next"]) == (False, "h2")


def test_what_max_fail_forgives_still_counts_as_failed(tmp_path: Path) -> None:
    steps = Steps(tmp_path, max_fail="1")
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    steps.run("judge", of_four(h2=OFF))
    steps.run("judge", of_four(h3=SERVED, h4=SERVED))
    steps.run("report", of_four(), others=looked("h1", h1=NOW_SERVED, h2=OFF, h3=NOW_SERVED, h4=NOW_SERVED))
    assert steps.written()["status"] == "finished"
    assert steps.recap("h1", "h2", "h3") == ["ok", "unreachable", "ok"]


def test_a_host_that_is_off_is_said_to_be_off_before_anything_begins(steps: Steps) -> None:
    with pytest.raises(AnsibleActionFail, match="h3: it is off or cannot be reached: ssh: No route to host"):
        steps.run("plan", of_four(h3=None), others=looked("h3", h3=OFF), batch=["h1", "h2", "h4"])


def test_a_host_in_maintenance_is_left_alone_and_counted_as_sound(steps: Steps) -> None:
    rests = {**NOW_SERVED, "profile": "old", "maintenance": {"since": "09:00", "who": "ann", "reason": "a fan"}}
    planned = steps.run("plan", of_four(h3=FAILED), others=looked("h3", h3=rests))
    assert planned["hosts"] == ["h1", "h2", "h4"]
    assert "in maintenance, left as they are: h3" in planned["summary"]
    steps.run("judge", of_four(h1=SERVED), batch=["h1"])
    assert steps.run("look", of_four(), others=looked("h2", h1=NOW_SERVED, h2=rests), batch=["h2"])["at_rest"] == [
        "h2",
        "h3",
    ]
    # Its whole wave is left alone, and the next one has not begun.
    assert steps.run("judge", of_four(), batch=["h2"])["next"] == "h4"
    judged = steps.run("judge", of_four(h4=SERVED), batch=["h4"])
    assert judged["ended"]
    steps.run("report", of_four())
    assert (steps.written()["status"], steps.recap("h1", "h2", "h3")) == ("finished", ["ok", "ok", "ok"])


def ready(**models: str) -> dict[str, Any]:
    return looked("h1", **{h: {**NOW_SERVED, "served_model": model} for h, model in models.items()})


def test_a_rollout_that_takes_a_model_from_clients_needs_a_yes(tmp_path: Path) -> None:
    """h5 is outside of the limit, and goes on serving one of the two models."""
    seen = ready(h1="a", h2="a", h3="b", h4="b", h5="b")
    settings: dict[str, Any] = {"models": ["new"], "min_ready": 1}
    with pytest.raises(AnsibleActionFail, match=r"2 serve a now, and 0 would\. If .* -e replace=a"):
        Steps(tmp_path, **settings).run("plan", of_four(), others=seen)
    assert list(tmp_path.iterdir()) == []
    planned = Steps(tmp_path, **settings, replace=["a"]).run("plan", of_four(), others=seen)
    assert "replaces a model: 2 serve a now, and 0 would" in planned["summary"]
    both: dict[str, Any] = {**settings, "replace": ["a"], "min_ready": {"b": "50%"}}
    with pytest.raises(AnsibleActionFail, match=r"3 serve b now, and 1 would.*replace=b"):
        Steps(tmp_path, **both).run("plan", of_four(), others=seen)
    # The names stay the same, so clients lose nothing.
    assert Steps(tmp_path, models=["a", "b"], min_ready=1).run("plan", of_four(), others=seen)["hosts"]


def test_a_wave_that_leaves_too_few_hosts_in_service_is_refused_with_the_plan(tmp_path: Path) -> None:
    seen, same = ready(h1="a", h2="a", h3="a", h4="a"), {"models": ["a"]}
    with pytest.raises(AnsibleActionFail, match=r"the wave of h3, h4 leaves 2 of 4 hosts in service, not 3"):
        Steps(tmp_path, **same, min_ready=3).run("plan", of_four(), others=seen)
    assert Steps(tmp_path, **same, min_ready="50%").run("plan", of_four(), others=seen)["hosts"]
    with pytest.raises(AnsibleActionFail, match="b70_min_ready is 'few'"):
        Steps(tmp_path, **same, min_ready="few").run("plan", of_four(), others=seen)


@pytest.mark.parametrize(("told", "verdict"), [(False, "verified, not reached"), (True, "verified")])
def test_a_host_counts_when_clients_reach_it_through_the_load_balancers(steps: Steps, told: bool, verdict: str) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    answers = [
        {"item": "lb1", "answered": True, "known": True, "in_service": told, "summary": "its check has not passed"},
        {"item": "lb2", "answered": False, "known": False, "in_service": False, "summary": "down"},
    ]
    settled = steps.run("settle", of_four(), others={"h1": {"back": answers}}, batch=["h1"], restored="back")
    assert (settled["ended"], settled["back"]) == ((False, {}) if told else (True, {"h1": "old"}))
    canary = steps.written()["members"][0]["result"]
    assert (canary["verdict"], canary["why"]) == (verdict, "" if told else "lb1: its check has not passed")


def test_a_host_that_clients_need_was_not_switched(steps: Steps) -> None:
    steps.run("plan", of_four())
    steps.run("judge", of_four(), others={"h1": {"__load_balancer_refusal": "draining h1 would leave 0 of 2"}})
    canary = steps.written()["members"][0]["result"]
    assert (canary["verdict"], canary["profile"]) == ("failed, untouched", "old")
    assert canary["why"] == "draining h1 would leave 0 of 2"


def test_a_wave_that_is_not_the_open_one_is_not_judged(steps: Steps) -> None:
    steps.run("plan", of_four())
    with pytest.raises(AnsibleActionFail, match="h2 is in no wave that is open"):
        steps.run("judge", of_four(h2=SERVED), batch=["h2"])


def test_the_next_run_goes_on_with_the_record(steps: Steps) -> None:
    first = steps.run("plan", of_four())
    steps.run("judge", of_four(h1=SERVED))
    steps.run("judge", of_four(h2=FAILED))
    again = steps.run("plan", of_four(h1={**SERVED, "outcome": "unchanged"}))
    assert (again["id"], again["hosts"]) == (first["id"], ["h2", "h3", "h4"])
    steps.run("judge", of_four(h2=SERVED))
    steps.run("judge", of_four(h3=SERVED, h4=SERVED))
    steps.run("report", of_four())
    assert steps.written()["status"] == "finished"
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
    assert (steps.recap("h3"), steps.written()["status"]) == (["failed"], "running")
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


def test_a_run_ends_where_another_one_went_on_with_its_rollout(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.run("plan", of_four())
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(_fleet_run, "run_of", lambda process: "lap:1:1")
        steps.run("plan", of_four())
    for step in ("judge", "settle", "back", "report"):
        with pytest.raises(AnsibleActionFail, match="another run of the playbook has gone on with it"):
            steps.run(step, of_four(h1=SERVED))


def test_a_record_that_is_torn_is_named(steps: Steps) -> None:
    steps.run("plan", of_four())
    Path(steps.record).write_text("{")
    with pytest.raises(AnsibleActionFail, match=r"rollout.json cannot be read .* move it away"):
        steps.run("plan", of_four())


def test_a_setting_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match="canary is h9"):
        Steps(tmp_path, canary="h9").run("plan", of_four())
