# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm-up: what is sent and when, what ends it, and what its failure means in each direction."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import token_prompts
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Gate, Reply
from unit import contracts
from unit.plugins.module_utils._slot.calls import host
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHttp, profile_data, request

LONG = {"prompt_tokens": 700, "output_tokens": 8, "concurrency": 1}
MANY = {"prompt_tokens": 20, "output_tokens": 4, "concurrency": 3}
SHAPES = [LONG, MANY]


class Warmed(FakeHttp):
    """An engine that takes prompts as tokens. wrong: the reply to the request with this number, from 1 on."""

    def __init__(self, fake_host, wrong=None, tokens=600, seconds=0.5):
        super().__init__(fake_host)
        self.wrong, self.tokens, self.seconds, self.sent = wrong or {}, tokens, seconds, []

    def post(self, url, body, timeout_s):
        if url.endswith(token_prompts.TOKENIZE):
            return Reply(200, json.dumps({"tokens": list(range(self.tokens))})) if self.tokens else Reply(404, "no")
        if "prompt" not in body:
            return super().post(url, body, timeout_s)
        self._host.step()
        self._host.mono += self.seconds
        engine = self._ready(url)
        self.sent.append((None if engine is None else LAYOUT.profile_of(engine.name), body))
        found = self.wrong.get(len(self.sent), Reply(200, "{}"))
        return found() if callable(found) else found


@pytest.fixture
def fake_host():
    found = host("ab", load_s=1.0)
    found.render("b", warmup={"shapes": SHAPES, "limit_s": 60})
    return found


def switch(fake_host, name, http, **changes):
    return api.switch(replace(fake_host.effects(), http=http), LAYOUT, request(name, **changes))


def phases(result, direction="forward"):
    return [row["name"] for row in result["phases"] if row["direction"] == direction]


def ends(fake_host):
    lines = fake_host.effects().files.read(LAYOUT.journal_file).splitlines()
    return [row for row in map(json.loads, lines) if row["event"] == "end"]


def test_the_shapes_are_sent_before_the_canary_and_kept_in_the_journal(fake_host):
    http = Warmed(fake_host)
    result = switch(fake_host, "b", http)
    assert result["verified"]
    names = phases(result)
    assert names[names.index("first_token") :][:3] == ["first_token", "warm_up", "canary"]
    bodies = [body for _profile, body in http.sent]
    assert [(len(body["prompt"]), body["max_tokens"]) for body in bodies] == [(700, 8), *[(20, 4)] * 3]
    assert all(body["ignore_eos"] for body in bodies)
    assert len({tuple(body["prompt"][:20]) for body in bodies}) == 4, "a prompt is found in the prefix cache"
    (end,) = ends(fake_host)
    contracts.check("journal", json.dumps(end))
    shown = [{key: row[key] for key in LONG} for row in end["warmup"]]
    assert shown == SHAPES
    assert [row["seconds"] for row in end["warmup"]] == pytest.approx([0.5, 1.5], abs=0.2)


def test_a_profile_without_one_has_no_such_phase(fake_host):
    result = switch(fake_host, "a", http := Warmed(fake_host))
    assert result["verified"]
    assert "warm_up" not in phases(result)
    assert http.sent == []
    assert "warmup" not in ends(fake_host)[-1]


@pytest.mark.parametrize(("gate", "sent"), [(Gate.HEALTHY, 4), (Gate.NONE, 0)])
def test_the_gate_decides_whether_it_is_waited_for(fake_host, gate, sent):
    http = Warmed(fake_host)
    assert not switch(fake_host, "b", http, gate=gate)["failed"]
    assert len(http.sent) == sent


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({1: Reply(400, "too long")}, "1 x 700 tokens with answers of 8 (expected 200; got 400 too long)"),
        (
            {3: Reply(0, error="connection broke")},
            "3 x 20 tokens with answers of 4 (expected 200; got connection broke)",
        ),
    ],
)
def test_a_failed_warm_up_is_a_failed_switch(fake_host, wrong, said):
    switch(fake_host, "a", Warmed(fake_host))
    result = switch(fake_host, "b", Warmed(fake_host, wrong))
    fake_host.assert_invariants()
    assert (result["outcome"], result["failure"]["phase"], result["profile"]) == ("rolled_back", "warm_up", "a")
    assert said in result["msg"]
    assert "canary" not in phases(result)


def test_an_engine_that_makes_no_tokens_can_not_be_warmed_up(fake_host):
    switch(fake_host, "a", Warmed(fake_host))
    result = switch(fake_host, "b", Warmed(fake_host, tokens=0))
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "warm_up")
    assert "the engine does not tokenize at /tokenize" in result["msg"]


def test_its_limit_is_for_all_shapes_together(fake_host):
    switch(fake_host, "a", Warmed(fake_host))
    result = switch(fake_host, "b", http := Warmed(fake_host, seconds=61))
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "warm_up")
    assert "was not done within 60 s; give it more time (warmup.limit_s)" in result["msg"]
    assert len(http.sent) == 1, "another shape was begun after the limit"


def test_an_engine_that_ends_meanwhile_is_not_waited_for(fake_host):
    switch(fake_host, "a", Warmed(fake_host))

    def dies():
        fake_host.crash("b")
        return Reply(0, error="connection broke")

    result = switch(fake_host, "b", Warmed(fake_host, {1: dies}))
    assert (result["outcome"], result["failure"]["phase"]) == ("rolled_back", "warm_up")
    assert "connection broke" not in result["msg"], "the engine's end is what happened"


def test_what_comes_back_is_warmed_up_and_not_given_up_for_it(fake_host):
    switch(fake_host, "b", Warmed(fake_host))
    fake_host.render("a", warmup={"shapes": [MANY], "limit_s": 60})
    # a fails in its first request, b in the first one on the way back
    http = Warmed(fake_host, {1: Reply(500, "broken"), 2: Reply(500, "busy")})
    result = switch(fake_host, "a", http)
    fake_host.assert_invariants()
    assert (result["outcome"], result["profile"], result["verified"]) == ("rolled_back", "b", True)
    assert "warm_up" in phases(result, "back")
    assert any("is verified without its warm-up" in text for text in result["warnings"])


def test_an_engine_that_serves_is_asked_again_without_one(fake_host):
    switch(fake_host, "b", Warmed(fake_host))
    http = Warmed(fake_host)
    result = switch(fake_host, "b", http, recheck=True)
    assert result["verified"]
    assert http.sent == []


def test_every_replica_is_warmed_up(fake_host):
    fake_host.render("b", replicas=2, warmup={"shapes": [MANY], "limit_s": 60})
    result = switch(fake_host, "b", http := Warmed(fake_host))
    assert result["verified"], result["msg"]
    assert len(http.sent) == 6
    assert [row["replica"] for row in ends(fake_host)[-1]["warmup"]] == [0, 1]


def test_the_rendered_shapes_hold_to_the_contract():
    contracts.check(
        "resolved-profile",
        json.dumps(
            {"unit_sha256": "0" * 64, **profile_data("a", warmup={"shapes": SHAPES, "limit_s": 60}, power_cap_w=210)}
        ),
    )
