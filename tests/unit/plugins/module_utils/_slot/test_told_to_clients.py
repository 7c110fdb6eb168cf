# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the state file says to everybody: what is true now, and nothing that a failure quotes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.published import reason_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import (
    Direction,
    Failure,
    Holder,
    Mode,
    Phase,
)
from unit.plugins.module_utils._slot.calls import b70ctl, host, noting, recover, switch
from unit.plugins.module_utils._slot.fake_host import FAULTS, LAYOUT, LOST, FakeHttp, request

SECRET = "curl --header Authorization:sesame"
HOLDER = Holder(77, SECRET, "b70", "", "/dev/dri/renderD128")


@pytest.fixture
def fake_host():
    return host("ab", load_s=1.0)


def watched(fake_host, act):
    """(result, every state that was written)."""
    seen = []

    def note(state):
        seen.append((state, fake_host.engine() is not None and FakeHttp(fake_host)._ready() is not None))

    effects = noting(fake_host, note)
    return act(effects), seen


def test_nobody_hears_of_other_peoples_processes(fake_host):
    fake_host.cards = 2
    for name in "ab":
        fake_host.render(name, cards=2)
    switch(fake_host, "a")

    def leave_a_worker(effects):
        stop = effects.units.stop

        def stopped(name):
            stop(name)
            fake_host.device_users = (HOLDER,)

        effects.units.stop = stopped
        return api.switch(effects, LAYOUT, request("b"))

    result, seen = watched(fake_host, leave_a_worker)
    assert result["outcome"] == "stopped"
    assert SECRET in result["msg"]
    assert SECRET in b70ctl(fake_host, "history", "--json")[1] or SECRET in fake_host.texts[LAYOUT.journal_file][0]
    assert not any(SECRET in json.dumps(state) or "pid 77" in json.dumps(state) for state, _answers in seen)
    assert fake_host.state.reason == (
        "the last switch failed: phase release: the port or a card was not let go of; "
        "then phase release on the way back: the port or a card was not let go of"
    )
    end = json.loads(fake_host.texts[LAYOUT.journal_file][0].splitlines()[-1])
    assert end["reason"] in fake_host.state.reason
    assert SECRET not in end["reason"]


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_nor_when_the_slot_settles_by_itself(fake_host, mode):
    switch(fake_host, "a")
    fake_host.crash("a")
    fake_host.foreign = (Holder(77, SECRET, "ann", "", "port 18080"),)
    result = recover(fake_host, mode)
    assert SECRET in result["msg"]
    assert not fake_host.open
    assert SECRET not in json.dumps(fake_host.state.__dict__)
    assert "phase identity" in fake_host.state.reason


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("first", [True, False])
def test_nothing_that_a_failure_quotes_is_published(fake_host, fault, first):
    fake_host.log_lines = ("INFO loading", f"ImportError: {SECRET}")
    if not first:
        switch(fake_host, "a")
    target = "a" if first else "b"
    fake_host.unit(target).fault = fault
    result, seen = watched(fake_host, lambda fx: api.switch(fx, LAYOUT, request(target)))
    assert result["failed"]
    for state, _answers in seen:
        assert SECRET not in state["reason"]
        assert LOST not in state["reason"]
        for failure in (result["failure"], *result["failures"]):
            assert failure["message"] not in state["reason"]


def test_a_quarantine_is_published_without_its_evidence(fake_host):
    switch(fake_host, "a")
    fake_host.lose_card("a")
    switch(fake_host, "b")
    assert "in quarantine since" in fake_host.state.reason
    assert str(LAYOUT.state_dir) not in fake_host.state.reason
    assert "b70ctl" not in fake_host.state.reason


def test_every_failure_has_words_of_its_own():
    told = {phase: reason_of([Failure(phase, Direction.FORWARD, SECRET)]) for phase in Phase}
    assert len(set(told.values())) == len(Phase)
    assert all(text.startswith(f"phase {phase}: ") and SECRET not in text for phase, text in told.items())
    lost = Failure(Phase.HEALTH, Direction.BACK, SECRET, symptom="device_lost", advice=SECRET)
    assert reason_of([lost]) == (
        "phase health on the way back: the engine did not become ready: a card was lost: a fault of driver or runtime "
        "under load"
    )
    assert reason_of([Failure(Phase.OPEN, Direction.FORWARD, SECRET, told=True)]) == (
        "phase open: the switch was told to end"
    )
    assert reason_of([]) == ""


@pytest.mark.parametrize("fault", ["", "wrong_answer", "no_token"])
def test_an_engine_is_being_verified_once_it_answers(fake_host, fault):
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    _result, seen = watched(fake_host, lambda fx: api.switch(fx, LAYOUT, request("b")))
    phases = [(state["phase"], (state["switch"] or {}).get("loading")) for state, _answers in seen]
    assert phases[:3] == [("switching", False), ("switching", True), ("verifying", False)]
    for state, answers in seen:
        if state["phase"] == "verifying":
            assert answers
        if state["phase"] in ("switching", "verifying"):
            assert state["switch"]["to"]
            assert state["switch"]["started_at"]


def test_what_settles_loads_and_does_not_switch(fake_host):
    switch(fake_host, "a")
    fake_host.reboot()
    _result, seen = watched(
        fake_host, lambda fx: api.switch(fx, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    )
    told = [(state["phase"], (state["switch"] or {}).get("loading")) for state, _answers in seen]
    assert told == [("switching", True), ("switching", True), ("verifying", False), ("serving", None)]
    fake_host.unit("a").live_fault, fake_host.unit("a").fault = "wrong_answer", ""
    fake_host.unit("a").invocation = "another"
    _result, seen = watched(fake_host, lambda fx: api.switch(fx, LAYOUT, request("ignored", mode=Mode.RECOVER)))
    told = [(state["phase"], (state["switch"] or {}).get("loading")) for state, _answers in seen]
    there, back = [("switching", True), ("switching", True)], [("switching", False), ("switching", True)]
    assert told == [*there, ("verifying", False), *back, ("verifying", False), ("serving", None)]


def test_a_stopped_slot_keeps_the_names_of_its_model(fake_host):
    """The frontdoor of several slots would give its clients another model's answers."""
    fake_host.render("a", frontdoor__model_aliases=["chat"])
    switch(fake_host, "a")
    served = fake_host.state
    assert (served.names, served.known_as) == (None, [served.profile["served_model_name"], "chat"])
    b70ctl(fake_host, "stop")
    for _ in range(2):
        stopped = fake_host.state
        assert (stopped.profile, list(stopped.names)) == (None, list(served.known_as))
        assert list(stopped.known_as) == list(stopped.names)
        # whoever looks again says the same
        recover(fake_host)
    switch(fake_host, "b")
    assert (fake_host.state.names, fake_host.state.known_as[1:]) == (None, [])
