# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was committed comes back by itself, whatever happened; what a person said stays."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import BUSY, ControllerStep, Do
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import SETTLING
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import BESIDE, Holder, OnFailure
from unit.plugins.module_utils._slot.calls import b70ctl, host, killed_anywhere, made_once, switch
from unit.plugins.module_utils._slot.controlled import Controlled
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeFiles, FakeHost

A, B = (LAYOUT.unit(name) for name in "ab")
FAULTS = ("exit_at_start", "crash_loop", "never_ready", "wrong_answer", "nan", "no_token", "wrong_id", "device_lost")


@made_once
def served(replicas: int = 1) -> FakeHost:
    fake_host = host("ab", load_s=1.0, replicas=replicas)
    switch(fake_host, "a")
    return fake_host


@pytest.fixture
def slot():
    return Controlled(served())


def serves(slot: Controlled, profile: str = "a") -> bool:
    state = slot.host.state
    live = {unit.invocation for unit in slot.host.units.values() if unit.up}
    verified = bool(state and state.open and state.verified and {*state.passed} <= live)
    return verified and state.profile_name == profile


def test_a_served_engine_is_left_alone(slot):
    before = len(slot.host.mutations)
    slot.run(3600)
    changes = [done for done in slot.host.mutations[before:] if LAYOUT.liveness_file.name not in done]
    assert changes == []
    assert slot.told["why"] == ""


@pytest.mark.parametrize(
    ("fault", "lasts_s"), [("exit_at_start", 30), ("crash_loop", 300), *((fault, 90) for fault in FAULTS)]
)
@pytest.mark.parametrize("begins", ["boot", "serving"])
def test_an_engine_that_fails_for_a_while_is_served_again(slot, begins, fault, lasts_s):
    slot.host.unit("a").fault = fault
    if begins == "boot":
        slot.reboot()
    else:
        slot.host.crash("a")
    slot.run(lasts_s)
    assert not slot.host.open
    assert slot.host.state.reason
    slot.host.unit("a").fault = ""
    if fault == "device_lost":
        # Such a host takes no more tries until a reboot, or a person, ends the quarantine.
        slot.run(1200)
        assert not slot.host.open
        assert "quarantine" in slot.host.state.reason
        slot.reboot()
    # The longest pause, and what a try takes.
    assert slot.until(lambda: serves(slot), 700) < 700
    slot.host.assert_invariants()
    assert slot.host.enabled == [A]
    slot.look()
    assert slot.told["book"]["tries"] == {}


def test_the_pauses_grow_and_everybody_is_told(slot):
    slot.host.unit("a").fault = "exit_at_start"
    slot.host.crash("a")
    starts = []
    last = slot.host.starts
    for _look in range(1500):
        slot.look()
        if slot.host.starts > last:
            starts.append(slot.host.mono)
            last = slot.host.starts
    pauses = [later - earlier for earlier, later in pairwise(starts[1:])]
    assert pauses[0] < 40 < 120 < pauses[4]
    assert 590 < max(pauses) < 640
    slot.run(30)
    assert "tried" in slot.host.state.reason
    assert slot.told["at"] in slot.host.state.reason
    assert slot.host.state.retry_after_s > 0


def test_a_boot_and_another_wish_begin_anew(slot):
    slot.host.unit("a").fault = "exit_at_start"
    slot.host.crash("a")
    slot.run(3600)
    assert slot.told["book"]["tries"][A]["count"] > 5
    slot.reboot()
    slot.run(30)
    assert slot.told["book"]["tries"][A]["count"] <= 2
    switch(slot.host, "b")
    slot.run(30)
    assert slot.told["book"]["tries"] == {}
    assert serves(slot, "b")


