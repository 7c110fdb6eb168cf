# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed at any moment: what holds meanwhile, and how the next run settles it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.calls import killed_anywhere, made_once
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, Killed, request

A, B, C = (LAYOUT.unit(name) for name in "abc")


REMOTE = {"base_url": "https://a/v1", "model": "m", "api_key_file": None, "ca_file": None}
STACK = {"name": "img", "id": "img-0123456789", "dir": "/opt/b70/stacks/img-0123456789", "device": "cpu"}
KINDS: dict[str, dict[str, Any]] = {
    "vllm": {},
    "llama-server": {"engine__kind": "llama-server"},
    "image": {"stack": {**STACK, "image": f"docker.io/vllm/vllm-openai-xpu@sha256:{'f' * 64}", "user": "b70"}},
    "openai": {
        "engine__kind": "openai",
        "engine__argv": ["/usr/sbin/haproxy"],
        "engine__remote": REMOTE,
        "stack__dir": "",
        "model__path": "",
    },
}


@made_once
def make(fault="", kinds=()):
    """A host that serves a; kinds: what kind of engine a profile has, where it is not vLLM."""
    fake_host = FakeHost()
    for name in "abc":
        kind = dict(kinds).get(name, "vllm")
        fake_host.render(name, **KINDS[kind])
        if kind == "llama-server":
            fake_host.put(PurePosixPath(f"/models/{name}/{name}.gguf"), "GGUF")
        fake_host.unit(name).load_s = 1.0
    run(fake_host, "a")
    fake_host.unit("b").fault = fault
    return fake_host


def run(fake_host, profile, **changes):
    return api.switch(fake_host.effects(), LAYOUT, request(profile, **changes))


def effects_of(fault):
    fake_host = make(fault)
    before = fake_host.effects_done
    run(fake_host, "b")
    return fake_host.effects_done - before


def moments(fault, first, step, kinds=()):
    """Hosts on which the switch from a to b was killed, with the numbers of its effects."""
    return killed_anywhere(make(fault, kinds), lambda fake_host: run(fake_host, "b"), first, step)


def killed(fault, number):
    """A host on which the switch from a to b was killed at its Nth effect."""
    fake_host = make(fault)
    fake_host.kill_at = fake_host.effects_done + number
    with pytest.raises(Killed):
        run(fake_host, "b")
    fake_host.check()
    return fake_host


@pytest.mark.parametrize("fault", ["", "wrong_answer", "exit_at_start"])
@pytest.mark.parametrize("then", ["nothing", "reboot"])
@pytest.mark.parametrize("want", ["a", "b", "c", None])
def test_killed_anywhere_then_settled(fault, then, want):
    # Every case takes another seventh of the moments; together they take all of them.
    first = ("abc" + "-").index(want or "-") + (4 if then == "reboot" else 0)
    for number, fake_host in moments(fault, 1 + first % 7, 7):
        if then == "reboot":
            fake_host.mono += 30
            fake_host.reboot()
            fake_host.check()
            assert not fake_host.open
        fake_host.unit("b").fault = fake_host.unit("b").live_fault = ""
        result = run(fake_host, want)
        assert not result["failed"], (number, result["msg"])
        fake_host.assert_invariants()
        assert fake_host.running == ([LAYOUT.unit(want)] if want else [])
        assert run(fake_host, want)["changed"] is False, number


@pytest.mark.parametrize("fault", ["", "wrong_answer", "exit_at_start"])
@pytest.mark.parametrize(
    "kinds",
    [{side: kind} for kind in ("llama-server", "image", "openai") for side in "ba"],
    ids=["to llama.cpp", "from llama.cpp", "to an image", "from an image", "to a remote", "from a remote"],
)
@pytest.mark.parametrize("then", ["nothing", "reboot"])
def test_killed_anywhere_between_kinds_of_engines(fault, kinds, then):
    # Every case takes another part of the moments.
    first = 1 + len(fault) % 3 + 2 * (then == "reboot")
    for number, fake_host in moments(fault, first, 5, kinds):
        if then == "reboot":
            fake_host.mono += 30
            fake_host.reboot()
            fake_host.check()
        fake_host.unit("b").fault = fake_host.unit("b").live_fault = ""
        assert not run(fake_host, "b")["failed"], number
        fake_host.assert_invariants()
        assert fake_host.running == [B]
        assert fake_host.state.engine["kind"] == KINDS[kinds.get("b", "vllm")].get("engine__kind", "vllm")
        assert run(fake_host, "b")["changed"] is False, number


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
def test_killed_anywhere_the_way_back_is_still_known(fault):
    for number, fake_host in moments(fault, 1, 2):
        served = fake_host.state.profile_name if fake_host.open else "a"
        fake_host.unit("c").fault = "wrong_answer"
        result = run(fake_host, "c")
        fake_host.assert_invariants()
        assert result["rolled_back"], (number, result["msg"])
        assert result["profile"] == served


def test_killed_twice():
    for _number, fake_host in moments("", 2, 3):
        fake_host.kill_at = fake_host.effects_done + 40
        with pytest.raises(Killed):
            run(fake_host, "c")
        fake_host.check()
        assert not run(fake_host, "b")["failed"]
        fake_host.assert_invariants()


def test_a_reboot_in_the_middle_boots_nothing_unverified():
    for _number, fake_host in moments("wrong_answer", 1, 2):
        fake_host.reboot()
        assert fake_host.running in ([], [A])


def test_the_interrupted_switch_is_named():
    fake_host = killed("", effects_of("") // 2)
    assert api.info(fake_host.effects(), LAYOUT)["interrupted"]["to"] == "b"
    result = run(fake_host, "b")
    assert any("was interrupted in phase" in warning for warning in result["warnings"])
    assert api.info(fake_host.effects(), LAYOUT)["interrupted"] is None


def test_a_host_that_goes_down_is_left_for_the_next_run():
    fake_host = make("exit_at_start")
    fake_host.going_down = True
    result = run(fake_host, "b")
    assert result["outcome"] == "interrupted"
    fake_host.going_down = False
    fake_host.reboot()
    assert fake_host.running == []
    fake_host.unit("c").fault = "wrong_answer"
    assert run(fake_host, "c")["profile"] == "a"
    fake_host.assert_invariants()
