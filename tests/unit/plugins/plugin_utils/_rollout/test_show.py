# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import Settings, plan
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import decide
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import Result, Verdict, as_dict, from_dict
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.reading import look_of, result_of, return_of
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.show import markdown, page, plan_lines, table

from .fleet import GOOD, NEW, NOW, began, carried_out, failed, names, waiting

SWITCHED = {
    "changed": True,
    "outcome": "committed",
    "profile": "new",
    "previous_profile": "old",
    "verified": True,
    "fingerprint": "f",
    "phases": [{"name": "stop", "direction": "forward", "seconds": 1.5, "ok": True}],
    "verified_by": [{"name": "c0", "repeats": 3, "sha256": "a", "request": "q", "steady": True}],
}


def test_the_plan_names_what_happens_to_whom():
    assert plan_lines(began(names(4)), 5) == [
        "Rollout r1 of new to 4 hosts",
        "waves 1,25%,100%; max_fail 0; on_failure stop",
        "wave 1 (canary host): h1 (serves old)",
        "wave 2 (1 host): h2 (serves old)",
        "wave 3 (2 hosts): h3 (serves old), h4 (serves old)",
    ]


def test_a_plan_of_five_hundred_hosts_fits_on_a_screen_and_says_when_forks_are_few():
    lines = plan_lines(began(names(500)), 20)
    assert len(lines) == 5
    assert max(map(len, lines)) < 250
    assert "(125 hosts; 7 rounds, because forks is 20)" in lines[3]


def test_the_table_tells_each_host_and_why_it_failed():
    results = {"h1": GOOD, "h2": failed()}
    lines = table(decide(began(names(4)).with_results(results)).rollout)
    assert lines[0].split() == ["HOST", "WAVE", "FROM", "TO", "VERDICT", "SECONDS", "PHASES"]
    assert lines[1].split() == ["h1", "1", "old", "new", "verified", "3.0", "stop", "1.0,", "health", "2.0"]
    assert lines[2].split()[:7] == ["h2", "2", "old", "old", "failed,", "rolled", "back"]
    assert lines[5] == "h2: it did not work"
    assert lines[6] == (
        "The rollout of new stopped because 1 of 4 hosts failed, max_fail allows 0: h2 "
        "(2 not begun, 1 verified, 1 failed, rolled back)."
    )


def test_hosts_outside_the_limit_are_named_as_such():
    rollout = plan("r2", NOW, Settings(NEW), {"h2": waiting()}, began(names(3)).with_results({"h1": GOOD}))
    assert plan_lines(rollout, 5) == [
        "Rollout r1 of new to 1 host",
        "waves 1,25%,100%; max_fail 0; on_failure stop",
        "wave 1 (canary host): h2 (serves old)",
        "outside the limit, left as they are: h1, h3",
    ]
    ended, _taken = carried_out(rollout, lambda _host: GOOD)
    lines = table(ended.rollout)
    assert "verified, outside the limit" in lines[2]
    assert "not begun, outside the limit" in lines[3]
    assert lines[-1] == (
        "The rollout of new is not finished: h3 is outside the limit of this run; run the command without the limit to "
        "go on (1 not begun, 2 verified)."
    )


def test_the_page_and_the_markdown_escape_what_hosts_say():
    bad = Result(Verdict.FAILED, why="<script>|\nno")
    rollout = decide(began(names(1)).with_results({"h1": bad})).rollout
    assert "<script>" not in page(rollout)
    assert "&lt;script&gt;" in page(rollout)
    assert "- `h1`: <script>| no" in markdown(rollout)


def test_the_record_of_five_hundred_hosts_can_be_read_again():
    decision, _taken = carried_out(began(names(500)), lambda _host: GOOD)
    assert from_dict(json.loads(json.dumps(as_dict(decision.rollout)))) == decision.rollout
    assert len(table(decision.rollout)) == 502
    assert page(decision.rollout).count("<tr>") == 501


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        (None, Verdict.FAILED),
        ({"unreachable": True, "msg": "no route"}, Verdict.UNREACHABLE),
        ({"failed": True, "msg": "the switch vanished"}, Verdict.FAILED),
        ({**SWITCHED, "outcome": "rolled_back", "failed": True, "msg": "no"}, Verdict.ROLLED_BACK),
        ({**SWITCHED, "outcome": "untouched", "failed": True, "msg": "no"}, Verdict.UNTOUCHED),
        ({**SWITCHED, "outcome": "stopped", "failed": True, "msg": "no"}, Verdict.FAILED),
        ({**SWITCHED, "verified": False}, Verdict.FAILED),
        (SWITCHED, Verdict.VERIFIED),
        ({**SWITCHED, "outcome": "unchanged"}, Verdict.VERIFIED),
    ],
)
def test_what_a_switch_returned_is_read(returned, verdict):
    found = result_of(returned)
    assert found.verdict is verdict
    assert bool(found.why) is (verdict is not Verdict.VERIFIED)
    if verdict is Verdict.VERIFIED:
        assert (found.profile, found.fingerprint, found.phases) == ("new", "f", (("stop", 1.5),))
        assert [(answer.name, answer.request, answer.sha256, answer.steady) for answer in found.answers] == [
            ("c0", "q", "a", True)
        ]


@pytest.mark.parametrize(
    ("returned", "verdict", "problem"),
    [
        (None, Verdict.WAITING, True),
        ({"unreachable": True}, Verdict.WAITING, True),
        ({"outcome": "untouched", "failed": True, "msg": "no weights"}, Verdict.WAITING, True),
        ({**SWITCHED, "outcome": "unchanged"}, Verdict.ALREADY, False),
        ({**SWITCHED, "verified": False}, Verdict.WAITING, False),
    ],
)
def test_what_the_check_returned_is_read(returned, verdict, problem):
    look = look_of(returned)
    assert (look.result.verdict, bool(look.problem)) == (verdict, problem)


def test_what_a_rollback_returned_is_read():
    assert return_of({**SWITCHED, "profile": "old"}, "old").verdict is Verdict.RETURNED
    assert return_of({**SWITCHED, "profile": None}, None).verdict is Verdict.RETURNED
    assert return_of({**SWITCHED}, "old").verdict is Verdict.STRANDED
    assert return_of(None, "old").verdict is Verdict.STRANDED
