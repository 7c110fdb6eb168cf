# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a host that ends with a record, with a host that is played: what is begun, collected and told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.arcpro.b70.plugins.action import b70_context_search, b70_promotion, b70_soak, b70_source_build
from ansible_collections.arcpro.b70.plugins.plugin_utils import _work
from unit.plugins.plugin_utils._evidence.fleet import probes

PROBES = probes(4480)
NONE = {"state": "none", "joined": False, "line": "no soak is under way", "verdict": None}
RUNNING = {**NONE, "state": "running", "line": "tiny-a: 3 cycles"}
ENDED = {
    **RUNNING,
    "state": "ended",
    "line": "tiny-a: 32 cycles",
    "verdict": "passed",
    "reasons": ["32 cycles, no anomaly"],
    "file": "/var/lib/b70/records/soak/x.json",
}


class Host:
    """Answers the module, one answer after the other; an exception is raised. begun: the tokens under which work was
    asked for, each a piece of work of its own. collected: whether it was told that its result has arrived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers, self.said = list(answers), []  # type: ignore[var-annotated]
        self.begun: set[str] = set()
        self.collected = False
        self.acknowledged: Any = NONE
        clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None)
        monkeypatch.setattr(_work, "time", clock)
        monkeypatch.setattr(ActionBase, "run", lambda self, tmp, task_vars: {})
        monkeypatch.setattr(_work.display, "display", lambda text, color=None: self.said.append(text))

    def run(self, action: Any = b70_soak, *, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        plugin = object.__new__(action.ActionModule)
        plugin._task = SimpleNamespace(args=arguments, check_mode=check_mode)
        shell = SimpleNamespace(tmpdir=None)
        plugin._connection = SimpleNamespace(transport="local", reset=lambda: None, _shell=shell)

        def module(module_name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
            assert module_args.get("host_name", "h1") == "h1"
            step = module_args["step"]
            if step == "start":
                self.begun.add(module_args["token"])
            self.collected |= step == "acknowledge"
            answer = self.acknowledged if step == "acknowledge" else self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)

        plugin._execute_module = module
        plugin._low_level_execute_command = lambda script, sudoable: {"rc": 0}
        return dict(plugin.run(None, {"inventory_hostname": "h1"}))


def test_a_soak_is_begun_and_watched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    later = {**RUNNING, "line": "tiny-a: 4 cycles"}
    host = Host(monkeypatch, RUNNING, RUNNING, AnsibleConnectionFailure("gone"), later, later, ENDED)
    result = host.run(duration="8h")
    assert (len(host.begun), host.collected, host.answers) == (1, True, [])
    assert "begins the soak of tiny-a: 3 cycles" in host.said[0]
    # Each line is shown once.
    assert host.said.count("h1 | tiny-a: 4 cycles") == 1
    assert any("connection lost; the soak goes on there" in line for line in host.said)
    assert result["summary"] == [
        "h1: the soak passed: tiny-a: 32 cycles",
        "32 cycles, no anomaly",
        "record: /var/lib/b70/records/soak/x.json",
    ]


def test_a_question_that_is_asked_again_says_which_play_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = AnsibleConnectionFailure("the answer is lost")
    host = Host(monkeypatch, gone, RUNNING, ENDED, {**ENDED, "joined": True})
    host.run()
    host.run()
    # The first play asked twice for one piece of work, the second for another one.
    assert len(host.begun) == 2
    assert all(host.begun)


def test_one_that_is_joined_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {**RUNNING, "joined": True}, ENDED)
    result = host.run()
    assert host.said[0].startswith("h1 | joins the soak of tiny-a")
    assert result["joined"]
    assert result["summary"][0] == "h1: the soak, which began before this play, passed: tiny-a: 32 cycles"
    assert host.collected


def test_one_that_ended_alone_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {**ENDED, "joined": True})
    assert "which began before this play" in host.run()["summary"][0]
    assert (host.collected, host.said) == (True, [])


def test_a_look_at_one_that_ended_leaves_its_result_to_the_next_play(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, ENDED)
    assert "the soak passed" in host.run(state="shown")["summary"][0]
    assert (host.begun, host.collected) == (set(), False)


def test_one_that_is_stopped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {**ENDED, "verdict": "unfinished"})
    host.run(state="stopped")
    assert (host.begun, host.collected) == (set(), True)


def test_a_host_that_is_gone_when_all_is_said_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, ENDED)
    host.acknowledged = AnsibleConnectionFailure("gone")
    assert host.run()["verdict"] == "passed"


def test_a_result_that_could_not_be_acknowledged_comes_again_and_the_play_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(monkeypatch, ENDED)
    host.acknowledged = {"failed": True, "msg": "the soak in /x can't be read or written: No space left on device"}
    assert host.run()["verdict"] == "passed"
    (said,) = host.said
    assert "gets this result again" in said
    assert host.acknowledged["msg"] in said


def test_the_process_of_a_play_that_was_killed_asks_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, RUNNING, RUNNING, ENDED)
    parents = iter([7, 7, 7, 7, 1])  # init adopts it before the last look
    monkeypatch.setattr("os.getppid", lambda: next(parents, 1))
    with pytest.raises(AnsibleError, match="the play that watched has ended; the soak goes on there"):
        host.run()
    assert (len(host.begun), host.collected, host.answers) == (1, False, [ENDED])


def test_a_result_that_comes_after_its_play_was_killed_is_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, RUNNING, ENDED)
    parents = iter([7, 7, 7, 7, 1])  # init adopts it during the last look
    monkeypatch.setattr("os.getppid", lambda: next(parents, 1))
    with pytest.raises(AnsibleError, match="the play that watched has ended"):
        host.run()
    assert (len(host.begun), host.collected) == (1, False)


def test_a_look_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, RUNNING)
    assert host.run(state="shown")["summary"] == ["h1: tiny-a: 3 cycles"]
    assert (host.begun, host.collected) == (set(), False)


def test_check_mode_says_what_would_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, NONE)
    assert host.run(check_mode=True)["summary"] == ["h1: no soak is under way, so the soak would begin"]
    assert (host.begun, host.collected) == (set(), False)


def test_a_failure_of_the_module_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {"failed": True, "msg": "nothing is soaked"})
    result = host.run()
    assert (result["failed"], result["msg"], result["summary"]) == (True, "nothing is soaked", [])


def test_the_trials_of_a_search_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [
        {"length": 15616, "kv_tokens": 667253, "concurrency": 42.73, "passes": False, "seconds": 66.2, "probes": {}},
        {"length": 32768, "kv_tokens": None, "concurrency": 0.0, "passes": False, "seconds": 41.0, "probes": {}},
        {"length": 4480, "kv_tokens": 292317, "concurrency": 65.25, "passes": True, "seconds": 66.94, "probes": PROBES},
    ]
    host = Host(monkeypatch, {**ENDED, "trials": trials, "found": 4480, "profile": "c64"})
    assert host.run(b70_context_search, profile="c64", sequences=64)["summary"][1:8] == [
        "max_model_len   KV tokens  sequences  passes  seconds",
        "        15616      667253      42.73  no      66.2",
        "        32768           -       0.00  no      41.0",
        "         4480      292317      65.25  yes     66.9",
        "measured with it: first token after 0.12 s; 64 streams, 853.33 tok/s; 64 sequences of full length in 9.6 s",
        "in the profile c64, below engine.settings:",
        "max_model_len: 4480",
    ]


def test_each_item_of_a_gate_is_shown_once_and_listed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"item": "models", "verdict": "passed", "reason": "tiny-a with 2048 tokens"},
        {"item": "image", "verdict": "not_applicable", "reason": "the profile accepts no pictures"},
        {"item": "overload", "verdict": "failed", "reason": "3 were admitted"},
    ]
    steps = [{**RUNNING, "rows": rows[:count]} for count in (0, 2, 2)]
    host = Host(monkeypatch, *steps, {**ENDED, "verdict": "failed", "rows": rows, "reasons": ["overload: no"]}, ENDED)
    result = host.run(b70_promotion, profile="tiny-a")
    shown = [line for line in host.said if "passed" in line or "applicable" in line]
    assert shown == [
        "h1 | models        passed          tiny-a with 2048 tokens",
        "h1 | image         not applicable  the profile accepts no pictures",
    ]
    assert result["summary"][1:4] == [
        "models        passed          tiny-a with 2048 tokens",
        "image         not applicable  the profile accepts no pictures",
        "overload      failed          3 were admitted",
    ]


def test_check_mode_lists_the_items_of_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, {**NONE, "line": "no gate is under way", "rows": [], "foreseen": ["would run models: it"]})
    result = host.run(b70_promotion, check_mode=True, profile="tiny-a")
    assert result["summary"] == [
        "h1: no gate is under way, so the production gate would begin",
        "would run models: it",
    ]


def test_a_build_that_computes_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(seconds: float, cpu_s: float) -> dict[str, Any]:
        sample = {"at": seconds, "cpu_s": cpu_s, "rss_gib": 1.0, "processes": 1, "largest": "icpx x.cpp"}
        progress = {"done": 2, "total": 9, "what": "x.cpp"}
        given = {"resumed": True, "budget": "4 jobs", "joined": False}
        return {"state": "running", **given, "sample": sample, "progress": progress, "quiet_s": 0.0}

    looks = [at(0, 0), AnsibleConnectionFailure("gone"), at(60, 60), at(1000, 60)]
    host = Host(monkeypatch, {"state": "absent"}, *looks, {"state": "failed", "message": "it was ended"})
    monkeypatch.setattr(b70_source_build.display, "display", lambda text, color=None: host.said.append(text))
    result = host.run(b70_source_build, name="kernels")
    assert host.said[0] == "h1 | kernels: going on with 4 jobs"
    assert "2 of 9 objects" in host.said[3]
    assert (result["failed"], "nothing for 940 s" in result["msg"], result["budget"]) == (True, True, "4 jobs")
    assert (len(host.begun), host.answers) == (1, [])
