# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several engines of one profile: one transaction, and each of them on its own while they serve."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Holder, Mode
from unit.plugins.module_utils._slot.calls import b70ctl, check, killed_anywhere, names, noting, recover, switch
from unit.plugins.module_utils._slot.fake_host import FAULTS, LAYOUT, LOST, FakeHost, profile_data, request

UNITS = [LAYOUT.unit("r", number) for number in range(3)]


@pytest.fixture
def fake_host():
    """A host with a profile of one engine, a, and one of three, r."""
    found = FakeHost()
    found.render("a")
    found.render("r", replicas=3)
    return found


def opened(fake_host):
    """The replicas that clients may reach, by the state file."""
    return [row["index"] for row in fake_host.state.replicas if row["open"]]


def reasons(fake_host):
    return [row["reason"] for row in fake_host.state.replicas]


def test_all_engines_are_started_verified_opened_and_enabled_together(fake_host):
    result = switch(fake_host, "r")
    assert result["outcome"] == "committed", result["msg"]
    assert fake_host.running == UNITS
    assert fake_host.enabled == UNITS
    assert opened(fake_host) == [0, 1, 2]
    state = fake_host.state
    assert [row["backend_url"] for row in state.replicas] == [f"http://127.0.0.1:{18080 + n}" for n in range(3)]
    assert (state.backend_url, state.engine) == (state.replicas[0]["backend_url"], state.replicas[0]["engine"])
    assert state.limits["max_active_generations"] == 6
    assert {row["limits"]["max_active_generations"] for row in state.replicas} == {2}
    assert len({row["engine"]["invocation_id"] for row in state.replicas}) == 3
    assert [case["replica"] for case in result["canary"] if case["name"] == "sum"] == [0, 1, 2]
    assert [case["name"] for case in result["verified_by"]].count("sum") == 1
    fake_host.assert_invariants()


def test_the_starts_are_staggered(fake_host):
    switch(fake_host, "r")
    begun = [fake_host.unit("r", number).started_at for number in range(3)]
    assert begun == sorted(begun)
    processes = [fake_host.units[name] for name in UNITS]
    assert all(unit.active == "active" for unit in processes)
    assert fake_host.mono >= 12.0, "the last one waits twice"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("replica", [0, 2])
def test_one_that_fails_takes_all_back(fake_host, fault, replica):
    switch(fake_host, "a")
    fake_host.unit("r", replica).fault = fault
    result = switch(fake_host, "r")
    assert result["outcome"] == "rolled_back", result["msg"]
    assert result["failure"]["replica"] == replica
    assert f"replica {replica}: " in result["msg"]
    assert fake_host.running == [LAYOUT.unit("a")]
    assert fake_host.enabled == [LAYOUT.unit("a")]
    assert fake_host.state.replicas is None
    fake_host.assert_invariants()


