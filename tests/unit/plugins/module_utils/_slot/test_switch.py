# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switch against a host in memory: what happens, what fails, and where the host is left."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, OnFailure
from unit.plugins.module_utils._slot.calls import host, names, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import BACKEND, FAULTS, FakeUnit, profile_data, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


@pytest.fixture
def world():
    return host("abc")


FULL = (
    "lock resolve guard journal close drain stop release start alive health identity first_token canary "
    "open enable commit"
).split()


def test_first_deploy(world):
    result = switch(world, "a")
    world.promise()
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
    assert world.running == world.enabled == [A]
    assert world.open
    assert 'B70_PROFILE="a"' in world.texts[LAYOUT.current_env][0]
    assert world.state.limits["max_active_generations"] == 2


def test_switch_and_again(world):
    switch(world, "a")
    result = switch(world, "b")
    world.promise()
    assert (result["previous_profile"], result["profile"]) == ("a", "b")
    assert world.running == world.enabled == [B]
    world.mutations.clear()
    begun = world.mono
    again = switch(world, "b")
    assert (again["changed"], again["outcome"], again["profile"]) == (False, "unchanged", "b")
    assert again["verified"]
    assert names(again) == ["lock", "resolve"]
    assert world.mutations == []
    assert world.mono - begun < 0.1


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_first_deploy_ends_stopped(world, fault):
    world.unit("a").fault = fault
    result = switch(world, "a")
    world.promise()
    assert result["failed"]
    assert result["outcome"] == "stopped"
    assert result["profile"] is None
    assert not world.open
    assert world.state.phase == "failed"
    assert result["failure"]["phase"] in world.state.reason


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_leads_back(world, fault):
    switch(world, "a")
    world.unit("b").fault = fault
    result = switch(world, "b")
    world.promise()
    assert (result["failed"], result["changed"], result["rolled_back"]) == (True, True, True)
    assert (result["profile"], result["verified"]) == ("a", True)
    assert world.running == world.enabled == [A]
    assert world.open
    assert result["failure"]["direction"] == "forward"
    assert "a is served again, verified" in result["msg"]
    assert names(result, "back") == [phase for phase in FULL[4:] if phase != "drain"]


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_way_back_ends_stopped_with_both_failures(world, fault):
    switch(world, "a")
    world.unit("a").fault = fault
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b")
    world.promise()
    assert result["outcome"] == "stopped"
    assert [failure["direction"] for failure in (result["failure"], *result["failures"])] == ["forward", "back"]
    assert result["failure"]["phase"] == "canary"
    assert "exact_ok" in result["failure"]["message"]
    assert "phase canary: a canary answer was wrong or missing; then phase" in world.state.reason
    assert result["failures"][0]["phase"] in world.state.reason


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
def test_the_failed_phase_is_named(world, fault):
    world.unit("a").fault = fault
    result = switch(world, "a")
    assert result["failure"]["phase"] == PHASE_OF[fault]
    assert f"phase {PHASE_OF[fault]}" in result["msg"]


@pytest.mark.parametrize("fault", ["exit_at_start", "crash_loop"])
def test_a_dead_unit_is_noticed_at_once(world, fault):
    world.unit("a").fault = fault
    result = switch(world, "a")
    health = next(phase for phase in result["phases"] if phase["name"] == "health")
    assert health["seconds"] < 2
    assert result["failure"]["log_tail"] == ["INFO loading", "the last line"]


LONG_CONTEXT = "ValueError: the estimated maximum model length is 114432. Try increasing `gpu_memory_utilization`"


def test_a_known_symptom_is_named_with_what_to_do(world):
    world.unit("a").fault = "exit_at_start"
    world.log_lines = ("INFO loading", LONG_CONTEXT, *(["noise"] * 40))
    result = switch(world, "a")
    assert result["failure"]["symptom"] == "context_does_not_fit"
    assert "at most 114432" in result["msg"]
    assert len(result["failure"]["log_tail"]) == 12
    assert result["failure"]["log_tail"][0] == LONG_CONTEXT


