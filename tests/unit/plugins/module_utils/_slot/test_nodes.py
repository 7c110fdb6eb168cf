# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine over several hosts: what follows from what nodes say of themselves."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.node_server import NodeServer
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model import node_key, nodes
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.network import Floor, LinkMeasurement
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.nodes import (
    ENDED,
    REFUSED,
    RUNS,
    Act,
    FollowerPart,
    Group,
    Node,
    NodeReport,
    Offer,
    Wish,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import NodePart, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import SlotFault, UnitState
from unit.plugins.module_utils._slot.fake_host import profile_data

GROUP = Group(0, 18200, (Node("alpha", "10.0.0.1"), Node("beta", "10.0.0.2"), Node("gamma", "fd00::3")))
NAMES = ("alpha", "beta", "gamma")
WISH = Wish("big", "sha256:big-1", 3, "e1")
BIG = parse_profile(json.dumps({**profile_data("big"), "node": {"rank": 0, "count": 3}}), "big")
RUNNING = FollowerPart("big", "e1", RUNS)


def report(name="beta", **changes):
    offers = {"big": Offer("sha256:big-1")}
    hears = tuple(other for other in NAMES if other != name)
    return NodeReport(**{"name": name, "at": 100.0, "hosts": NAMES, "offers": offers, "hears": hears, **changes})


def follow(wish=WISH, silence=0.0, part=None, part_runs=False, rank=1, part_age=0.0):
    return nodes.follow(wish, silence, part, part_runs=part_runs, rank=rank, part_age_s=part_age)


def test_reports_come_back_as_they_were():
    whole = report("beta", wish=WISH, part=FollowerPart("big", "e1", REFUSED, "no weights"))
    assert nodes.parse_report(whole.to_json(), "node beta") == whole


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 1}', '{"schema": 1, "name": "b", "at": "x", "hosts": []}'])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(SlotFault, match="node beta"):
        nodes.parse_report(text, "node beta")


def test_another_version_is_named():
    with pytest.raises(SlotFault, match=r"node beta: schema is 2, this version reads 1; run site\.yml for both"):
        nodes.parse_report(json.dumps({"schema": 2}), "node beta")


def test_a_follower_starts_a_part_of_each_new_engine_once():
    assert follow() == Act(start=WISH)
    assert follow(part=RUNNING, part_runs=True) == Act()
    # What was refused or has ended is not begun again for an engine that runs: the leader's next one is.
    for state in (REFUSED, ENDED):
        assert follow(part=replace(RUNNING, state=state), part_age=99.0) == Act()
    assert follow(part=replace(RUNNING, epoch="e0", state=ENDED)) == Act(start=WISH)
    assert follow(part=replace(RUNNING, epoch="e0"), part_runs=True).stop == "the leader restarts its engine"


@pytest.mark.parametrize("state", [REFUSED, ENDED])
def test_a_follower_tries_again_while_the_leader_still_waits(state):
    waits, part = replace(WISH, waits=True), replace(RUNNING, state=state)
    assert follow(waits, part=part, part_age=14.9) == Act()
    assert follow(waits, part=part, part_age=15.0) == Act(start=waits)
    assert follow(waits, part=RUNNING, part_runs=True, part_age=99.0) == Act()


def test_a_follower_stops_a_part_that_nobody_wants():
    assert "needs no part" in follow(None, part=RUNNING, part_runs=True).stop
    assert follow(None) == Act()
    # The last node of the group has no part in an engine over the first two.
    assert follow(replace(WISH, count=2), rank=2) == Act()
    assert "needs no part" in follow(replace(WISH, count=2), part=RUNNING, part_runs=True, rank=2).stop


def test_a_follower_outlives_a_silent_leader_only_so_long():
    assert follow(None, 29.0, RUNNING, True) == Act()
    assert "has not answered for 30 s" in follow(None, 30.0, RUNNING, True).stop
    assert follow(None, 3000.0) == Act()


def test_a_leader_knows_when_its_engine_lost_a_part():
    both = {name: report(name, part=RUNNING) for name in ("beta", "gamma")}
    assert nodes.lost(GROUP, WISH, both, {}) == ""
    assert nodes.lost(GROUP, replace(WISH, count=2), {"beta": both["beta"]}, {"gamma": 99.0}) == ""
    # One that is silent for a moment is not lost yet.
    assert nodes.lost(GROUP, WISH, {"beta": both["beta"]}, {"gamma": 9.0}) == ""
    assert nodes.lost(GROUP, WISH, {"beta": both["beta"]}, {"gamma": 10.0}) == "node gamma has not answered for 10 s"
    ended = replace(RUNNING, state=ENDED, reason="b70-slot-main-big.service is failed")
    assert "beta is gone from the engine: b70-slot-main-big.service is failed" in nodes.lost(
        GROUP, WISH, {**both, "beta": report("beta", part=ended)}, {}
    )
    older = report("beta", part=replace(RUNNING, epoch="e0"))
    assert "it runs no part of this engine" in nodes.lost(GROUP, WISH, {**both, "beta": older}, {})
    # Who asks for the first time does not know for how long one has been silent.
    assert nodes.lost(GROUP, WISH, {"beta": both["beta"]}, {}) == ""


