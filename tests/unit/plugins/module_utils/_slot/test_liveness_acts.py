# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller does about engines that answer /health and do no work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons import daemon
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import LOOK_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.look.journal import read_memory
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import liveness
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply
from unit.plugins.module_utils._slot.calls import b70ctl, host, noting, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, LOST

WEDGED = "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged."
RESET = "xe 0000:03:00.0: [drm] Tile0: GT0: Engine memory CAT error [18]: class=ccs, logical_mask: 0x1, guc_id=28"


class Watching:
    """A slot that serves a, and its watchdog, which looks when the test says so."""

    def __init__(self, replicas=1, cards=0, kind="vllm", **settings):
        changes = {f"liveness__{key}": value for key, value in settings.items()} | {"engine__kind": kind}
        self.host = host("ab", load_s=1.0, replicas=replicas, cards=cards, **changes)
        self.host.cards = replicas * cards
        switch(self.host, "a")
        self.said: list[str] = []
        # each with what was done to engines by then, and the slot's state
        self.tells: list[tuple[Any, list[str], Any]] = []

        def seen(told):
            self.tells.append((told, self.of_engines(), self.host.state))

        effects = noting(self.host, seen, LAYOUT.liveness_file)
        self.watch = daemon.Controller(effects, LAYOUT, self.said.append)

    def of_engines(self):
        return [change for change in self.host.mutations if change.startswith(("stop ", "kill ", "start "))]

    def looks(self, count):
        for _look in range(count):
            self.watch.look()
            self.host.mono += LOOK_S
        if self.host.open:
            self.host.assert_invariants()

    def until(self, done, limit=100):
        for _look in range(limit):
            self.looks(1)
            if done():
                return
        raise AssertionError(f"it did not happen: {self.said}")

    @property
    def told(self):
        return json.loads(self.host.texts[LAYOUT.liveness_file][0])

    @property
    def faults(self):
        return sum(card["faults"] for card in self.told["cards"])

    @property
    def verdicts(self):
        return [row["verdict"] for row in self.told["engines"]]

    def journal(self):
        lines = [json.loads(line) for line in self.host.texts[LAYOUT.journal_file][0].splitlines()]
        return [line for line in lines if line["event"] == "liveness"]

    def busy(self, replica=None):
        """Somebody waits, at the frontdoor too."""
        self.host.generations = [1e9]
        self.host.generations_on = [[1e9] if index == (replica or 0) else [] for index in range(3)]


def watching(**settings):
    return Watching(**settings)


def test_an_idle_engine_is_told_as_such():
    slot = watching()
    slot.looks(3)
    assert slot.verdicts == ["idle"]
    assert slot.told["policy"] == "report"
    assert slot.said == []
    slot.host.assert_invariants()


def test_a_busy_engine_stays_busy_however_long_it_works():
    slot = watching(policy="restart")
    slot.busy()
    slot.host.engine().running = 1
    first = slot.host.engine().invocation
    for _minute in range(60):
        # a chunk of a long prefill a minute: only the cache moves
        slot.host.engine().cache += 0.001
        slot.looks(6)
        assert slot.verdicts == ["busy"]
    assert slot.host.engine().invocation == first


def test_a_wedge_is_reported_once_and_nothing_else_is_done():
    slot = watching(policy="report")
    slot.looks(1)
    slot.busy()
    slot.host.wedge("a")
    first = slot.host.engine().invocation
    slot.until(lambda: slot.verdicts == ["wedged"])
    slot.looks(30)
    assert [line["action"] for line in slot.journal()] == ["report"]
    assert (slot.host.engine().invocation, slot.host.open) == (first, True)
    assert slot.told["action"]["what"] == "report"
    code, text = b70ctl(slot.host, "status")
    assert code == 0
    assert "WEDGED: b70-slot-main-a.service" in text


def test_an_engine_that_works_on_is_reported_again_when_it_is_wedged_again():
    slot = watching(policy="report")
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: slot.verdicts == ["wedged"])
    slot.host.engine().tokens += 5
    slot.looks(1)
    assert slot.verdicts == ["busy"]
    assert "works on" in slot.said[-1]
    slot.until(lambda: len(slot.journal()) == 2)


