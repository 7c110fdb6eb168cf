# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shipped recipes of owners: what they need is public, and what was measured is said with its host and its software."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks

STACKS = load_stacks()
CATALOGUE = load_catalogue(stacks=STACKS)
# Name and cards.
RECIPES = {
    "gemma4-26b-a4b-int4": 1,
    "qwen35-9b-w4a16": 1,
    "qwen38-27b-fp8": 1,
    "qwen38-27b-fp8-tp2": 2,
    "qwen38-27b-fp8-tp4": 4,
    "qwen38-27b-gptq-int4": 1,
    "qwen38-27b-int4": 1,
    "qwen38-27b-int4-autoround": 1,
    "qwen38-27b-int4-tp2": 2,
}


@pytest.fixture(params=sorted(RECIPES))
def recipe(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CATALOGUE[request.param]


def test_cards_and_tensor_parallelism_agree(recipe: dict[str, Any]) -> None:
    assert recipe["cards"] == RECIPES[recipe["name"]]
    assert recipe["engine"]["settings"]["tensor_parallel_size"] == recipe["cards"]
    assert recipe["engine"]["devices"] == list(range(recipe["cards"]))


def test_it_runs_on_public_wheels_and_runs_no_code_of_a_model_repository(recipe: dict[str, Any]) -> None:
    stack = STACKS[recipe["stack"]]
    assert stack["installable"]
    assert "sources" not in stack
    assert recipe["engine"]["settings"]["trust_remote_code"] is False


def test_evidence_names_source_host_software_and_a_verdict(recipe: dict[str, Any]) -> None:
    evidence = recipe["evidence"]
    assert {"source", "grade", "host_class", "stack", "tok_s", "quality"} <= set(evidence)


def test_nothing_counts_as_proven_on_a_stack_that_it_was_not_measured_on(recipe: dict[str, Any]) -> None:
    assert recipe["evidence"]["stack"] not in STACKS
    failed = recipe["evidence"]["quality"]["verdict"] == "failed"
    assert recipe["status"] == ("rejected" if failed else "candidate")


def test_thinking_models_have_the_parsers_that_users_expect(recipe: dict[str, Any]) -> None:
    settings = recipe["engine"]["settings"]
    assert settings["reasoning_parser"]
    assert settings["tool_call_parser"]
    assert settings["enable_auto_tool_choice"]


def test_no_more_requests_are_admitted_than_the_engine_takes(recipe: dict[str, Any]) -> None:
    assert recipe["frontdoor"]["max_active_generations"] <= recipe["engine"]["settings"]["max_num_seqs"]


def test_one_profile_is_recommended_for_each_number_of_cards() -> None:
    counts = [count for profile in CATALOGUE.values() for count in (profile["recommended"] or {}).get("cards", [])]
    assert sorted(counts) == [0, 1, 2, 4]


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_what_is_recommended_has_just_so_many_cards_and_may_be_served(cards: int) -> None:
    (profile,) = (item for item in CATALOGUE.values() if cards in (item["recommended"] or {}).get("cards", []))
    assert profile["cards"] == cards
    assert profile["status"] not in ("rejected", "blocked")
    assert profile["evidence"]["quality"]["verdict"] != "failed"