def test_another_controller_goes_on_with_the_pauses(slot):
    slot.host.unit("a").fault = "exit_at_start"
    slot.host.crash("a")
    slot.run(600)
    count, starts = slot.told["book"]["tries"][A]["count"], slot.host.starts
    slot.started()
    slot.look()
    assert slot.told["book"]["tries"][A]["count"] == count
    assert slot.host.starts == starts


def test_a_crash_loop_before_a_reboot_is_forgotten_by_the_boot(slot):
    slot.host.unit("a").fault = "crash_loop"
    slot.host.crash("a")
    slot.run(300)
    assert not slot.host.open
    slot.host.unit("a").fault = ""
    slot.reboot()
    assert slot.until(lambda: serves(slot)) < 30
    slot.host.assert_invariants()


def test_weights_that_come_late_are_served(slot):
    files = {path: kept for path, kept in slot.host.texts.items() if path.is_relative_to("/models/a")}
    for path in files:
        del slot.host.texts[path]
    slot.host.unit("a").fault = "exit_at_start"
    slot.reboot()
    slot.run(45)
    assert not slot.host.open
    slot.host.texts |= files
    slot.host.unit("a").fault = ""
    assert slot.until(lambda: serves(slot)) < 120


def test_a_leftover_beside_the_weights_is_only_warned_of(slot):
    slot.host.put(PurePosixPath("/models/a/x.tmp"), "")
    slot.host.crash("a")
    assert slot.until(lambda: serves(slot)) < 30
    assert slot.host.starts == 2, "it was started once more than by its crash"
    # A switch is judged before anything is touched.
    slot.host.put(PurePosixPath("/models/b/x.tmp"), "")
    assert switch(slot.host, "b")["outcome"] == "untouched"


def test_a_verification_that_can_not_be_written_down_ends_nothing(slot):
    slot.host.full.add(LAYOUT.run_dir)
    before = len(slot.host.mutations)
    b70ctl(slot.host, "verify")
    assert [done for done in slot.host.mutations[before:] if done.startswith(("stop ", "kill ", "disable "))] == []
    slot.host.full.clear()
    slot.run(60)
    assert serves(slot)
    assert slot.host.enabled == [A]
    assert slot.host.starts == 1


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_systemd_that_gives_no_answer_restarts_nothing(slot, count):
    slot.host.crash("a")
    left = [count]

    def refuses(_what):
        left[0] -= 1
        return left[0] >= 0

    slot.host.refuses = refuses
    slot.until(lambda: serves(slot), 300)
    assert slot.host.starts == 2
    slot.host.assert_invariants()


def test_a_refused_boot_link_is_made_later():
    slot = Controlled(host("a", load_s=1.0))
    slot.host.refuses = lambda what: what.startswith("enable")
    switch(slot.host, "a")
    assert (serves(slot), slot.host.enabled) == (True, [])
    slot.run(60)
    assert (serves(slot), slot.host.enabled) == (True, [])
    slot.host.refuses = lambda _what: False
    slot.until(lambda: slot.host.enabled == [A])
    assert slot.host.starts == 1


def test_a_boot_link_that_is_gone_is_made_again(slot):
    slot.host.unit("a").enabled = False
    slot.until(lambda: slot.host.enabled == [A])
    slot.host.unit("a").enabled = False
    slot.reboot()
    slot.until(lambda: serves(slot))
    assert slot.host.enabled == [A]


def test_what_boots_is_not_served_where_something_else_is_wanted(slot):
    slot.host.unit("a").enabled, slot.host.unit("b").enabled = False, True
    slot.reboot()
    slot.until(lambda: serves(slot))
    assert (slot.host.running, slot.host.enabled) == ([A], [A])


def test_a_boot_link_that_nobody_said_is_removed(slot):
    switch(slot.host, None)
    slot.host.unit("b").enabled = True
    slot.reboot()
    slot.until(lambda: slot.host.enabled == [] and slot.host.running == [])
    slot.run(600)
    assert slot.host.running == []


