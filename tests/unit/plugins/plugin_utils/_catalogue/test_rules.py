# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of a stack: when one holds, what a profile that breaks it is told, and how one is accepted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.rules import broken, common, left_for_proof
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, stack_id
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from unit.shipped import load_inline

WORDS = {"reason": "It hangs", "remedy": "Use one card.", "source": "vllm 41663"}


def stack(**when: Any) -> dict[str, Any]:
    """A manifest with one rule; dots of a path are written as two underscores."""
    conditions = {path.replace("__", "."): condition for path, condition in when.items()}
    return {"name": "s", "installable": False, "rules": [{"id": "r", "when": conditions, **WORDS}]}


def profile(settings: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "p", "cards": 2, "engine": {"settings": settings or {}}, **more}


TIER = {
    "engine.settings.kv_offloading_size": {"min_per": {"path": "engine.settings.tensor_parallel_size", "value": 31}}
}
CONNECTOR = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"cpu_bytes_to_use": 62 * 2**30}}
GRAPHS = "engine.settings.compilation_config.cudagraph_mode"
SIZES = "engine.settings.compilation_config.cudagraph_capture_sizes"
MTP = "engine.settings.speculative_config.num_speculative_tokens"


@pytest.mark.parametrize(
    ("condition", "settings", "holds"),
    [
        ({"cards": {"min": 2}}, {}, True),
        (TIER, {}, False),
        (TIER, {"kv_offloading_size": 30.9}, False),
        (TIER, {"kv_offloading_size": 31}, True),
        (TIER, {"kv_offloading_size": 61, "tensor_parallel_size": 2}, False),
        (TIER, {"kv_offloading_size": 62, "tensor_parallel_size": 2}, True),
        (TIER, {"kv_transfer_config": CONNECTOR, "tensor_parallel_size": 2}, True),
        (TIER, {"kv_transfer_config": {**CONNECTOR, "kv_connector": "NixlConnector"}}, False),
        ({"cards": {"min": 3}}, {}, False),
        ({"cards": {"max": 2, "min": 2}}, {}, True),
        ({"engine.settings.enable_prefix_caching": {"equals": True}}, {"enable_prefix_caching": True}, True),
        ({"engine.settings.enable_prefix_caching": {"equals": True}}, {}, False),
        ({"engine.settings.enable_prefix_caching": {"equals": True, "default": True}}, {}, True),
        (
            {"engine.settings.enable_prefix_caching": {"equals": True, "default": True}},
            {"enable_prefix_caching": False},
            False,
        ),
        ({GRAPHS: {"not_equals": "NONE", "default": "FULL_AND_PIECEWISE"}}, {}, True),
        (
            {GRAPHS: {"not_equals": "NONE", "default": "PIECEWISE"}},
            {"compilation_config": {"cudagraph_mode": "NONE"}},
            False,
        ),
        ({SIZES: {"not_power_of_two": True}}, {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8]}}, False),
        ({SIZES: {"not_power_of_two": True}}, {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 6]}}, True),
        ({SIZES: {"not_power_of_two": True}}, {}, False),
        (
            {SIZES: {"not_multiple_of": {"path": MTP, "plus": 1}}},
            {
                "speculative_config": {"num_speculative_tokens": 3},
                "compilation_config": {"cudagraph_capture_sizes": [4, 8]},
            },
            False,
        ),
        (
            {SIZES: {"not_multiple_of": {"path": MTP, "plus": 1}}},
            {
                "speculative_config": {"num_speculative_tokens": 3},
                "compilation_config": {"cudagraph_capture_sizes": [4, 6]},
            },
            True,
        ),
        (
            {SIZES: {"not_multiple_of": {"path": MTP, "plus": 1}}},
            {"compilation_config": {"cudagraph_capture_sizes": [6]}},
            False,
        ),
        ({"engine.settings.speculative_config": {"present": True}}, {"speculative_config": {"method": "mtp"}}, True),
        ({"engine.settings.speculative_config": {"present": True}}, {}, False),
        ({"engine.settings.speculative_config": {"present": False}}, {}, True),
        (
            {"engine.settings.speculative_config.method": {"matches": "mtp$"}},
            {"speculative_config": {"method": "qwen3_next_mtp"}},
            True,
        ),
        ({"engine.settings.quantization": {"one_of": ["fp8", "quark"]}}, {"quantization": "fp8"}, True),
        ({"cards": {"min": 2}, "engine.settings.quantization": {"equals": "fp8"}}, {}, False),
    ],
)
def test_a_rule_holds_when_all_its_conditions_do(
    condition: dict[str, Any], settings: dict[str, Any], holds: bool
) -> None:
    rules = stack() | {"rules": [{"id": "r", "when": condition, **WORDS}]}
    assert bool(broken(profile(settings), rules)) is holds


