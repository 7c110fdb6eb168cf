# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to an engine that is served: whatever it answers, the host stays as it is; and why it is gone."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import quarantine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault
from ansible_collections.arcpro.b70.plugins.module_utils._soak import watching
from unit.plugins.module_utils._slot.calls import host, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT


@pytest.fixture
def fake_host():
    found = host("ab", load_s=1.0)
    switch(found, "a")
    return found


@pytest.fixture
def watched(fake_host):
    return watching.served(fake_host.effects(), LAYOUT)


def ask(fake_host, watched, **asked):
    return watching.ask(fake_host.effects(), LAYOUT, watched, **asked)


def untouched(fake_host, do):
    """What is done, on a host that must be the same afterwards."""
    before = (dict(fake_host.texts), fake_host.state, fake_host.engine().invocation, fake_host.starts)
    found = do()
    assert (dict(fake_host.texts), fake_host.state, fake_host.engine().invocation, fake_host.starts) == before
    return found


def test_all_cases_are_asked_and_nothing_is_written(fake_host, watched):
    answers = fake_host.engine().answers
    results, problem = untouched(fake_host, lambda: ask(fake_host, watched))
    assert [(row.name, row.passed) for row in results] == [("exact_ok", True), ("sum", True), ("burst", True)]
    assert (problem, fake_host.engine().answers) == ("", answers + 8 + 2)


def test_one_case_is_asked_once(fake_host, watched):
    answers = fake_host.engine().answers
    results, problem = ask(fake_host, watched, only=("sum",), repeats=1)
    assert ([row.name for row in results], problem) == (["sum"], "")
    assert fake_host.engine().answers == answers + 1


def test_what_is_asked_at_once_is_asked_with_the_others(fake_host, watched):
    results, _problem = ask(fake_host, watched, only=("burst",), repeats=1)
    assert [row.name for row in results] == ["exact_ok", "sum", "burst"]


@pytest.mark.parametrize("fault", ["wrong_answer", "garbage", "empty", "never_ready"])
def test_an_engine_that_fails_is_left_as_it_is(fake_host, watched, fault):
    fake_host.engine().live_fault = fault
    fake_host.gate_verified = False  # this engine was served until now, and goes on being served
    results, problem = untouched(fake_host, lambda: ask(fake_host, watched))
    assert problem
    assert not all(row.passed for row in results) or not results
    assert fake_host.open


def test_another_process_is_not_asked(fake_host, watched):
    switch(fake_host, "b")
    assert ask(fake_host, watched)[0] == ()
    switch(fake_host, "a")
    answers = fake_host.engine().answers
    results, problem = ask(fake_host, watched)
    assert (results, fake_host.engine().answers) == ((), answers)
    assert "another process by now" in problem


def test_only_what_is_served_and_verified_is_watched(fake_host):
    switch(fake_host, None, active=False)
    with pytest.raises(SlotFault, match="serves no verified engine"):
        watching.served(fake_host.effects(), LAYOUT)


def gone(fake_host, watched):
    found = watching.gone(fake_host.effects(), LAYOUT, watched)
    return None if found is None else found.how


def test_an_engine_that_goes_on_is_not_gone(fake_host, watched):
    fake_host.mono += 3600
    assert gone(fake_host, watched) is None
    assert (watched.profile.name, watched.invocation_id) == ("a", fake_host.engine().invocation)


@pytest.mark.parametrize("then", ["b", "a", None])
def test_a_switch_replaces_it(fake_host, watched, then):
    if then == "a":
        switch(fake_host, "b")
    switch(fake_host, then, active=then is not None)
    assert gone(fake_host, watched) == "replaced"


def test_one_that_systemd_restarted_has_crashed(fake_host, watched):
    fake_host.crash("a")
    fake_host.mono += 30
    assert gone(fake_host, watched) == "crashed"


def test_a_quarantine_ends_it(fake_host, watched):
    record = quarantine.by_hand(fake_host.effects(), LAYOUT, "me", "it lies", "a")
    quarantine.write(fake_host.effects(), LAYOUT, record)
    assert gone(fake_host, watched) == "lost"


def test_a_lost_card_ends_it_before_the_slot_has_noticed(fake_host, watched):
    fake_host.lose_card("a")
    found = watching.gone(fake_host.effects(), LAYOUT, watched)
    assert found is not None
    assert (found.how, "device_lost" in found.why) == ("lost", True)


def test_of_several_engines_each_is_watched():
    fake_host = host("r", load_s=1.0, replicas=3)
    switch(fake_host, "r")
    watched = watching.served(fake_host.effects(), LAYOUT)
    assert len(watched.invocation_id.split()) == 3
    assert watching.gone(fake_host.effects(), LAYOUT, watched) is None
    results, problem = ask(fake_host, watched)
    assert problem == ""
    assert {result.replica for result in results} == {0, 1, 2}
    fake_host.crash("r", 2)
    found = watching.gone(fake_host.effects(), LAYOUT, watched)
    assert found is not None
    assert found.how == "crashed"
    assert LAYOUT.unit("r", 2) in found.why
    with pytest.raises(SlotFault, match=r"serves 2 of 3 replicas of r; `b70ctl recover` starts the others"):
        watching.served(fake_host.effects(), LAYOUT)
