# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of all hosts: what it shows, what it marks, and how wide it may become."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._fleet_status import cut, fleet, short_names, table

ATTEMPT = {"id": "x", "at": "2026-06-07T09:08:44Z", "kind": "switch", "from": "a", "to": "b", "outcome": "committed"}
SERVING: dict[str, Any] = {
    "slot": "main",
    "phase": "serving",
    "open": True,
    "reason": "",
    "profile": "qwen36-int4-c8",
    "verified": True,
    "fingerprint": "sha256:0123456789abcdef",
    "stack": "vllm-0.17-abc",
    "frontdoor": {"active": 3, "queued": 0, "max_active": 8},
    "cards": [{"node": "/dev/dri/renderD128", "used_bytes": 30 * 2**30, "total_bytes": 32 * 2**30}] * 4,
    "drift": None,
    "at_work": None,
    "progress": None,
    "interrupted": None,
    "quarantine": None,
    "switches": [ATTEMPT],
}
LOST = {"unreachable": True, "msg": "Failed to connect to the host via ssh:\nNo route to host"}


def shown(results: dict[str, Any], width: int = 140) -> str:
    return "\n".join(table(fleet(results), width))


def row(results: dict[str, Any], host: str) -> list[str]:
    return next(line for line in table(fleet(results)) if line.startswith(host + " ")).split()


def test_a_host_is_one_line_with_all_that_matters() -> None:
    lines = table(fleet({"b70-01": SERVING}))
    assert lines[0].split() == "HOST PROFILE PHASE VERIFIED ACTIVE FINGERPRINT LAST SWITCH CARDS".split()
    assert lines[1].split() == ("b70-01 qwen36-int4-c8 serving yes 3/8 0123456789 06-07 09:08 committed 4 93%".split())
    assert lines[2:] == [
        "",
        "1 of 1 hosts serve a verified model",
        "most: profile qwen36-int4-c8, fingerprint 0123456789, stack vllm-0.17-abc",
    ]


def test_what_differs_from_most_hosts_is_marked() -> None:
    other = SERVING | {"profile": "gemma4", "fingerprint": "sha256:ffff", "stack": "vllm-0.9-def"}
    results = {"h1": other, "h2": SERVING, "h3": SERVING, "h4": SERVING | {"fingerprint": "sha256:eeee"}}
    assert row(results, "h1")[1] == "gemma4*"
    assert row(results, "h1")[5] == "ffff*"
    assert row(results, "h2")[1] == "qwen36-int4-c8"
    assert row(results, "h4")[1:6] == ["qwen36-int4-c8", "serving", "yes", "3/8", "eeee*"]
    text = shown(results)
    assert "h1: stack vllm-0.9-def*, most have vllm-0.17-abc" in text
    assert "4 of 4 hosts serve a verified model; 2 differ from most (*)" in text


def test_among_equals_the_first_host_counts_as_most() -> None:
    results = {"h1": SERVING, "h2": SERVING | {"profile": "gemma4"}}
    assert [host["differs"] for host in fleet(results)["hosts"]] == [[], ["profile"]]


def test_a_host_that_serves_nothing_differs_from_those_that_do() -> None:
    nothing = SERVING | {"profile": None, "phase": "stopped", "open": False, "verified": False, "fingerprint": None}
    nothing |= {"frontdoor": None, "reason": "stopped by ann", "switches": [], "cards": []}
    results = {"h1": SERVING, "h2": nothing}
    assert row(results, "h2") == ["h2", "-*", "stopped", "-", "-", "-*", "-", "0"]
    assert "h2: not open to clients: stopped by ann" in shown(results)


