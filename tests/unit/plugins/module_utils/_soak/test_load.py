# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of a cycle: what is sent, and what the answers amount to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._soak.load import bodies
from unit.plugins.module_utils._slot.fake_host import profile_data
from unit.plugins.module_utils._soak.test_judging import PLAN


def asked(number: int = 1, **changes: Any) -> list[dict[str, Any]]:
    profile = parse_profile(json.dumps(profile_data("a", **changes)), "a.json")
    return bodies(profile, PLAN, number, "soak-1")


def test_as_many_as_planned_and_no_two_alike() -> None:
    sent = asked(engine__max_model_len=4096)
    assert len(sent) == 8
    assert len({json.dumps(body["messages"]) for body in sent}) > 1
    assert len({body["cache_salt"] for body in sent}) == 8
    assert {(body["max_tokens"], body["ignore_eos"], body["temperature"]) for body in sent} == {(512, True, 0)}
    assert all(body["stream"] and body["stream_options"]["include_usage"] for body in sent)
    assert len(sent[0]["messages"][0]["content"].split()) <= 100 + 2
    assert sent != asked(2, engine__max_model_len=4096)
    # No request of the load is taken for one of the canary.
    assert {body["seed"] for body in sent}.isdisjoint({20260607})


@pytest.mark.parametrize("length", [8, 64, 256, 512])
def test_it_fits_a_small_context(length: int) -> None:
    for body in asked(engine__max_model_len=length):
        assert 1 <= body["max_tokens"] < length


def test_an_engine_of_another_kind_is_asked_only_what_it_knows() -> None:
    assert not {"ignore_eos", "cache_salt"} & set(asked(engine__kind="llama")[0])


def test_a_model_that_writes_no_text_has_no_load() -> None:
    assert asked(engine__task="embed") == []


def test_a_plan_without_a_load_sends_nothing() -> None:
    profile = parse_profile(json.dumps(profile_data("a")), "a.json")
    assert bodies(profile, replace(PLAN, concurrency=0), 1, "soak-1") == []
