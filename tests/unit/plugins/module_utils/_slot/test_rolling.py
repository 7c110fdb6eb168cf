# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas that are replaced one after the other, so that enough of them serve at every moment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.rendering import Rendering
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, OnFailure, Phase
from unit.plugins.module_utils._slot.calls import check, killed_anywhere, made_once, names, recover, switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, profile_data, rendering

UNITS = [LAYOUT.unit("r", number) for number in range(3)]
STACK = "/opt/b70/stacks/cpu-2222222222"
NEW = {"fingerprint": "sha256:r-2", "stack__id": "cpu-2222222222"}


class Watched(FakeHost):
    """Three replicas, and the least number of them that clients could reach since `watch`."""

    least: int | None = None

    def watch(self):
        self.least = 3

    def check(self):
        super().check()
        if self.least is not None and self.state is not None:
            up = {unit.invocation for unit in self.units.values() if unit.up}
            rows = self.state.replicas or ()
            reached = [row for row in rows if row["open"] and row["engine"]["invocation_id"] in up]
            self.least = min(self.least, len(reached) if self.open else 0)


@pytest.fixture
def fake_host():
    """A host that serves three replicas of r."""
    found = Watched()
    found.render("a")
    found.render("r", replicas=3)
    assert switch(found, "r")["outcome"] == "committed"
    found.watch()
    return found


def hold(fake_host, faults=(), **changes):
    """Renders r anew. faults: what the new engines do wrong, by the number of the replica."""
    data = {"replicas": 3, **NEW, **changes}
    argv = [f"{STACK}/venv/bin/vllm", "serve", "/models/r", "--port", "18080"]
    data.setdefault("engine__argv", argv)
    fake_host.put(PurePosixPath(argv[0]), "#!")
    fake_host.put(PurePosixPath(f"{STACK}/fingerprint.json"), '{"stack_id": "cpu-2222222222"}')
    new = rendering("r", stack__dir=STACK, **data)
    profile, pairs = json.loads(new.profile), list(new.engines)
    for number, fault in dict(faults).items():
        env = profile["engine"]["replicas"][number]["env"]
        env["FAULT"] = fault
        pairs[number] = (pairs[number][0], json.dumps(env))
    new = Rendering("r", *pairs[0], json.dumps(profile, indent=2) + "\n", tuple(pairs[1:]))
    fake_host.put(LAYOUT.pending("r"), new.to_json())
    return new


def last_entry(fake_host):
    return json.loads(fake_host.texts[LAYOUT.journal_file][0].splitlines()[-1])


def runs_from(fake_host):
    """The stack of each replica's process."""
    return [fake_host.unit("r", number).cmdline[1].split("/")[4] for number in range(3)]


def test_a_new_stack_goes_from_replica_to_replica(fake_host):
    new = hold(fake_host)
    result = switch(fake_host, "r")
    assert result["outcome"] == "committed", result["msg"]
    assert fake_host.least == 2
    assert runs_from(fake_host) == ["cpu-2222222222"] * 3
    state = fake_host.state
    assert (state.open, state.verified, state.fingerprint) == (True, True, "sha256:r-2")
    assert [(row["open"], row["verified"]) for row in state.replicas] == [(True, True)] * 3
    assert fake_host.enabled == UNITS
    assert fake_host.texts[LAYOUT.committed_file][0] == new.to_json()
    assert LAYOUT.pending("r") not in fake_host.texts
    entry = last_entry(fake_host)
    assert (entry["way"], entry["turned_away_s"]) == ("rolling", 0.0)
    assert result["way"] == "rolling"
    fake_host.assert_invariants()
    assert switch(fake_host, "r")["outcome"] == "unchanged"


def test_what_is_predicted_is_what_is_done(fake_host):
    hold(fake_host)
    told = check(fake_host, "r")
    assert told["way"] == "rolling"
    switch(fake_host, "r")
    assert told["actions"] == last_entry(fake_host)["actions"]
    assert told["actions"][:5] == [
        "close the frontdoor for replica 0",
        f"stop {UNITS[0]}",
        "put the new rendering of r in place",
        f"start {UNITS[0]}",
        "open the frontdoor for r, replica 0",
    ]


def test_a_restart_goes_from_replica_to_replica(fake_host):
    before = [fake_host.unit("r", number).invocation for number in range(3)]
    result = switch(fake_host, "r", restart=True)
    assert (result["outcome"], fake_host.least) == ("committed", 2)
    assert not {*before} & {fake_host.unit("r", number).invocation for number in range(3)}


def test_clients_are_told_of_the_old_profile_until_the_last_replica_is_open(fake_host):
    hold(fake_host)
    told: list[tuple[str, tuple[bool, ...]]] = []
    seen = fake_host.check

    def look():
        seen()
        state = fake_host.state
        said = (state.fingerprint, tuple(row["open"] for row in state.replicas))
        if not told or told[-1] != said:
            told.append(said)

    fake_host.check = look
    switch(fake_host, "r")
    assert {fingerprint for fingerprint, opened in told if not all(opened)} == {"sha256:r-1"}
    assert told[-1] == ("sha256:r-2", (True, True, True))
    assert [opened for _fingerprint, opened in told].count((True, True, True)) >= 3