@pytest.mark.parametrize("lasts_s", [0, 30, 300])
def test_a_refused_stop_on_the_way_back_is_made_up_for(slot, lasts_s):
    slot.host.unit("b").fault = "wrong_answer"
    end = slot.host.mono + lasts_s
    tried: list[str] = []

    def refuses(what):
        if what == f"stop {B}" and (not tried or slot.host.mono < end):
            tried.append(what)
            return True
        return False

    slot.host.refuses = refuses
    assert switch(slot.host, "b")["failed"]
    slot.until(lambda: serves(slot))
    slot.host.assert_invariants()
    assert slot.host.running == [A]


def test_both_ways_of_a_switch_may_fail(slot):
    slot.host.unit("b").fault = "wrong_answer"
    slot.host.unit("a").fault = "exit_at_start"
    assert switch(slot.host, "b")["outcome"] == "stopped"
    slot.run(120)
    slot.host.unit("a").fault = ""
    slot.until(lambda: serves(slot))
    assert slot.host.enabled == [A]


@pytest.mark.parametrize("words", [("stop",), ("switch", "b", "--on-failure", "stop")])
def test_what_a_person_stopped_stays_stopped(slot, words):
    slot.host.unit("b").fault = "wrong_answer"
    b70ctl(slot.host, *words)
    slot.run(900)
    slot.reboot()
    slot.run(900)
    assert slot.host.running == []
    assert slot.host.state.phase == "stopped"
    assert "said by" in b70ctl(slot.host, "status")[1]


def test_what_was_left_for_a_look_is_left(slot):
    slot.host.unit("b").fault = "wrong_answer"
    switch(slot.host, "b", on_failure=OnFailure.LEAVE)
    slot.run(900)
    assert (slot.host.running, slot.host.open) == ([B], False)


def test_an_engine_that_was_stopped_with_systemctl_stays_down_until_the_boot(slot):
    slot.host.effects().units.stop(A)
    slot.run(900)
    assert slot.host.running == []
    assert "stopped by hand" in slot.host.state.reason
    slot.reboot()
    slot.until(lambda: serves(slot))


def test_an_engine_that_was_started_with_systemctl_is_never_served(slot):
    slot.host.effects().units.start(B)
    slot.run(900)
    assert (slot.host.running, slot.host.open) == ([B], False)
    assert b70ctl(slot.host, "recover")[0] == 0
    assert serves(slot)


def test_an_engine_that_starts_is_awaited_and_verified_where_it_is(slot):
    unit = slot.host.unit("a")
    slot.host.effects().units.stop(A)
    slot.host.mono += unit.stop_s
    slot.host.tick()
    # Somebody starts it again before the controller has seen it stopped, and systemd has not run its program yet.
    slot.host.launch(unit)
    unit.active, unit.sub, unit.cmdline = "activating", "start", ("(vllm)", "--system")
    unit.turn_at = slot.host.mono + 9
    started = unit.invocation
    slot.until(lambda: serves(slot))
    assert unit.invocation == started


def test_there_is_always_a_state():
    slot = Controlled(host("a"))
    slot.look()
    assert "nothing is to run" in slot.host.state.reason
    slot = Controlled(served())
    slot.host.unit("a").load_s = 300
    slot.reboot()
    slot.look()
    assert slot.host.state is not None


def test_a_healthy_replica_never_pays_for_another():
    slot = Controlled(served(3))
    first, second = (slot.host.unit("a", index) for index in range(2))
    first.fault = "exit_at_start"
    slot.host.crash("a", 0)
    slot.run(3600)
    others = [slot.host.unit("a", index).invocation for index in (1, 2)]
    assert sum(slot.host.served().values()) == 2
    # The second one crashes while the first one pauses for minutes.
    slot.host.crash("a", 1)
    assert slot.until(lambda: second.invocation in slot.host.served()) < 40
    assert others[1] == slot.host.unit("a", 2).invocation
    first.fault = ""
    slot.until(lambda: sum(slot.host.served().values()) == 3)
    assert others[1] == slot.host.unit("a", 2).invocation


