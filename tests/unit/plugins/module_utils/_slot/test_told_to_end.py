# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGTERM at any moment of a run: what is reported is what is served, and the way back is not broken off."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from unit.plugins.module_utils._slot.calls import host, made_once, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

STATUS = f"{LAYOUT.frontdoor_url}/status"


@made_once
def served_a(fault=""):
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    return fake_host


def moments(run, fault=""):
    fake_host = served_a(fault)
    before = fake_host.effects_done
    run(fake_host)
    return fake_host.effects_done - before


def to_b(fake_host):
    return switch(fake_host, "b")


def ask_again(fake_host):
    return switch(fake_host, "a", recheck=True)


def settle(fake_host):
    fake_host.crash("a")
    return recover(fake_host)


def stop(fake_host):
    return switch(fake_host, None)


@pytest.mark.parametrize(
    ("run", "fault", "ends"),
    [
        (to_b, "", {"committed": "b", "rolled_back": "a", "untouched": "a"}),
        # The way back has begun, or begins: it is the end in any case.
        (to_b, "wrong_answer", {"rolled_back": "a", "untouched": "a"}),
        # Nothing was found to be wrong with what is served.
        (ask_again, "", {"committed": "a", "untouched": "a"}),
        (stop, "", {"committed": None, "untouched": "a", "stopped": None}),
    ],
)
def test_what_is_reported_is_what_is_served(run, fault, ends):
    seen = set()
    # Every third moment: an exchange with the frontdoor alone takes more of them.
    for number in range(1, moments(run, fault) + 1, 3):
        fake_host = served_a(fault)
        fake_host.told_at = fake_host.effects_done + number
        result = run(fake_host)
        fake_host.assert_invariants()
        outcome, engine = result["outcome"], fake_host.engine()
        seen.add(outcome)
        assert outcome in ends, (number, result["msg"])
        assert result["profile"] == ends[outcome], (number, result["msg"])
        running = None if engine is None else LAYOUT.profile_of(engine.name)
        assert (running, fake_host.open) == (ends[outcome], ends[outcome] is not None), (number, result["msg"])
        assert bool(result["failed"]) == (outcome != "committed" or bool(result["failure"])), (number, result["msg"])
    assert seen - {"stopped"} == ends.keys() - {"stopped"}


def test_a_settling_that_is_told_to_end_leaves_nothing_unproven_open():
    for number in range(1, moments(settle) + 1, 2):
        fake_host = served_a()
        fake_host.told_at = fake_host.effects_done + number
        settle(fake_host)
        fake_host.check()
        engine = fake_host.engine()
        if fake_host.open:
            assert engine is not None
            assert fake_host.state.invocation_id == engine.invocation


@pytest.mark.parametrize("number", range(1, 20))
def test_at_every_publish(number):
    """The signal comes as the frontdoor is asked what it has applied, the Nth time of this run."""
    fake_host = served_a()
    effects = fake_host.effects()
    get, asked = effects.http.get, []

    def ask(url, timeout_s):
        if url == STATUS:
            asked.append(fake_host.state.phase)
            fake_host.told = len(asked) == number
        return get(url, timeout_s)

    effects.http.get = ask
    result = api.switch(effects, LAYOUT, request("b"))
    fake_host.assert_invariants()
    if len(asked) < number:
        assert result["outcome"] == "committed"
        return
    assert result["failed"], (number, asked)
    assert "told to end" in result["failure"]["message"]
    assert result["outcome"] in ("untouched", "rolled_back")
    assert (result["profile"], fake_host.open) == ("a", True)


def test_who_got_in_before_the_way_back_is_drained():
    fake_host = served_a()
    effects = fake_host.effects()
    get = effects.http.get

    def ask(url, timeout_s):
        if url == STATUS and fake_host.state.phase == "serving" and fake_host.state.profile_name == "b":
            fake_host.told = not fake_host.generations
            fake_host.generations = fake_host.generations or [fake_host.mono + 5.0]
        return get(url, timeout_s)

    effects.http.get = ask
    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "open")
    assert "drain" in names(result, "back")
    assert fake_host.generations[0] <= fake_host.mono


def test_a_host_that_goes_down_is_not_held_up_by_the_way_back():
    fake_host = served_a("wrong_answer")
    effects = fake_host.effects()
    start = effects.units.start

    def go_down(name):
        start(name)
        if name == LAYOUT.unit("a"):
            fake_host.going_down = fake_host.told = True

    effects.units.start = go_down
    result = api.switch(effects, LAYOUT, request("b"))
    assert result["outcome"] == "interrupted"
