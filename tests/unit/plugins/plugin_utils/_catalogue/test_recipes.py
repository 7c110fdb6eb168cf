# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shipped recipes of owners: what they need is public, and what was measured is said with its host and its software."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.checking import cards_needed
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import SHIPPED
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.rules import left_for_host
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from unit import shipped
from unit.shipped import load_inline

ROOT = SHIPPED.parents[2]
STACKS = load_stacks()
CATALOGUE = shipped.profiles()
# Name and cards.
RECIPES = {
    "flash-next-w4a16": 4,
    "flash-next-w4a16-mtp3": 4,
    "gemma4-26b-a4b-int4": 1,
    "gpt-oss-120b-mxfp4": 4,
    "gpt-oss-20b-mxfp4": 1,
    "qwen35-9b-w4a16": 1,
    "qwen35-9b-w4a16-image": 1,
    "qwen36-35b-a3b-fp8-dflash": 2,
    "qwen36-35b-a3b-fp8-dflash-tp4": 4,
    "qwen36-35b-a3b-int4-dflash": 2,
    "qwen36-35b-a3b-int4-dflash-tp4": 4,
    "qwen36-35b-a3b-int4-llm-scaler": 1,
    "qwen38-27b-exl3": 1,
    "qwen38-27b-fp8": 1,
    "qwen38-27b-fp8-dflash2": 2,
    "qwen38-27b-fp8-image": 1,
    "qwen38-27b-fp8-tp2": 2,
    "qwen38-27b-fp8-tp2-image": 2,
    "qwen38-27b-fp8-tp4": 4,
    "qwen38-27b-fp8-tp4-image": 4,
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
    "gemma4-26b-a4b-q8-gguf-mtp",
    "laguna-s21-int4",
    "nemotron35-lightning-int4",
)
# What their owners recorded.
RECORDED = yaml.safe_load(Path(__file__).with_name("recorded_recipes.yml").read_text())


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


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["profile"])
def test_a_recipe_is_what_its_owner_recorded(row: dict[str, Any]) -> None:
    profile = CATALOGUE[row["profile"]]
    model, engine, evidence = profile["model"], profile["engine"], profile["evidence"]
    draft = model.get("draft") or {}
    assert model["hf_repo"] == row.get("repo")
    assert (model["revision"] or "").startswith(row.get("revision", ""))
    assert profile["cards"] == row.get("cards", 1)
    assert profile["replicas"] == row.get("replicas", 1)
    assert profile["power_cap_w"] == row.get("power_cap_w")
    if "digest" in row:
        assert STACKS[profile["stack"]]["image"]["digest"] == f"sha256:{row['digest']}"
    if "sha256" in row:
        assert model["sha256"][model["file"]] == row["sha256"]
    if "bytes" in row:
        assert model["size_gb"] == pytest.approx(row["bytes"] / 1e9, abs=0.05)
    if "remote" in row:
        assert engine["remote"]["model"] == row["remote"]
    if "draft" in row:
        assert draft["hf_repo"] == row["draft"]
    if "draft_revision" in row:
        assert draft["revision"] == row["draft_revision"]
    if "draft_sha256" in row:
        assert list(draft["sha256"].values()) == [row["draft_sha256"]]
    if "kv_cache_tokens" in row:
        assert evidence["kv_cache_tokens"] == row["kv_cache_tokens"]
    for name, value in row.get("settings", {}).items():
        assert engine["settings"][name] == value, name
    if "draft_tokens" in row:
        speculation = engine["settings"].get("speculative_config") or {}
        assert speculation.get("num_speculative_tokens", 0) == row["draft_tokens"]
    keys = ("value", "up_to", "streams", "cards")
    figures = [tuple(figure.get(key) for key in keys) for figure in evidence.get("tok_s", [])]
    for wanted in row["toks"]:
        assert (*wanted, *([None] * (4 - len(wanted)))) in figures
    if "date" in row:
        assert evidence["date"] == row["date"]
    assert evidence["source"] != "none recorded"
    if "verdict" in row:
        assert evidence["quality"]["verdict"] == row["verdict"]
    assert profile["status"] in ([row["status"]] if "status" in row else ("candidate", "experiment"))


def test_no_recipe_of_an_owner_is_left_out() -> None:
    shipped = {row["profile"] for row in RECORDED}
    assert {*RECIPES, *BLOCKED} - shipped <= {
        # The same weights and settings on the makers' wheels, or a window of another size.
        *("gemma4-26b-a4b-int4", "qwen38-27b-fp8-tp2", "qwen38-27b-fp8-tp4", "qwen38-27b-int4", "qwen38-27b-int4-tp2"),
    }


@pytest.mark.parametrize("name", BLOCKED)
def test_a_recipe_that_needs_what_is_not_public_says_when_and_why(name: str) -> None:
    profile = CATALOGUE[name]
    assert profile["status"] == "blocked"
    assert profile["status_reason"].startswith("2026-11-2")
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
    assert cards_needed(profile) == cards
    assert profile["status"] not in ("rejected", "blocked")
    assert profile["evidence"]["quality"]["verdict"] != "failed"


