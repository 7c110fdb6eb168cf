# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back, and the boot, lead to what was verified: not to what was rendered since."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import (
    b70ctl,
    check,
    host,
    killed_anywhere,
    made_once,
    names,
    recover,
    switch,
)
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, request

PROGRAM = ["/opt/b70/stacks/cpu-1a2b3c4d5e/venv/bin/vllm", "serve", "/models/a", "--max-model-len"]
OLD = {"engine__argv": [*PROGRAM, "2048"]}
NEW = {"engine__argv": [*PROGRAM, "2032"], "fingerprint": "sha256:a-2", "title": "New"}
WRONG = {**NEW, "engine__env": {"FAULT": "wrong_answer"}}
NO_START = {"engine__env": {"FAULT": "exit_at_start"}, **NEW}


@pytest.fixture
def fake_host():
    return served()


@made_once
def served():
    """A host that serves a, verified, with the old command line."""
    fake_host = host("abc", load_s=1.0)
    fake_host.render("a", **OLD)
    switch(fake_host, "a")
    fake_host.mono += 60
    return fake_host


def length(fake_host):
    """The context length of the engine that runs."""
    return fake_host.engine().cmdline[-1]


def live(fake_host, name="a"):
    return rendering.in_place(fake_host.effects().files, LAYOUT, name)


def copy(fake_host):
    return rendering.committed(fake_host.effects().files, LAYOUT)


def waits(fake_host, name="a"):
    return LAYOUT.pending(name) in fake_host.texts


def test_a_failed_switch_leads_back_to_the_command_line_that_was_verified(fake_host):
    # Written in place, as the role did before it kept profiles in use.
    fake_host.render("a", **NEW)
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    assert (result["rolled_back"], result["profile"], result["verified"]) == (True, "a", True)
    assert length(fake_host) == "2048"
    assert live(fake_host) == copy(fake_host)
    fake_host.assert_invariants()


def test_a_rendering_that_waits_is_not_what_a_failed_switch_leads_back_to(fake_host):
    fake_host.render_held("a", **NEW)
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    assert (result["rolled_back"], length(fake_host), waits(fake_host)) == (True, "2048", True)
    assert not any("in place" in action for action in world_actions(fake_host))


def world_actions(fake_host):
    lines = [json.loads(line) for line in fake_host.texts[LAYOUT.journal_file][0].splitlines()]
    return next(line for line in reversed(lines) if line["event"] == "end")["actions"]


def test_a_switch_takes_the_rendering_that_waits(fake_host):
    before = live(fake_host)
    new = fake_host.render_held("a", **NEW)
    assert live(fake_host) == before
    predicted = check(fake_host)
    result = switch(fake_host)
    assert (result["failed"], length(fake_host), waits(fake_host)) == (False, "2032", False)
    assert predicted["actions"] == world_actions(fake_host)
    assert "put the new rendering of a in place" in predicted["actions"]
    assert live(fake_host) == copy(fake_host) == new
    assert not switch(fake_host)["changed"]
    fake_host.assert_invariants()


@pytest.mark.parametrize("changes", [WRONG, NO_START])
def test_a_new_rendering_that_fails_leads_back_to_the_old_one(fake_host, changes):
    before = live(fake_host)
    fake_host.render_held("a", **changes)
    result = switch(fake_host)
    assert (result["rolled_back"], result["profile"], length(fake_host)) == (True, "a", "2048")
    assert live(fake_host) == copy(fake_host) == before
    assert "put the verified rendering of a in place" in world_actions(fake_host)
    # What was asked for still waits, and is tried again when it is asked for again.
    assert waits(fake_host)
    assert switch(fake_host)["rolled_back"]
    fake_host.assert_invariants()


def test_a_boot_starts_what_was_verified(fake_host):
    fake_host.render_held("a", **NEW)
    fake_host.reboot()
    assert length(fake_host) == "2048"
    result = recover(fake_host)
    assert (result["failed"], length(fake_host)) == (False, "2048")
    assert "start" not in names(result)
    assert waits(fake_host)
    assert switch(fake_host)["changed"]
    assert length(fake_host) == "2032"


def test_a_person_who_has_it_settled_gets_what_was_verified(fake_host):
    fake_host.render_held("a", **NEW)
    fake_host.crash("a")
    assert recover(fake_host, Mode.RECOVER)["profile"] == "a"
    assert length(fake_host) == "2048"


