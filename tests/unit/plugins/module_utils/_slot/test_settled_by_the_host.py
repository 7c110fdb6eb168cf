# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch that is killed: what the host does about it by itself, because the switch asked for it beforehand."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import api, command
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import locks
from ansible_collections.arcpro.b70.plugins.module_utils._slot.types import Gate, Mode
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.unit import settle_name
from unit.plugins.module_utils._slot.calls import check, host, killed_anywhere, made_once, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, Killed, request

SETTLE = f"restart {settle_name('main')}"


@pytest.fixture
def fake_host():
    return host("abc", load_s=1.0)


def queued(fake_host, before=0):
    return [done for done in fake_host.mutations[before:] if done.startswith("restart ")]


@made_once
def ready(fault: str = "") -> FakeHost:
    fake_host = host("ab", load_s=1.0)
    switch(fake_host, "a")
    fake_host.unit("b").fault = fault
    fake_host.settle_queued = False
    return fake_host


@pytest.mark.parametrize(
    ("first", "target", "fault", "changes"),
    [
        (1, "b", "", {}),
        (3, "b", "", {}),
        (2, "b", "wrong_answer", {}),
        (4, "b", "exit_at_start", {}),
        (1, "a", "", {"recheck": True}),
        (2, "a", "", {"mode": Mode.RECOVER}),
        (3, None, "", {}),
    ],
)
def test_a_switch_killed_anywhere_is_settled_by_what_it_left_queued(first, target, fault, changes):
    before = ready(fault)
    if changes.get("mode"):
        before.crash("a")
    for number, fake_host in killed_anywhere(before, lambda host: switch(host, target, **changes), first, 5):
        if fake_host.settle_queued:
            recover(fake_host)
            fake_host.assert_invariants()
            assert fake_host.open or target is None, number
        else:
            # Nothing was touched yet. What is open for a crashed engine is so for a process that is gone.
            assert fake_host.open, number
            assert fake_host.running == [LAYOUT.unit("a")], number
    assert number > 40


def test_the_killed_first_deploy_is_stopped(fake_host):
    effects = fake_host.effects()
    start = effects.units.start

    def kill(name):
        start(name)
        raise Killed

    effects.units.start = kill
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("a"))
    assert fake_host.settle_queued
    recover(fake_host)
    fake_host.assert_invariants()
    assert fake_host.running == []


def test_it_is_asked_for_before_the_journal_and_the_closing(fake_host):
    switch(fake_host, "a")
    order = [" ".join(word.split("/")[-1] for word in done.split()[:2]) for done in fake_host.mutations]
    assert order[0] == SETTLE
    assert order.index(f"append {LAYOUT.journal_file.name}") < order.index(f"write {LAYOUT.state_file.name}")
    assert len(queued(fake_host)) == 1


def test_the_host_s_own_run_never_asks_for_itself(fake_host):
    switch(fake_host, "a")
    before = len(fake_host.mutations)
    fake_host.crash("a")
    assert recover(fake_host, Mode.BOOT)["changed"]
    assert queued(fake_host, before) == []


def test_what_changes_nothing_asks_for_nothing(fake_host):
    switch(fake_host, "a")
    before = len(fake_host.mutations)
    assert not switch(fake_host, "a")["changed"]
    assert not check(fake_host, "b")["failed"]
    assert not recover(fake_host, Mode.RECOVER)["changed"]
    assert switch(fake_host, "unknown")["outcome"] == "untouched"
    assert queued(fake_host, before) == []


@pytest.mark.parametrize("target", ["b", None])
def test_after_a_switch_and_after_a_stop_it_finds_nothing_to_do(fake_host, target):
    switch(fake_host, "a", gate=Gate.VERIFIED)
    switch(fake_host, target)
    before, texts = len(fake_host.mutations), dict(fake_host.texts)
    result = recover(fake_host)
    assert (result["outcome"], result["changed"]) == ("unchanged", False)
    assert (fake_host.mutations[before:], dict(fake_host.texts)) == ([], texts)
    fake_host.assert_invariants()


def test_a_host_without_the_unit_is_warned_and_switched(fake_host):
    fake_host.settle_installed = False
    result = switch(fake_host, "a")
    fake_host.assert_invariants()
    assert not result["failed"]
    assert any("would not be settled" in text and settle_name("main") in text for text in result["warnings"])


def test_who_waits_to_settle_has_more_patience_than_the_longest_switch(fake_host):
    asked = []
    effects = fake_host.effects()
    hold = effects.locks.hold

    def note(path, text, timeout_s):
        asked.append(timeout_s)
        return hold(path, text, timeout_s)

    effects.locks.hold = note
    command.execute(command.parser().parse_args(["recover", "--boot"]), effects, LAYOUT, lambda text: None)
    # Both ways with the longest load that a profile of the catalogue has, a drain, two stops and the canaries.
    assert asked == [locks.SWITCH_LIMIT_S]
    assert locks.SWITCH_LIMIT_S >= 24 * 3600