def degraded() -> Controlled:
    slot = Controlled(served(3))
    slot.host.unit("a", 0).fault = "exit_at_start"
    slot.host.crash("a", 0)
    slot.run(120)
    assert sum(slot.host.served().values()) == 2
    return slot


def never_below(slot: Controlled, least: int) -> None:
    """Have every effect check that so many replicas serve."""

    def check() -> None:
        count = sum(slot.host.served().values())
        assert count >= least, f"{count} serve"

    slot.host.at_effect = check


def test_the_pauses_of_a_replica_that_stays_broken_grow():
    slot = Controlled(served(3))
    slot.host.unit("a", 2).fault = "wrong_answer"
    slot.host.crash("a", 2)
    begun = slot.host.starts
    slot.run(3600)
    # 15, 30 … 600 s lie between the tries, each of which starts it up to twice.
    assert 5 < slot.told["book"]["tries"][LAYOUT.unit("a", 2)]["count"] < 14
    assert slot.host.starts - begun < 30
    assert set(slot.told["book"]["tries"]) == {LAYOUT.unit("a", 2)}


@pytest.mark.parametrize("heals", [True, False])
@pytest.mark.parametrize("how", ["restart", "rendering"])
def test_a_degraded_slot_is_replaced_replica_by_replica(how, heals):
    slot = degraded()
    if how == "rendering":
        slot.host.render_held("a", replicas=3, engine__env={"X": "new"}, fingerprint="sha256:a-2")
    if heals:
        slot.host.unit("a", 0).fault = ""
    never_below(slot, 2)
    result = switch(slot.host, "a", restart=how == "restart")
    assert result["failed"] is not heals, result["msg"]
    assert sum(slot.host.served().values()) == (3 if heals else 2)
    slot.run(60)
    slot.host.unit("a", 0).fault = ""
    slot.until(lambda: sum(slot.host.served().values()) == 3)
    slot.host.assert_invariants()


def test_a_replica_that_fails_both_ways_leaves_the_others():
    slot = Controlled(served(3))
    slot.host.render_held("a", replicas=3, engine__env={"X": "new"}, fingerprint="sha256:a-2")
    slot.host.unit("a", 1).fault = "exit_at_start"
    never_below(slot, 2)
    result = switch(slot.host, "a")
    assert result["outcome"] == "degraded", result["msg"]
    assert slot.host.state.switch is None
    slot.run(300)
    slot.host.unit("a", 1).fault = ""
    slot.until(lambda: sum(slot.host.served().values()) == 3)
    slot.run(600)
    slot.host.assert_invariants()
    assert not any("X" in slot.host.unit("a", index).environ for index in range(3)), "what was not committed serves on"


def test_a_degraded_slot_is_verified():
    slot = degraded()
    code, text = b70ctl(slot.host, "verify")
    assert code == 0, text
    slot.host.unit("a", 2).live_fault = "wrong_answer"
    slot.host.gate_verified = False  # it answers wrongly until it is asked
    code, text = b70ctl(slot.host, "verify")
    assert code == 1, text
    slot.host.gate_verified = True
    assert slot.host.unit("a", 1).invocation in slot.host.served()
    slot.host.check()


@pytest.mark.parametrize("begins", ["boot", "crash", "fails"])
def test_a_controller_that_is_killed_anywhere_costs_nothing(begins):
    before = served()
    if begins == "boot":
        before.mono += 60
        before.reboot()
    elif begins == "crash":
        before.crash("a")
    else:
        before.unit("a").fault = "exit_at_start"
        before.crash("a")
    starts = before.starts
    for number, fake_host in killed_anywhere(before, lambda host: Controlled(host).run(30), 1, 5):
        slot = Controlled(fake_host)
        slot.run(10)
        fake_host.unit("a").fault = ""
        slot.until(partial(serves, slot), 120)
        fake_host.assert_invariants()
        if begins != "fails":
            assert fake_host.starts == starts, number


