# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.begin import HostCheck, RolloutSettings, plan
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.decide import decide
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.model import (
    HostResult,
    HostVerdict,
    as_dict,
    from_dict,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._rollout.reading import (
    look_of,
    measured_of,
    result_of,
    return_of,
)
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


def benchmark(**given):
    band = {"rate": 0.1, "ttft": 0.25}
    row = {"scenario": "s c1 frontdoor cold", "figure": "wall_tok_s", "now": 40.0, "earlier": 71.0, "ratio": 0.5634}
    first = {"scenario": row["scenario"], "figure": "ttft_s.p50", "now": 0.5, "earlier": 0.5, "ratio": 1.0}
    rows = [{**row, "worse": True}, {**first, "worse": False}]
    comparison = {"with": {"id": "r0", "host": "h7"}, "band": band, "rows": rows, "regressions": []}
    return {
        "id": "r1",
        "verdict": "passed",
        "reasons": [],
        "data": {"comparison": comparison, "expectations": []},
        **given,
    }


def test_the_figures_of_the_gate_are_shown_with_its_verdict():
    returned = {"failed": True, "msg": "h1: …", "record": benchmark(verdict="failed", reasons=["too <slow>"])}
    held = measured_of(GOOD, returned)
    assert (held.verdict, held.why, held.answers) == (HostVerdict.HELD, "too <slow>", GOOD.answers)
    assert held.figures == (
        "gate: r1, compared with r0 of h7: at least 0.9 of the throughput, at most 1.25 of the time to the first token",
        "s c1 frontdoor cold: wall_tok_s 40, 0.56 of 71 WORSE",
        "s c1 frontdoor cold: ttft_s.p50 0.5, 1.00 of 0.5",
    )
    passed = measured_of(GOOD, {"record": benchmark()})
    assert (passed.verdict, passed.figures) == (HostVerdict.VERIFIED, held.figures)
    rollout = decide(began(names(2), gate="performance").with_results({"h1": held})).rollout
    lines = table(rollout)
    assert "verified, held by the gate" in lines[1]
    assert lines[3:7] == ["h1: too <slow>", *(f"h1: {line}" for line in held.figures)]
    assert "stopped because the gate holds it at h1: too <slow>" in lines[7]
    assert f"- `h1`: {held.figures[1]}" in markdown(rollout)
    assert "too &lt;slow&gt;\ngate: r1" in page(rollout)
    assert f"h1: {passed.figures[1]}" in table(rollout.with_results({"h1": passed}))


def test_no_limit_is_named_that_nothing_was_held_to():
    found = benchmark()
    found["data"]["comparison"] |= {"with": None, "rows": []}
    assert measured_of(GOOD, {"record": found}).figures == ("gate: r1: compared with nothing",)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "it left no result"),
        ({"failed": True, "msg": "the benchmark left no result: somebody ended it"}, "somebody ended it"),
        ({"unreachable": True, "msg": "gone"}, "unreachable: gone"),
        ({"record": benchmark(verdict="unfinished", reasons=["broke off"])}, "broke off"),
    ],
)
def test_what_leaves_no_good_record_is_held(returned, why):
    held = measured_of(GOOD, returned)
    assert held.verdict is HostVerdict.HELD
    assert why in held.why


def test_the_table_tells_each_host_and_why_it_failed():
    results = {"h1": GOOD, "h2": failed()}
    lines = table(decide(began(names(4)).with_results(results)).rollout)
    assert lines[0].split() == ["HOST", "WAVE", "FROM", "NOW", "VERDICT", "SECONDS", "PHASES"]
    assert lines[1].split() == ["h1", "1", "old", "new", "verified", "3.0", "stop", "1.0,", "health", "2.0"]
    assert lines[2].split()[:7] == ["h2", "2", "old", "old", "failed,", "rolled", "back"]
    assert lines[5] == "h2: it did not work"
    assert lines[6] == (
        "The rollout of new stopped because 1 of 4 hosts failed, max_fail allows 0: h2 "
        "(2 not begun, 1 verified, 1 failed, rolled back)."
    )


