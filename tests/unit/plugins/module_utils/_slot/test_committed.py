# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back, and the boot, lead to what was verified: not to what was rendered since."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import b70ctl, check, host, names, recover, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import Killed, request

PROGRAM = ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", "/models/a", "--max-model-len"]
OLD = {"engine__argv": [*PROGRAM, "2048"]}
NEW = {"engine__argv": [*PROGRAM, "2032"], "fingerprint": "sha256:a-2", "title": "New"}
WRONG = {**NEW, "engine__env": {"FAULT": "wrong_answer"}}
NO_START = {"engine__env": {"FAULT": "exit_at_start"}, **NEW}


@pytest.fixture
def world():
    return served()


def served():
    """A host that serves a, verified, with the old command line."""
    world = host("abc", load_s=1.0)
    world.render("a", **OLD)
    switch(world, "a")
    world.mono += 60
    return world


def length(world):
    """The context length of the engine that runs."""
    return world.engine().cmdline[-1]


def live(world, name="a"):
    return rendering.in_place(world.effects().files, LAYOUT, name)


def copy(world):
    return rendering.committed(world.effects().files, LAYOUT)


def waits(world, name="a"):
    return LAYOUT.pending(name) in world.texts


def test_a_failed_switch_leads_back_to_the_command_line_that_was_verified(world):
    # Written in place, as the role did before it kept profiles in use.
    world.render("a", **NEW)
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b")
    assert (result["rolled_back"], result["profile"], result["verified"]) == (True, "a", True)
    assert length(world) == "2048"
    assert live(world) == copy(world)
    world.promise()


def test_a_rendering_that_waits_is_not_what_a_failed_switch_leads_back_to(world):
    world.render_held("a", **NEW)
    world.unit("b").fault = "wrong_answer"
    result = switch(world, "b")
    assert (result["rolled_back"], length(world), waits(world)) == (True, "2048", True)
    assert not any("in place" in action for action in world_actions(world))


def world_actions(world):
    lines = [json.loads(line) for line in world.texts[LAYOUT.journal_file][0].splitlines()]
    return next(line for line in reversed(lines) if line["event"] == "end")["actions"]


def test_a_switch_takes_the_rendering_that_waits(world):
    before = live(world)
    new = world.render_held("a", **NEW)
    assert live(world) == before
    predicted = check(world)
    result = switch(world)
    assert (result["failed"], length(world), waits(world)) == (False, "2032", False)
    assert predicted["actions"] == world_actions(world)
    assert "put the new rendering of a in place" in predicted["actions"]
    assert live(world) == copy(world) == new
    assert not switch(world)["changed"]
    world.promise()


@pytest.mark.parametrize("changes", [WRONG, NO_START])
def test_a_new_rendering_that_fails_leads_back_to_the_old_one(world, changes):
    before = live(world)
    world.render_held("a", **changes)
    result = switch(world)
    assert (result["rolled_back"], result["profile"], length(world)) == (True, "a", "2048")
    assert live(world) == copy(world) == before
    assert "put the verified rendering of a in place" in world_actions(world)
    # What was asked for still waits, and is tried again when it is asked for again.
    assert waits(world)
    assert switch(world)["rolled_back"]
    world.promise()


def test_a_boot_starts_what_was_verified(world):
    world.render_held("a", **NEW)
    world.reboot()
    assert length(world) == "2048"
    result = recover(world)
    assert (result["failed"], length(world)) == (False, "2048")
    assert "start" not in names(result)
    assert waits(world)
    assert switch(world)["changed"]
    assert length(world) == "2032"


def test_a_person_who_has_it_settled_gets_what_was_verified(world):
    world.render_held("a", **NEW)
    world.crash("a")
    assert recover(world, Mode.RECOVER)["profile"] == "a"
    assert length(world) == "2048"


