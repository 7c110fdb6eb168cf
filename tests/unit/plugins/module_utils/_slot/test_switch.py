# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switch against a host in memory: what happens, what fails, and where the host is left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, OnFailure
from unit.plugins.module_utils._slot.calls import host, names, noting, switch
from unit.plugins.module_utils._slot.fake_host import BACKEND, FAULTS, LAYOUT, FakeUnit, profile_data, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def fake_host():
    return host("abc")


FULL = (
    "lock resolve guard journal close drain stop release start alive health identity first_token canary "
    "open enable commit"
).split()


def test_first_deploy(fake_host):
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert (result["failed"], result["changed"], result["outcome"]) == (False, True, "committed")
    assert result["profile"] == result["served_model"] == "a"
    assert result["verified"]
    assert result["verified_at"]
    assert result["previous_profile"] is None
    assert names(result) == FULL
    assert [(case["name"], case["passed"]) for case in result["canary"]] == [
        ("exact_ok", True),
        ("sum", True),
        ("burst", True),
    ]
    assert fake_host.running == fake_host.enabled == [A]
    assert fake_host.open
    assert 'B70_PROFILE="a"' in fake_host.texts[LAYOUT.current_env][0]
    assert fake_host.state.limits["max_active_generations"] == 2


def test_switch_and_again(fake_host):
    switch(fake_host, "a")
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert (result["previous_profile"], result["profile"]) == ("a", "b")
    assert fake_host.running == fake_host.enabled == [B]
    fake_host.mutations.clear()
    begun = fake_host.mono
    again = switch(fake_host, "b")
    assert (again["changed"], again["outcome"], again["profile"]) == (False, "unchanged", "b")
    assert again["verified"]
    assert names(again) == ["lock", "resolve"]
    assert fake_host.mutations == []
    assert fake_host.mono - begun < 0.1


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_first_deploy_ends_stopped(fake_host, fault):
    fake_host.unit("a").fault = fault
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert result["failed"]
    assert result["outcome"] == "stopped"
    assert result["profile"] is None
    assert not fake_host.open
    assert fake_host.state.phase == "failed"
    assert result["failure"]["phase"] in fake_host.state.reason


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_leads_back(fake_host, fault):
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert (result["failed"], result["changed"], result["rolled_back"]) == (True, True, True)
    assert (result["profile"], result["verified"]) == ("a", True)
    assert fake_host.running == fake_host.enabled == [A]
    assert fake_host.open
    assert result["failure"]["direction"] == "forward"
    assert "a is served again, verified" in result["msg"]
    assert names(result, "back") == [phase for phase in FULL[4:] if phase != "drain"]


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_way_back_ends_stopped_with_both_failures(fake_host, fault):
    switch(fake_host, "a")
    fake_host.unit("a").fault = fault
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert result["outcome"] == "stopped"
    assert [failure["direction"] for failure in (result["failure"], *result["failures"])] == ["forward", "back"]
    assert result["failure"]["phase"] == "canary"
    assert "exact_ok" in result["failure"]["message"]
    assert "phase canary: a canary answer was wrong or missing; then phase" in fake_host.state.reason
    assert result["failures"][0]["phase"] in fake_host.state.reason