def test_a_rule_sees_variables_of_the_stack_and_what_typed_words_stand_for() -> None:
    rules = stack(engine__env__SYCL_CACHE_PERSISTENT={"equals": "1"})
    assert not broken(profile(), rules)
    assert broken(profile(), rules | {"env": {"SYCL_CACHE_PERSISTENT": "1"}})
    assert not broken(
        profile(engine={"env": {"SYCL_CACHE_PERSISTENT": "0"}}), rules | {"env": {"SYCL_CACHE_PERSISTENT": "1"}}
    )
    collectives = profile(engine={"collectives": {"transport": "ofi"}})
    assert broken(collectives, stack(engine__env__CCL_ATL_TRANSPORT={"equals": "ofi"}))
    online = profile(engine={"online_quantization": {"method": "fp8"}})
    assert broken(online, stack(engine__settings__quantization={"equals": "fp8"}))


BASE: dict[str, Any] = {
    "name": "x",
    "status": "experiment",
    "stack": "ours",
    "cards": 2,
    "model": {"directory": "m"},
    "engine": {"settings": {"max_model_len": 2048, "tensor_parallel_size": 2}},
}


@pytest.fixture
def stacks(tmp_path: Any) -> dict[str, dict[str, Any]]:
    manifest = stack(engine__settings__tensor_parallel_size={"min": 2}) | {"name": "ours", "reason": "data only"}
    (tmp_path / "ours.yml").write_text(yaml.safe_dump(manifest))
    (tmp_path / "theirs.yml").write_text(
        yaml.safe_dump(
            {
                "name": "theirs",
                "installable": False,
                "reason": "data only",
                "based_on": "ours",
                "rules": [{"id": "r", "when": {"cards": {"min": 9}}, **WORDS}],
            }
        )
    )
    return load_stacks([tmp_path])


def refused(stacks: dict[str, dict[str, Any]], *profiles: dict[str, Any]) -> list[str]:
    with pytest.raises(CatalogueError) as caught:
        load_inline({item["name"]: item for item in profiles}, stacks=stacks)
    return [str(problem) for problem in caught.value.problems]


def test_a_profile_that_breaks_a_rule_is_refused_where_the_value_is_written(stacks: dict[str, dict[str, Any]]) -> None:
    child = {"name": "y", "extends": "x", "status": "experiment"}
    (told,) = refused(stacks, BASE, child)
    assert told == (
        'b70_profiles[x]: engine.settings.tensor_parallel_size: breaks the rule "r" of the stack ours: It hangs. '
        "Use one card. Source: vllm 41663. Whoever serves it all the same writes accepts_rules: [r]"
    )


def test_of_several_keys_one_is_enough_and_is_named(tmp_path: Any) -> None:
    manifest = {"name": "ours", "installable": False, "reason": "data only"}
    rule = {"id": "r", "when": {"engine.env.CCL_*": {"equals": ""}}, **WORDS}
    (tmp_path / "ours.yml").write_text(yaml.safe_dump({**manifest, "rules": [rule]}))
    blank = copy.deepcopy(BASE)
    blank["engine"]["env"] = {"CCL_ALLREDUCE": "ring", "CCL_LOG_LEVEL": "", "VLLM_LOGGING_PREFIX": ""}
    (told,) = refused(load_stacks([tmp_path]), blank)
    assert told.startswith('b70_profiles[x]: engine.env.CCL_LOG_LEVEL: breaks the rule "r"')