# What the engines of public records had in their environment, as their owners publish it.
ENVIRONMENTS = {
    # bklinkradt/arc-b70-llm-stack, qwen-vllm/docker-compose.yml
    "vllm": {"VLLM_XPU_ENABLE_XPU_GRAPH": "0", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
    "vllm-tp2": {
        "VLLM_XPU_ENABLE_XPU_GRAPH": "0",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "CCL_ENABLE_SYCL_KERNELS": "1",
    },
    # epsilonagentx/intel_arc_gpu_llm, vllm_openai_xpu/compose.yaml
    "vllm-openai-xpu": {"SYCL_CACHE_PERSISTENT": "0", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
}
# Where the slot's own paths, the choice of cards and loopback come from: no record has those of this host.
OF_THE_SLOT = ("GLOO_SOCKET_IFNAME", "CCL_KVS_IFACE", "FI_TCP_IFACE", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")


@pytest.mark.parametrize(
    ("cards", "name", "records"),
    [
        (1, "qwen38-27b-int4", ["vllm-openai-xpu"]),
        (2, "qwen38-27b-int4-tp2-image", ["vllm-tp2"]),
        (4, "qwen38-27b-int4-replicas", ["vllm-openai-xpu"]),
    ],
)
def test_what_is_recommended_has_the_environment_of_a_public_record(cards: int, name: str, records: list[str]) -> None:
    profile = CATALOGUE[name]
    assert cards in profile["recommended"]["cards"]
    assert set(profile["recommended"]["record"]) == {"source", "runtime", "firmware"}
    assert not profile["accepted_rules"]
    lines = explain(profile, STACKS[profile["stack"]], {})
    begin, end = (next(i for i, line in enumerate(lines) if line.startswith(text)) for text in ENDS)
    shown = [line.partition("  <- ")[::2] for line in lines[begin + 1 : end]]
    ours = dict(
        text.split("=", 1) for text, origin in shown if not origin.startswith("slot") and "LD_LIBRARY" not in text
    )
    for record in records:
        ours_alone = {key: value for key, value in ours.items() if key not in OF_THE_SLOT}
        assert ours_alone.items() <= ENVIRONMENTS[record].items()
    assert ours["ZE_AFFINITY_MASK"] == ",".join(map(str, range(profile["cards"])))
    # Nothing that tunes collectives or lets cards open each other's memory.
    assert {key for key in ours if key.startswith("CCL_")} <= {"CCL_KVS_IFACE"}


ENDS = ("The engine's environment", "The engine's command")
RECOMMENDED: dict[str, Any] = {
    "name": "x",
    "status": "candidate",
    "stack": "vllm-openai-xpu-0.30.0-runtime-26.35",
    "cards": 1,
    "model": {"directory": "m"},
    "engine": {"settings": {"max_model_len": 2048}},
    "recommended": {
        "cards": [1],
        "reason": "It is quick.",
        "record": {"source": "an owner", "runtime": "26.35.39758.10", "firmware": "GuC 70.72.1"},
    },
    "evidence": {"source": "an owner", "quality": {"verdict": "passed"}},
}
UNRECORDED = {"cards": [1], "reason": "It is quick."}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recommended": UNRECORDED}, "recommended.record: is missing: name a public record"),
        (
            {"recommended": {**UNRECORDED, "record": {"source": "an owner", "runtime": "26.27", "firmware": "?"}}},
            "recommended.record.runtime: is 26.27, but the image of vllm-openai-xpu-0.30.0-runtime-26.35 has 26.35",
        ),
        (
            {"recommended": {**UNRECORDED, "record": {"source": "an owner", "runtime": "26.35"}}},
            "recommended.record.firmware: is missing",
        ),
        (
            {"evidence": {"source": "an owner", "quality": {"verdict": "unknown"}}},
            "a verdict on quality, which is unknown",
        ),
        ({"evidence": {"source": "an owner"}}, "a verdict on quality, which is unknown"),
        ({"evidence": {"source": "none recorded", "quality": {"verdict": "passed"}}}, "needs evidence with a source"),
        (
            {"model": {"directory": "m", "experts": True}, "accepts_rules": ["experts-race"]},
            "recommended: does not go with the rule experts-race, which the profile breaks",
        ),
        ({"min_runtime": "26.40"}, "min_runtime: is 26.40, but the image of"),
    ],
)
def test_a_recommendation_without_a_good_record_is_refused(changes: dict[str, Any], said: str) -> None:
    assert load_inline({"x": RECOMMENDED}, stacks=STACKS)
    with pytest.raises(CatalogueError) as caught:
        load_inline({"x": RECOMMENDED | changes}, stacks=STACKS)
    assert said in str(caught.value)


def test_the_runtime_of_a_host_is_left_to_the_host() -> None:
    """Whether it comes from Intel's repository, its releases on GitHub or the PPA."""
    two = {**CATALOGUE["qwen38-27b-int4-tp2"], "accepts_rules": []}
    (left,) = left_for_host(two, STACKS["xpu"])
    for version, bad in {
        "26.27.39122.11-0": True,
        "26.27.39122.11-1~24.04~ppa1": True,
        "26.31.39395.13-1146~24.04": False,
        "26.35.39758.10-0": False,
        "26.270.1": False,
    }.items():
        assert bool(re.search(left["matches"], version)) is bad, version
    assert 'gpu_driver_github_release "26.35"' in left["reason"]
    assert left_for_host(CATALOGUE["qwen38-27b-int4"], STACKS["xpu"]) == []
    assert left_for_host(two, STACKS["vllm-openai-xpu-0.31.0"]) == []


def test_the_driver_from_github_is_none_that_hangs_several_cards() -> None:
    defaults = yaml.safe_load((ROOT / "roles/gpu_driver/defaults/main.yml").read_text())
    assert defaults["gpu_driver_github_release"] == "26.35"