def test_clients_that_give_up_are_no_sign_of_work():
    slot = watching(policy="report", ask_every_s=0)
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: slot.verdicts == ["wedged"])
    slot.host.generations_on = [[]]
    slot.host.engine().running = 0
    slot.looks(2)
    assert slot.verdicts == ["wedged"]


def test_the_frontdoor_is_closed_for_a_wedged_engine():
    slot = watching(policy="close")
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: not slot.host.open)
    state = slot.host.state
    assert (state.phase, state.verified) == ("failed", False)
    assert "wedged" in state.reason
    assert [line["action"] for line in slot.journal()] == ["close"]
    slot.looks(30)
    assert len(slot.journal()) == 1
    assert slot.host.running == [LAYOUT.unit("a")]


def test_a_closed_engine_that_works_again_is_opened_by_a_verification():
    slot = watching(policy="close")
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: not slot.host.open)
    assert "`b70ctl verify`" in slot.host.state.reason
    slot.host.engine().live_fault = ""
    assert b70ctl(slot.host, "verify")[0] == 0
    assert slot.host.open


def test_a_wedged_engine_is_started_anew_and_verified():
    slot = watching(policy="restart")
    slot.busy()
    slot.host.wedge("a")
    first = slot.host.engine().invocation
    slot.until(lambda: slot.host.engine().invocation != first)
    slot.host.assert_invariants()
    assert slot.host.open
    assert slot.host.state.verified
    last = read_memory(slot.host.effects(), LAYOUT).attempts[-1]
    assert (last.kind, last.outcome, last.who, last.profile) == ("switch", "committed", "the liveness watchdog", "a")
    assert slot.told["action"] | {"at": ""} == {
        "at": "",
        "what": "restart",
        "reason": slot.journal()[-1]["reason"],
        "outcome": "committed",
    }


def test_an_engine_that_does_not_end_is_killed_early():
    slot = watching(policy="restart")
    slot.busy()
    slot.host.wedge("a")
    slot.host.unit("a").stop_s = 25.0
    first = slot.host.engine().invocation
    slot.until(lambda: slot.host.engine() is not None and slot.host.engine().invocation != first)
    assert f"kill {LAYOUT.unit('a')}" in slot.host.mutations


def test_the_fourth_wedge_within_an_hour_closes_it():
    slot = watching(policy="restart")
    for _time in range(liveness.RESTARTS):
        first = slot.host.engine().invocation
        slot.busy()
        slot.host.wedge("a")
        slot.until(lambda first=first: slot.host.engine().invocation != first)
    slot.host.wedge("a")
    slot.until(lambda: not slot.host.open)
    assert [line["action"] for line in slot.journal()] == ["restart"] * 3 + ["close"]


def test_an_engine_that_is_wedged_again_at_once_is_stopped():
    slot = watching(policy="restart")
    slot.busy()
    slot.host.wedge("a")
    slot.host.unit("a").fault = "wedged"
    slot.until(lambda: slot.told["action"] is not None and slot.told["action"]["outcome"])
    assert slot.told["action"]["outcome"] == "stopped"
    assert not slot.host.open


@pytest.mark.parametrize("policy", ["report", "close", "restart"])
def test_what_it_is_about_to_do_is_told_before_it_is_done(policy):
    slot = watching(policy=policy)
    slot.busy()
    slot.host.wedge("a")
    before = slot.of_engines()
    slot.until(lambda: slot.told["action"])
    told, of_engines, state = next(seen for seen in slot.tells if seen[0]["action"])
    assert (of_engines, state.open) == (before, True)
    assert ([row["verdict"] for row in told["engines"]], told["action"]["what"]) == (["wedged"], policy)
    assert told["counts"] == dict.fromkeys(told["counts"], 0) | {policy: 1}


def test_a_wedge_is_told_as_long_as_its_process_runs_closed():
    slot = watching(policy="close", ask_every_s=60, verify_every_s=600)
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: not slot.host.open)
    slot.host.generations_on = [[]]
    slot.looks(100)
    assert (slot.verdicts, slot.told["counts"]["close"], slot.told["verification"]) == (["wedged"], 1, None)
    assert "closed" in slot.told["engines"][0]["reason"]
    slot.host.engine().live_fault = ""
    assert b70ctl(slot.host, "verify")[0] == 0
    slot.looks(1)
    assert slot.verdicts != ["wedged"]
    slot.busy()
    slot.host.wedge("a")
    slot.until(lambda: not slot.host.open)
    assert slot.told["counts"]["close"] == 2
    switch(slot.host, "b")
    slot.looks(1)
    assert slot.told["profile"] == "b"
    assert slot.verdicts != ["wedged"]


