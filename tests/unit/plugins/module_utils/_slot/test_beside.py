# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that is started and verified beside the one that serves, which goes on until clients are moved over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons import daemon
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import BESIDE, Gate, Holder, Mode, OnFailure
from unit.plugins.module_utils._slot.calls import b70ctl, check, killed_anywhere, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost

FIRST, SECOND = LAYOUT.unit("a"), LAYOUT.unit("b", BESIDE)


class Watched(FakeHost):
    """Remembers for how long nobody could be served since `watch`."""

    shut: bool | None = None

    def check(self):
        super().check()
        if self.shut is not None:
            self.shut = self.shut or not self.open


def served(fault="", fx_host=FakeHost, **changes):
    """Two cards, a is served on the first side, and b, whose engine has this fault, would fit beside it."""
    host = fx_host()
    host.cards = 2
    for name in "abc":
        host.render(name, cards=1, second=[1], **(changes if name == "b" else {}))
    for unit in host.units.values():
        unit.load_s = 1.0
    assert switch(host, "a")["outcome"] == "committed"
    host.mono += 60
    for which in (None, BESIDE):
        host.unit("b", which).fault = fault
    return host


@pytest.fixture
def host():
    return served(fx_host=Watched)


def entries(host):
    return [json.loads(line) for line in host.texts[LAYOUT.journal_file][0].splitlines()]


def last_end(host):
    return [line for line in entries(host) if line["event"] == "end"][-1]


def test_the_new_engine_is_verified_beside_the_old_one_and_takes_its_clients(host):
    predicted = check(host, "b")
    host.shut, old = False, host.unit("a").invocation
    result = switch(host, "b")
    assert (result["outcome"], result["profile"], result["way"], result["verified"]) == (
        "committed",
        "b",
        "beside",
        True,
    ), result["msg"]
    assert not host.shut
    assert (host.running, host.enabled) == ([SECOND], [SECOND])
    assert names(result)[2:] == [
        *("guard", "journal", "release", "start", "alive", "health", "identity", "first_token", "canary"),
        *("open", "drain", "stop", "enable", "commit"),
    ]
    entry = last_end(host)
    assert (entry["way"], entry["turned_away_s"], entry["actions"]) == ("beside", 0.0, predicted["actions"])
    assert predicted["way"] == "beside"
    assert predicted["actions"] == [
        f"start {SECOND}",
        "open the frontdoor for b",
        f"stop {FIRST}",
        f"disable {FIRST}",
        f"enable {SECOND}",
        "record b as active",
    ]
    state = host.state
    assert (state.backend_url, state.engine["unit"], state.replicas) == ("http://127.0.0.1:18081", SECOND, None)
    assert old not in host.served()
    host.assert_invariants()
    assert switch(host, "b")["outcome"] == "unchanged"


def test_it_goes_there_and_back_again_and_on(host):
    host.shut = False
    for name in "bacbca":
        result = switch(host, name)
        assert (result["outcome"], result["way"]) == ("committed", "beside"), result["msg"]
        host.assert_invariants()
    assert not host.shut


def test_the_controller_watches_the_side_that_serves(host):
    watching = daemon.Controller(host.effects(), LAYOUT, print)
    for name, unit in (("a", FIRST), ("b", SECOND), ("a", FIRST)):
        switch(host, name)
        watching.look()
        told = json.loads(host.texts[LAYOUT.liveness_file][0])
        assert [(row["unit"], row["verdict"]) for row in told["engines"]] == [(unit, "idle")]


def test_the_state_says_meanwhile_that_a_switch_is_under_way(host):
    told: list[tuple[Any, ...]] = []
    seen = host.check

    def look():
        seen()
        state = host.state
        rows = None if state.replicas is None else [row["open"] for row in state.replicas]
        said = (state.profile_name, (state.switch or {}).get("to"), (state.switch or {}).get("loading"), rows)
        if not told or told[-1] != said:
            told.append(said)

    host.check = look
    switch(host, "b")
    assert told == [
        ("a", None, None, None),
        ("a", "b", False, None),
        ("a", "b", True, None),
        ("a", "b", False, None),
        ("b", "b", False, [False, True]),
        ("b", None, None, None),
    ]


def test_only_what_the_old_engine_generates_is_waited_for(host):
    host.generations_on = [[host.mono + 500.0], [host.mono + 5000.0]]
    result = switch(host, "b", drain_timeout_s=1000.0)
    (seconds,) = [phase["seconds"] for phase in result["phases"] if phase["name"] == "drain"]
    assert 400.0 < seconds < 600.0
    assert not result["warnings"]