def test_nobody_waits_for_the_turn_of_others_when_one_has_ended(fake_host):
    switch(fake_host, "a")
    fake_host.unit("r", 0).fault = "exit_at_start"
    result = switch(fake_host, "r")
    assert (result["failure"]["phase"], result["failure"]["replica"]) == ("alive", 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_way_back_none_is_left(fake_host, fault):
    fake_host.unit("r", 1).fault = fault
    result = switch(fake_host, "r")
    assert result["outcome"] == "stopped"
    fake_host.assert_invariants()
    assert not fake_host.running


def test_from_several_engines_to_one_and_to_none(fake_host):
    switch(fake_host, "r")
    assert switch(fake_host, "a")["outcome"] == "committed"
    assert fake_host.running == [LAYOUT.unit("a")]
    assert fake_host.state.replicas is None
    switch(fake_host, "r")
    assert switch(fake_host, None)["outcome"] == "committed"
    assert not fake_host.running
    fake_host.assert_invariants()


def test_what_is_verified_is_not_touched(fake_host):
    switch(fake_host, "r")
    starts = fake_host.starts
    result = switch(fake_host, "r")
    assert result["outcome"] == "unchanged"
    assert not result["changed"]
    assert fake_host.starts == starts


def turned_away_s(fake_host):
    return json.loads(fake_host.texts[LAYOUT.journal_file][0].splitlines()[-1])["turned_away_s"]


def test_the_journal_tells_how_long_no_engine_was_open(fake_host):
    switch(fake_host, "a")
    before = fake_host.mono
    switch(fake_host, "r")
    assert 12.0 <= turned_away_s(fake_host) <= fake_host.mono - before, "the starts are staggered"
    fake_host.crash("r", 1)
    recover(fake_host)
    assert turned_away_s(fake_host) == 0.0, "the others were open"


def test_a_prediction_names_every_unit(fake_host):
    switch(fake_host, "a")
    result = check(fake_host, "r")
    assert [action for action in result["actions"] if action.startswith("start")] == [f"start {unit}" for unit in UNITS]
    assert [action for action in result["actions"] if action.startswith("enable")] == [
        f"enable {unit}" for unit in UNITS
    ]


class Doors:
    """What clients see at every write of the state file."""

    def __init__(self, fake_host):
        self.seen: list[tuple[bool, tuple[int, ...]]] = []
        #: why replicas were closed
        self.reasons: set[str] = set()

        def note(state):
            rows = state["replicas"] or []
            self.seen.append((state["open"], tuple(row["index"] for row in rows if row["open"])))
            self.reasons |= {row["reason"] for row in rows if not row["open"]}

        self.effects = noting(fake_host, note)


def test_one_that_was_started_again_is_verified_alone_while_the_others_serve(fake_host):
    switch(fake_host, "r")
    fake_host.crash("r", 1)
    others = [fake_host.unit("r", number).invocation for number in (0, 2)]
    doors = Doors(fake_host)
    result = api.switch(doors.effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert result["outcome"] == "committed", result["msg"]
    assert doors.seen[0] == (True, (0, 2))
    assert set(doors.seen) == {(True, (0, 2)), (True, (0, 1, 2))}
    assert doors.seen[-1] == (True, (0, 1, 2))
    assert doors.reasons == {"it is being verified", "it loads"}
    assert [fake_host.unit("r", number).invocation for number in (0, 2)] == others
    assert fake_host.state.replicas[1]["engine"]["invocation_id"] == fake_host.unit("r", 1).invocation
    assert {case["replica"] for case in result["canary"]} == {1}
    fake_host.assert_invariants()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "device_lost"])
def test_one_that_fails_for_good_is_closed_and_stopped_alone(fake_host, fault):
    switch(fake_host, "r")
    others = [fake_host.unit("r", number).invocation for number in (0, 2)]
    fake_host.unit("r", 1).fault = fault
    fake_host.crash("r", 1)
    result = recover(fake_host)
    assert result["outcome"] == "degraded", result["msg"]
    assert result["failed"]
    assert result["profile"] == "r"
    assert result["verified"]
    assert opened(fake_host) == [0, 2]
    assert fake_host.state.open
    assert fake_host.state.phase == "serving"
    assert "phase" in reasons(fake_host)[1]
    assert fake_host.running == [UNITS[0], UNITS[2]]
    assert [fake_host.unit("r", number).invocation for number in (0, 2)] == others
    assert fake_host.enabled == UNITS, "a reboot gives it another chance"
    fake_host.assert_invariants()


def test_one_that_failed_comes_back_when_it_is_sound_again(fake_host):
    switch(fake_host, "r")
    fake_host.unit("r", 1).fault = "wrong_answer"
    fake_host.crash("r", 1)
    recover(fake_host)
    fake_host.unit("r", 1).fault = ""
    others = [fake_host.unit("r", number).invocation for number in (0, 2)]
    result = recover(fake_host, Mode.RECOVER)
    assert result["outcome"] == "committed", result["msg"]
    assert names(result) == [
        "lock", "resolve", "guard", "journal", "close", "stop", "release", "start",
        "alive", "health", "identity", "first_token", "canary", "open", "enable", "commit",
    ]  # fmt: skip
    assert opened(fake_host) == [0, 1, 2]
    assert [fake_host.unit("r", number).invocation for number in (0, 2)] == others