def test_the_closed_one_of_several_is_told_beside_those_that_serve():
    slot = watching(replicas=3, policy="close", verify_every_s=600)
    slot.looks(1)
    slot.busy(1)
    slot.host.wedge("a", 1)
    slot.until(lambda: slot.told["action"])
    slot.host.generations = []
    slot.host.generations_on = [[]] * 3
    slot.looks(1)
    assert [(row["index"], row["verdict"]) for row in slot.told["engines"]] == [(0, "idle"), (1, "wedged"), (2, "idle")]
    # Those that serve are verified nevertheless.
    slot.until(lambda: slot.told["verification"])
    assert slot.verdicts[1] == "wedged"


@pytest.mark.parametrize("policy", ["close", "restart"])
def test_only_the_wedged_one_of_several_is_touched(policy):
    slot = watching(replicas=3, policy=policy)
    slot.looks(1)
    before = {unit.name: unit.invocation for unit in slot.host.units.values()}
    slot.busy(1)
    slot.host.wedge("a", 1)
    done = (lambda: slot.told["action"] is not None) if policy == "close" else (lambda: slot.told["action"]["outcome"])
    slot.until(lambda: slot.told["action"] is not None and done())
    after = {unit.name: unit.invocation for unit in slot.host.units.values()}
    wedged = LAYOUT.unit("a", 1)
    assert {name for name in before if before[name] != after[name]} == (set() if policy == "close" else {wedged})
    assert slot.host.open
    rows = slot.host.state.replicas
    assert [row["open"] for row in rows] == ([True, False, True] if policy == "close" else [True] * 3)
    if policy == "close":
        assert "wedged" in rows[1]["reason"]


def test_a_wedge_that_begins_while_nobody_asks_is_found_by_a_question():
    slot = watching(policy="restart")
    first = slot.host.engine().invocation
    slot.host.wedge("a", running=0)
    slot.until(lambda: slot.host.engine().invocation != first)
    assert slot.host.state.verified


def test_a_core_that_hangs_before_it_counts_its_first_request_is_found():
    slot = watching(policy="report", ask_every_s=0)
    slot.looks(1)
    slot.busy()
    slot.host.wedge("a", running=0)
    slot.until(lambda: slot.verdicts == ["wedged"], limit=30)


def test_a_client_that_reads_slowly_is_no_wedge():
    slot = watching(policy="restart", ask_every_s=0)
    first = slot.host.engine().invocation
    slot.busy()  # the frontdoor holds an answer for it; the engine has long been done
    slot.looks(200)
    assert slot.host.engine().invocation == first
    assert "wedged" not in slot.verdicts


def test_nothing_is_asked_while_somebody_is_served():
    slot = watching()
    slot.busy()
    slot.host.engine().running = 1
    before = slot.host.engine().tokens
    slot.looks(17)
    assert slot.host.engine().tokens == before


def test_nothing_is_done_beside_a_switch():
    slot = watching(policy="restart")
    slot.busy()
    slot.host.wedge("a")
    first = slot.host.engine().invocation
    slot.watch.look()
    slot.host.put(LAYOUT.lock_file, f"pid {slot.host.engine().pid} (anna) since 2026-06-07T09:00:00Z: b\n")
    slot.looks(40)
    assert (slot.verdicts, slot.journal(), slot.host.engine().invocation) == (["wedged"], [], first)


def test_a_host_in_quarantine_by_hand_is_left_alone():
    slot = watching(policy="restart")
    b70ctl(slot.host, "quarantine", "--why", "test")
    slot.host.wedge("a")
    slot.looks(40)
    assert slot.journal() == []


# --- the canary while idle


def test_an_idle_engine_is_verified_again():
    slot = watching(verify_every_s=3600)
    at, engine = slot.host.state.verified_at, slot.host.engine().invocation
    slot.looks(300)
    assert not slot.told["verification"]
    slot.until(lambda: slot.told["verification"] is not None)
    assert slot.told["verification"]["passed"] is True
    assert slot.host.state.verified_at > at
    assert slot.host.engine().invocation == engine


