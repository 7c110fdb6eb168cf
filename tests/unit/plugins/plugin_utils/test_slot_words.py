# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.plugin_utils._slot_words import slot_status, switch_report

URL = "http://192.0.2.10:8000/v1"
SWITCHED = {
    "slot": "main",
    "changed": True,
    "wanted": "tiny-b",
    "profile": "tiny-b",
    "previous_profile": "tiny-a",
    "served_model": "tiny-b",
    "verified": True,
    "phases": [
        {"name": "lock", "seconds": 0.001},
        {"name": "health", "seconds": 31.04},
        {"name": "canary", "seconds": 1.2},
    ],
    "canary": [
        {"name": "exact_ok", "passed": True, "profile": "tiny-b"},
        {"name": "copy_phrase", "passed": True, "profile": "tiny-b"},
    ],
    "actions": [],
}


def test_a_switch_says_what_where_and_how_long():
    assert switch_report(SWITCHED, "h1", URL) == [
        "h1 serves tiny-b (model id tiny-b; now served, before: tiny-a; verified by 2 canary cases)",
        f"frontdoor: {URL}",
        "32.2 s in all: health 31.0 s, canary 1.2 s",
    ]


def test_an_unverified_model_is_never_called_verified():
    line = switch_report(SWITCHED | {"verified": False, "canary": []}, "h1", URL)[0]
    assert "NOT verified" in line


def test_a_stopped_slot_has_no_address():
    lines = switch_report({"slot": "main", "changed": True, "profile": None, "phases": []}, "h1", URL, active=False)
    assert lines == ["h1 serves nothing: slot main is stopped"]


def test_check_mode_lists_the_actions_only():
    lines = switch_report(SWITCHED | {"actions": ["stop tiny-a", "start tiny-b"]}, "h1", URL)
    assert lines == ["h1 would: stop tiny-a", "h1 would: start tiny-b"]


def test_check_mode_says_what_it_could_not_look_at():
    lines = switch_report(SWITCHED | {"actions": ["start tiny-b"], "not_looked_at": ["stack", "weights"]}, "h1", URL)
    assert lines == [
        "h1 would: start tiny-b",
        "h1: Not looked at, because this play would install it first: stack, weights",
    ]


def test_a_failed_switch_says_what_failed_with_evidence_and_where_it_ended():
    failure = {
        "phase": "alive",
        "symptom": "device lost",
        "advice": "reboot",
        "log_tail": [f"line {n}" for n in range(30)],
    }
    failed = SWITCHED | {
        "msg": "The switch failed in alive. tiny-a is served again.",
        "failure": failure,
        "profile": "tiny-a",
    }
    failed["canary"] = [
        {"name": "exact_ok", "passed": True, "profile": "tiny-b"},
        {"name": "exact_ok", "passed": True, "profile": "tiny-a"},
    ]
    lines = switch_report(failed, "h1", URL)
    assert lines[:3] == [
        "h1: The switch failed in alive. tiny-a is served again.",
        "symptom: device lost",
        "advice: reboot",
    ]
    assert [line for line in lines if line.startswith("log:")] == [f"log: line {n}" for n in range(22, 30)]
    assert "h1 serves tiny-a" in lines[-3]
    assert "verified by 1 canary case)" in lines[-3]


def test_a_slot_for_which_nobody_chose_says_how_to_choose():
    nothing = {"slot": "main", "outcome": "unchanged", "wanted": None, "profile": None}
    (line,) = switch_report(nothing, "h1", URL)
    assert line == "h1 serves nothing yet: choose a profile with -e profile=NAME or b70_profile in the inventory"
    assert switch_report(nothing, "h1", URL, active=False) == ["h1 serves nothing: slot main is stopped"]


def test_nothing_is_said_of_a_slot_that_was_not_looked_at():
    assert switch_report({"failed": True, "msg": "something else"}, "h1", URL) == []


def test_an_address_that_is_not_known_is_left_out():
    assert not any("frontdoor:" in line for line in switch_report(SWITCHED, "h1", "") + slot_status(SERVING, "h1", ""))


ENGINE = {
    "unit": "b70-slot-main-tiny-a.service",
    "state": "active (running)",
    "started_at": "2026-06-07T09:00:00Z",
    "healthy": True,
}
SERVING = {
    "slot": "main",
    "phase": "serving",
    "open": True,
    "reason": "",
    "profile": "tiny-a",
    "served_model": "tiny-a",
    "verified": True,
    "verified_at": "2026-06-07T09:08:44Z",
    "verified_by": [{"name": "exact_ok", "repeats": 3}, {"name": "copy_phrase", "repeats": 3}],
    "engine": ENGINE,
    "enabled_units": ["b70-slot-main-tiny-a.service"],
    "drift": None,
    "interrupted": None,
}


def test_the_status_of_a_served_model_names_the_proof_and_the_address():
    assert slot_status(SERVING, "h1", URL) == [
        "h1 serves tiny-a (model id tiny-a; verified 2026-06-07T09:08:44Z by exact_ok 3x, copy_phrase 3x)",
        f"frontdoor: {URL}",
        "engine: b70-slot-main-tiny-a.service is active (running) since 2026-06-07T09:00:00Z, healthy",
        "at boot: b70-slot-main-tiny-a.service",
    ]


def test_a_running_engine_that_is_not_verified_has_no_address():
    told = slot_status(SERVING | {"profiles": [{"name": "a", "pending": True}, {"name": "b"}]}, "h1", URL)
    assert "pending: a new rendering of a waits for the switch that starts it" in told
    rules = {
        "profiles": [{"name": "a", "accepted_rules": ["r: no"]}, {"name": "tiny-a", "accepted_rules": ["r: hangs"]}]
    }
    told = [line for line in slot_status(SERVING | rules, "h1", URL) if "on purpose" in line]
    assert told == ["breaks a rule of its stack on purpose: r: hangs"]
    lines = slot_status(SERVING | {"verified": False, "reason": "the engine restarted"}, "h1", URL)
    assert lines[0] == "h1 runs tiny-a, NOT open to clients: the engine restarted"
    assert not any(URL in line for line in lines)


def test_an_empty_slot_says_why():
    empty = SERVING | {
        "profile": None,
        "engine": None,
        "open": False,
        "reason": "stopped by the operator",
        "enabled_units": [],
    }
    assert slot_status(empty, "h1", URL) == ["h1 serves nothing: stopped by the operator", "at boot: nothing"]


def test_a_quarantine_is_said_with_its_end():
    held = {"since": "2026-06-07T09:08:44Z", "symptom": "device_lost"}
    lines = slot_status(SERVING | {"quarantine": held}, "h1", URL)
    assert any("QUARANTINE since 2026-06-07T09:08:44Z (device_lost)" in line for line in lines)
    assert any("b70ctl clear-quarantine" in line for line in lines)


def test_drift_and_an_unanswered_health_check_are_said():
    lines = slot_status(SERVING | {"drift": "runs X, rendered is Y", "engine": ENGINE | {"healthy": False}}, "h1", URL)
    assert any("NOT answering" in line for line in lines)
    assert any(line.startswith("drift: runs X") for line in lines)