def test_what_ended_an_engine_is_found_although_systemd_has_started_it_again(world):
    world.unit("a").fault = "restarts_in_canary"
    world.logs[f"{1:032x}"] = ("INFO loading", LONG_CONTEXT)
    failure = switch(world, "a")["failure"]
    assert failure["symptom"] == "context_does_not_fit"
    assert LONG_CONTEXT in failure["log_tail"]


def test_a_lost_device_ends_the_wait(world):
    world.unit("a").fault = "never_ready"
    world.log_lines = ("RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",)
    result = switch(world, "a")
    assert result["failure"]["symptom"] == "device_lost"
    assert next(phase for phase in result["phases"] if phase["name"] == "health")["seconds"] < 10
    world.promise()


def test_wrong_answer_names_case_and_both_sides(world):
    switch(world, "a")
    world.unit("b").fault = "wrong_one_in_four"
    failure = switch(world, "b")["failure"]
    assert (failure["expected"], failure["got"]) == ("'OK'", "'slh'")
    assert "exact_ok" in failure["message"]
    assert "answer 4 of 4" in failure["message"]


def test_on_failure_stop(world):
    switch(world, "a")
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b", on_failure=OnFailure.STOP)
    world.promise()
    assert result["outcome"] == "stopped"


def test_on_failure_leave_keeps_the_engine_for_a_look(world):
    switch(world, "a")
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b", on_failure=OnFailure.LEAVE)
    assert result["outcome"] == "left"
    assert world.running == [B]
    assert world.enabled == []
    assert not world.open


def test_stop_request(world):
    switch(world, "a")
    result = switch(world, None)
    world.promise()
    assert (result["failed"], result["changed"], result["profile"]) == (False, True, None)
    assert result["previous_profile"] == "a"
    assert world.running == world.enabled == []
    assert world.state.phase == "stopped"
    assert LAYOUT.current_env not in world.texts
    assert switch(world, None)["changed"] is False


def test_a_failure_after_a_stop_request_does_not_bring_the_old_one_back(world):
    switch(world, "a")
    switch(world, None)
    world.unit("b").fault = "wrong_answer"
    assert switch(world, "b")["outcome"] == "stopped"


def test_legacy_units_are_stopped_and_disabled(world):
    name = "minimax-vllm.service"
    world.units[name] = FakeUnit(name, enabled=True)
    world.launch(world.units[name])
    result = switch(world, "a")
    assert not result["failed"]
    assert world.running == world.enabled == [A]


def test_drain_waits_and_then_ends_what_is_left(world):
    switch(world, "a")
    world.generations = [world.mono + 3.0]
    result = switch(world, "b")
    drain = next(phase for phase in result["phases"] if phase["name"] == "drain")
    assert 2.5 < drain["seconds"] < 4
    world.generations = [world.mono + 1000.0]
    result = switch(world, "a", drain_timeout_s=5.0)
    assert not result["failed"]
    assert any("1 generations still ran" in warning for warning in result["warnings"])


def test_frontdoor_that_does_not_close_stops_the_switch_before_the_engine(world):
    switch(world, "a")
    world.frontdoor_stuck = True
    result = switch(world, "b")
    assert result["outcome"] == "untouched"
    assert result["failure"]["phase"] == "close"
    assert world.running == [A]
    world.frontdoor_stuck = False
    world.tick()
    world.promise()
    assert world.open


def test_an_absent_frontdoor_counts_as_closed(world):
    world.frontdoor_present = False
    result = switch(world, "a")
    assert not result["failed"]
    assert any("no frontdoor" in warning for warning in result["warnings"])


def test_reboot_verifies_in_place(world):
    switch(world, "a")
    world.mono += 100
    world.reboot()
    started = world.starts
    result = switch(world, "a")
    world.promise()
    assert result["changed"]
    assert world.starts == started
    assert "stop" not in names(result)
    assert "canary" in names(result)


def test_reboot_with_a_wrong_engine_restarts_it_once(world):
    switch(world, "a")
    world.unit("a").fault = "wrong_answer"
    world.reboot()
    world.unit("a").fault = ""
    result = switch(world, "a")
    world.promise()
    assert (result["failed"], result["rolled_back"], result["profile"]) == (True, True, "a")