def awaited(reports, urgent=False):
    return nodes.awaited(GROUP, WISH, reports, urgent=urgent)


def test_an_engine_waits_for_all_parts_and_a_switch_gives_up_early():
    assert awaited({}) == "node beta"
    one = {"beta": report("beta", part=RUNNING)}
    assert awaited(one) == "node gamma"
    assert awaited({**one, "gamma": report("gamma", part=RUNNING)}, urgent=True) == ""
    # A part of the engine before is not one of this.
    assert awaited({**one, "gamma": report("gamma", part=replace(RUNNING, epoch="e0"))}, urgent=True) == "node gamma"
    refused = {
        **one,
        "gamma": report("gamma", part=FollowerPart("big", "e1", REFUSED, "the weights of big are missing")),
    }
    assert awaited(refused) == "node gamma, which runs no part of big: the weights of big are missing"
    with pytest.raises(SlotFault, match="node gamma runs no part of big: the weights of big are missing"):
        awaited(refused, urgent=True)


@pytest.mark.parametrize(
    ("active", "sub", "wished"),
    [
        ("active", "running", True),
        ("activating", "start-pre", True),
        ("activating", "auto-restart", False),
        ("deactivating", "stop-sigterm", False),
        ("failed", "failed", False),
    ],
)
def test_a_leader_wishes_for_parts_of_the_process_that_runs_or_is_about_to(active, sub, wished):
    unit = UnitState("b70-slot-main-big.service", active=active, sub=sub, main_pid=7, invocation_id="e1")
    assert nodes.wish_of(BIG, unit) == (replace(WISH, waits=active != "active") if wished else None)
    assert nodes.wish_of(replace(BIG, node=NodePart(1, 3)), unit) is None
    assert nodes.wish_of(replace(BIG, node=None), unit) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hosts": ("alpha", "gamma", "beta")}, "is in another group than this host"),
        ({"name": "delta"}, "is in another group than this host"),
        ({"offers": {}}, "does not have big"),
        ({"offers": {"big": Offer("sha256:big-2")}}, "has another big: .* expected sha256:big-1; got sha256:big-2"),
        (
            {"offers": {"big": Offer("sha256:big-1", "the stack cpu is not installed")}},
            "the stack cpu is not installed",
        ),
        ({"offers": {"big": Offer("sha256:big-1", weights="w2")}}, "has other weights of big.* expected w1; got w2"),
        ({"busy": "it ends its part of small"}, "is at work: it ends its part of small"),
        ({"hears": ("alpha",)}, "does not hear node beta"),
        ({"at": 39.0}, r"the clock of node gamma \(fd00::3\) is -61 s off"),
    ],
)
def test_the_guard_names_the_node_that_could_not_take_part(changes, words):
    good = {"beta": report("beta"), "gamma": report("gamma")}
    nodes.check_others(GROUP, BIG, good, 100.0, "w1")
    with pytest.raises(SlotFault) as caught:
        nodes.check_others(GROUP, BIG, {**good, "gamma": report(**{"name": "gamma", **changes})}, 100.0, "w1")
    fault = caught.value
    text = f"{fault.message} expected {fault.expected}; got {fault.got}"
    assert "node gamma" in text
    assert re.search(words, text)


def test_a_silent_node_fails_the_guard():
    with pytest.raises(SlotFault, match=r"node beta \(10.0.0.2\) of big does not answer: refused"):
        nodes.check_others(GROUP, BIG, {"beta": "refused", "gamma": report("gamma")}, 100.0)


