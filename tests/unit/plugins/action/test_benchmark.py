# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of b70_benchmark against a host made of answers."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_benchmark
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import essence, expectations
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.store import Store
from ansible_collections.arcpro.b70.plugins.plugin_utils._work import MARK, display
from unit.plugins.module_utils._benchmark.benchmarks import data
from unit.plugins.module_utils._evidence.records import HOST, record


def measured(**given: Any) -> dict[str, Any]:
    band = {"rate": 0.1, "ttft": 0.25}
    compared: dict[str, Any] = {"with": None, "band": band, "rows": [], "regressions": [], "missing": []}
    whole = {
        **data(),
        "summary": "287.6 tok/s",
        "generator": {"name": "guidellm", "version": "0.8.1"},
        "seed": 7,
        "left_out": [],
        "others": {"active": 0, "requests": 0},
        "frontdoor_share": [],
        "comparison": {**compared, **given.pop("comparison", {})},
        "expectations": given.pop("expectations", []),
    }
    return record(data=whole, **given)


WORK = {"state": "running", "joined": False, "line": "tiny-a since noon", "verdict": None, "record": None}
PLACE = {"unit": "b70-benchmark-main.service", "progress": "/var/lib/b70/progress"}


class Host:
    """Answers each step once. lost: after so many steps the connection is lost once."""

    def __init__(self, found: dict[str, Any], lost: int = -1, **begun: Any) -> None:
        self.found = {"pictures": {}, **WORK, "state": "ended", **found} if "record" in found else found
        self.begun, self.lost = {**WORK, **PLACE, **begun}, lost
        self.steps: list[str] = []
        self.given: dict[str, Any] = {}
        self.looks = [("canary before the benchmark\nwarm", "active"), ("warm-up with 2 streams\n", "inactive")]
        self.offsets: list[int] = []

    def _step(self, step: str) -> None:
        if self.lost == len(self.steps):
            self.lost = -1
            raise AnsibleConnectionFailure("gone")
        self.steps.append(step)

    def module(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self._step(module_args["step"])
        self.given = module_args
        return dict(self.begun if module_args["step"] == "start" else self.found)

    def shell(self, script: str, **_options: Any) -> dict[str, Any]:
        if script == "true":
            return {"rc": 0}
        self._step("glance")
        (offset,) = re.findall(r"tail -c [+](\d+) /var/lib/b70/progress", script)
        self.offsets.append(int(offset) - 1)
        return {"rc": 0, "stdout": f"\n{MARK}\n".join(self.looks.pop(0))}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
    monkeypatch.setattr(display, "display", lambda text, color="": lines.append(text))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return lines


def run(host: Host, *, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
    plugin = object.__new__(b70_benchmark.ActionModule)
    plugin._task = SimpleNamespace(args={"shapes": ["short-128"], **arguments}, check_mode=check_mode)
    plugin._connection = SimpleNamespace(transport="local", reset=lambda: None, _shell=SimpleNamespace(tmpdir=None))
    plugin._execute_module = host.module
    plugin._low_level_execute_command = host.shell
    return dict(plugin.run(None, {"inventory_hostname": "b70-01"}))


def test_progress_is_shown_and_the_result_is_taken(said: list[str]) -> None:
    host = Host({"record": measured()}, lost=2)
    result = run(host, evidence={}, dest="", fail_on_regression=False)
    assert host.steps == ["start", "glance", "glance", "look", "acknowledge"]
    assert said[0].startswith("b70-01 | begins the benchmark of tiny-a since noon")
    assert "connection lost; the benchmark goes on there" in said[2]
    assert [said[1], said[3]] == ["b70-01 | canary before the benchmark", "b70-01 | warm-up with 2 streams"]
    # A line that is half there is read whole the next time.
    assert host.offsets == [0, 28]
    assert (result["changed"], result.get("failed")) == (True, None)
    assert result["summary"][0] == "tiny-a on b70-01: passed"
    # What only the controller needs does not travel.
    assert "dest" not in host.given
    assert host.given["host_name"] == "b70-01"


def test_one_that_ended_alone_is_collected(said: list[str]) -> None:
    run(host := Host({}, state="ended", joined=True, record=measured(), pictures={}))
    assert (host.steps, said) == (["start", "acknowledge"], ["b70-01 | the benchmark began before this play"])


def test_table_and_pictures_are_written(said: list[str], tmp_path: Path) -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    found = measured()
    result = run(Host({"record": found, "pictures": {"ttft.png": picture, "ttft.svg": picture}}), dest=str(tmp_path))
    place = tmp_path / "b70-01/benchmark"
    assert sorted(path.name for path in place.iterdir()) == [
        f"{found['id']}-ttft.png",
        f"{found['id']}-ttft.svg",
        f"{found['id']}.md",
    ]
    assert len(result["files"]) == 3
    text = (place / f"{found['id']}.md").read_text()
    assert f"![{found['id']}-ttft.png]({found['id']}-ttft.png)" in text


REGRESSION = {"regressions": ["short-128 c4 frontdoor cold: wall_tok_s is 60, 0.60 of 100 (limit 0.90)"]}


def test_a_regression_fails_nothing_by_itself(said: list[str]) -> None:
    result = run(Host({"record": measured(comparison=REGRESSION)}))
    assert ("failed" in result, result["regressions"]) == (False, REGRESSION["regressions"])


def test_the_host_is_told_what_the_catalogue_has_and_which_baselines_were_chosen(
    said: list[str], tmp_path: Path
) -> None:
    other = {**HOST, "name": "b70-02"}
    here, there = measured(), measured(host={**other, "class": "another"})
    newer = measured(began_at="2026-11-25T04:16:00Z", host=other)
    for one in (there, newer):
        Store(tmp_path / "b70-02").write(one)
    Store(tmp_path / "b70-01").write(here)
    host = Host({"record": measured()})
    evidence = {"tiny-a": {"host_class": "4 x B70", "tok_s": [], "runs": "many words"}}
    run(host, evidence=evidence, baselines=[here["id"], there["id"]], dest=str(tmp_path))
    assert host.given["evidence"] == {"tiny-a": {"host_class": "4 x B70", "tok_s": []}}
    assert host.given["baselines"] == [essence(here), essence(there)]
    run(host := Host({"record": measured()}), dest=str(tmp_path))
    assert host.given["baselines"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "failed", "reasons": ["too slow"]}, "is a benchmark that failed: name a benchmark that passed"),
        ({"stack": 7}, "can't be compared with: stack: "),
        ({"lost": 1}, "can't be compared with: short-128 c1 frontdoor cold: 2 of 1 requests are in the report"),
        ({"began_at": "2026-11-25T04:16:00Z"}, "are both for the same profile, class of host and generator: keep one"),
    ],
)
def test_what_is_no_baseline_is_named(said: list[str], tmp_path: Path, change: dict[str, Any], words: str) -> None:
    whole, lost = measured(), change.pop("lost", 0)
    one = {**measured(began_at=change.pop("began_at", "2026-11-24T04:16:00Z")), **change}
    if lost:
        one["data"]["shapes"]["short-128"]["scenarios"]["c1"]["frontdoor"]["cold"]["requests"] += lost
    for made in (whole, one):
        Store(tmp_path / "b70-01").write(made)
    with pytest.raises(AnsibleActionFail, match=re.escape(words)):
        run(Host({"record": whole}), baselines=[whole["id"], one["id"]], dest=str(tmp_path))