def test_cards_that_stages_use_count_as_well(tmp_path: Any) -> None:
    manifest = {"name": "ours", "installable": False, "reason": "data only"}
    rule = {"id": "r", "when": {"engine.workers": {"min": 2}}, **WORDS}
    (tmp_path / "ours.yml").write_text(yaml.safe_dump({**manifest, "rules": [rule]}))
    stages = copy.deepcopy(BASE)
    stages["engine"]["settings"] = {"max_model_len": 2048, "pipeline_parallel_size": 2}
    (told,) = refused(load_stacks([tmp_path]), stages)
    assert told.startswith('b70_profiles[x]: engine.settings.pipeline_parallel_size: breaks the rule "r"')


def test_a_rule_is_accepted_by_its_name(stacks: dict[str, dict[str, Any]]) -> None:
    accepts = {**BASE, "accepts_rules": ["r"]}
    found = load_inline({"x": accepts}, stacks=stacks)["x"]
    assert found["accepted_rules"] == [{"id": "r", "reason": "It hangs", "source": "vllm 41663"}]
    told = explain(found, stacks["ours"], {})
    assert "breaks the rule r of the stack on purpose: It hangs (vllm 41663)  <- b70_profiles[x]" in told
    harmless = copy.deepcopy(accepts)
    harmless["engine"]["settings"]["tensor_parallel_size"] = 1
    assert load_inline({"x": harmless}, stacks=stacks)["x"]["accepted_rules"] == []
    (fault,) = refused(stacks, {**BASE, "engine": harmless["engine"], "accepts_rules": ["rr"]})
    assert fault == 'b70_profiles[x]: accepts_rules[0]: no stack has a rule "rr"; did you mean "r"?'


def test_a_stack_that_is_based_on_another_changes_a_rule_by_its_id(stacks: dict[str, dict[str, Any]]) -> None:
    (rule,) = stacks["theirs"]["rules"]
    # conditions are merged like any mapping
    assert set(rule["when"]) == {"cards", "engine.settings.tensor_parallel_size"}
    assert load_inline({"x": {**BASE, "stack": "theirs"}}, stacks=stacks)


def test_a_rule_changes_no_installation() -> None:
    assert stack_id(stack()) == stack_id({**stack(), "rules": []})


SHIPPED_STACKS = load_stacks()
MTP3 = {"method": "qwen3_next_mtp", "num_speculative_tokens": 3}
CALM = {"compilation_config": {"cudagraph_mode": "NONE"}}