@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("changes", [NEW, WRONG])
def test_a_switch_to_a_new_rendering_killed_anywhere_is_settled(then, changes):
    before = served()
    old = live(before)
    new = before.render_held("a", **changes)
    for number, fake_host in killed_anywhere(before, switch, 1 if then == "nothing" else 3, 3):
        if then == "reboot":
            fake_host.mono += 60
            fake_host.reboot()
        result = recover(fake_host)
        fake_host.assert_invariants()
        assert (result["failed"], fake_host.open) == (False, True), (number, result["msg"])
        assert live(fake_host) == copy(fake_host), number
        assert live(fake_host) == old or (live(fake_host) == new and changes is NEW), number
        assert length(fake_host) == ("2048" if live(fake_host) == old else "2032")
        again = switch(fake_host)
        assert again["failed"] == (changes is WRONG), (number, again["msg"])
        assert length(fake_host) == ("2032" if changes is NEW else "2048"), number


@pytest.mark.parametrize("then", ["nothing", "reboot"])
def test_a_failed_switch_killed_anywhere_leads_back_to_what_was_verified(then):
    before = served()
    before.render("a", **NEW)
    before.unit("b").fault = "wrong_answer"
    first = 1 if then == "nothing" else 2
    for number, fake_host in killed_anywhere(before, lambda host: switch(host, "b"), first, 2):
        if then == "reboot":
            fake_host.mono += 60
            fake_host.reboot()
        result = recover(fake_host)
        fake_host.assert_invariants()
        assert (result["failed"], fake_host.open) == (False, True), (number, result["msg"])
        # An engine that the killed switch did not touch runs on as it was.
        assert length(fake_host) == "2048", number


def test_a_host_without_a_copy_gets_one_at_its_next_commit(fake_host):
    del fake_host.texts[LAYOUT.committed_file]
    assert check(fake_host)["actions"] == ["open the frontdoor for a", "record a as active"]
    starts = fake_host.starts
    assert switch(fake_host)["changed"]
    assert (copy(fake_host), fake_host.starts) == (live(fake_host), starts)
    assert not switch(fake_host)["changed"]


def test_a_host_without_a_copy_goes_back_to_what_is_in_place(fake_host):
    del fake_host.texts[LAYOUT.committed_file]
    old = live(fake_host)
    fake_host.render_held("a", **WRONG)
    assert switch(fake_host)["rolled_back"]
    assert (length(fake_host), live(fake_host), copy(fake_host)) == ("2048", old, old)


def test_a_host_without_a_copy_keeps_what_a_killed_switch_replaces(fake_host):
    del fake_host.texts[LAYOUT.committed_file]
    old = live(fake_host)
    fake_host.render_held("a", **WRONG)
    number = 40
    while live(fake_host) == old:
        number += 1
        fake_host.kill_at = fake_host.effects_done + number
        with pytest.raises(Killed):
            switch(fake_host)
    assert recover(fake_host)["profile"] == "a"
    assert (length(fake_host), live(fake_host), copy(fake_host)) == ("2048", old, old)


def test_limits_are_taken_without_a_start_and_kept_over_a_reboot(fake_host):
    starts = fake_host.starts
    new = fake_host.render_held("a", **OLD, frontdoor__max_active_generations=7)
    assert switch(fake_host)["changed"]
    assert (fake_host.starts, fake_host.state.limits["max_active_generations"]) == (starts, 7)
    assert live(fake_host) == copy(fake_host) == new
    assert not waits(fake_host)
    assert not switch(fake_host)["changed"]
    fake_host.mono += 60
    fake_host.reboot()
    assert recover(fake_host)["verified"]
    assert fake_host.state.limits["max_active_generations"] == 7


def test_what_only_a_start_proves_waits_for_one(fake_host):
    starts, before = fake_host.starts, live(fake_host)
    canary = [{"name": "hard", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "NO"}]
    new = fake_host.render_held("a", **OLD, title="Other", frontdoor__max_active_generations=7, canary__cases=canary)
    switch(fake_host)
    assert (fake_host.starts, waits(fake_host), live(fake_host).unit) == (starts, True, before.unit)
    assert json.loads(live(fake_host).profile)["canary"] == json.loads(before.profile)["canary"]
    assert copy(fake_host) == live(fake_host)
    assert not switch(fake_host)["changed"]
    # The next start is one of the whole rendering, and this one is wrong.
    fake_host.unit("a").live_fault = "never_ready"
    result = switch(fake_host)
    assert (result["rolled_back"], "hard" in result["msg"]) == (True, True)
    assert live(fake_host).unit == before.unit != new.unit