@pytest.mark.parametrize("one", ["20261123T041600Z-benchmark-tiny-a-5e1f0c", "the last one"])
def test_a_baseline_that_was_not_collected_is_named(said: list[str], tmp_path: Path, one: str) -> None:
    (tmp_path / "b70-01").mkdir()
    with pytest.raises(AnsibleActionFail, match=f"benchmark_baselines: .*{one}"):
        run(Host({"record": measured()}), baselines=[one], dest=str(tmp_path))


def test_what_is_foreseen_is_asked_once(said: list[str]) -> None:
    host = Host({"comparable": True, "summary": ["short-128 c1"]})
    assert run(host, state="foreseen", profile="tiny-a")["summary"] == ["short-128 c1"]
    assert host.steps == ["look"]


def test_a_failed_benchmark_fails_with_its_reasons_and_its_record(said: list[str]) -> None:
    reasons = ["the canary failed after the benchmark, so no figure is kept"]
    result = run(Host({"record": measured(verdict="failed", reasons=reasons)}))
    assert (result["failed"], result["msg"]) == (True, f"b70-01: the benchmark of tiny-a: {reasons[0]}")
    assert result["record"]["verdict"] == "failed"


def test_a_benchmark_without_a_record_fails_as_the_host_says(said: list[str]) -> None:
    host = Host({"failed": True, "msg": "the benchmark left no result"})
    result = run(host)
    assert (result["failed"], result["msg"], host.steps[-1]) == (True, "the benchmark left no result", "look")


def test_figures_of_the_catalogue_are_expected_of_their_host_class(said: list[str]) -> None:
    row = {"value": 80.0, "streams": 1, "prompt_tokens": 119, "output_tokens": 128}
    for host_class, word in ((HOST["class"], "0.90 of the recorded 80"), ("other", "on another class of host (other)")):
        rows = expectations({"host_class": host_class, "tok_s": [row]}, HOST["class"], data())
        lines = run(Host({"record": measured(expectations=rows)}))["summary"]
        assert any(line.startswith("catalogue: wall_tok_s with 1 streams") and word in line for line in lines)


def test_check_mode_writes_nothing_of_a_result_that_waits(said: list[str], tmp_path: Path) -> None:
    assert run(Host({"record": measured()}), check_mode=True, dest=str(tmp_path))["changed"]
    assert list(tmp_path.iterdir()) == []


def test_check_mode_only_asks(said: list[str]) -> None:
    foreseen = {"state": "none", "line": "no benchmark is under way", "foreseen": ["would measure tiny-a"]}
    host = Host({"record": None, **foreseen})
    assert run(host, check_mode=True)["summary"][1] == "would measure tiny-a"
    assert host.steps == ["look"]