def test_restart_by_systemd_is_verified_again(world):
    switch(world, "a")
    world.crash("a")
    result = switch(world, "a")
    world.promise()
    assert result["changed"]
    assert "start" not in names(result)


def test_changed_rendering_restarts(world):
    switch(world, "a")
    world.mono += 100
    world.render("a", fingerprint="sha256:a-2", engine__max_model_len=512)
    result = switch(world, "a")
    world.promise()
    assert "start" in names(result)
    assert world.state.fingerprint == "sha256:a-2"


def test_changed_rendering_after_a_reboot_restarts(world):
    switch(world, "a")
    world.reboot()
    world.mono += 100
    world.render("a", fingerprint="sha256:a-2")
    result = switch(world, "a")
    assert "start" in names(result)
    assert not result["failed"]


def test_a_changed_rendering_that_fails_has_no_way_back(world):
    switch(world, "a")
    world.mono += 100
    world.render("a", fingerprint="sha256:a-2")
    world.unit("a").fault = "exit_at_start"
    result = switch(world, "a")
    world.promise()
    assert result["outcome"] == "stopped"


def test_a_hung_verified_engine_is_restarted(world):
    switch(world, "a")
    world.unit("a").live_fault = "never_ready"
    result = switch(world, "a")
    world.promise()
    assert "start" in names(result)
    assert not result["failed"]


@pytest.mark.parametrize("damage", ["disabled", "other_enabled", "identity_file", "closed"])
def test_what_is_missing_around_a_verified_engine_is_finished(world, damage):
    switch(world, "a")
    if damage == "disabled":
        world.unit("a").enabled = False
    elif damage == "other_enabled":
        world.unit("a").enabled, world.unit("b").enabled = False, True
    elif damage == "identity_file":
        del world.texts[LAYOUT.current_env]
    else:
        data = json.loads(world.texts[LAYOUT.state_file][0])
        world.put(LAYOUT.state_file, json.dumps(data | {"open": False}))
    started = world.starts
    result = switch(world, "a")
    world.promise()
    assert result["changed"]
    assert result["verified"]
    assert world.starts == started
    assert "canary" not in names(result)


def test_gate_healthy_opens_without_canary(world):
    world.gate_verified = False
    world.unit("a").fault = "wrong_answer"
    result = switch(world, "a", gate=Gate.HEALTHY)
    assert not result["failed"]
    assert world.open
    assert result["verified"] is False
    # what the frontdoor's /ready goes by
    assert (world.state.verified, world.state.gate) == (False, "healthy")
    assert switch(world, "a", gate=Gate.HEALTHY)["changed"] is False
    world.gate_verified = True


def test_gate_none_opens_as_soon_as_the_unit_runs(world):
    result = switch(world, "a", gate=Gate.NONE)
    assert not result["failed"]
    assert "health" not in names(result)


def test_an_argument_outside_of_the_fingerprint_restarts_too(world):
    switch(world, "a")
    world.render("a", engine__argv=[*profile_data("a")["engine"]["argv"], "--max-log-len", "9"])
    assert "start" in names(switch(world, "a"))
    world.promise()


def test_progress_tells_every_phase(world):
    world.unit("a").load_s = 30
    world.log_lines = ("INFO 06-07 09:00:01 [weights.py:12] Loading weights took 3.1 seconds",)
    result = switch(world, "a")
    lines = [json.loads(line) for line in world.texts[LAYOUT.progress_file][0].splitlines()]
    assert lines[0]["event"] == "start"
    assert lines[-1] == lines[-1] | {"event": "end", "outcome": "committed"}
    ended = [line["phase"] for line in lines if line["event"] == "phase" and line["state"] == "end"]
    assert ended == names(result)
    assert "weights loaded in 3.1 s" in [line.get("text") for line in lines if line["event"] == "hint"]


def test_the_frontdoor_is_told_from_where_to_where(world):
    switch(world, "a")
    world.unit("b").fault = "never_ready"
    world.kill_at = None
    seen = []
    effects = world.effects()
    publish = effects.files.write

    def spy(path, text):
        publish(path, text)
        if path == LAYOUT.state_file:
            seen.append(json.loads(text))

    effects.files.write = spy
    api.switch(effects, LAYOUT, request("b", health_timeout_s=5.0))
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