def test_a_host_that_cannot_be_read_stays_in_the_table_with_the_reason() -> None:
    results = {"h1": SERVING, "h2": LOST, "h3": None, "h4": {"failed": True, "msg": "no python"}}
    assert row(results, "h2")[:3] == ["h2", "UNREACHABLE", "-"]
    assert row(results, "h4")[:3] == ["h4", "NOT", "READ"]
    text = shown(results)
    assert "h2: unreachable: Failed to connect to the host via ssh: No route to host" in text
    assert "h3: unreachable: the host did not answer" in text
    assert "h4: not read: no python" in text
    assert "1 of 4 hosts serve a verified model; 3 could not be read" in text
    assert fleet(results)["counts"] == {"hosts": 4, "verified": 1, "missing": 0, "not_read": 3, "differing": 0}


def test_a_fleet_that_nobody_answers_for_has_a_table() -> None:
    lines = table(fleet({"h1": LOST}))
    assert lines[1].split()[:2] == ["h1", "UNREACHABLE"]
    assert lines[-1] == "0 of 1 hosts serve a verified model; 1 could not be read"


def test_what_a_person_should_know_is_noted() -> None:
    held = {"since": "2026-06-07T09:00:00Z", "symptom": "device_lost", "line": "xe: lost"}
    sick = SERVING | {
        "quarantine": held,
        "drift": "runs a, rendered is b",
        "interrupted": {"to": "b"},
        "verified": False,
    }
    text = shown({"h1": sick})
    assert " NO " in text
    assert "h1: quarantine since 2026-06-07T09:00:00Z (device_lost)" in text
    assert "h1: a switch was interrupted" in text
    assert "h1: drift: runs a, rendered is b" in text


def test_a_host_with_a_part_names_its_leader() -> None:
    part = {"profile": "big", "epoch": "e1", "state": "runs", "reason": ""}
    node = {"rank": 1, "leader": "alpha", "own": {"part": part, "wish": None}, "others": {}}
    follower = SERVING | {"profile": "big", "open": False, "verified": False, "phase": "stopped", "node": node}
    assert "h1: part of big, led by alpha" in shown({"h1": follower})
    assert row({"h1": follower}, "h1")[1:4] == ["big", "stopped", "-"]
    ended = {**node, "own": {"part": part | {"state": "ended"}, "wish": None}}
    assert "led by" not in shown({"h1": follower | {"node": ended, "profile": None, "reason": "it ended"}})


def test_a_degraded_host_is_noted() -> None:
    rows = [{"open": True}, {"open": False}, {"open": True}]
    assert "h1: degraded: 2 of 3 replicas are served" in shown({"h1": SERVING | {"replicas": rows}})
    assert "degraded" not in shown({"h1": SERVING | {"replicas": rows[:1]}})


def test_a_switch_that_runs_shows_its_phase() -> None:
    switching = SERVING | {
        "open": False,
        "phase": "switching",
        "reason": "switch to gemma4",
        "at_work": "pid 812 (ann on desk by Ansible)",
        "progress": "health: loading weights 62 %",
        "switches": [ATTEMPT | {"outcome": None}],
        "frontdoor": {"active": 0, "queued": 12, "max_active": 8},
    }
    assert " 0/8 +12 " in shown({"h1": switching})
    assert "06-07 09:08 runs" in shown({"h1": switching})
    assert "h1: at work: pid 812 (ann on desk by Ansible), health: loading weights 62 %" in shown({"h1": switching})
    assert "06-07 09:08 no end" in shown({"h1": switching | {"at_work": None}})


@pytest.mark.parametrize("width", [20, 100, 120, 140, 500])
@pytest.mark.parametrize("count", [1, 3, 200])
def test_no_line_is_wider_than_asked_for(width: int, count: int) -> None:
    name = "rack-a-in-the-far-data-centre-b70-{:03d}.example.com"
    wide = SERVING | {
        "profile": "qwen36-35b-a3b-int4-autoround-long-context-with-a-long-name-c8",
        "frontdoor": {"active": 128, "queued": 64, "max_active": 128},
        "switches": [ATTEMPT | {"outcome": "rolled_back"}],
        "phase": "switching",
    }
    results: dict[str, Any] = {name.format(number): wide for number in range(count)}
    results[name.format(0)] = LOST if count > 1 else wide
    lines = table(fleet(results), width)
    assert max(map(len, lines)) <= min(max(width, 100), 140)
    rows = lines[1 : count + 1]
    assert len({line.split()[0] for line in rows}) == count, "names that are cut must differ"
    assert lines[2 if count > 1 else 1].endswith("4 93%"), "the last column is whole"