PHASE_OF = {
    "never_ready": "health",
    "health_500": "health",
    "wrong_id": "identity",
    "wrong_length": "identity",
    "other_process": "identity",
    "no_token": "first_token",
    "nan": "first_token",
    "wrong_answer": "canary",
    "wrong_one_in_four": "canary",
    "garbage": "canary",
    "empty": "canary",
    "dies_in_canary": "canary",
    "restarts_in_canary": "canary",
    "exit_at_start": "health",
    "crash_loop": "health",
    "device_lost": "health",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_failed_phase_is_named(fake_host, fault):
    fake_host.unit("a").fault = fault
    result = switch(fake_host, "a")
    assert result["failure"]["phase"] == PHASE_OF[fault]
    assert f"phase {PHASE_OF[fault]}" in result["msg"]


@pytest.mark.parametrize("fault", ["exit_at_start", "crash_loop"])
def test_a_dead_unit_is_noticed_at_once(fake_host, fault):
    fake_host.unit("a").fault = fault
    result = switch(fake_host, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert health["seconds"] < 2
    assert result["failure"]["log_tail"] == ["INFO loading", "the last line"]


LONG_CONTEXT = "ValueError: the estimated maximum model length is 114432. Try increasing `gpu_memory_utilization`"


def test_a_known_symptom_is_named_with_what_to_do(fake_host):
    fake_host.unit("a").fault = "exit_at_start"
    fake_host.log_lines = ("INFO loading", LONG_CONTEXT, *(["noise"] * 40))
    result = switch(fake_host, "a")
    assert result["failure"]["symptom"] == "context_does_not_fit"
    assert "at most 114432" in result["msg"]
    assert len(result["failure"]["log_tail"]) == 12
    assert result["failure"]["log_tail"][0] == LONG_CONTEXT


def test_what_ended_an_engine_is_found_although_systemd_has_started_it_again(fake_host):
    fake_host.unit("a").fault = "restarts_in_canary"
    fake_host.logs[f"{1:032x}"] = ("INFO loading", LONG_CONTEXT)
    failure = switch(fake_host, "a")["failure"]
    assert failure["symptom"] == "context_does_not_fit"
    assert LONG_CONTEXT in failure["log_tail"]
    assert failure["cause"] == [LONG_CONTEXT]


def test_a_lost_device_ends_the_wait(fake_host):
    fake_host.unit("a").fault = "never_ready"
    fake_host.log_lines = ("RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",)
    result = switch(fake_host, "a")
    assert result["failure"]["symptom"] == "device_lost"
    assert next(phase for phase in result["phases"] if phase["name"] == "health")["seconds"] < 10
    fake_host.assert_invariants()


def test_wrong_answer_names_case_and_both_sides(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "wrong_one_in_four"
    failure = switch(fake_host, "b")["failure"]
    assert (failure["expected"], failure["got"]) == ("'OK'", "'slh'")
    assert "exact_ok" in failure["message"]
    assert "answer 4 of 4" in failure["message"]


def test_on_failure_stop(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b", on_failure=OnFailure.STOP)
    fake_host.assert_invariants()
    assert result["outcome"] == "stopped"


def test_on_failure_leave_keeps_the_engine_for_a_look(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b", on_failure=OnFailure.LEAVE)
    assert result["outcome"] == "left"
    assert fake_host.running == [B]
    assert fake_host.enabled == []
    assert not fake_host.open


def test_stop_request(fake_host):
    switch(fake_host, "a")
    result = switch(fake_host, None)
    fake_host.assert_invariants()
    assert (result["failed"], result["changed"], result["profile"]) == (False, True, None)
    assert result["previous_profile"] == "a"
    assert fake_host.running == fake_host.enabled == []
    assert fake_host.state.phase == "stopped"
    assert LAYOUT.current_env not in fake_host.texts
    assert switch(fake_host, None)["changed"] is False


def test_a_failure_after_a_stop_request_does_not_bring_the_old_one_back(fake_host):
    switch(fake_host, "a")
    switch(fake_host, None)
    fake_host.unit("b").fault = "wrong_answer"
    assert switch(fake_host, "b")["outcome"] == "stopped"


def test_legacy_units_are_stopped_and_disabled(fake_host):
    name = "minimax-vllm.service"
    fake_host.units[name] = FakeUnit(name, enabled=True)
    fake_host.launch(fake_host.units[name])
    result = switch(fake_host, "a")
    assert not result["failed"]
    assert fake_host.running == fake_host.enabled == [A]


def test_drain_waits_and_then_ends_what_is_left(fake_host):
    switch(fake_host, "a")
    fake_host.generations = [fake_host.mono + 3.0]
    result = switch(fake_host, "b")
    drain = next(phase for phase in result["phases"] if phase["name"] == "drain")
    assert 2.5 < drain["seconds"] < 4
    fake_host.generations = [fake_host.mono + 1000.0]
    result = switch(fake_host, "a", drain_timeout_s=5.0)
    assert not result["failed"]
    assert any("1 generations still ran" in warning for warning in result["warnings"])


def test_frontdoor_that_does_not_close_stops_the_switch_before_the_engine(fake_host):
    switch(fake_host, "a")
    fake_host.frontdoor_stuck = True
    result = switch(fake_host, "b")
    assert result["outcome"] == "untouched"
    assert result["failure"]["phase"] == "close"
    assert fake_host.running == [A]
    fake_host.frontdoor_stuck = False
    fake_host.tick()
    fake_host.assert_invariants()
    assert fake_host.open


def test_an_absent_frontdoor_counts_as_closed(fake_host):
    fake_host.frontdoor_present = False
    result = switch(fake_host, "a")
    assert not result["failed"]
    assert any("no frontdoor" in warning for warning in result["warnings"])


def test_reboot_verifies_in_place(fake_host):
    switch(fake_host, "a")
    fake_host.mono += 100
    fake_host.reboot()
    started = fake_host.starts
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert result["changed"]
    assert fake_host.starts == started
    assert "stop" not in names(result)
    assert "canary" in names(result)


def test_reboot_with_a_wrong_engine_restarts_it_once(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").fault = "wrong_answer"
    fake_host.reboot()
    fake_host.unit("a").fault = ""
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert (result["failed"], result["rolled_back"], result["profile"]) == (True, True, "a")


def test_restart_by_systemd_is_verified_again(fake_host):
    switch(fake_host, "a")
    fake_host.crash("a")
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert result["changed"]
    assert "start" not in names(result)


def test_changed_rendering_restarts(fake_host):
    switch(fake_host, "a")
    fake_host.mono += 100
    fake_host.render("a", fingerprint="sha256:a-2", engine__max_model_len=512)
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert "start" in names(result)
    assert fake_host.state.fingerprint == "sha256:a-2"


def test_changed_rendering_after_a_reboot_restarts(fake_host):
    switch(fake_host, "a")
    fake_host.reboot()
    fake_host.mono += 100
    fake_host.render("a", fingerprint="sha256:a-2")
    result = switch(fake_host, "a")
    assert "start" in names(result)
    assert not result["failed"]


def test_a_changed_rendering_that_fails_has_no_way_back(fake_host):
    switch(fake_host, "a")
    fake_host.mono += 100
    fake_host.render("a", fingerprint="sha256:a-2")
    fake_host.unit("a").fault = "exit_at_start"
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert result["outcome"] == "stopped"


def test_a_hung_verified_engine_is_restarted(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").live_fault = "never_ready"
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert "start" in names(result)
    assert not result["failed"]


@pytest.mark.parametrize("damage", ["disabled", "other_enabled", "identity_file", "closed"])
def test_what_is_missing_around_a_verified_engine_is_finished(fake_host, damage):
    switch(fake_host, "a")
    if damage == "disabled":
        fake_host.unit("a").enabled = False
    elif damage == "other_enabled":
        fake_host.unit("a").enabled, fake_host.unit("b").enabled = False, True
    elif damage == "identity_file":
        del fake_host.texts[LAYOUT.current_env]
    else:
        data = json.loads(fake_host.texts[LAYOUT.state_file][0])
        fake_host.put(LAYOUT.state_file, json.dumps(data | {"open": False}))
    started = fake_host.starts
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert result["changed"]
    assert result["verified"]
    assert fake_host.starts == started
    assert "canary" not in names(result)


def test_gate_healthy_opens_without_canary(fake_host):
    fake_host.gate_verified = False
    fake_host.unit("a").fault = "wrong_answer"
    result = switch(fake_host, "a", gate=Gate.HEALTHY)
    assert not result["failed"]
    assert fake_host.open
    assert result["verified"] is False
    # what the frontdoor's /ready goes by
    assert (fake_host.state.verified, fake_host.state.gate) == (False, "healthy")
    assert switch(fake_host, "a", gate=Gate.HEALTHY)["changed"] is False
    fake_host.gate_verified = True


def test_gate_none_opens_as_soon_as_the_unit_runs(fake_host):
    result = switch(fake_host, "a", gate=Gate.NONE)
    assert not result["failed"]
    assert "health" not in names(result)


def test_an_argument_outside_of_the_fingerprint_restarts_too(fake_host):
    switch(fake_host, "a")
    fake_host.render("a", engine__argv=[*profile_data("a")["engine"]["argv"], "--max-log-len", "9"])
    assert "start" in names(switch(fake_host, "a"))
    fake_host.assert_invariants()


def test_progress_tells_every_phase(fake_host):
    fake_host.unit("a").load_s = 30
    fake_host.log_lines = ("INFO 06-07 09:00:01 [weights.py:12] Loading weights took 3.1 seconds",)
    result = switch(fake_host, "a")
    lines = [json.loads(line) for line in fake_host.texts[LAYOUT.progress_file][0].splitlines()]
    assert lines[0]["event"] == "start"
    assert lines[-1] == lines[-1] | {"event": "end", "outcome": "committed"}
    ended = [line["phase"] for line in lines if line["event"] == "phase" and line["state"] == "end"]
    assert ended == names(result)
    assert "weights loaded in 3.1 s" in [line.get("text") for line in lines if line["event"] == "hint"]


def test_the_frontdoor_is_told_from_where_to_where(fake_host):
    switch(fake_host, "a")
    fake_host.unit("b").fault = "never_ready"
    fake_host.kill_at = None
    seen: list[Any] = []
    api.switch(noting(fake_host, seen.append), LAYOUT, request("b", health_timeout_s=5.0))
    # The one that never answers is never shown as one that is being verified.
    there, back = ["switching", "switching"], ["switching", "switching", "verifying", "serving"]
    assert [state["phase"] for state in seen] == [*there, *back]
    assert [(state["switch"] or {}).get("loading") for state in seen] == [False, True, False, True, False, None]
    assert {(state["switch"]["from"], state["switch"]["to"]) for state in seen[:2]} == {("a", "b")}
    assert {(state["switch"]["from"], state["switch"]["to"]) for state in seen[2:-1]} == {("a", "a")}
    assert seen[0]["profile"]["name"] == "a"
    assert seen[1]["profile"]["name"] == "b"
    assert seen[0]["backend_url"] == BACKEND
    assert [state["open"] for state in seen] == [False, False, False, False, False, True]
    assert [state["sequence"] for state in seen] == sorted({state["sequence"] for state in seen})