@pytest.mark.parametrize("seen", [True, False], ids=["gone at a look", "away between two looks"])
def test_a_remote_engine_that_was_away_is_verified_again(seen):
    away, told = [False], [""]
    slot = watching(verify_every_s=0, kind="openai")
    get = slot.watch.fx.http.get

    def relayed(url, limit_s):
        if not url.endswith("/health"):
            return get(url, limit_s)
        return Reply(503, "away") if away[0] else Reply(200, told[0])

    slot.watch.fx.http.get = relayed
    slot.looks(40)
    at = slot.host.state.verified_at
    if seen:
        away[0] = True
        slot.looks(3)
        away[0] = False
    told[0] = "1"
    slot.until(lambda: slot.host.state.verified_at > at)
    slot.looks(40)
    assert [attempt.kind for attempt in read_memory(slot.host.effects(), LAYOUT).attempts] == ["switch", "recheck"]


def test_verifications_do_not_push_switches_out_of_memory():
    slot = watching(verify_every_s=60)
    slot.looks(320)
    attempts = read_memory(slot.host.effects(), LAYOUT).attempts
    assert [attempt.kind for attempt in attempts] == ["switch", "recheck"]


@pytest.mark.parametrize(
    ("policy", "restarted", "is_open"), [("report", False, False), ("close", False, False), ("restart", True, True)]
)
def test_a_wrong_answer_leads_where_the_policy_says(policy, restarted, is_open):
    slot = watching(policy=policy, verify_every_s=600)
    engine = slot.host.engine().invocation
    slot.host.engine().live_fault = "wrong_answer"
    slot.host.gate_verified = False  # what was verified once answers wrongly now
    slot.until(lambda: slot.told["verification"] is not None)
    assert slot.told["verification"]["passed"] is False
    assert slot.host.open is is_open
    assert (slot.host.engine().invocation != engine) is restarted
    assert [line["action"] for line in slot.journal()] == ["restart" if restarted else "close"]
    assert "slh" not in json.dumps(slot.told)  # what was answered is not for everybody


def test_a_verification_that_failed_is_forgotten_when_another_process_was_verified():
    slot = watching(policy="restart", verify_every_s=600)
    slot.host.engine().live_fault = "wrong_answer"
    slot.host.gate_verified = False
    slot.until(lambda: slot.told["verification"] is not None)
    assert slot.told["verification"]["passed"] is False
    assert slot.host.state.verified
    slot.looks(1)
    assert slot.told["verification"] is None


def test_a_verification_that_failed_is_told_until_an_engine_was_verified():
    slot = watching(policy="report", verify_every_s=600)
    unit = slot.host.engine()
    unit.fault = unit.live_fault = "wrong_answer"  # also after a restart
    slot.host.gate_verified = False
    slot.until(lambda: slot.told["verification"] is not None)
    slot.looks(10)
    assert slot.told["verification"]["passed"] is False
    assert not slot.host.open
    unit.fault = ""
    slot.until(lambda: slot.host.open)
    slot.looks(1)
    assert slot.told["verification"] is None


def test_the_canary_gives_way_to_clients():
    slot = watching(policy="restart", verify_every_s=600, ask_every_s=0)
    engine = slot.host.engine()
    first, asked = engine.invocation, engine.answers
    effects = slot.host.effects()
    post = effects.http.post

    def and_a_client_comes(url, body, timeout_s):
        slot.busy()
        return post(url, body, timeout_s)

    effects.http.post = and_a_client_comes
    slot.watch = daemon.Controller(effects, LAYOUT, slot.said.append)
    slot.until(lambda: slot.told["verification"] is not None)
    assert slot.told["verification"]["passed"] is None
    assert (engine.invocation, slot.host.open, slot.host.state.verified) == (first, True, True)
    assert engine.answers <= asked + 1
    assert slot.journal() == []


@pytest.mark.parametrize("every_s", [0, 10**6])
def test_a_fault_of_a_card_makes_the_verification_due(every_s):
    slot = watching(verify_every_s=every_s, cards=1)
    slot.looks(7)
    slot.host.kernel_lines = (*slot.host.kernel_lines, RESET)
    slot.until(lambda: slot.told["verification"] is not None)
    assert slot.faults == 1
    assert slot.told["verification"]["passed"] is True
    slot.looks(100)
    assert [attempt.kind for attempt in read_memory(slot.host.effects(), LAYOUT).attempts] == ["switch", "recheck"]