@pytest.mark.parametrize(("least", "open_at_least", "starts_together"), [(1, 1, 2), (2, 2, 1)])
def test_min_serving_decides_how_many_are_replaced_together(fake_host, least, open_at_least, starts_together):
    hold(fake_host)
    result = switch(fake_host, "r", min_serving=least)
    assert (result["outcome"], fake_host.least) == ("committed", open_at_least)
    words = [
        action.partition(" ")[0] for action in last_entry(fake_host)["actions"] if action.startswith(("start", "open"))
    ]
    assert words.index("open") == starts_together


def test_new_weights_are_read_before_the_first_replica_is_stopped(fake_host):
    path = PurePosixPath("/models/r-2/model.safetensors")
    fake_host.put(path.with_name("config.json"), "{}")
    fake_host.put(path, "x")
    hold(fake_host, model__path="/models/r-2")
    fake_host.prefetched.clear()
    result = switch(fake_host, "r")
    assert (result["outcome"], result["way"], fake_host.least) == ("committed", "rolling", 2)
    assert fake_host.prefetched == [path]
    assert names(result)[3:6] == ["journal", "prepare", "close"]
    assert names(result).count("prepare") == 1


def test_min_serving_counts_where_only_some_replicas_are_started_anew(fake_host):
    for number in (0, 1):
        fake_host.effects().units.stop(UNITS[number])
    fake_host.least = None
    result = switch(fake_host, "r", min_serving=2)
    assert result["outcome"] == "untouched"
    assert "min_serving is 2, which is impossible: at most 1 of 3 replicas go on serving" in result["msg"]
    assert switch(fake_host, "r", min_serving=1)["outcome"] == "committed"


@pytest.mark.parametrize("least", [3, 7])
def test_min_serving_that_no_way_can_keep_is_refused_before_anything_is_touched(fake_host, least):
    hold(fake_host)
    result = switch(fake_host, "r", min_serving=least)
    assert (result["outcome"], fake_host.least) == ("untouched", 3)
    assert f"min_serving is {least}, which is impossible: at most 2 of 3 replicas go on serving" in result["msg"]


def test_min_serving_is_refused_where_the_profile_changes(fake_host):
    result = switch(fake_host, "a", min_serving=1)
    assert (result["outcome"], fake_host.least) == ("untouched", 3)
    assert "a has one engine" in result["msg"]


@pytest.mark.parametrize(
    "changes",
    [
        {"min_serving": 0},
        {"gate": Gate.HEALTHY},
        {"on_failure": OnFailure.STOP},
        {"on_failure": OnFailure.LEAVE},
    ],
)
def test_where_it_was_asked_for_all_stop_together(fake_host, changes):
    hold(fake_host)
    fake_host.gate_verified = "gate" not in changes
    result = switch(fake_host, "r", **changes)
    assert (result["outcome"], result["way"], fake_host.least) == ("committed", "plain", 0)


@pytest.mark.parametrize("changes", [{"replicas": 2}, {"engine__served_model_name": "other"}])
def test_what_clients_could_tell_apart_is_not_mixed(fake_host, changes):
    hold(fake_host, **changes)
    assert check(fake_host, "r")["way"] == "plain"


@pytest.mark.parametrize("fault", ["exit_at_start", "wrong_answer", "health_500"])
@pytest.mark.parametrize("replica", [0, 1, 2])
def test_one_that_fails_takes_all_back_one_by_one(fake_host, fault, replica):
    hold(fake_host, {replica: fault})
    before = fake_host.texts[LAYOUT.committed_file][0]
    result = switch(fake_host, "r")
    assert result["outcome"] == "rolled_back", result["msg"]
    assert result["failure"]["replica"] == replica
    assert fake_host.least == 2
    assert runs_from(fake_host) == ["cpu-1a2b3c4d5e"] * 3
    assert fake_host.state.fingerprint == "sha256:r-1"
    assert [(row["open"], row["verified"]) for row in fake_host.state.replicas] == [(True, True)] * 3
    assert fake_host.texts[LAYOUT.committed_file][0] == before
    assert fake_host.enabled == UNITS
    fake_host.assert_invariants()
    assert switch(fake_host, "r", min_serving=0)["outcome"] == "rolled_back", "the new rendering still waits"


def test_replicas_that_were_not_touched_keep_their_process_on_the_way_back(fake_host):
    hold(fake_host, {1: "wrong_answer"})
    before = fake_host.unit("r", 2).invocation
    switch(fake_host, "r")
    assert fake_host.unit("r", 2).invocation == before