def test_a_domain_that_all_hosts_share_is_left_out() -> None:
    assert short_names(["b70-01.example.com", "b70-02.example.com"]) == ["b70-01", "b70-02"]
    assert short_names(["b70-01.example.com", "b70-02.example.org"]) == ["b70-01.example.com", "b70-02.example.org"]
    assert short_names(["b70.example.com"]) == ["b70.example.com"]
    assert short_names(["192.0.2.11", "193.0.2.11"]) == ["192.0.2.11", "193.0.2.11"]


def test_what_is_cut_keeps_both_ends() -> None:
    assert cut("abcdefghij", 10) == "abcdefghij"
    assert cut("abcdefghij", 5) == "ab…ij"
    assert len(cut("abcdefghij", 8)) == 8


UP = {
    "item": "lb1",
    "answered": True,
    "known": True,
    "servers": [{"backend": "b70", "state": "ready"}],
    "in_service": True,
}
SILENT = {"item": "lb2", "answered": False, "known": False, "servers": [], "in_service": False}
DRAINED = {**UP, "servers": [{"backend": "b70", "state": "drained"}], "in_service": False}


@pytest.mark.parametrize(
    ("told", "word", "missing"),
    [
        ([UP, UP], "yes", False),
        ([UP, SILENT], "yes", False),
        ([SILENT], "no answer", False),
        ([{**UP, "known": False, "servers": []}], "unknown", False),
        ([UP, DRAINED], "drained", True),
        ([{**UP, "in_service": False}], "down", True),
    ],
)
def test_the_table_says_what_the_load_balancers_do(told: list[dict[str, Any]], word: str, missing: bool) -> None:
    document = fleet({"h1": SERVING, "h2": LOST}, {"h1": told})
    lines = table(document)
    assert "BALANCER" in lines[0]
    assert lines[1][lines[0].index("BALANCER") :].startswith(f"{word} ")
    assert document["counts"]["missing"] == missing
    assert ("1 should serve and do not" in "\n".join(lines)) is missing
    assert "BALANCER" not in table(fleet({"h1": SERVING}))[0]


CLOSED = SERVING | {"open": False, "phase": "failed", "reason": "a card was lost"}
WANTED = {"wanted": {"profile": "qwen36-int4-c8"}}


@pytest.mark.parametrize(
    ("result", "missing"),
    [
        (SERVING | WANTED, ""),
        (CLOSED, "does not serve qwen36-int4-c8: a card was lost"),
        (CLOSED | {"profile": None} | WANTED, "does not serve qwen36-int4-c8: a card was lost"),
        # a person has said so
        (CLOSED | {"wanted": {"profile": None}}, ""),
        (CLOSED | {"maintenance": {"since": "09:00", "who": "ann", "reason": "a fan"}}, ""),
        # nobody has said that it should serve, and it could not be asked
        (CLOSED | {"profile": None}, ""),
        (LOST, ""),
    ],
)
def test_what_should_serve_and_does_not_is_known(result: dict[str, Any], missing: str) -> None:
    assert fleet({"h1": result})["hosts"][0]["missing"] == missing


def test_a_host_in_maintenance_is_said_to_be() -> None:
    rests = SERVING | {"maintenance": {"since": "2026-06-07T09:08:44Z", "who": "ann", "reason": "a fan"}}
    assert "h1: in maintenance since 2026-06-07T09:08:44Z (ann): a fan" in shown({"h1": rests})
