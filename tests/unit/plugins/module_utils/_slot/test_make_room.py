# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots that have a card in common: a switch stops the slot which uses it, and gives it back where it fails."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Mode
from unit.plugins.module_utils._slot.calls import killed_anywhere, names
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request
from unit.plugins.module_utils._slot.two_slots import AUX, TwoSlots

SHARED = "/dev/dri/renderD129"


def switch(host, profile, layout=LAYOUT, **changes):
    return api.switch(host.effects(), layout, request(profile, slot=layout.slot, **changes))


def settle(host, first):
    """What both slots do by themselves, as after a boot or a kill; which is first is not certain."""
    for layout in (first, AUX if first is LAYOUT else LAYOUT):
        switch(host, "ignored", layout, mode=Mode.BOOT, switch_id=f"settle-{layout.slot}")


def last_end(host):
    lines = [json.loads(line) for line in host.main.texts[LAYOUT.journal_file][0].splitlines()]
    return [line for line in lines if line["event"] == "end"][-1]


def serving(fault=""):
    """main serves small on card 0, aux serves embed on card 1; large needs both, and its engine has this fault."""
    made = TwoSlots()
    made.main.render("small", cards=1, engine__env={"ZE_AFFINITY_MASK": "0"})
    made.main.render("large", cards=2, engine__env={"ZE_AFFINITY_MASK": "0,1"})
    made.aux.render("embed", cards=1, engine__env={"ZE_AFFINITY_MASK": "1"})
    for slot in made.slots:
        for unit in slot.units.values():
            unit.load_s = 1.0
    assert switch(made, "small", switch_id="first")["outcome"] == "committed"
    assert switch(made, "embed", AUX, switch_id="before")["outcome"] == "committed"
    assert made.served() == ("small", "embed")
    made.main.mono += 60
    made.main.unit("large").fault = fault
    return made


@pytest.fixture
def host():
    return serving()


def test_the_slot_that_uses_a_needed_card_is_stopped_while_the_old_model_is_still_served(host):
    effects, served = host.effects(), []
    stop = effects.units.stop

    def watched(name):
        served.append((name, host.main.open))
        stop(name)

    effects.units.stop = watched
    result = api.switch(effects, LAYOUT, request("large"))
    assert (result["outcome"], host.served()) == ("committed", ("large", None))
    assert served[0] == (AUX.unit("embed"), True)
    assert names(result)[4:7] == ["prepare", "clear", "close"]
    assert last_end(host)["actions"].count(f"stop slot aux: embed uses {SHARED}") == 1
    last = read_memory(effects, AUX).attempts[-1]
    assert (last.outcome, last.target, last.why) == ("committed", None, "slot main needs its cards for large")
    host.assert_invariants()


def test_min_serving_is_refused_where_another_slot_has_to_make_room(host):
    result = switch(host, "large", min_serving=1)
    assert (result["outcome"], host.served()) == ("untouched", ("small", "embed"))
    assert "min_serving is 1, which is impossible: " in result["msg"]


def test_what_would_be_stopped_is_said_before(host):
    told = api.check(host.effects(), LAYOUT, request("large"))
    assert f"stop slot aux: embed uses {SHARED}" in told["actions"]
    assert host.served() == ("small", "embed")


def test_a_slot_whose_cards_are_not_needed_goes_on(host):
    host.main.render("other", cards=1, engine__env={"ZE_AFFINITY_MASK": "0"})
    result = switch(host, "other")
    assert (host.served(), "clear" in names(result)) == (("other", "embed"), False)


def test_an_empty_slot_gets_its_profile_only_where_no_other_slot_uses_its_cards(host):
    said = f"slot aux uses {SHARED} for embed"
    assert api.taken(host.effects(), LAYOUT, "large") == said
    assert api.taken(host.effects(), LAYOUT, "small") == ""
    assert api.taken(host.effects(), LAYOUT, "not-rendered-yet") == ""
    assert said in api.nothing(LAYOUT, said)["msg"]


@pytest.mark.parametrize("fault", ["wrong_answer", "exit_at_start", "never_ready"])
def test_a_failed_switch_gives_the_other_slot_back(host, fault):
    host.main.unit("large").fault = fault
    result = switch(host, "large")
    assert (result["outcome"], host.served()) == ("rolled_back", ("small", "embed"))
    assert not result["warnings"]
    host.assert_invariants()


def test_a_slot_that_does_not_stop_is_left_and_nothing_else_is_touched(host):
    host.aux.unit("embed").live_fault = "never_stops"
    result = switch(host, "large", drain_timeout_s=1)
    assert (result["outcome"], result["failure"]["phase"]) == ("untouched", "clear")
    assert host.served()[0] == "small"


def test_a_slot_that_nobody_may_stop_now_fails_the_switch_before_anything_is_touched(host):
    host.aux.lock_holder = "pid 7"
    result = switch(host, "large")
    assert (result["outcome"], result["failure"]["phase"], host.served()) == ("untouched", "clear", ("small", "embed"))
    assert "pid 7" in result["failure"]["got"]


def test_a_model_of_the_smaller_slot_takes_its_card_back(host):
    switch(host, "large")
    result = switch(host, "embed", AUX, switch_id="later")
    assert (result["outcome"], host.served()) == ("committed", (None, "embed"))


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
@pytest.mark.parametrize("then", ["nothing", "reboot"])
def test_a_switch_that_is_killed_anywhere_leaves_both_slots_as_before_or_as_wanted(fault, then):
    # Each case takes other moments.
    first = {"nothing": 1, "reboot": 5}[then] + 2 * bool(fault)
    lose = partial(switch, profile="large", switch_id="lost")
    for number, host in killed_anywhere(serving(fault), lose, first, 9):
        if then == "reboot":
            host.main.mono += 30
            host.reboot()
        settle(host, first=LAYOUT if number % 2 else AUX)
        wanted = {("small", "embed")} if fault else {("small", "embed"), ("large", None)}
        assert host.served() in wanted, (number, host.main.texts[AUX.journal_file][0][-3000:])
        host.assert_invariants()
