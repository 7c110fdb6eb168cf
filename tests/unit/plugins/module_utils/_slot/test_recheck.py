# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the canary again of an engine that is served: without closing it, and what a wrong answer leads to."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate
from unit.plugins.module_utils._slot.calls import host, names, noting, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

A, B = (LAYOUT.unit(name) for name in "ab")


@pytest.fixture
def fake_host():
    return host("ab", load_s=1.0)


def verify(fake_host, profile="a", effects=None):
    return api.switch(effects or fake_host.effects(), LAYOUT, request(profile, recheck=True))


def test_a_verified_engine_is_asked_again_while_it_is_served(fake_host):
    switch(fake_host, "a")
    engine, at, asked = fake_host.engine().invocation, fake_host.state.verified_at, fake_host.engine().answers
    fake_host.mono += 100
    closed = []
    result = verify(fake_host, effects=noting(fake_host, lambda state: closed.append(not state["open"])))
    fake_host.assert_invariants()
    assert (result["outcome"], result["verified"], result["profile"]) == ("committed", True, "a")
    assert not any(closed)
    assert (fake_host.engine().invocation, fake_host.engine().answers) == (engine, asked + 8 + 2)
    assert fake_host.state.verified_at > at
    assert [case["passed"] for case in result["canary"]] == [True, True, True]
    assert not {"close", "drain", "stop", "start"} & set(names(result))
    assert switch(fake_host, "a")["outcome"] == "unchanged"


def test_a_wrong_answer_closes_and_starts_it_anew(fake_host):
    switch(fake_host, "a")
    first = fake_host.engine().invocation
    fake_host.engine().live_fault = "wrong_one_in_four"
    fake_host.engine().answers = 0
    fake_host.gate_verified = False  # this is the engine that was served until now
    result = verify(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("rolled_back", "canary", "a")
    assert names(result, "back")[0] == "close"
    # Its answers aren't worth waiting for.
    assert "drain" not in names(result, "back")
    assert fake_host.engine().invocation != first
    assert "a is served again, verified" in result["msg"]


def test_one_that_is_wrong_again_is_stopped(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").fault = fake_host.engine().live_fault = "wrong_answer"
    fake_host.gate_verified = False
    result = verify(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], fake_host.running, fake_host.open) == ("stopped", [], False)
    assert "canary" in fake_host.state.reason


def test_an_engine_that_hangs_is_noticed_within_seconds(fake_host):
    switch(fake_host, "a")
    fake_host.engine().live_fault = "never_ready"
    begun = fake_host.mono
    result = verify(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "health")
    assert fake_host.mono - begun < 25


def test_an_engine_that_was_served_unverified_is_closed_for_it(fake_host):
    switch(fake_host, "a", gate=Gate.HEALTHY)
    result = verify(fake_host)
    fake_host.assert_invariants()
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
def test_nothing_is_replaced(fake_host, case, words):
    if case != "none":
        switch(fake_host, "b" if case == "other" else "a")
    if case == "rendered":
        fake_host.render("a", fingerprint="sha256:a-2")
    if case == "loop":
        fake_host._loop(fake_host.unit("a"))
    starts = fake_host.starts
    result = verify(fake_host)
    assert (result["outcome"], fake_host.starts) == ("untouched", starts)
    assert words in result["msg"]
    assert "`b70ctl switch a`" in result["msg"]


def test_b70ctl_verify(fake_host):
    def b70ctl(*words):
        printed: list[str] = []
        code = command.execute(command.parser().parse_args(words), fake_host.effects(), LAYOUT, printed.append)
        return code, "".join(printed)

    assert b70ctl("verify")[0] == command.NOT_SERVING
    switch(fake_host, "a")
    assert b70ctl("verify") == (command.DONE, b70ctl("verify")[1])
    fake_host.engine().live_fault = "wrong_answer"
    fake_host.gate_verified = False
    code, text = b70ctl("verify")
    assert (code, "a is served again, verified" in text) == (command.FAILED, True)
    assert [line.split()[1] for line in b70ctl("history")[1].splitlines()[1:]] == ["switch", *["recheck"] * 3]