def test_a_canary_that_is_asked_in_place_is_kept(fake_host):
    canary = [{"name": "again", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}]
    new = fake_host.render_held("a", **OLD, canary__cases=canary)
    fake_host.crash("a")
    starts = fake_host.starts
    assert [case["name"] for case in switch(fake_host)["canary"]] == ["again", "burst"]
    assert (fake_host.starts, live(fake_host), copy(fake_host), waits(fake_host)) == (starts, new, new, False)


def test_verify_asks_what_runs_and_replaces_nothing(fake_host):
    fake_host.render_held("a", **NEW)
    code, _said = b70ctl(fake_host, "verify")
    assert (code, length(fake_host), waits(fake_host)) == (0, "2048", True)


def test_another_profile_leaves_the_rendering_waiting(fake_host):
    fake_host.render_held("a", **NEW)
    switch(fake_host, "b")
    assert (copy(fake_host).name, waits(fake_host)) == ("b", True)
    switch(fake_host, "a")
    assert (length(fake_host), waits(fake_host)) == ("2032", False)


def test_a_commit_that_verified_nothing_is_no_way_back(fake_host):
    fake_host.gate_verified = False
    fake_host.render_held("a", **WRONG)
    assert not switch(fake_host, gate=Gate.HEALTHY)["failed"]
    assert (length(fake_host), copy(fake_host), waits(fake_host)) == ("2032", None, False)
    fake_host.mono += 60
    fake_host.reboot()
    recover(fake_host)
    assert (length(fake_host), fake_host.open) == ("2032", True)


def test_an_engine_left_for_a_look_is_that_of_the_new_rendering(fake_host):
    fake_host.render_held("a", **WRONG)
    switch(fake_host, on_failure=OnFailure.LEAVE)
    assert (length(fake_host), waits(fake_host)) == ("2032", True)
    assert not recover(fake_host)["changed"]


def test_a_profile_that_vanished_is_put_back_by_the_host_itself(fake_host):
    del fake_host.texts[LAYOUT.profile_json("a")]
    fake_host.crash("a")
    assert recover(fake_host)["verified"]
    assert live(fake_host) == copy(fake_host)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/models/a/model.safetensors", "the weights of a are incomplete"),
        ("/opt/b70/stacks/old/fingerprint.json", "the stack old is not installed"),
    ],
)
def test_what_the_way_back_lacks_is_said_before_anything_is_touched(path, words):
    fake_host = host("b")
    fake_host.render("a", stack={"name": "cpu", "id": "old", "dir": "/opt/b70/stacks/old"})
    switch(fake_host, "a")
    del fake_host.texts[PurePosixPath(path)]
    result = switch(fake_host, "b")
    assert not result["failed"]
    assert [words in warning and "there is no way back: " in warning for warning in result["warnings"]] == [True]


def test_a_rendering_that_waits_is_told(fake_host):
    fake_host.render_held("a", **NEW)
    info = api.info(fake_host.effects(), LAYOUT)
    assert [row["name"] for row in info["profiles"] if row["pending"]] == ["a"]
    assert info["drift_of"]["rendering"] == "runs sha256:a-1, rendered is sha256:a-2"
    assert "a new rendering of a waits for the switch that starts it" in b70ctl(fake_host, "status")[1]
    listed = b70ctl(fake_host, "list")[1]
    assert ("New" in listed, "a new rendering of a waits" in listed) == (True, True)


def test_a_rendering_that_could_not_be_put_in_place_is_refused_before_anything_is_touched(fake_host):
    fake_host.render_held("a", **NEW)
    files = fake_host.effects().files
    writable = files.writable

    def units_only(path):
        return f"{path} is read-only or not permitted" if path == LAYOUT.unit_dir else writable(path)

    effects = fake_host.effects()
    effects.files.writable = units_only
    result = api.switch(effects, LAYOUT, request("a"))
    assert (result["outcome"], "/etc/systemd/system can't be written to" in result["msg"]) == ("untouched", True)
    assert length(fake_host) == "2048"


def test_a_rendering_that_cannot_be_read_is_named(fake_host):
    fake_host.put(LAYOUT.pending("a"), '{"schema": 1}')
    result = switch(fake_host)
    assert "/etc/b70-vllm-slot/pending/a.json: name is missing" in result["msg"]
    assert result["outcome"] == "untouched"
    fake_host.texts.pop(LAYOUT.pending("a"))
    fake_host.put(LAYOUT.committed_file, "torn")
    assert copy(fake_host) is None
    assert not switch(fake_host)["failed"]
