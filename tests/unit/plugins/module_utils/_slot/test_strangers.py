# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strangers beside the engine: who holds a card before a switch, and who listens on the engine's port."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Holder, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import check, host, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, request

A, B = (LAYOUT.unit(name) for name in "ab")
NODES = tuple(f"/dev/dri/renderD{number}" for number in range(128, 132))
STRANGER = Holder(77, "python train.py", "ann", "session-3.scope", NODES[0])
LEAKED = Holder(88, "vllm worker", "b70", "keeper.service", NODES[0])


@pytest.fixture
def fake_host():
    found = host("ab", load_s=1.0, cards=1)
    found.cards = 4
    return found


def appears_as(fake_host, moment, *holders):
    """Effects on which the holders are there from the moment on: stop or start of a unit."""
    effects = fake_host.effects()
    act = getattr(effects.units, moment)

    def then(name):
        act(name)
        fake_host.device_users = holders

    setattr(effects.units, moment, then)
    return effects


def test_a_stranger_on_a_card_is_found_before_anything_is_touched(fake_host):
    switch(fake_host, "a")
    engine, before = fake_host.engine().invocation, len(fake_host.mutations)
    fake_host.device_users = (Holder(1001, "vllm", "b70", A, NODES[0]), STRANGER)
    assert check(fake_host, "b")["failed"]
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert (result["outcome"], result["failure"]["phase"]) == ("untouched", "guard")
    assert "/dev/dri/renderD128: pid 77 (python train.py, user ann, unit session-3.scope)" in result["msg"]
    assert A not in result["msg"].replace(f"{A} ", "")
    assert (fake_host.engine().invocation, fake_host.open) == (engine, True)
    assert not [done for done in fake_host.mutations[before:] if done.split()[0] in ("stop", "disable", "start")]
    fake_host.device_users = ()
    assert not switch(fake_host, "b")["failed"]


def test_the_engine_that_will_be_stopped_is_no_stranger(fake_host):
    switch(fake_host, "a")
    fake_host.device_users = (Holder(1001, "vllm", "b70", A, NODES[0]),)
    assert not switch(fake_host, "b")["failed"]


def test_who_only_looks_at_a_card_is_waited_for(fake_host):
    switch(fake_host, "a")
    effects = fake_host.effects()
    fake_host.device_users = (Holder(99, "xpu-smi discovery", "root", "", NODES[0]),)
    gone = fake_host.mono + 1.0
    holders = effects.processes.device_holders
    effects.processes.device_holders = lambda paths: holders(paths) if fake_host.mono < gone else ()
    assert not api.switch(effects, LAYOUT, request("b"))["failed"]


@pytest.mark.parametrize(
    ("mask", "held", "refused"),
    [
        ("2,3", NODES[0], False),
        ("2,3", NODES[2], True),
        ("1.0", NODES[1], True),
        ("1.0", NODES[0], False),
        ("9", NODES[0], True),  # what can't be understood leaves out no card
        ("x", NODES[3], True),
    ],
)
def test_only_the_cards_of_the_profile_are_asked_about(fake_host, mask, held, refused):
    fake_host.render("b", cards=1, engine__env={"ZE_AFFINITY_MASK": mask})
    switch(fake_host, "a")
    fake_host.device_users = (Holder(77, "python", "ann", "", held),)
    assert switch(fake_host, "b")["failed"] is refused
    fake_host.assert_invariants()


def test_a_profile_without_cards_asks_nobody(fake_host):
    fake_host.render("b", cards=0)
    switch(fake_host, "a")
    fake_host.device_users = (STRANGER,)
    assert not switch(fake_host, "b")["failed"]


def test_the_way_back_runs_beside_who_was_there_before(fake_host):
    fake_host.render("b", cards=0)
    switch(fake_host, "a")
    fake_host.device_users = (STRANGER,)
    fake_host.unit("b").fault = "wrong_answer"
    result = switch(fake_host, "b")
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")
    assert any("pid 77 (python train.py" in text for text in result["warnings"])


def test_a_recheck_that_fails_starts_anew_beside_who_was_there_before(fake_host):
    switch(fake_host, "a")
    fake_host.device_users = (STRANGER,)
    fake_host.engine().live_fault = "wrong_answer"
    fake_host.gate_verified = False
    result = switch(fake_host, "a", recheck=True)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")


