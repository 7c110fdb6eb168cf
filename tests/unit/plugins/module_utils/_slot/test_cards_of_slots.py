# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A card has one engine, across the slots of a host, whether they serve or are only to serve."""

from __future__ import annotations

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons.daemon import Controller
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import LOOK_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT
from unit.plugins.module_utils._slot.test_make_room import serving, switch
from unit.plugins.module_utils._slot.two_slots import AUX, TwoSlots


def look(host: TwoSlots, seconds: float) -> list[str]:
    """Let the controllers of both slots look for so long, new ones as after a boot. Return what they said."""
    said: list[str] = []
    both = [Controller(host.effects(), layout, said.append) for layout in (AUX, LAYOUT)]
    end = host.main.mono + seconds
    while host.main.mono < end:
        for one in both:
            try:
                one.look()
            except (SlotFault, OSError) as error:
                said.append(str(error))
        host.assert_cards()
        host.main.mono += LOOK_S
    return said


def test_a_slot_that_is_down_makes_room_too_and_is_not_started_again_on_the_same_card():
    host = serving()
    embed = host.aux.unit("embed")
    embed.fault = "exit_at_start"
    host.aux.crash("embed")
    look(host, 30)
    assert host.served() == ("small", None)
    result = switch(host, "large", switch_id="large")
    assert result["outcome"] == "committed", result["msg"]
    embed.fault = ""
    look(host, 900)
    assert host.served() == ("large", None)
    host.main.mono += 60
    host.reboot()
    look(host, 120)
    assert host.served() == ("large", None)
    host.assert_invariants()


def test_two_switches_at_once_commit_one_engine_on_a_card():
    host = serving()
    assert switch(host, None, AUX, switch_id="stop")["outcome"] == "committed"
    others: list[str] = []

    def meanwhile() -> None:
        if not others and host.main.card_locks and not host.main.unit("large").up:
            others.append("begins")
            others.append(switch(host, "embed", AUX, switch_id="other")["outcome"])

    host.at_effect = meanwhile
    first = switch(host, "large", switch_id="large")["outcome"]
    host.at_effect = None
    # The card belongs to whoever locks it first.
    assert sorted([first == "committed", others[1] == "committed"]) == [False, True]
    look(host, 60)
    assert host.served() == (("large", None) if first == "committed" else ("small", "embed"))
    host.assert_invariants()


def test_what_was_committed_is_not_started_beside_the_engine_of_another_slot():
    host = serving()
    host.effects().units.start(LAYOUT.unit("large"))
    host.aux.crash("embed")
    host.aux._down(host.aux.unit("embed"), "failed")
    starts = host.main.starts
    said = look(host, 300)
    assert host.main.starts == starts
    assert any("slot main serves large" in text for text in said), said
    host.effects().units.stop(LAYOUT.unit("large"))
    said = look(host, 300)
    assert host.served()[1] == "embed", said


def test_the_memory_of_the_host_is_shared_by_its_slots():
    host = serving()
    keeps = {"engine__env": {"ZE_AFFINITY_MASK": "1"}, "engine__settings": {"kv_offloading_size": 30}}
    host.aux.render("keeps", cards=1, **keeps)
    assert switch(host, "keeps", AUX, switch_id="keeps")["outcome"] == "committed"
    offloads = {"engine__settings": {"kv_offloading_size": 40}}
    host.main.render("beside", cards=1, engine__env={"ZE_AFFINITY_MASK": "0"}, **offloads)
    said = switch(host, "beside", switch_id="beside")
    assert (said["outcome"], said["failure"]["phase"]) == ("untouched", "guard")
    assert "30.0 GiB that other slots keep there" in said["msg"]
    # A slot that makes room takes its memory with it.
    host.main.render("large", cards=2, engine__env={"ZE_AFFINITY_MASK": "0,1"}, **offloads)
    assert switch(host, "large", switch_id="large")["outcome"] == "committed"