@pytest.mark.parametrize("fault", ["wrong_answer", "exit_at_start", "never_ready", "wrong_id", "garbage"])
def test_one_that_fails_is_stopped_and_nobody_notices(fault):
    host = served(fault, Watched)
    host.shut, before = False, (host.unit("a").invocation, host.state.fields)
    result = switch(host, "b")
    assert (result["outcome"], result["failed"], result["profile"]) == ("untouched", True, "a"), result["msg"]
    assert result["failure"]["phase"] in ("alive", "health", "identity", "canary")
    assert "a is still served, verified" in result["msg"]
    assert not host.shut
    assert (host.unit("a").invocation, host.state.fields) == before
    assert (host.running, host.enabled) == ([FIRST], [FIRST])
    host.assert_invariants()
    assert switch(host, "c")["way"] == "beside"


def test_what_fails_when_clients_were_moved_leads_back_to_the_old_engine(host):
    host.told_at = None
    effects_of(host, "b")
    number = next(n for n, phase in PHASES.items() if phase == "drain")
    host = served(fx_host=Watched)
    host.told_at = host.effects_done + number
    result = switch(host, "b")
    assert (result["outcome"], result["profile"]) == ("rolled_back", "a"), result["msg"]
    assert (host.running, host.enabled) == ([FIRST], [FIRST])
    host.assert_invariants()


PHASES: dict[int, str] = {}


def effects_of(host, name):
    """How many effects the switch has; PHASES: the first one of each phase."""
    before, seen = host.effects_done, host.check
    PHASES.clear()

    def look():
        seen()
        lines = host.texts.get(LAYOUT.progress_file, ("", None))[0].splitlines()
        phase = json.loads(lines[-1]).get("phase") if lines else None
        if phase and phase not in PHASES.values():
            PHASES[host.effects_done - before + 3] = phase

    host.check = look
    switch(host, name)
    host.check = seen
    return host.effects_done - before


@pytest.mark.parametrize("fault", ["", "wrong_answer"])
@pytest.mark.parametrize("then", ["settle", "reboot"])
def test_killed_anywhere_then_settled_by_the_host(then, fault):
    """One engine serves in the end, verified, and is what boots; nobody is turned away before a reboot."""
    before = served(fault, Watched)
    before.shut = False
    ends = set()
    # Each case takes other moments.
    first = 1 + 2 * (then == "reboot") + bool(fault)
    for number, host in killed_anywhere(before, lambda host: switch(host, "b"), first, 6):
        committed = json.loads(host.texts[LAYOUT.journal_file][0].splitlines()[-1]).get("profile") == "b"
        if then == "reboot":
            host.mono += 30
            host.shut = None
            host.reboot()
        result = recover(host)
        assert not result["failed"], (number, result["msg"])
        host.assert_invariants()
        assert not host.shut, number
        (name,) = host.running
        if not committed:
            ends.add(name)
        assert name in ([SECOND] if committed else [FIRST] if fault else [FIRST, SECOND]), number
        assert host.enabled == [name], number
        assert host.open, number
        assert recover(host)["outcome"] == "unchanged", number
    # What was not committed does not boot, whatever the boot link says.
    assert ends == ({FIRST} if fault or then == "reboot" else {FIRST, SECOND})


def test_told_to_end_anywhere_leaves_one_engine_served():
    moments, seen = effects_of(served(), "b"), set()
    for number in range(1, moments + 1, 13):
        host = served()
        host.told_at = host.effects_done + number
        result = switch(host, "b")
        seen.add(result["outcome"])
        assert result["outcome"] in ("committed", "rolled_back", "untouched"), (number, result["msg"])
        host.assert_invariants()
        assert host.running == [SECOND if result["outcome"] == "committed" else FIRST], number
    assert seen == {"committed", "rolled_back", "untouched"}


def test_an_old_engine_that_does_not_stop_costs_no_client_anything(host):
    host.unit("a").live_fault = "never_stops"
    host.shut = False
    result = switch(host, "b")
    assert (result["outcome"], result["profile"], host.shut) == ("committed", "b", False)
    assert any(f"{FIRST} did not stop" in warning for warning in result["warnings"])
    assert (host.enabled, host.state.engine["unit"]) == ([SECOND], SECOND)
    host._down(host.unit("a"), "inactive")
    host.assert_invariants()


def test_a_new_engine_that_neither_works_nor_stops_leaves_the_old_one_served():
    host = served("wrong_answer", Watched)
    host.shut = False
    unit = host.unit("b", BESIDE)
    run_process = host.run_process

    def stubborn(started):
        run_process(started)
        started.live_fault = "wrong_answer"

    host.run_process = stubborn
    stop = host.effects().units.stop
    assert stop is not None
    host.frontdoor_present = True
    effects = host.effects()

    def never(name):
        host.step(f"stop {name}")
        host.units[name].active = "deactivating"

    effects.units.stop = never
    from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
    from unit.plugins.module_utils._slot.fake_host import request

    result = api.switch(effects, LAYOUT, request("b"))
    assert (result["outcome"], result["profile"], host.shut) == ("untouched", "a", False), result["msg"]
    assert f"{unit.name} did not stop" in result["msg"]
    assert recover(host)["outcome"] == "committed"
    assert not host.shut
    host.assert_invariants()