FLOOR = Floor(1.0, 500.0)
GOOD = {
    "beta": LinkMeasurement(("10.0.0.1", "10.0.0.2"), 1.17, 1.16, 80.0, "2026-11-25"),
    "gamma": LinkMeasurement(("10.0.0.1", "fd00::3"), 1.0, 1.0, 500.0, "2026-11-25"),
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sent_gb_s": 0.99},
            r"bandwidth sent: 0.99 GB/s is below the floor of 1 GB/s \(b70_nodes.bandwidth_min_gb_s\)",
        ),
        ({"received_gb_s": 0.117}, "bandwidth received: 0.117 GB/s is below"),
        ({"latency_us": 1500.4}, r"latency: 1500 us is above the limit of 500 us \(b70_nodes.latency_max_us\)"),
    ],
)
def test_the_guard_refuses_a_link_that_was_measured_below_the_floor(changes, words):
    group = replace(GROUP, floor=FLOOR)
    links = {**GOOD, "gamma": replace(GOOD["gamma"], **changes)}
    assert nodes.check_network(group, BIG, GOOD) == []
    with pytest.raises(SlotFault, match=rf"node gamma \(fd00::3\) is too slow for big. {words}.*measured 2026-11-25"):
        nodes.check_network(group, BIG, links)
    # Who insists, and a profile that leaves that node out.
    assert nodes.check_network(GROUP, BIG, links) == []
    assert nodes.check_network(group, replace(BIG, node=NodePart(0, 2)), links) == []


def test_a_link_that_was_not_measured_is_a_warning():
    group = replace(GROUP, floor=FLOOR)
    moved = {**GOOD, "gamma": replace(GOOD["gamma"], between=("10.0.0.1", "fd00::4"))}
    for links in ({"beta": GOOD["beta"]}, moved):
        (said,) = nodes.check_network(group, BIG, links)
        assert "the network to node gamma (fd00::3) was not measured" in said
        assert "playbooks/evaluate.yml" in said
    assert nodes.check_network(GROUP, BIG, {}) == []


def test_addresses_of_both_families():
    assert [GROUP.url(node) for node in GROUP.hosts[1:]] == [
        "http://10.0.0.2:18200",
        "http://[fd00::3]:18200",
    ]


KEY, OTHER = "k" * 32, "o" * 32


def test_a_question_and_its_answer_prove_themselves():
    asked = node_key.question(KEY, "beta", "n1")
    status, body = node_key.respond(KEY, "beta", asked, "what it says")
    assert (status, node_key.believed(KEY, "beta", "n1", body)) == (200, "what it says")
    # Another node, another nonce, another key, and an answer that was changed on its way.
    for key, name, nonce, text in (
        (KEY, "gamma", "n1", body),
        (KEY, "beta", "n2", body),
        (OTHER, "beta", "n1", body),
        (KEY, "beta", "n1", body.replace("says", "said")),
        (KEY, "beta", "n1", "what it says"),
    ):
        with pytest.raises(SlotFault, match=r"does not have the key of this host; set b70_nodes.key"):
            node_key.believed(key, name, nonce, text)
    # Nothing is said to strangers, nor to who asks another node, and a question can't be changed.
    for key, name, path in (
        (OTHER, "beta", asked),
        (KEY, "gamma", asked),
        (KEY, "beta", "/node"),
        (KEY, "beta", asked.replace("n1", "n2")),
        (KEY, "beta", f"{asked}&mac=\u00e9"),
    ):
        assert node_key.respond(key, name, path, "what it says") == (403, "")
    assert node_key.respond(KEY, "beta", "/else", "what it says") == (404, "")
    assert node_key.respond(KEY, "beta", asked, None) == (503, "")


def test_what_is_no_key_is_refused_and_never_shown():
    assert node_key.checked(f"{KEY}\n", "the file") == KEY
    for text in (None, "", "short-and-secret"):
        with pytest.raises(SlotFault, match="the file has no key of this group") as caught:
            node_key.checked(text, "the file")
        assert "secret" not in str(caught.value)


def test_a_service_that_looks_at_nothing_says_nothing():
    assert not report(age=10.0).stale
    assert report(age=10.1).stale
    # Unless it said what it does meanwhile, which has an end too.
    assert not report(age=300.0, busy="it ends its part of big").stale
    assert report(age=601.0, busy="it ends its part of big").stale


def test_the_server_answers_by_its_path():
    server = NodeServer("127.0.0.1", 0, lambda path: (200, "what it says") if path == "/node?x=1" else (403, ""))
    url = f"http://127.0.0.1:{server.port}"
    try:
        with urllib.request.urlopen(f"{url}/node?x=1", timeout=600) as answer:
            assert answer.read() == b"what it says"
        for question in (f"{url}/node", urllib.request.Request(f"{url}/node?x=1", data=b"x", method="POST")):
            with pytest.raises(urllib.error.HTTPError, match=r"403|501"):
                urllib.request.urlopen(question, timeout=600)
    finally:
        server.close()