@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("changes", [NEW, WRONG])
def test_a_switch_to_a_new_rendering_killed_anywhere_is_settled(then, changes):
    number = 1 if then == "nothing" else 3
    while True:
        world = served()
        old = live(world)
        new = world.render_held("a", **changes)
        world.kill_at = world.effects_done + number
        try:
            switch(world)
        except Killed:
            pass
        else:
            return
        world.check()
        if then == "reboot":
            world.mono += 60
            world.reboot()
        result = recover(world)
        world.promise()
        assert (result["failed"], world.open) == (False, True), (number, result["msg"])
        assert live(world) == copy(world), number
        assert live(world) == old or (live(world) == new and changes is NEW), number
        assert length(world) == ("2048" if live(world) == old else "2032")
        again = switch(world)
        assert again["failed"] == (changes is WRONG), (number, again["msg"])
        assert length(world) == ("2032" if changes is NEW else "2048"), number
        number += 5


@pytest.mark.parametrize("then", ["nothing", "reboot"])
def test_a_failed_switch_killed_anywhere_leads_back_to_what_was_verified(then):
    number = 1 if then == "nothing" else 3
    while True:
        world = served()
        world.render("a", **NEW)
        world.unit("b").fault = "wrong_answer"
        world.kill_at = world.effects_done + number
        try:
            switch(world, "b")
        except Killed:
            pass
        else:
            return
        if then == "reboot":
            world.mono += 60
            world.reboot()
        result = recover(world)
        world.promise()
        assert (result["failed"], world.open) == (False, True), (number, result["msg"])
        # An engine that the killed switch did not touch runs on as it was.
        assert length(world) == "2048", number
        number += 4


def test_a_host_without_a_copy_gets_one_at_its_next_commit(world):
    del world.texts[LAYOUT.committed_file]
    assert check(world)["actions"] == ["open the frontdoor for a", "record a as active"]
    starts = world.starts
    assert switch(world)["changed"]
    assert (copy(world), world.starts) == (live(world), starts)
    assert not switch(world)["changed"]


def test_a_host_without_a_copy_goes_back_to_what_is_in_place(world):
    del world.texts[LAYOUT.committed_file]
    old = live(world)
    world.render_held("a", **WRONG)
    assert switch(world)["rolled_back"]
    assert (length(world), live(world), copy(world)) == ("2048", old, old)


def test_a_host_without_a_copy_keeps_what_a_killed_switch_replaces(world):
    del world.texts[LAYOUT.committed_file]
    old = live(world)
    world.render_held("a", **WRONG)
    number = 40
    while live(world) == old:
        number += 1
        world.kill_at = world.effects_done + number
        with pytest.raises(Killed):
            switch(world)
    assert recover(world)["profile"] == "a"
    assert (length(world), live(world), copy(world)) == ("2048", old, old)


def test_limits_are_taken_without_a_start_and_kept_over_a_reboot(world):
    starts = world.starts
    new = world.render_held("a", **OLD, frontdoor__max_active_generations=7)
    assert switch(world)["changed"]
    assert (world.starts, world.state.limits["max_active_generations"]) == (starts, 7)
    assert live(world) == copy(world) == new
    assert not waits(world)
    assert not switch(world)["changed"]
    world.mono += 60
    world.reboot()
    assert recover(world)["verified"]
    assert world.state.limits["max_active_generations"] == 7


def test_what_only_a_start_proves_waits_for_one(world):
    starts, before = world.starts, live(world)
    canary = [{"name": "hard", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "NO"}]
    new = world.render_held("a", **OLD, title="Other", frontdoor__max_active_generations=7, canary__cases=canary)
    switch(world)
    assert (world.starts, waits(world), live(world).unit) == (starts, True, before.unit)
    assert json.loads(live(world).profile)["canary"] == json.loads(before.profile)["canary"]
    assert copy(world) == live(world)
    assert not switch(world)["changed"]
    # The next start is one of the whole rendering, and this one is wrong.
    world.unit("a").live_fault = "never_ready"
    result = switch(world)
    assert (result["rolled_back"], "hard" in result["msg"]) == (True, True)
    assert live(world).unit == before.unit != new.unit


