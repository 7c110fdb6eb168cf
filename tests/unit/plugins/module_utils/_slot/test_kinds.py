# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every kind of engine, and for one that this version does not know."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import (
    DEFAULT,
    KINDS,
    kind_of,
    kind_of_engine,
)
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.published import reason_of
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Direction, Failure, Phase, Reply

EVERY = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
# What is started on this host; the other kinds only relay.
HERE = {name: kind for name, kind in KINDS.items() if not kind.remote}
OF_THIS_HOST = pytest.mark.parametrize("kind", HERE.values(), ids=list(HERE))


@EVERY
def test_a_kind_says_what_it_must(kind):
    assert kind.name
    assert kind.title
    assert kind.kill_signal in ("SIGINT", "SIGTERM", "SIGQUIT")
    assert kind.steps
    assert not [symptom.id for symptom in kind.symptoms if symptom.fatal and symptom.harmless]


@OF_THIS_HOST
def test_an_engine_of_this_host_gets_its_command_line_from_the_slot(kind):
    assert kind.metrics.tokens
    places = {"venv": "/v", "stack_dir": "/s", "model_path": "/m", "model_file": "/m/f", "cache_root": "/c"}
    argv = kind.command(places, "127.0.0.1", 18080, "name")
    assert argv[0].startswith(("/v/bin/", "/s/bin/"))
    assert {"127.0.0.1", "18080", "name"} < set(argv)
    assert all(isinstance(word, str) for word in argv)
    assert kind.arguments("a_b", None, ()) == []
    assert kind.arguments("a_b", True, ()) == ["--a-b"]
    assert kind.arguments("a_b", 8, ()) == ["--a-b", "8"]


@OF_THIS_HOST
def test_a_prompt_can_be_kept_apart_from_the_cache(kind):
    body = {"model": "m"}
    assert kind.apart(body, "s") != body
    assert kind.apart(body, "s") | body == kind.apart(body, "s")
    assert body == {"model": "m"}


def test_an_answer_is_made_as_long_as_it_may_be_where_that_was_tried():
    body = {"model": "m"}
    asked = {name: kind.full_length(body) for name, kind in KINDS.items()}
    full = {**body, "ignore_eos": True}
    assert asked == {"vllm": full, "llama-server": full, "openai": body}
    assert kind_of("of another version").full_length(body) == body == {"model": "m"}


def test_a_symptom_means_the_same_whoever_has_it():
    said: dict[str, set[str]] = {}
    for kind in KINDS.values():
        for symptom in kind.symptoms:
            said.setdefault(symptom.id, set()).add(symptom.meaning)
    assert [name for name, meanings in said.items() if len(meanings) > 1] == []


@EVERY
def test_clients_are_told_what_a_symptom_means(kind):
    for symptom in kind.symptoms:
        failure = Failure(Phase.HEALTH, Direction.FORWARD, "m", symptom=symptom.id)
        assert reason_of([failure]).endswith(symptom.meaning)


def test_a_profile_that_names_none_has_the_default_one():
    assert (kind_of_engine({}), kind_of_engine({"kind": None}), kind_of_engine({"kind": "vllm"})) == (DEFAULT,) * 3


def test_of_an_unknown_kind_what_every_engine_has_is_read():
    kind = kind_of("of another version")
    models = Reply(200, json.dumps({"data": [{"id": "m", "max_model_len": 5}]}))
    assert kind.served(models) == ("m", None)
    assert kind.apart({"a": 1}, "s") == {"a": 1}
    assert diagnose(["RuntimeError: UR_RESULT_ERROR_DEVICE_LOST"], kind=kind) is None


@EVERY
def test_a_kind_without_a_sleep_never_sleeps(kind):
    asked = {"enable_sleep_mode": True}
    assert kind.sleeps(asked) is (kind.sleep is not None) is (kind.name == "vllm")
    assert not kind.sleeps({})