def test_one_that_fails_both_ways_is_closed_and_says_why(fake_host):
    hold(fake_host)
    fake_host.unit("r", 1).fault = "wrong_answer"
    result = switch(fake_host, "r")
    assert result["outcome"] == "degraded", result["msg"]
    assert fake_host.running == [UNITS[0], UNITS[2]]
    assert [row["open"] for row in fake_host.state.replicas] == [True, False, True]
    assert "on the way back" in result["msg"]
    assert "phase canary" in fake_host.state.replicas[1]["reason"]


def test_the_streams_of_a_replica_end_before_it_stops(fake_host):
    hold(fake_host)
    begun = fake_host.mono
    fake_host.generations_on = [[], [begun + 500.0], []]
    fake_host.generations = [begun + 500.0]
    result = switch(fake_host, "r", drain_timeout_s=1000.0)
    assert result["outcome"] == "committed"
    drains = [phase["seconds"] for phase in result["phases"] if phase["name"] == "drain"]
    assert drains[0] < 1.0, "those of another replica are not waited for"
    assert drains[1] > 400.0


def test_streams_that_last_longer_than_the_drain_are_told(fake_host):
    hold(fake_host)
    fake_host.generations_on = [[], [], [fake_host.mono + 1e6]]
    result = switch(fake_host, "r", drain_timeout_s=5.0)
    assert result["outcome"] == "committed"
    assert "1 generations still ran after 5 s of draining and were ended" in result["warnings"]


def effects_of_a_switch():
    fake_host = served()
    hold(fake_host)
    before = fake_host.effects_done
    switch(fake_host, "r")
    return fake_host.effects_done - before


@made_once
def served():
    fake_host = FakeHost()
    fake_host.render("r", replicas=3)
    for unit in fake_host.units.values():
        unit.load_s = 1.0
    switch(fake_host, "r")
    return fake_host


@pytest.mark.parametrize("faults", [{}, {1: "wrong_answer"}])
@pytest.mark.parametrize("then", ["settle", "reboot"])
def test_killed_anywhere_then_settled_by_the_host(faults, then):
    """Three of one verified rendering serve in the end: that of before, or the new one where that was committed."""
    # Every case takes another of the moments.
    first = 1 + len(faults) + 2 * (then == "reboot")
    held = served()
    hold(held, faults)
    for number, fake_host in killed_anywhere(held, lambda host: switch(host, "r"), first, 20):
        if then == "reboot":
            fake_host.mono += 30
            fake_host.reboot()
            assert not fake_host.open
        for _each in range(6):
            result = recover(fake_host)
            assert not result["failed"], (number, result["msg"])
        fake_host.assert_invariants()
        assert [(row["open"], row["verified"]) for row in fake_host.state.replicas] == [(True, True)] * 3, number
        assert len({*runs_from(fake_host)}) == 1, (number, runs_from(fake_host))
        fake_host.unit("r", 1).fault = ""
        assert fake_host.enabled == UNITS


def test_told_to_end_anywhere_leaves_one_rendering_served():
    seen = set()
    for number in range(1, effects_of_a_switch() + 1, 17):
        fake_host = served()
        hold(fake_host)
        fake_host.told_at = fake_host.effects_done + number
        result = switch(fake_host, "r")
        seen.add(result["outcome"])
        assert result["outcome"] in ("committed", "rolled_back", "untouched"), (number, result["msg"])
        fake_host.assert_invariants()
        wanted = "cpu-2222222222" if result["outcome"] == "committed" else "cpu-1a2b3c4d5e"
        assert runs_from(fake_host) == [wanted] * 3, number
    assert seen == {"committed", "rolled_back", "untouched"}


def test_the_phases_come_once_for_each_batch(fake_host):
    hold(fake_host)
    names = [phase["name"] for phase in switch(fake_host, "r")["phases"]]
    assert names.count(Phase.CANARY) == names.count(Phase.OPEN) == names.count(Phase.DRAIN) == 3
    assert names[-2:] == [Phase.ENABLE, Phase.COMMIT]


def test_a_profile_like_another_is_no_reason_to_mix_them(fake_host):
    fake_host.render("s", replicas=3)
    assert check(fake_host, "s")["way"] == "plain"
    assert profile_data("s", 3)["engine"]["replicas"][0]["backend_url"] == "http://127.0.0.1:18080"


def test_a_replica_that_is_not_served_is_replaced_first(fake_host):
    hold(fake_host)
    state = fake_host.state
    rows = [dict(row) for row in state.replicas]
    rows[1] |= {"open": False, "verified": False, "reason": "it is not verified yet"}
    fake_host.put(LAYOUT.state_file, replace(state, replicas=rows).to_json())
    predicted = check(fake_host, "r")
    assert predicted["way"] == "rolling"
    starts = [action for action in predicted["actions"] if action.startswith("start ")]
    assert starts == [f"start {UNITS[place]}" for place in (1, 0, 2)]