def test_a_switch_whose_end_could_not_be_recorded_is_wanted(slot):
    """Its last lines find no room, and what settles it has room for one line only."""
    append = FakeFiles.append
    begun: list[str] = []
    opened = False

    def last_room(self, path, text, *, sync):
        nonlocal opened
        begun.append(text)
        opened = opened or '"phase":"open"' in text
        if path == LAYOUT.journal_file and opened and '"outcome":"interrupted"' not in text:
            raise OSError(28, "No space left on device", str(path))
        append(self, path, text, sync=sync)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFiles, "append", last_room)
        switch(slot.host, "b")
        slot.run(60)
        assert serves(slot, "b")
        begun.clear()
        slot.run(3600)
        assert serves(slot, "b")
        assert sum('"event":"begin"' in text for text in begun) < 15, "it is recorded again without a pause"
        assert "recorded" in slot.told["why"]
    slot.run(660)
    assert serves(slot, "b")
    assert slot.host.wanted == "b"


def test_why_a_switch_failed_is_told_also_where_a_look_met_it(slot):
    slot.host.unit("a").fault = slot.host.unit("b").fault = "wrong_answer"
    slot.controller.step = ControllerStep(Do.REST, BUSY)
    switch(slot.host, "b", on_failure=OnFailure.STOP)
    slot.controller._publish()
    assert "phase canary" in slot.host.state.reason


@pytest.mark.parametrize("happens", ["an engine ends", "a port is shared", "a canary is due"])
def test_a_command_waits_for_what_the_controller_does(slot, happens):
    """Nobody asked for that, so it refuses nobody."""
    slot.run(60)
    if happens == "an engine ends":
        slot.host.crash("a")
    elif happens == "a canary is due":
        slot.controller.suspect = "a card had a fault"
    else:
        slot.host.foreign = (Holder(77, "vllm", "b70", "", "port 18080"),)
    notes = []
    slot.host.at_effect = lambda: notes.append(slot.host.lock_holder)
    slot.look()
    assert {note.partition("Z: ")[2] for note in notes if note} == {SETTLING}


def test_a_port_that_is_shared_later_is_closed(slot):
    slot.run(60)
    slot.host.foreign = (Holder(77, "vllm", "b70", "", "port 18080"),)
    slot.until(lambda: not slot.host.open, 30)
    slot.run(120)
    assert slot.host.starts == 1, "its engine is not at fault"
    slot.host.foreign = ()
    slot.until(lambda: serves(slot))
    assert slot.host.starts == 1


def test_the_second_side_is_served_on_after_a_boot():
    fake_host = host("ab", load_s=1.0, cards=1, second=[1])
    fake_host.cards = 2
    switch(fake_host, "a")
    switch(fake_host, "b")
    switch(fake_host, "a")
    slot = Controlled(fake_host)
    slot.reboot()
    slot.until(lambda: serves(slot))
    fake_host.assert_invariants()
    assert LAYOUT.unit("a", BESIDE) in (A, *fake_host.units)


@pytest.mark.parametrize(
    ("first", "target", "fault"), [(1, "b", ""), (2, "b", "wrong_answer"), (3, "b", "exit_at_start"), (4, None, "")]
)
def test_a_switch_that_is_killed_anywhere_is_settled(first, target, fault):
    before = served()
    before.unit("b").fault = fault
    for number, fake_host in killed_anywhere(before, lambda host: switch(host, target), first, 6):
        slot = Controlled(fake_host)
        stops = any('"to":null' in line for line in fake_host.texts[LAYOUT.journal_file][0].splitlines())
        slot.run(60)
        fake_host.assert_invariants()
        assert fake_host.open is not stops, number
        if fault:
            assert serves(slot), number
