# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slot that was stopped because a card was lost: the reboot that ends the quarantine brings the model back."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import b70ctl, host, recover, switch
from unit.plugins.module_utils._slot.controlled import Controlled
from unit.plugins.module_utils._slot.fake_host import LAYOUT, Killed, request

A = LAYOUT.unit("a")


@pytest.fixture
def fake_host():
    return host("abc", load_s=1.0)


def lose_both(fake_host, **changes):
    """The switch loses a card, and so does the way back: the slot is stopped."""
    fake_host.unit("a").fault = fake_host.unit("b").fault = "device_lost"
    result = switch(fake_host, "b", switch_id="bad", **changes)
    assert result["outcome"] == "stopped"
    fake_host.assert_invariants()
    for name in "ab":
        fake_host.unit(name).fault = ""
    return result


def boot(fake_host):
    fake_host.mono += 60
    fake_host.reboot()
    return recover(fake_host)


def test_after_the_reboot_what_was_verified_last_is_verified_and_served(fake_host):
    switch(fake_host, "a")
    lose_both(fake_host)
    result = boot(fake_host)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", True)
    assert (fake_host.open, fake_host.enabled) == (True, [A])
    assert result["quarantine"] is None


def test_one_that_lost_its_card_while_it_served_comes_back_too(fake_host):
    switch(fake_host, "a")
    fake_host.unit("a").fault = "device_lost"
    fake_host.lose_card("a")
    assert recover(fake_host)["outcome"] == "stopped"
    fake_host.unit("a").fault = ""
    assert boot(fake_host)["profile"] == "a"
    fake_host.assert_invariants()


def test_not_before_the_reboot(fake_host):
    switch(fake_host, "a")
    lose_both(fake_host)
    slot = Controlled(fake_host)
    starts = fake_host.starts
    slot.run(3600)
    assert (fake_host.starts, fake_host.open) == (starts, False)
    assert "quarantine" in fake_host.state.reason
    slot.reboot()
    slot.until(lambda: fake_host.open)


def test_a_person_who_clears_the_quarantine_has_it_served_again(fake_host):
    switch(fake_host, "a")
    lose_both(fake_host)
    slot = Controlled(fake_host)
    slot.run(600)
    b70ctl(fake_host, "clear-quarantine")
    assert slot.until(lambda: fake_host.open) < 60


def test_each_boot_tries_it_once(fake_host):
    """The card stays lost: a boot that finds so leaves the slot closed, and the next one tries again."""
    switch(fake_host, "a")
    lose_both(fake_host)
    slot = Controlled(fake_host)
    fake_host.unit("a").fault = "device_lost"
    slot.reboot()
    slot.run(120)
    starts = fake_host.starts
    slot.run(3600)
    assert (fake_host.starts, fake_host.open) == (starts, False)
    fake_host.unit("a").fault = ""
    slot.reboot()
    slot.until(lambda: fake_host.open)
    fake_host.assert_invariants()


def test_a_boot_that_is_killed_as_it_brings_it_back_is_settled(fake_host):
    switch(fake_host, "a")
    lose_both(fake_host)
    fake_host.reboot()
    effects = fake_host.effects()
    start = effects.units.start

    def kill(name):
        start(name)
        raise Killed

    effects.units.start = kill
    with pytest.raises(Killed):
        api.switch(effects, LAYOUT, request("x", mode=Mode.BOOT, switch_id="settle"))
    assert recover(fake_host)["profile"] == "a"
    fake_host.assert_invariants()


def test_with_the_gate_that_it_was_served_behind(fake_host):
    switch(fake_host, "a", gate=Gate.HEALTHY)
    lose_both(fake_host)
    fake_host.gate_verified = False
    fake_host.unit("a").fault = "wrong_answer"
    result = boot(fake_host)
    assert (result["outcome"], result["profile"], result["verified"]) == ("committed", "a", False)


@pytest.mark.parametrize("case", ["stop", "on_failure", "first"])
def test_what_somebody_wanted_stopped_stays_so(fake_host, case):
    if case != "first":
        switch(fake_host, "a")
    lose_both(fake_host, **({"on_failure": OnFailure.STOP} if case == "on_failure" else {}))
    if case == "stop":
        assert switch(fake_host, None)["outcome"] in ("committed", "unchanged")
    result = boot(fake_host)
    fake_host.assert_invariants()
    assert (result["changed"], fake_host.running, fake_host.open) == (False, [], False)