@pytest.mark.parametrize(
    ("stack_name", "more", "ids"),
    [
        ("xpu", {"settings": {}}, []),
        ("xpu", {"settings": {"tensor_parallel_size": 2}}, ["graphs-on-several-cards"]),
        ("xpu", {"settings": {"tensor_parallel_size": 2, "enforce_eager": True}}, []),
        ("xpu", {"settings": {"tensor_parallel_size": 2, **CALM}}, []),
        ("xpu", {"settings": {"tensor_parallel_size": 4, **CALM}}, ["four-cards-under-load"]),
        ("xpu-0.32", {"settings": {"tensor_parallel_size": 4, **CALM}}, ["four-cards-under-load"]),
        ("xpu", {"settings": {"tensor_parallel_size": 4, "max_num_seqs": 1, **CALM}}, []),
        # Sizes are a matter of one stack: a public production list has 12 and 24.
        ("xpu", {"settings": {"cudagraph_capture_sizes": [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32]}}, []),
        ("lumnus-flash-next", {"settings": {"cudagraph_capture_sizes": [1, 2, 4, 24]}}, ["graph-sizes"]),
        ("xpu", {"settings": {"tensor_parallel_size": 2, **CALM}, "collectives": {"memory": "p2p"}}, ["peer-access"]),
        ("xpu", {"settings": {"tensor_parallel_size": 2, **CALM}, "collectives": {"memory": "usm"}}, []),
        ("xpu", {"settings": CALM, "collectives": {"memory": "p2p"}}, []),
        ("xpu", {"settings": {"cudagraph_capture_sizes": [24], "enforce_eager": True}}, []),
        ("xpu", {"settings": {"speculative_config": MTP3}}, ["speculation-in-padded-graphs"]),
        ("xpu", {"settings": {"speculative_config": MTP3, "async_scheduling": False}}, []),
        ("xpu", {"settings": {"speculative_config": MTP3, "cudagraph_capture_sizes": [4, 8]}}, []),
        (
            "xpu",
            {"settings": {"speculative_config": MTP3, "cudagraph_capture_sizes": [2, 4]}},
            ["speculation-in-padded-graphs"],
        ),
        ("xpu", {"env": {"SYCL_CACHE_PERSISTENT": "1"}}, ["sycl-cache-with-the-second-runner"]),
        ("xpu", {"env": {"SYCL_CACHE_PERSISTENT": "1", "VLLM_USE_V2_MODEL_RUNNER": "0"}}, []),
        ("xpu", {"env": {"VLLM_USE_V2_MODEL_RUNNER": ""}}, ["blank-model-runner"]),
        ("xpu", {"env": {"LD_LIBRARY_PATH": "/opt/intel/oneapi/compiler/2025.3/lib"}}, ["two-sycl-runtimes"]),
        ("xpu", {"model": {"experts": True, "group_size": 64}}, ["int4-experts-of-group-64"]),
        ("xpu", {"model": {"experts": True, "group_size": 32}}, []),
        ("lab-minimax", {"settings": {"speculative_config": MTP3, **CALM}}, ["speculation-with-prefix-cache"]),
        (
            "lab-minimax",
            {"settings": {"speculative_config": MTP3, "enable_prefix_caching": False}},
            ["speculation-in-padded-graphs"],
        ),
        ("lab-minimax", {"settings": {"speculative_config": MTP3, "enable_prefix_caching": False, **CALM}}, []),
        ("llm-scaler-0.21", {"settings": {"tensor_parallel_size": 2}}, ["llm-scaler-0-21-0-b2-on-several-cards"]),
        ("llm-scaler-0.26.0-b2", {"settings": {"tensor_parallel_size": 2}}, ["llm-scaler-0-26-0-b2-on-several-cards"]),
        ("exl3xpu", {"settings": {"tensor_parallel_size": 2}}, ["llm-scaler-0-26-0-b2-on-several-cards"]),
        ("llm-scaler-0.26.0-b1", {"settings": {"tensor_parallel_size": 2}}, []),
        (
            "llm-scaler-0.26.0-b1",
            {"settings": {"speculative_config": MTP3}},
            ["speculation-in-padded-graphs", "speculation-with-prefix-cache"],
        ),
        ("vllm-openai-xpu-0.30.0", {"settings": {"tensor_parallel_size": 2}}, ["runtime-26-27-on-several-cards"]),
        ("vllm-openai-xpu-0.30.0", {"model": {"experts": True}}, ["experts-race"]),
        ("vllm-openai-xpu-0.30.0-runtime-26.35", {"settings": {"tensor_parallel_size": 2}}, []),
        ("vllm-openai-xpu-0.30.0", {"settings": {"cudagraph_capture_sizes": [1, 2, 6]}}, []),
        ("vllm-openai-xpu-0.30.0", {"settings": {"speculative_config": MTP3}}, ["speculation-in-padded-graphs"]),
        ("vllm-openai-xpu-0.31.0", {"settings": {"tensor_parallel_size": 2}}, ["graphs-on-several-cards"]),
        ("vllm-openai-xpu-0.31.0", {"settings": {"tensor_parallel_size": 4, **CALM}}, ["four-cards-under-load"]),
        (
            "vllm-openai-xpu-0.31.0",
            {"model": {"hf_repo": "google/gemma-4-26B-A4B-it"}, "settings": CALM},
            ["gemma4-with-triton-attention"],
        ),
        (
            "vllm-openai-xpu-f01e24f6",
            {"settings": {"speculative_config": MTP3, **CALM}},
            ["speculation-with-prefix-cache"],
        ),
        (
            "b70-lab-qwen38-fp8-r310",
            {"settings": {"speculative_config": MTP3, **CALM}},
            ["speculation-with-prefix-cache"],
        ),
        ("wu1ff-qwen38-27b", {"settings": {"speculative_config": MTP3, **CALM}}, ["speculation-with-prefix-cache"]),
        ("wu1ff-qwen38-flashnext", {"settings": {"speculative_config": MTP3, **CALM}}, []),
        ("xpu", {"settings": {"pipeline_parallel_size": 2}}, ["graphs-on-several-cards"]),
        (
            "xpu",
            {"settings": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, **CALM}},
            ["four-cards-under-load"],
        ),
        ("vllm-openai-xpu-0.30.0", {"settings": {"pipeline_parallel_size": 2}}, ["runtime-26-27-on-several-cards"]),
        (
            "llm-scaler-0.26.0-b2",
            {"settings": {"pipeline_parallel_size": 2}},
            ["llm-scaler-0-26-0-b2-on-several-cards"],
        ),
        # Each of two replicas inside of an engine has a card for itself, unless they share experts.
        ("llm-scaler-0.26.0-b2", {"settings": {"data_parallel_size": 2}}, []),
        (
            "llm-scaler-0.26.0-b2",
            {"settings": {"data_parallel_size": 2}, "model": {"experts": True}},
            ["llm-scaler-0-26-0-b2-on-several-cards"],
        ),
        # Before 0.31 the variable turns graphs off.
        (
            "lumnus-flash-next",
            {"settings": {"cudagraph_capture_sizes": [1, 6]}, "env": {"VLLM_XPU_ENABLE_XPU_GRAPH": "0"}},
            [],
        ),
        ("llm-scaler-0.26.0-b2", {"online_quantization": {"method": "sym_int4"}}, ["compiled-sym-int4"]),
        (
            "llm-scaler-0.26.0-b2",
            {"online_quantization": {"method": "sym_int4"}, "settings": {"enforce_eager": True}},
            [],
        ),
        (
            "llm-scaler-0.26.0-b2",
            {"online_quantization": {"method": "sym_int4"}, "settings": {"compilation_config": {"mode": "NONE"}}},
            [],
        ),
        ("vllm-openai-xpu-0.30.0", {"settings": {"gpu_memory_utilization": 0.95}}, ["memory-of-graphs"]),
        ("vllm-openai-xpu-0.30.0", {"settings": {"gpu_memory_utilization": 0.92}}, []),
        ("vllm-openai-xpu-0.30.0", {"settings": {"gpu_memory_utilization": 0.95, **CALM}}, []),
        ("vllm-openai-xpu-0.30.0", {"settings": {"gpu_memory_utilization": 0.95, "kv_cache_memory_bytes": 1}}, []),
        ("xpu", {"env": {"CCL_SYCL_ALLGATHERV_TMP_BUF": ""}}, ["blank-variable-of-collectives"]),
        ("llm-scaler-0.26.0-b1", {"env": {"CCL_ALLREDUCE": ""}}, ["blank-variable-of-collectives"]),
        ("xpu", {"env": {"CCL_SYCL_ALLGATHERV_TMP_BUF": "1"}}, []),
        (
            "xpu",
            {"env": {"VLLM_BATCH_INVARIANT": "1"}, "model": {"hf_repo": "Qwen/Qwen3.8-27B-FP8"}},
            ["batch-invariance-with-gated-delta-nets"],
        ),
        ("xpu", {"env": {"VLLM_BATCH_INVARIANT": "1"}, "model": {"hf_repo": "Qwen/Qwen3-8B"}}, []),
        ("xpu", {"model": {"hf_repo": "google/gemma-4-26B-A4B-it"}}, ["gemma4-with-triton-attention"]),
        ("llama-cpp-intel-b11243", {"kind": "llama-server", "settings": {"split_mode": "row"}}, ["rows-over-cards"]),
        (
            "llama-cpp-vulkan-b11243",
            {"kind": "llama-server", "settings": {"split_mode": "tensor"}},
            ["tensors-over-cards"],
        ),
        (
            "llama-vulkan",
            {"kind": "llama-server", "devices": [1], "env": {"VK_LOADER_DISABLE_SELECT": "1"}},
            ["another-order-of-cards"],
        ),
        (
            "llama-cpp-vulkan-b11243",
            {"kind": "llama-server", "devices": [1], "env": {"MESA_VK_DEVICE_SELECT": "8086:e223"}},
            ["another-order-of-cards-by-mesa"],
        ),
        ("llama-sycl", {"kind": "llama-server", "devices": [1], "env": {"VK_LOADER_DISABLE_SELECT": "1"}}, []),
        (
            "llama-sycl",
            {"kind": "llama-server", "settings": {"split_mode": "tensor", "parallel": 1, "cache_type_v": "q8_0"}},
            ["tensors-with-a-small-cache-of-values"],
        ),
    ],
)
def test_shipped_stacks_refuse_what_is_known_to_be_bad(stack_name: str, more: dict[str, Any], ids: list[str]) -> None:
    made = {"name": "p", "cards": 4, "model": more.pop("model", {}), "engine": more}
    assert [rule["id"] for rule in broken(made, SHIPPED_STACKS[stack_name])] == ids