def test_a_switch_to_what_is_degraded_heals_it(fake_host):
    switch(fake_host, "r")
    fake_host._down(fake_host.unit("r", 2), "failed")
    others = [fake_host.unit("r", number).invocation for number in (0, 1)]
    doors = Doors(fake_host)
    result = api.switch(doors.effects, LAYOUT, request("r"))
    assert result["outcome"] == "committed"
    assert all(is_open for is_open, _rows in doors.seen)
    assert [fake_host.unit("r", number).invocation for number in (0, 1)] == others
    assert opened(fake_host) == [0, 1, 2]


def test_when_all_died_the_slot_closes_until_one_is_verified(fake_host):
    switch(fake_host, "r")
    for number in range(3):
        fake_host.crash("r", number)
    doors = Doors(fake_host)
    result = api.switch(doors.effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert result["outcome"] == "committed", result["msg"]
    assert doors.seen[0] == (False, ())
    first_open = next(rows for is_open, rows in doors.seen if is_open)
    assert len(first_open) == 1, "the first that is verified opens the slot"
    assert opened(fake_host) == [0, 1, 2]
    fake_host.assert_invariants()


def test_after_a_reboot_the_first_verified_opens_and_the_others_follow(fake_host):
    switch(fake_host, "r")
    fake_host.reboot()
    doors = Doors(fake_host)
    result = api.switch(doors.effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert result["outcome"] == "committed", result["msg"]
    shown = [rows for is_open, rows in doors.seen if is_open]
    assert [len(rows) for rows in dict.fromkeys(shown)] == [1, 2, 3]
    assert opened(fake_host) == [0, 1, 2]
    fake_host.assert_invariants()


def test_one_that_hangs_after_a_reboot_holds_up_no_other(fake_host):
    switch(fake_host, "r")
    fake_host.unit("r", 0).fault = "never_ready"
    fake_host.reboot()
    result = recover(fake_host)
    assert opened(fake_host) == [1, 2]
    assert result["outcome"] == "degraded"
    assert fake_host.state.backend_url == "http://127.0.0.1:18081", "who knows one engine reaches an open one"
    assert fake_host.running == UNITS[1:]
    fake_host.assert_invariants()


@pytest.mark.parametrize("gate", list(Gate))
def test_no_replica_is_open_for_another_process_than_the_verified(fake_host, gate):
    fake_host.gate_verified = gate is Gate.VERIFIED
    switch(fake_host, "r", gate=gate)
    fake_host.crash("r", 2)
    doors = Doors(fake_host)
    api.switch(doors.effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert doors.seen[0] == (True, (0, 1))
    assert opened(fake_host) == [0, 1, 2]
    assert fake_host.state.verified is (gate is Gate.VERIFIED)


def test_a_lost_card_of_one_replica_is_a_quarantine_of_the_host(fake_host):
    switch(fake_host, "r")
    fake_host.logs[fake_host.unit("r", 2).invocation] = ("INFO serving", FAULT_LINE)
    fake_host.crash("r", 2)
    result = recover(fake_host)
    assert result["quarantine"]["symptom"] == "device_lost"
    assert fake_host.state.open
    assert opened(fake_host) == [0, 1, 2], "what was verified before may come back"


FAULT_LINE = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"


@pytest.mark.parametrize("count", [2, 4])
def test_another_number_of_replicas_is_another_set_of_units(fake_host, count):
    switch(fake_host, "r")
    fake_host.render("r", replicas=count)  # the units of the host, in place of the files that wait
    for unit in fake_host.units.values():
        unit.loaded = None
    result = switch(fake_host, "r")
    assert result["outcome"] == "committed", result["msg"]
    assert fake_host.running == [LAYOUT.unit("r", number) for number in range(count)]
    assert opened(fake_host) == list(range(count))
    files = [path.name for path in fake_host.texts if path.parent == LAYOUT.unit_dir and path.suffix == ".service"]
    fake_host.assert_invariants()
    assert len(files) >= count


def test_fewer_replicas_leave_no_files_behind(fake_host):
    switch(fake_host, "r")
    fake_host.render_held("r", replicas=2)
    result = switch(fake_host, "r")
    assert result["outcome"] == "committed", result["msg"]
    kept = sorted(path.name for path in fake_host.texts if LAYOUT.profile_of(path.stem) == "r")
    assert kept == ["b70-slot-main-r@0.service", "b70-slot-main-r@1.service", "r.json", "r@0.env", "r@1.env"]


def test_a_check_in_place_asks_every_engine(fake_host):
    switch(fake_host, "r")
    result = switch(fake_host, "r", recheck=True)
    assert result["outcome"] == "committed", result["msg"]
    assert [case["replica"] for case in result["canary"] if case["name"] == "sum"] == [0, 1, 2]


def test_one_that_answers_wrongly_while_it_serves_is_started_anew_alone(fake_host):
    switch(fake_host, "r")
    fake_host.unit("r", 1).live_fault = "wrong_answer"
    fake_host.gate_verified = False  # the fault began while it served
    others = [fake_host.unit("r", number).invocation for number in (0, 2)]
    result = switch(fake_host, "r", recheck=True)
    assert result["outcome"] == "rolled_back", result["msg"]
    assert result["failure"]["replica"] == 1
    assert [fake_host.unit("r", number).invocation for number in (0, 2)] == others
    assert opened(fake_host) == [0, 1, 2]
    fake_host.assert_invariants()


def test_a_baseline_is_what_all_engines_answer(fake_host):
    cases = [{"name": "free", "prompt": "say OK", "max_tokens": 8, "compare": "baseline"}]
    fake_host.render("r", replicas=3, canary__cases=cases, canary__burst=0)
    result = switch(fake_host, "r", record_baseline=True)
    assert result["recorded"] == ["free"], result["msg"]
    fake_host.unit("r", 2).fault = "wrong_answer"
    result = switch(fake_host, "r", record_baseline=True, restart=True)
    assert result["failed"]
    assert result["failure"]["replica"] == 2
    assert result["recorded"] == []


def test_killed_at_every_effect_it_is_settled(fake_host):
    """The next run leaves all replicas verified and served, or what was served before."""
    switch(fake_host, "a")
    for number, host in killed_anywhere(fake_host, lambda host: switch(host, "r", switch_id="killed"), step=8):
        recover(host)
        host.assert_invariants()
        assert host.open, f"killed at effect {number}"


def test_status_shows_each(fake_host):
    switch(fake_host, "r")
    fake_host.unit("r", 1).fault = "wrong_answer"
    fake_host.crash("r", 1)
    recover(fake_host)
    info = api.info(fake_host.effects(), LAYOUT)
    assert info["degraded"]
    assert [row["open"] for row in info["replicas"]] == [True, False, True]
    code, text = b70ctl(fake_host, "status")
    assert "DEGRADED: 2 of 3 replicas are served" in text
    assert "replica 1: closed" in text
    assert code == 0, "what is open is verified"


def test_what_loads_says_which_replica_it_is(fake_host):
    fake_host.log_lines = ("Loading safetensors checkpoint shards:  50% Completed | 1/2",)
    for name in UNITS:
        fake_host.units[name].load_s = 30.0
    switch(fake_host, "r")
    lines = [json.loads(line) for line in fake_host.texts[LAYOUT.progress_file][0].splitlines()]
    told = {line["text"].partition(":")[0] for line in lines if line["event"] == "hint" and line["phase"] == "health"}
    assert told == {"replica 0", "replica 1", "replica 2"}


def test_profiles_of_one_engine_have_no_replicas():
    profile = parse_profile(json.dumps(profile_data("a")), "x")
    assert profile.singles == (profile,)
    several = parse_profile(json.dumps(profile_data("r", replicas=3, cards=1)), "x")
    assert several.units == tuple(UNITS)
    assert several.all_cards == 3
    assert [single.engine.port for single in several.singles] == [18080, 18081, 18082]
    assert [single.frontdoor.max_active_generations for single in several.singles] == [2, 2, 2]


def test_one_that_dies_while_another_is_verified_is_closed_at_once(fake_host):
    switch(fake_host, "r")
    fake_host.crash("r", 1)
    old = fake_host.unit("r", 2).invocation
    seen: list[dict[str, Any]] = []

    def note(state):
        if not seen:
            fake_host.crash("r", 2)
        seen.append(state["replicas"][2])

    result = api.switch(noting(fake_host, note), LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert result["outcome"] == "committed", result["msg"]
    assert not any(row["open"] and row["engine"]["invocation_id"] == old for row in seen[1:])
    assert opened(fake_host) == [0, 1, 2], "it was verified after the other"
    fake_host.assert_invariants()


def test_where_nothing_can_be_verified_only_what_is_gone_is_closed(fake_host):
    switch(fake_host, "r")
    fake_host.crash("r", 1)

    def refuses(what):
        return what == "show" and '"health"' in fake_host.texts[LAYOUT.journal_file][0].splitlines()[-1]

    fake_host.refuses = refuses
    result = recover(fake_host)
    assert result["outcome"] == "deferred", result["msg"]
    assert fake_host.open
    assert opened(fake_host) == [0, 2]
    assert reasons(fake_host)[1] == "it loads"


def test_what_one_engine_says_is_not_hidden_by_the_others(fake_host):
    """A baseline that was recorded holds for every engine."""
    cases = [{"name": "free", "prompt": "say OK", "max_tokens": 8, "compare": "baseline"}]
    fake_host.render("r", replicas=3, canary__cases=cases, canary__burst=0)
    assert switch(fake_host, "r", record_baseline=True)["recorded"] == ["free"]
    fake_host.unit("r", 1).fault = "wrong_answer"
    fake_host.crash("r", 1)
    result = recover(fake_host)
    assert result["outcome"] == "degraded"
    assert opened(fake_host) == [0, 2]


def test_replicas_that_stay_may_have_the_cards_of_the_others_open(fake_host):
    """Level Zero opens every card before it applies the mask."""
    fake_host.cards = 3
    fake_host.render("r", replicas=3, cards=1)
    switch(fake_host, "r")
    nodes = [f"/dev/dri/renderD{128 + number}" for number in range(3)]
    fake_host.device_users = tuple(Holder(7, "vllm", "b70", UNITS[0], node) for node in nodes)
    fake_host._down(fake_host.unit("r", 1), "failed")
    result = recover(fake_host, Mode.RECOVER)
    assert result["outcome"] == "committed", result["msg"]
    assert opened(fake_host) == [0, 1, 2]


def test_a_stranger_on_the_card_of_one_replica_stops_the_switch(fake_host):
    fake_host.cards = 3
    fake_host.render("r", replicas=3, cards=1)
    fake_host.device_users = (Holder(77, "python3", "ann", "", "/dev/dri/renderD130"),)
    result = switch(fake_host, "r")
    assert result["outcome"] == "untouched"
    assert "/dev/dri/renderD130: pid 77" in result["msg"]
    fake_host.cards, fake_host.device_users = 2, ()
    result = switch(fake_host, "r")
    assert result["failure"]["expected"] == "3 cards (3 replicas of 1)"


def while_it_settles(fake_host, at, act):
    """Effects with which `act` happens once, when the state file first says that these are open."""
    todo = [act]

    def noticed(state):
        if todo and [row["index"] for row in state["replicas"] or () if row["open"]] == at:
            todo.pop()()

    return noting(fake_host, noticed)


def test_new_limits_that_need_no_start_reach_every_replica(fake_host):
    switch(fake_host, "r")
    before = fake_host.running
    fake_host.render_held("r", replicas=3, frontdoor__max_active_generations=4)
    switch(fake_host, "r")
    assert fake_host.running == before
    assert [row["limits"]["max_active_generations"] for row in fake_host.state.replicas] == [4, 4, 4]
    assert fake_host.state.limits["max_active_generations"] == 12
    assert switch(fake_host, "r")["outcome"] == "unchanged"


def test_one_that_was_settled_and_dies_again_is_settled_again(fake_host):
    switch(fake_host, "r")
    fake_host.crash("r", 0)
    fake_host.crash("r", 1)
    fake_host.unit("r", 1).load_s = 30
    effects = while_it_settles(fake_host, [0, 2], lambda: fake_host.crash("r", 0))
    api.switch(effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert opened(fake_host) == [0, 1, 2]


def test_a_neighbour_that_loses_its_card_while_another_is_settled_is_a_quarantine(fake_host):
    switch(fake_host, "r")
    fake_host.crash("r", 0)

    def lose():
        fake_host.logs[fake_host.unit("r", 2).invocation] = ("INFO serving", LOST)
        fake_host.crash("r", 2)

    effects = while_it_settles(fake_host, [1, 2], lose)
    result = api.switch(effects, LAYOUT, request("ignored", mode=Mode.BOOT, switch_id="settle"))
    assert result["quarantine"]["symptom"] == "device_lost"


def test_a_check_in_place_starts_all_anew_that_are_wrong_and_no_other(fake_host):
    switch(fake_host, "r")
    before = [fake_host.unit("r", number).invocation for number in range(3)]
    fake_host.gate_verified = False  # what is served goes wrong on purpose
    for number in (0, 2):
        fake_host.unit("r", number).live_fault = "wrong_answer"
    result = switch(fake_host, "r", recheck=True)
    assert result["outcome"] == "rolled_back", result["msg"]
    assert {case["replica"] for case in result["canary"]} == {0, 1, 2}
    assert any("replica 2" in text for text in result["warnings"])
    after = [fake_host.unit("r", number).invocation for number in range(3)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, False]
    assert opened(fake_host) == [0, 1, 2]


def test_another_canary_is_committed_only_when_all_have_passed_it(fake_host):
    switch(fake_host, "r")
    fake_host._down(fake_host.unit("r", 2), "failed")
    cases = [{"name": "new", "prompt": "3 + 4", "max_tokens": 8, "compare": "contains", "expected": "7"}]
    fake_host.render_held("r", replicas=3, canary__cases=cases, canary__burst=0)
    result = switch(fake_host, "r")
    assert [(case["name"], case["replica"]) for case in result["canary"]] == [("new", 2), ("new", 0), ("new", 1)]
    assert opened(fake_host) == [0, 1, 2]


def test_when_all_are_down_one_that_is_broken_takes_no_other_with_it(fake_host):
    switch(fake_host, "r")
    for number in range(3):
        fake_host._down(fake_host.unit("r", number), "failed")
    fake_host.unit("r", 1).fault = "wrong_answer"
    recover(fake_host)
    assert opened(fake_host) == [0, 2]


def test_the_last_look_in_a_check_in_place_is_at_the_replica_that_fails_it(fake_host):
    switch(fake_host, "r")
    before = [fake_host.unit("r", number).invocation for number in range(3)]
    effects = fake_host.effects()
    holders = effects.processes.port_holders

    def with_a_stranger(port):
        opens = '"open"' in fake_host.texts[LAYOUT.journal_file][0].splitlines()[-1]
        stranger = (Holder(99, "nc", "ann", "", f"port {port}"),) if opens and port == 18081 else ()
        return (*holders(port), *stranger)

    effects.processes.port_holders = with_a_stranger
    result = api.switch(effects, LAYOUT, request("r", recheck=True))
    assert result["failure"]["phase"] == "open", result
    after = [fake_host.unit("r", number).invocation for number in range(3)]
    assert before == after, "its engine is not at fault"
    assert opened(fake_host) == [0, 2]
