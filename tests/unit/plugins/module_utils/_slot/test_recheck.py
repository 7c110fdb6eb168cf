# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the canary again of an engine that is served: without closing it, and what a wrong answer leads to."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate
from unit.plugins.module_utils._slot.calls import host, names, switch
from unit.plugins.module_utils._slot.fakes import LAYOUT
from unit.plugins.module_utils._slot.world import request

A, B = (LAYOUT.unit(name) for name in "ab")


@pytest.fixture
def world():
    return host("ab", load_s=1.0)


def verify(world, profile="a", effects=None):
    return api.switch(effects or world.effects(), LAYOUT, request(profile, recheck=True))


def test_a_verified_engine_is_asked_again_while_it_is_served(world):
    switch(world, "a")
    engine, at, asked = world.engine().invocation, world.state.verified_at, world.engine().answers
    world.mono += 100
    closed = []
    effects = world.effects()
    write = effects.files.write

    def note(path, text):
        write(path, text)
        closed.append(not world.open)

    effects.files.write = note
    result = verify(world, effects=effects)
    world.promise()
    assert (result["outcome"], result["verified"], result["profile"]) == ("committed", True, "a")
    assert not any(closed)
    assert (world.engine().invocation, world.engine().answers) == (engine, asked + 8 + 2)
    assert world.state.verified_at > at
    assert [case["passed"] for case in result["canary"]] == [True, True, True]
    assert not {"close", "drain", "stop", "start"} & set(names(result))
    assert switch(world, "a")["outcome"] == "unchanged"


def test_a_wrong_answer_closes_and_starts_it_anew(world):
    switch(world, "a")
    first = world.engine().invocation
    world.engine().live_fault = "wrong_one_in_four"
    world.engine().answers = 0
    world.gate_verified = False  # this is the engine that was served until now
    result = verify(world)
    world.promise()
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("rolled_back", "canary", "a")
    assert names(result, "back")[0] == "close"
    # Its answers aren't worth waiting for.
    assert "drain" not in names(result, "back")
    assert world.engine().invocation != first
    assert "a is served again, verified" in result["msg"]


def test_one_that_is_wrong_again_is_stopped(world):
    switch(world, "a")
    world.unit("a").fault = world.engine().live_fault = "wrong_answer"
    world.gate_verified = False
    result = verify(world)
    world.promise()
    assert (result["outcome"], world.running, world.open) == ("stopped", [], False)
    assert "canary" in world.state.reason


def test_an_engine_that_hangs_is_noticed_within_seconds(world):
    switch(world, "a")
    world.engine().live_fault = "never_ready"
    begun = world.mono
    result = verify(world)
    world.promise()
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "health")
    assert world.mono - begun < 25


def test_an_engine_that_was_served_unverified_is_closed_for_it(world):
    switch(world, "a", gate=Gate.HEALTHY)
    result = verify(world)
    world.promise()
    assert (result["outcome"], result["verified"]) == ("committed", True)
    assert "close" in names(result)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("none", "its engine does not run"),
        ("other", "its engine does not run"),
        ("rendered", "older rendering"),
        ("loop", "is activating (auto-restart"),
    ],
)
def test_nothing_is_replaced(world, case, words):
    if case != "none":
        switch(world, "b" if case == "other" else "a")
    if case == "rendered":
        world.render("a", fingerprint="sha256:a-2")
    if case == "loop":
        world._loop(world.unit("a"))
    starts = world.starts
    result = verify(world)
    assert (result["outcome"], world.starts) == ("untouched", starts)
    assert words in result["msg"]
    assert "`b70ctl switch a`" in result["msg"]


def test_b70ctl_verify(world):
    def b70ctl(*words):
        printed: list[str] = []
        code = command.execute(command.parser().parse_args(words), world.effects(), LAYOUT, printed.append)
        return code, "".join(printed)

    assert b70ctl("verify")[0] == command.NOT_SERVING
    switch(world, "a")
    assert b70ctl("verify") == (command.DONE, b70ctl("verify")[1])
    world.engine().live_fault = "wrong_answer"
    world.gate_verified = False
    code, text = b70ctl("verify")
    assert (code, "a is served again, verified" in text) == (command.FAILED, True)
    assert [line.split()[1] for line in b70ctl("history")[1].splitlines()[1:]] == ["switch", *["recheck"] * 3]