PEERS: dict[str, Any] = {
    **BASE,
    "engine": {"settings": {**CALM, **BASE["engine"]["settings"]}, "collectives": {"memory": "p2p"}},
}


def test_direct_access_between_cards_is_left_to_the_proof_of_a_host_that_brings_the_driver() -> None:
    wheels = {**PEERS, "stack": "xpu"}
    loaded = load_inline({"x": wheels}, stacks=SHIPPED_STACKS)["x"]
    (words,) = left_for_proof(loaded, SHIPPED_STACKS["xpu"]).values()
    assert "lost them at the first all-reduce" in words
    assert words.endswith("Whoever serves it all the same writes accepts_rules: [peer-access]")
    told = "is served only on a host that has proven peer_access (playbooks/evaluate.yml): "
    assert f"{told}{words}" in explain(loaded, SHIPPED_STACKS["xpu"], {})
    taken = load_inline({"x": {**wheels, "accepts_rules": ["peer-access"]}}, stacks=SHIPPED_STACKS)["x"]
    assert [rule["id"] for rule in taken["accepted_rules"]] == ["peer-access"]
    assert left_for_proof(taken, SHIPPED_STACKS["xpu"]) == {}
    # The benchmark runs with the driver of the host, and an image brings another one.
    (refusal,) = refused(SHIPPED_STACKS, {**PEERS, "stack": "llm-scaler-0.26.0-b1"})
    assert 'breaks the rule "peer-access" of the stack llm-scaler-0.26.0-b1' in refusal