def test_a_fault_of_a_card_leads_to_a_verification_beside_clients_as_long_as_the_engine_works():
    slot = watching(cards=1)
    slot.looks(7)
    slot.busy()
    slot.host.engine().running = 1
    slot.host.kernel_lines = (*slot.host.kernel_lines, RESET)
    # A request waits and nothing moves: the canary would wait, too.
    slot.looks(10)
    assert (slot.faults, slot.told["verification"]) == (1, None)
    slot.host.engine().tokens += 1
    slot.looks(1)
    assert slot.told["verification"]["passed"] is True


def test_what_is_only_due_waits_until_nobody_is_served():
    slot = watching(verify_every_s=60)
    slot.busy()
    slot.host.engine().running = 1
    for _look in range(40):
        slot.host.engine().tokens += 1
        slot.looks(1)
    assert slot.told["verification"] is None
    slot.host.generations_on, slot.host.engine().running = [[]], 0
    slot.until(lambda: slot.told["verification"] is not None)


@pytest.mark.parametrize("fault", ["garbage", "wrong_answer", "empty"])
def test_a_wrong_answer_to_the_watchdogs_question_leads_to_a_verification_at_once(fault):
    slot = watching(verify_every_s=0)
    slot.looks(1)
    slot.host.engine().live_fault = fault
    slot.host.gate_verified = False
    slot.until(lambda: not slot.host.open, limit=40)
    assert slot.told["verification"]["passed"] is False
    assert [line["action"] for line in slot.journal()] == ["close"]
    assert any("answered the watchdog's question wrongly" in line for line in slot.said)
    assert "!!!" not in json.dumps(slot.told)


def test_a_fault_of_a_card_of_another_slot_does_not():
    slot = watching(verify_every_s=10**6, cards=1)
    slot.looks(7)
    slot.host.kernel_lines = (*slot.host.kernel_lines, RESET.replace("0000:03", "0000:09"))
    slot.looks(20)
    assert (slot.faults, slot.told["verification"]) == (0, None)


def test_the_memory_and_the_faults_of_each_card_are_told():
    slot = watching(cards=2)
    slot.looks(7)
    memory = {"used": 2**28, "total": 32 * 2**30, "ecc": False}
    assert slot.told["cards"] == [
        {"pci": "0000:03:00.0", **memory, "faults": 0},
        {"pci": "0000:04:00.0", **memory, "faults": 0},
    ]
    slot.host.kernel_lines = (*slot.host.kernel_lines, RESET.replace("0000:03", "0000:04"))
    slot.host.memory_told = False
    slot.looks(7)
    assert [(row["used"], row["faults"]) for row in slot.told["cards"]] == [(None, 0), (None, 1)]


@pytest.mark.parametrize("every_s", [0, 10**6])
def test_streams_that_call_for_a_verification_get_one(every_s):
    slot = watching(verify_every_s=every_s)
    effects = slot.host.effects()
    get = effects.http.get

    def with_a_sentinel(url, timeout_s):
        reply = get(url, timeout_s)
        if not url.endswith("/status"):
            return reply
        told = json.loads(reply.text)
        told["slots"]["main"]["sentinel"] = {"verification_wanted_at": slot.host.state.verified_at}
        return replace(reply, text=json.dumps(told))

    effects.http.get = with_a_sentinel
    slot.watch = daemon.Controller(effects, LAYOUT, slot.said.append)
    slot.until(lambda: slot.told["verification"] is not None, limit=3)
    assert slot.told["verification"]["passed"] is True
    at = slot.told["verification"]["at"]
    slot.looks(int(daemon.AGAIN_S / LOOK_S) - 5)
    assert slot.told["verification"]["at"] == at


# --- the ladder


def lose(slot):
    """The engine dies of a lost card, and so does each that follows, until the host is told otherwise."""
    slot.host.logs[slot.host.engine().invocation] = ("INFO serving", LOST)
    slot.host.unit("a").fault = "device_lost"
    slot.host.crash("a")
    recover(slot.host)


def mend(slot):
    slot.host.unit("a").fault = ""


def serve_after_rebinding(slot):
    """The card is back once its driver is bound anew."""
    lose(slot)
    slot.host.bound_anew = lambda _address: mend(slot)
    slot.until(lambda: slot.host.open)