@pytest.mark.parametrize("name", ["b", "a"])
def test_a_second_side_that_somebody_started_is_stopped_without_closing_the_slot(host, name):
    host.effects().units.start(LAYOUT.unit(name, BESIDE))
    host.shut = False
    for mode in (Mode.BOOT, Mode.RECOVER):
        result = recover(host, mode)
    assert (host.running, host.enabled, host.shut) == ([FIRST], [FIRST], False), result["msg"]
    host.assert_invariants()


def test_a_reboot_starts_the_side_that_was_committed(host):
    switch(host, "b")
    host.reboot()
    assert host.running == [SECOND]
    assert recover(host)["profile"] == "b"
    host.assert_invariants()
    assert switch(host, "a", min_serving=1)["way"] == "beside"


def test_the_way_back_leads_to_the_side_that_was_served():
    host = served()
    switch(host, "b")
    for which in (None, BESIDE):
        host.unit("c", which).fault = "wrong_answer"
    result = switch(host, "c", min_serving=0)
    assert (result["outcome"], result["way"], host.running) == ("rolled_back", "plain", [SECOND]), result["msg"]
    host.assert_invariants()


def plain_because(host, words, profile="b", **changes):
    """The switch goes the plain way, and is refused for this reason where that is not wanted."""
    assert check(host, profile, **changes)["way"] == "plain"
    refused = switch(host, profile, min_serving=1, **changes)
    assert (refused["outcome"], host.running) == ("untouched", [FIRST])
    assert "min_serving is 1, which is impossible" in refused["msg"]
    assert words in refused["msg"], refused["msg"]
    result = switch(host, profile, **changes)
    assert (result["outcome"], result["way"]) == ("committed", "plain"), result["msg"]


def test_a_profile_without_a_second_side_goes_the_plain_way(host):
    host.render("d", cards=1)
    plain_because(host, "d has one engine, and the slot has no cards for a second one", "d")


def test_one_that_is_started_anew_goes_the_plain_way(host):
    result = switch(host, "a", restart=True, min_serving=1)
    assert (result["outcome"], "to be started anew" in result["msg"]) == ("untouched", True)
    assert switch(host, "a", restart=True)["way"] == "plain"


def test_cards_that_are_held_by_somebody_else_are_not_free(host):
    host.device_users = (Holder(99, "python3", "root", "", "/dev/dri/renderD129"),)
    plain = check(host, "b")
    assert (plain["way"], "python3" in str(switch(host, "b", min_serving=1)["msg"])) == ("plain", True)


def test_a_port_that_is_held_by_somebody_else_is_not_free(host):
    processes = host.effects().processes.__class__
    holders = processes.port_holders

    def port_holders(self, port):
        return (*holders(self, port), *((Holder(9, "nc", "root", "", "port 18081"),) if port == 18081 else ()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "port_holders", port_holders)
        plain_because(host, "nc")


def test_an_engine_that_needs_both_cards_takes_the_plain_way(host):
    host.render("d", cards=2, engine__env={"ZE_AFFINITY_MASK": "0,1"})
    plain_because(host, "no cards for a second one", "d")
    # And from it there is no way beside it.
    assert check(host, "b")["way"] == "plain"
    assert "leaves b no cards" in switch(host, "b", min_serving=1)["msg"]


def test_units_that_systemd_keeps_apart_are_not_started_beside_each_other(host):
    host.put(LAYOUT.exclusive(SECOND), f"[Unit]\nConflicts={FIRST}\nAfter={FIRST}\n")
    plain_because(host, "run the role slot")


@pytest.mark.parametrize(
    "changes",
    [
        {"gate": Gate.HEALTHY},
        {"on_failure": OnFailure.STOP},
        {"on_failure": OnFailure.LEAVE},
        {"record_baseline": True},
    ],
)
def test_what_was_asked_for_may_need_the_plain_way(host, changes):
    host.gate_verified = "gate" not in changes
    plain_because(host, "it takes the gate verified", **changes)


def test_more_than_one_engine_can_not_serve_on(host):
    result = switch(host, "b", min_serving=2)
    assert (result["outcome"], "one engine goes on serving" in result["msg"]) == ("untouched", True)


def test_without_memory_for_a_second_cache_it_goes_the_plain_way():
    host = served(engine__settings={"kv_offloading_size": 16})
    host.available = 10 * 2**30
    plain_because(host, "the host's memory has 10.0 GiB free")


def test_b70ctl_tells_the_way(host):
    assert "start" in b70ctl(host, "switch", "b", "--check")[1]
    switch(host, "b")
    code, text = b70ctl(host, "history", "--json")
    assert (code, json.loads(text)["switches"][-1]["way"]) == (0, "beside")
    assert SECOND in b70ctl(host, "status")[1]