def rules_of(manifest: dict[str, Any]) -> set[str]:
    return {rule["id"] for rule in manifest.get("rules") or []}


# Stacks by what they run, from the manifests, not from their rules.
def kind_of(manifest: dict[str, Any]) -> str | None:
    found: str | None = (manifest.get("engine") or {}).get("kind")
    # what an image has inside, its maker need not say
    return found or ("vllm" if "image" in manifest else None)


VLLM_ON_CARDS = {
    name for name, manifest in SHIPPED_STACKS.items() if manifest.get("device") == "xpu" and kind_of(manifest) == "vllm"
} | {"vllm-on-cards"}
LLAMA_CPP = {
    name
    for name, manifest in SHIPPED_STACKS.items()
    if kind_of(manifest) == "llama-server" and name not in ("llama-gemma", "llama-qwen")
}
OLDER_THAN_0_26 = {"llm-scaler-0.21", "lab-2.11", "lab-minimax"}
# Data only: nobody can install them.
NOT_BUILT = {"lab-laguna", "lumnus-flash-next", "devan-carlin-flash-next"}


# What owners report, and which rule refuses it on which stacks (none: on all, by what they run); or why none does.
KNOWN_FAILURES: dict[str, dict[str, set[str]] | str] = {
    "tp2_hang_0_30": {"runtime-26-27-on-several-cards": set()},
    "tp2_profile_run_0_25": "No stack has a vLLM of the 0.25 series.",
    "mtp_prefix_cache": {
        "speculation-with-prefix-cache": {
            name
            for name, manifest in SHIPPED_STACKS.items()
            if name.startswith(("b70-lab-", "llm-scaler", "exl3xpu", "lab-minimax"))
            or name in ("wu1ff-qwen36-35b-a3b", "wu1ff-qwen38-27b")
            or (name.startswith("vllm-openai-xpu-") and "-0.3" not in name)
        }
        | {"vllm-openai-xpu-before-0.30"}
    },
    "graph_sizes": {"graph-sizes": {"lumnus-flash-next"}},
    "peer_access": {"peer-access": VLLM_ON_CARDS},
    "mtp_padded_graph": {"speculation-in-padded-graphs": VLLM_ON_CARDS},
    "torch214": {"four-cards-under-load": {"xpu", "xpu-0.32", "vllm-openai-xpu-0.31.0"}},
    "graph_vram": {
        "memory-of-graphs": {
            "vllm-openai-xpu-0.30.0",
            "vllm-openai-xpu-0.30.0-runtime-26.35",
            "wu1ff-qwen38-flashnext",
        }
    },
    "health_lies": "No setting brings it about: the canary, the frontdoor's probe and the watchdog find it.",
    "host_kv_tier": {
        "large-kv-cache-on-the-host": {
            name for name in VLLM_ON_CARDS if name not in OLDER_THAN_0_26 | NOT_BUILT | {"vllm-on-cards", "llm-scaler"}
        }
    },
    "gemma_triton": {"gemma4-with-triton-attention": VLLM_ON_CARDS},
    "gemma_think_loop": "No setting is known to bring it about or to prevent it; notes of its profiles say it.",
    "moe_group64": {
        "int4-experts-of-group-64": {
            "xpu",
            "xpu-0.32",
            "vllm-openai-xpu-0.30.0",
            "vllm-openai-xpu-0.30.0-runtime-26.35",
            "vllm-openai-xpu-0.31.0",
        }
    },
    # Of the same record, beside its list.
    "split_mode_row": {"rows-over-cards": LLAMA_CPP},
    "split_mode_tensor": {"tensors-over-cards": LLAMA_CPP},
    "split_mode_tensor_small_cache": {
        "tensors-with-a-small-cache": LLAMA_CPP,
        "tensors-with-a-small-cache-of-values": LLAMA_CPP,
    },
    "batch_invariant_gdn": {"batch-invariance-with-gated-delta-nets": VLLM_ON_CARDS},
    "blank_ccl_variable": {"blank-variable-of-collectives": VLLM_ON_CARDS},
    "blank_v2_runner": {"blank-model-runner": VLLM_ON_CARDS},
    "compiled_sym_int4_b2": {"compiled-sym-int4": {"llm-scaler-0.26.0-b2", "exl3xpu"}},
    "tp2_scaler_0_21": {"llm-scaler-0-21-0-b2-on-several-cards": set()},
    "tp2_scaler_0_21_b3_1": {"llm-scaler-0-21-0-b3-1-on-several-cards": set()},
    "tp2_scaler_0_26_b2": {"llm-scaler-0-26-0-b2-on-several-cards": set()},
}


