# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that nobody asked for is stopped as what it is: it stays so after a boot, and a person's word is another."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.caller import caller
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.frontdoor import FrontdoorLink
from unit.plugins.module_utils._slot.calls import b70ctl, host, killed_anywhere
from unit.plugins.module_utils._slot.controlled import Controlled
from unit.plugins.module_utils._slot.fake_host import FakeHost

IDLE = ("stopped", "idle since T; where requests load models, the next one loads a", "a")


def stopped() -> FakeHost:
    made = host("ab", load_s=1.0)
    b70ctl(made, "switch", "a")
    return made


@pytest.fixture
def slot() -> Controlled:
    """A slot whose profile a was stopped for idleness."""
    made = stopped()
    assert b70ctl(made, "stop", "--idle", "--why", "nobody asked for a for 60 s")[0] == 0
    return Controlled(made)


def told(made: FakeHost) -> tuple[str, str, str]:
    """What the state file says: the phase, the reason without its time, and what the next request loads."""
    idle = made.state.idle or {}
    return made.state.phase, made.state.reason.replace(idle.get("since", "-"), "T"), idle.get("profile", "")


def test_it_is_told_and_nothing_is_started(slot):
    slot.run(600)
    assert told(slot.host) == IDLE
    lines = b70ctl(slot.host, "status")[1].splitlines()
    assert lines[0].startswith("wanted: nothing, said by idle at ")
    assert lines[0].endswith("(nobody asked for a for 60 s)")
    assert lines[1].endswith("where requests load models, the next one loads a")
    assert slot.host.running == slot.host.enabled == []


def test_a_person_who_stops_it_as_idle_is_named():
    made = stopped()
    b70ctl(made, "stop", "--idle")
    assert b70ctl(made, "status")[1].splitlines()[0].endswith(f"(asked for by {caller()})")
    assert told(made) == IDLE


def test_it_stays_so_when_it_is_said_again(slot):
    assert b70ctl(slot.host, "stop", "--idle")[0] == 0
    assert told(slot.host) == IDLE


def test_it_stays_so_after_a_boot_and_a_switch_ends_it(slot):
    slot.reboot()
    slot.run(600)
    assert told(slot.host) == IDLE
    assert b70ctl(slot.host, "switch", "a")[0] == 0
    assert told(slot.host) == ("serving", "", "")


def test_a_load_that_fails_changes_nothing_of_it(slot):
    slot.host.unit("b").fault = "wrong_answer"
    assert b70ctl(slot.host, "switch", "b")[0] == 1
    phase, _reason, idle = told(slot.host)
    assert (phase, idle) == ("failed", "a")
    slot.run(60)
    slot.reboot()
    slot.run(600)
    assert told(slot.host) == IDLE


@pytest.mark.parametrize("words", [("stop",), ("switch", "b", "--on-failure", "stop")])
def test_a_person_who_stops_says_something_else(slot, words):
    slot.host.unit("b").fault = "wrong_answer"
    b70ctl(slot.host, *words)
    for _ in range(2):
        assert told(slot.host)[2] == ""
        assert "said by idle" not in b70ctl(slot.host, "status")[1]
        slot.reboot()
        slot.run(600)


@pytest.mark.parametrize(("words", "idle"), [(("stop",), ""), (("switch", "b"), "a")])
def test_while_a_person_stops_it_a_request_brings_nothing_back(slot, monkeypatch, words, idle):
    seen, published = [], FrontdoorLink.publish

    def publish(link, fields):
        done = published(link, fields)
        seen.append(told(slot.host))
        return done

    monkeypatch.setattr(FrontdoorLink, "publish", publish)
    assert b70ctl(slot.host, *words)[0] == 0
    assert (seen[0][0], seen[0][2]) == ("switching", idle)


@pytest.mark.parametrize("words", [("stop",), ("stop", "--idle")])
def test_a_stop_that_is_killed_is_that_of_who_asked(words):
    for number, made in killed_anywhere(stopped(), lambda made: b70ctl(made, *words), 1, 3):
        slot = Controlled(made)
        slot.reboot()
        slot.run(600)
        if made.state.phase == "stopped":
            assert told(made)[2] == ("a" if "--idle" in words else ""), number