def test_hosts_outside_the_limit_are_named_as_such():
    rollout = plan("r2", NOW, RolloutSettings(NEW), {"h2": waiting()}, began(names(3)).with_results({"h1": GOOD}))
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


def test_a_host_that_the_gate_has_not_judged_is_shown_with_what_it_serves():
    held = began(names(3), gate="performance").with_results({"h1": replace(GOOD, verdict=HostVerdict.HELD)})
    served = replace(GOOD, verdict=HostVerdict.ALREADY)
    looks = {"h1": HostCheck(served), "h2": waiting(), "h3": waiting()}
    rollout = plan("r2", NOW, RolloutSettings(NEW, gate="performance"), looks, held)
    assert plan_lines(rollout, 5)[2:] == [
        "wave 1 (canary host): h1 (serves new, to be measured)",
        "wave 2 (1 host): h2 (serves old)",
        "wave 3 (1 host): h3 (serves old)",
    ]
    assert table(rollout)[1].split()[:8] == ["h1", "1", "old", "new", "verified,", "to", "be", "measured"]


def test_the_page_and_the_markdown_escape_what_hosts_say():
    bad = HostResult(HostVerdict.FAILED, why="<script>|\nno")
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
        (None, HostVerdict.FAILED),
        ({"unreachable": True, "msg": "no route"}, HostVerdict.UNREACHABLE),
        ({"failed": True, "msg": "the switch vanished"}, HostVerdict.FAILED),
        ({**SWITCHED, "outcome": "rolled_back", "failed": True, "msg": "no"}, HostVerdict.ROLLED_BACK),
        ({**SWITCHED, "outcome": "untouched", "failed": True, "msg": "no"}, HostVerdict.UNTOUCHED),
        ({**SWITCHED, "outcome": "stopped", "failed": True, "msg": "no"}, HostVerdict.FAILED),
        ({**SWITCHED, "verified": False}, HostVerdict.FAILED),
        (SWITCHED, HostVerdict.VERIFIED),
        ({**SWITCHED, "outcome": "unchanged"}, HostVerdict.VERIFIED),
    ],
)
def test_what_a_switch_returned_is_read(returned, verdict):
    found = result_of(returned)
    assert found.verdict is verdict
    assert bool(found.why) is (verdict is not HostVerdict.VERIFIED)
    if verdict is HostVerdict.VERIFIED:
        assert (found.profile, found.fingerprint, found.phases) == ("new", "f", (("stop", 1.5),))
        assert [(answer.name, answer.request, answer.sha256, answer.steady) for answer in found.answers] == [
            ("c0", "q", "a", True)
        ]


@pytest.mark.parametrize(
    ("returned", "verdict", "problem"),
    [
        (None, HostVerdict.WAITING, True),
        ({"unreachable": True}, HostVerdict.WAITING, True),
        ({"outcome": "untouched", "failed": True, "msg": "no weights"}, HostVerdict.WAITING, True),
        ({**SWITCHED, "outcome": "unchanged"}, HostVerdict.ALREADY, False),
        ({**SWITCHED, "verified": False}, HostVerdict.WAITING, False),
    ],
)
def test_what_the_check_returned_is_read(returned, verdict, problem):
    look = look_of(returned)
    assert (look.result.verdict, bool(look.problem)) == (verdict, problem)


def test_what_a_rollback_returned_is_read():
    assert return_of({**SWITCHED, "profile": "old"}, "old").verdict is HostVerdict.RETURNED
    assert return_of({**SWITCHED, "profile": None}, None).verdict is HostVerdict.RETURNED
    assert return_of({**SWITCHED}, "old").verdict is HostVerdict.STRANDED
    assert return_of(None, "old").verdict is HostVerdict.STRANDED