@pytest.mark.parametrize("failure", KNOWN_FAILURES)
def test_every_known_failure_is_refused_where_it_happens_or_has_a_reason(failure: str) -> None:
    told = KNOWN_FAILURES[failure]
    if isinstance(told, str):
        assert told.endswith(".")
        return
    for rule, stacks in told.items():
        assert stacks or rule in {every["id"] for every in common()}, failure
        refusing = {name for name, manifest in SHIPPED_STACKS.items() if rule in rules_of(manifest)}
        others = {name for of in KNOWN_FAILURES.values() if isinstance(of, dict) for name in of.get(rule, ())}
        assert stacks <= refusing, failure
        assert refusing == others, failure


def test_no_release_of_the_0_25_series_is_shipped() -> None:
    versions = {str((manifest.get("engine") or {}).get("version")) for manifest in SHIPPED_STACKS.values()}
    assert not {version for version in versions if version.startswith("0.25.")}


def test_a_malformed_rule_is_named(tmp_path: Any) -> None:
    manifest = stack(engine__settings__x={"equal": 1}, status={"equals": "x"}) | {"name": "ours", "reason": "none"}
    (tmp_path / "ours.yml").write_text(yaml.safe_dump(manifest))
    with pytest.raises(CatalogueError) as caught:
        load_stacks([tmp_path])
    text = str(caught.value)
    assert 'unknown key "equal"; did you mean "equals"?' in text
    assert "must be a dotted path like engine.settings.tensor_parallel_size" in text


