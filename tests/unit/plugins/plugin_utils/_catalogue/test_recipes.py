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
    "flash-next-w4a16": 4,
    "flash-next-w4a16-mtp3": 4,
    "gemma4-26b-a4b-int4": 1,
    "qwen35-9b-w4a16": 1,
    "qwen35-9b-w4a16-image": 1,
    "qwen36-35b-a3b-fp8-dflash": 2,
    "qwen38-27b-exl3": 1,
    "qwen38-27b-fp8": 1,
    "qwen38-27b-fp8-dflash2": 2,
    "qwen38-27b-fp8-image": 1,
    "qwen38-27b-fp8-tp2": 2,
    "qwen38-27b-fp8-tp2-image": 2,
    "qwen38-27b-fp8-tp4": 4,
    "qwen38-27b-gptq-180w": 1,
    "qwen38-27b-gptq-int4": 1,
    "qwen38-27b-int4": 1,
    "qwen38-27b-int4-030-image": 1,
    "qwen38-27b-int4-autoround": 1,
    "qwen38-27b-int4-autoround-image": 1,
    "qwen38-27b-int4-tp2": 2,
}
# Recipes that cannot be served, because something that they need is not public.
BLOCKED = (
    "flash-next-262k",
    "flash-next-autoround",
    "flash-next-awq",
    "gemma4-26b-a4b-int4-mtp3",
    "laguna-s21-int4",
    "nemotron35-lightning-int4",
)
# What their owners recorded: digest of the image, commit of the weights, commit of the draft, window, streams.
EXL3 = "sha256:21412bdd7535e9c653eeb3d099dce3bc79a83d440def2cd9556111c79c870fa8"
WU1FF_27B = "sha256:78a3720f542f8d7974aa6cf38eff4bfd612fcecb1bc7c06a42ddeb4d6febe1aa"
WU1FF_35B = "sha256:8360c9a7e3d8e1bfb890d1f57cd59533958bf5140331d144eb05beb9ac8bc790"
WU1FF_FLASH = "sha256:85512b52c09fa660a2e7fe441417129e7c47fac727fd85f66ccea6b65e0a9122"
VLLM_030 = "sha256:fc0e112afb64e3a06fe8daff34652435822a629412f38efce8f0f67a46636b8d"
FLASH = "40b8f18df4d4a32cb6e687a51c78207e5e438522"
RECORDED = {
    "qwen38-27b-exl3": (EXL3, "113cf7ab958054860e43fb7f3063b1af19171095", None, 262144, 16),
    "qwen38-27b-gptq-180w": (VLLM_030, "a47b0c6f0d756bc394c4cc629d5b0ded1acc7001", None, 200704, 4),
    "qwen38-27b-int4-030-image": (VLLM_030, "2fb0debc365fb6c1683d7d3ad7722470919627a8", None, 131072, 4),
    "qwen38-27b-fp8-dflash2": (
        *(WU1FF_27B, "017b9c7af6b5689d5dd426a76e0bc077eb5ca20a", "dedf8df68adfb1afeaf7b7480c0a0243108177b4"),
        *(32768, 256),
    ),
    "qwen36-35b-a3b-fp8-dflash": (
        *(WU1FF_35B, "95a723d08a9490559dae23d0cff1d9466213d989", "f181eece646affea2c38b2765f1aaa01a9734ccd"),
        *(32768, 8),
    ),
    "flash-next-w4a16": (WU1FF_FLASH, FLASH, None, 32768, 16),
    "flash-next-w4a16-mtp3": (WU1FF_FLASH, FLASH, None, 32768, 4),
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
    assert recipe["status"] in (("rejected",) if failed else ("candidate", "experiment"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recipe_is_what_its_owner_recorded(name: str) -> None:
    profile = CATALOGUE[name]
    model, settings = profile["model"], profile["engine"]["settings"]
    found = (
        *(STACKS[profile["stack"]]["image"]["digest"], model["revision"], model.get("draft", {}).get("revision")),
        *(settings["max_model_len"], settings["max_num_seqs"]),
    )
    assert found == RECORDED[name]


@pytest.mark.parametrize("name", BLOCKED)
def test_a_recipe_that_needs_what_is_not_public_says_when_and_why(name: str) -> None:
    profile = CATALOGUE[name]
    assert profile["status"] == "blocked"
    assert profile["status_reason"].startswith("2026-11-25: ")
    assert profile["evidence"]["tok_s"]


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_what_may_be_served_has_a_stack_that_can_be_installed(name: str) -> None:
    profile = CATALOGUE[name]
    assert STACKS[profile["stack"]]["installable"] or profile["status"] == "blocked"


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