def test_the_way_back_runs_beside_a_stranger_that_came_meanwhile(fake_host):
    """Forward it is too much; back it is waited for, and cannot be a worker of ours: it is somebody else's."""
    switch(fake_host, "a")
    result = api.switch(appears_as(fake_host, "stop", STRANGER), LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert (result["failure"]["phase"], result["failure"]["direction"]) == ("release", "forward")
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")
    assert any("pid 77" in text for text in result["warnings"])


def test_a_leaked_worker_still_has_to_go(fake_host):
    switch(fake_host, "a")
    fake_host.device_users = (STRANGER,)
    result = api.switch(appears_as(fake_host, "stop", STRANGER, LEAKED), LAYOUT, request("a", recheck=True))
    assert result["outcome"] == "committed"
    fake_host.device_users = ()
    result = api.switch(appears_as(fake_host, "stop", LEAKED), LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert result["outcome"] == "stopped"
    assert [(one["phase"], one["direction"]) for one in (result["failure"], *result["failures"])] == [
        ("release", "forward"),
        ("release", "back"),
    ]


@pytest.mark.parametrize("mode", [Mode.BOOT, Mode.RECOVER])
def test_what_the_host_serves_by_itself_is_not_kept_down_by_a_stranger(fake_host, mode):
    switch(fake_host, "a")
    fake_host.device_users = (STRANGER,)
    fake_host.reboot()
    fake_host._down(fake_host.unit("a"), "failed")
    result = recover(fake_host, mode)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"]) == ("committed", "a")
    assert any("pid 77" in text for text in result["warnings"])


def test_an_engine_that_shares_its_port_is_not_verified(fake_host):
    """Linux lets two processes of a user listen on a port and gives each a part of the connections."""
    second = Holder(666, "vllm serve /models/x --port 18080", "b70", "session-4.scope", "port 18080")
    switch(fake_host, "a")
    effects = fake_host.effects()
    start = effects.units.start

    def then(name):
        start(name)
        fake_host.foreign = (second,) if name == B else ()

    effects.units.start = then
    stop = effects.units.stop

    def gone(name):
        stop(name)
        fake_host.foreign = ()

    effects.units.stop = gone
    result = api.switch(effects, LAYOUT, request("b"))
    fake_host.assert_invariants()
    assert (result["failure"]["phase"], result["failure"]["direction"]) == ("identity", "forward")
    assert "pid 666 (vllm serve /models/x --port 18080, user b70, unit session-4.scope)" in result["msg"]
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a")


def test_an_engine_whose_port_came_to_be_shared_is_closed_by_a_recheck(fake_host):
    switch(fake_host, "a")
    fake_host.foreign = (Holder(666, "vllm serve", "b70", "", "port 18080"),)
    fake_host.gate_verified = False
    result = switch(fake_host, "a", recheck=True)
    assert (result["failure"]["phase"], result["outcome"], fake_host.open) == ("identity", "left", False)
    assert fake_host.starts == 1, "its engine is not at fault"
    assert fake_host.wanted == "a"


def test_one_that_comes_during_the_canary_is_found_before_it_opens(fake_host):
    effects = fake_host.effects()
    post = effects.http.post

    def then(url, body, timeout_s):
        fake_host.foreign = (Holder(666, "vllm serve", "b70", "", "port 18080"),)
        return post(url, body, timeout_s)

    effects.http.post = then
    result = api.switch(effects, LAYOUT, request("a", on_failure=OnFailure.STOP))
    assert (result["failure"]["phase"], fake_host.open) == ("open", False)
    assert "open" in names(result)


def test_a_shared_port_is_seen_by_who_only_looks(fake_host):
    switch(fake_host, "a")
    assert api.info(fake_host.effects(), LAYOUT)["drift"] is None
    fake_host.foreign = (Holder(666, "vllm serve", "b70", "", "port 18080"),)
    info = api.info(fake_host.effects(), LAYOUT)
    assert "shared with a process that was not verified: port 18080: pid 666" in info["drift_of"]["port"]
    # A caller without rights sees that somebody listens, and not that it is our engine.
    fake_host.foreign = (Holder(0, "a process that can't be seen", "unknown", "", "port 18080"),)
    assert api.info(fake_host.effects(), LAYOUT)["drift"] is None