@pytest.mark.parametrize(
    ("name", "settings", "env", "rules"),
    [
        ("lab-minimax", {"kv_offloading_size": 8}, {}, ["kv-cache-on-the-host"]),
        ("llm-scaler-0.21", {"kv_transfer_config": CONNECTOR}, {}, ["kv-cache-on-the-host"]),
        ("cpu", {"kv_offloading_size": 8}, {}, ["kv-cache-on-the-host"]),
        ("xpu", {"kv_offloading_size": 30}, {}, []),
        ("xpu-0.32", {"kv_offloading_size": 32}, {}, ["large-kv-cache-on-the-host"]),
        ("vllm-openai-xpu-0.30.0", {"kv_offloading_size": 32}, {}, ["large-kv-cache-on-the-host"]),
        ("vllm-openai-xpu-0.30.0", {"kv_offloading_size": 32}, {"NEOReadDebugKeys": "1"}, []),
        (
            "llm-scaler-0.26.0-b2",
            {"kv_offloading_size": 8, "kv_offloading_backend": "lmcache"},
            {},
            ["kv-cache-in-lmcache"],
        ),
    ],
)
def test_where_the_kv_cache_may_have_a_part_on_the_host(
    name: str, settings: dict[str, Any], env: dict[str, str], rules: list[str]
) -> None:
    mine = profile({"max_num_seqs": 1, **settings})
    mine["engine"]["env"] = env
    found = [rule["id"] for rule in broken(mine, load_stacks()[name])]
    assert [rule for rule in found if "kv-cache" in rule and "prefix" not in rule] == rules


def test_no_stack_with_cards_is_silent_about_the_kv_cache_on_the_host() -> None:
    for name, manifest in load_stacks().items():
        kind = (manifest.get("engine") or {}).get("kind", "vllm")
        if kind == "vllm" and manifest.get("device") == "xpu" and manifest["installable"]:
            rules = {rule["id"] for rule in manifest.get("rules") or []}
            assert rules & {"kv-cache-on-the-host", "large-kv-cache-on-the-host"}, name


B2 = "sha256:52218ad85513ab6686d4c090c83c2bd8c5b02423c63aa4dabd41837fe641fe3b"


@pytest.mark.parametrize(
    "image",
    [
        {"name": "docker.io/intel/llm-scaler-vllm", "tag": "0.26.0-b2"},
        {"name": "registry.example/mirror/intel/llm-scaler-vllm", "tag": "0.26.0-b2"},
        {"name": "registry.example/ours", "digest": B2},
        {"name": "registry.example/ours", "tag": "v3", "inside": {"base": "docker.io/intel/llm-scaler-vllm:0.26.0-b2"}},
        {"name": "docker.io/intel/llm-scaler-vllm", "tag": "0.21.0-b3.1"},
        {"name": "docker.io/intel/llm-scaler-vllm", "tag": "0.21.0-b2"},
    ],
)
def test_a_broken_image_is_refused_whoever_names_it_with_the_one_that_works(image: dict[str, Any]) -> None:
    manifest = {"name": "mine", "engine": {"kind": "vllm"}, "device": "xpu", "image": image}
    (rule,) = broken(profile({"tensor_parallel_size": 2}), manifest)
    assert "sha256:70e7eafdd52c281263f2a19266086b88e55064402a17ef731ba5657c4bd86490" in rule["remedy"]
    assert not broken(profile({"tensor_parallel_size": 1}), manifest)
    assert not broken(profile({"tensor_parallel_size": 2}), SHIPPED_STACKS["llm-scaler-0.26.0-b1"] | {"rules": []})