def test_without_the_policy_a_lost_card_is_left_to_the_quarantine():
    slot = watching(cards=1)
    lose(slot)
    slot.looks(30)
    assert slot.journal() == []
    assert not [change for change in slot.host.mutations if "bind" in change]


def test_the_driver_is_bound_anew_while_the_engine_is_down():
    slot = watching(cards=1, device_loss="rebind")
    serve_after_rebinding(slot)
    assert [change for change in slot.host.mutations if "bind" in change] == [
        "unbind 0000:03:00.0",
        "bind 0000:03:00.0",
    ]
    assert slot.host.state.verified
    assert [line["action"] for line in slot.journal()] == ["rebind"]


def test_only_the_driver_of_the_lost_card_is_bound_anew():
    slot = watching(cards=2, device_loss="rebind")
    slot.looks(7)
    # It was told after the last look at the kernel's log.
    slot.host.kernel_lines = (*slot.host.kernel_lines, WEDGED.replace("0000:03", "0000:04"))
    serve_after_rebinding(slot)
    assert [change for change in slot.host.mutations if "bind" in change] == [
        "unbind 0000:04:00.0",
        "bind 0000:04:00.0",
    ]
    assert slot.told["counts"]["rebind"] == 1


def test_the_driver_of_all_cards_is_bound_anew_where_nobody_knows_which_is_lost():
    slot = watching(cards=2, device_loss="rebind")
    serve_after_rebinding(slot)
    assert [change for change in slot.host.mutations if change.startswith("bind")] == [
        "bind 0000:03:00.0",
        "bind 0000:04:00.0",
    ]


def test_a_card_that_stays_lost_ends_in_a_quarantine_by_hand():
    slot = watching(cards=1, device_loss="rebind")
    lose(slot)
    slot.until(lambda: len(slot.journal()) == 2)
    assert [line["action"] for line in slot.journal()] == ["rebind", "quarantine"]
    slot.looks(30)
    assert len(slot.journal()) == 2
    assert "reboot" not in slot.host.mutations


def test_the_host_is_rebooted_once():
    slot = watching(cards=1, device_loss="reboot")
    lose(slot)
    slot.until(lambda: "reboot" in slot.host.mutations)
    assert [line["action"] for line in slot.journal()] == ["rebind", "reboot"]
    slot.host.going_down = False
    slot.host.reboot()
    recover(slot.host)
    slot.watch = daemon.Controller(slot.host.effects(), LAYOUT, slot.said.append)
    slot.until(lambda: len(slot.journal()) == 3)
    assert slot.journal()[-1]["action"] == "quarantine"
    assert slot.host.mutations.count("reboot") == 1


def test_an_engine_that_hangs_on_a_lost_card_is_killed_first():
    slot = watching(cards=1, device_loss="rebind", policy="report")
    slot.looks(7)
    slot.busy()
    slot.host.wedge("a")
    slot.host.kernel_lines = (*slot.host.kernel_lines, WEDGED)
    slot.until(slot.journal)
    assert [line["action"] for line in slot.journal()] == ["rebind"]
    assert slot.host.open
    assert slot.host.state.verified


def test_a_slot_that_a_person_stopped_stays_down():
    slot = watching(cards=1, device_loss="reboot")
    lose(slot)
    b70ctl(slot.host, "stop")
    slot.looks(30)
    assert slot.journal() == []


# --- the service


def test_it_ends_when_its_program_is_replaced():
    slot = watching()
    program = PurePosixPath(daemon.__file__).parent / "daemon.py"
    slot.host.put(program, "1")
    looks = []

    def replaced(seconds):
        looks.append(seconds)
        slot.host.mono += seconds
        if len(looks) == 3:
            slot.host.put(program, "2")

    daemon.run(slot.watch, lambda: False, replaced)
    assert looks == [LOOK_S] * 3


def test_it_ends_when_it_is_told_to():
    slot = watching()
    looks: list[float] = []
    daemon.run(slot.watch, lambda: len(looks) == 2, looks.append)
    assert (looks, slot.said) == ([LOOK_S] * 2, [])


def test_a_look_that_fails_is_followed_by_the_next():
    slot = watching()
    slot.host.unreadable.add(LAYOUT.lock_file)
    looks: list[float] = []
    daemon.run(slot.watch, lambda: len(looks) == 2, looks.append)
    assert "the next one follows" in slot.said[0]