def test_a_canary_that_is_asked_in_place_is_kept(world):
    canary = [{"name": "again", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}]
    new = world.render_held("a", **OLD, canary__cases=canary)
    world.crash("a")
    starts = world.starts
    assert [case["name"] for case in switch(world)["canary"]] == ["again", "burst"]
    assert (world.starts, live(world), copy(world), waits(world)) == (starts, new, new, False)


def test_verify_asks_what_runs_and_replaces_nothing(world):
    world.render_held("a", **NEW)
    code, _said = b70ctl(world, "verify")
    assert (code, length(world), waits(world)) == (0, "2048", True)


def test_another_profile_leaves_the_rendering_waiting(world):
    world.render_held("a", **NEW)
    switch(world, "b")
    assert (copy(world).name, waits(world)) == ("b", True)
    switch(world, "a")
    assert (length(world), waits(world)) == ("2032", False)


def test_a_commit_that_verified_nothing_is_no_way_back(world):
    world.gate_verified = False
    world.render_held("a", **WRONG)
    assert not switch(world, gate=Gate.HEALTHY)["failed"]
    assert (length(world), copy(world), waits(world)) == ("2032", None, False)
    world.mono += 60
    world.reboot()
    recover(world)
    assert (length(world), world.open) == ("2032", True)


def test_an_engine_left_for_a_look_is_that_of_the_new_rendering(world):
    world.render_held("a", **WRONG)
    switch(world, on_failure=OnFailure.LEAVE)
    assert (length(world), waits(world)) == ("2032", True)
    assert not recover(world)["changed"]


def test_a_profile_that_vanished_is_put_back_by_the_host_itself(world):
    del world.texts[LAYOUT.profile_json("a")]
    world.crash("a")
    assert recover(world)["verified"]
    assert live(world) == copy(world)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/models/a/model.safetensors", "the weights of a are incomplete"),
        ("/opt/b70/stacks/old/fingerprint.json", "the stack old is not installed"),
    ],
)
def test_what_the_way_back_lacks_is_said_before_anything_is_touched(path, words):
    world = host("b")
    world.render("a", stack={"name": "cpu", "id": "old", "dir": "/opt/b70/stacks/old"})
    switch(world, "a")
    del world.texts[PurePosixPath(path)]
    result = switch(world, "b")
    assert not result["failed"]
    assert [words in warning and "there is no way back: " in warning for warning in result["warnings"]] == [True]


def test_a_rendering_that_waits_is_told(world):
    world.render_held("a", **NEW)
    info = api.info(world.effects(), LAYOUT)
    assert [row["name"] for row in info["profiles"] if row["pending"]] == ["a"]
    assert info["drift_of"]["rendering"] == "runs sha256:a-1, rendered is sha256:a-2"
    assert "a new rendering of a waits for the switch that starts it" in b70ctl(world, "status")[1]
    listed = b70ctl(world, "list")[1]
    assert ("New" in listed, "a new rendering of a waits" in listed) == (True, True)


def test_a_rendering_that_could_not_be_put_in_place_is_refused_before_anything_is_touched(world):
    world.render_held("a", **NEW)
    files = world.effects().files
    writable = files.writable

    def units_only(path):
        return f"{path} is read-only or not permitted" if path == LAYOUT.unit_dir else writable(path)

    effects = world.effects()
    effects.files.writable = units_only
    result = api.switch(effects, LAYOUT, request("a"))
    assert (result["outcome"], "/etc/systemd/system can't be written to" in result["msg"]) == ("untouched", True)
    assert length(world) == "2048"


def test_a_rendering_that_cannot_be_read_is_named(world):
    world.put(LAYOUT.pending("a"), '{"schema": 1}')
    result = switch(world)
    assert "/etc/b70-vllm-slot/pending/a.json: name is missing" in result["msg"]
    assert result["outcome"] == "untouched"
    world.texts.pop(LAYOUT.pending("a"))
    world.put(LAYOUT.committed_file, "torn")
    assert copy(world) is None
    assert not switch(world)["failed"]
