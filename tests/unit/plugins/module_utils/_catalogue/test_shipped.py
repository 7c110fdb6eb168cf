# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped profiles hold the values that were measured with."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.stacks import load_stacks

CATALOGUE = load_catalogue(stacks=list(load_stacks()))
GEMMA4 = "gemma4-12b-it-int4-autoround"

# status, stack, context, sequences, batched tokens, memory share, active generations, queue timeout, images, cache key
EXPECTED = {
    "gemma3-12b-it-int4-autoround": (
        *("research", "lab-2.11", 32768, 8, 4096, 0.95, 8, 3600, True),
        "gemma3-12b-it-int4-autoround-slot",
    ),
    GEMMA4: ("research", "gemma4", 32768, 16, 4096, 0.95, 16, 3600, True, f"{GEMMA4}-intel-slot"),
    f"{GEMMA4}-c8": ("production", "gemma4", 32768, 8, 4096, 0.95, 8, 0, True, f"{GEMMA4}-intel-c8-xpugraph"),
    f"{GEMMA4}-c10": ("experiment", "gemma4", 32768, 10, 4096, 0.95, 10, 0, True, f"{GEMMA4}-intel-c10-xpugraph"),
    f"{GEMMA4}-c12": ("rejected", "gemma4", 32768, 12, 4096, 0.95, 12, 0, True, f"{GEMMA4}-intel-c12-xpugraph"),
    f"{GEMMA4}-c16": ("experiment", "gemma4", 32768, 16, 4096, 0.95, 16, 0, True, f"{GEMMA4}-intel-c16-xpugraph"),
    f"{GEMMA4}-c64": ("research", "gemma4", 4480, 64, 4096, 0.95, 64, 3600, True, f"{GEMMA4}-intel-c64-slot"),
    f"{GEMMA4}-c8-gmem096": (
        *("rejected", "gemma4", 32768, 8, 4096, 0.96, 8, 0, True),
        f"{GEMMA4}-intel-c8-xpugraph-gmem096",
    ),
    f"{GEMMA4}-c8-gmem097": (
        *("rejected", "gemma4", 32768, 8, 4096, 0.97, 8, 0, True),
        f"{GEMMA4}-intel-c8-xpugraph-gmem097",
    ),
    f"{GEMMA4}-c8-cs1-8": (
        *("rejected", "gemma4", 32768, 8, 4096, 0.95, 8, 0, True),
        f"{GEMMA4}-intel-c8-xpugraph-cs1-8",
    ),
    f"{GEMMA4}-c8-xpugraph-mbt2048": (
        *("rejected", "gemma4", 32768, 8, 2048, 0.95, 8, 0, True),
        f"{GEMMA4}-intel-c8-xpugraph-mbt2048",
    ),
    f"{GEMMA4}-c8-nolog": ("experiment", "gemma4", 32768, 8, 4096, 0.95, 8, 0, True, f"{GEMMA4}-intel-c8-xpugraph"),
    "minimax-m27-c1": (
        *("baseline", "lab-2.11", 32768, 1, 512, 0.95, 1, 3600, False),
        "minimax-quality-clean-20260521T152425Z",
    ),
    "qwen36-27b-fp8-vrfai": ("rejected", "lab-2.11", 4096, 32, 4096, 0.9, 32, 3600, False, "qwen36-27b-fp8-vrfai-slot"),
    "qwen36-35b-a3b-fp8": ("blocked", "lab-2.11", 32768, 4, 4096, 0.95, 4, 3600, False, "qwen36-35b-a3b-fp8-slot"),
    "qwen3-vl-30b-a3b-fp8": ("blocked", "lab-2.11", 32768, 2, 4096, 0.95, 2, 3600, True, "qwen3-vl-30b-a3b-fp8-slot"),
    "qwen36-35b-a3b-int4-autoround": (
        *("research", "lab-2.11", 32768, 4, 4096, 0.95, 4, 3600, True),
        "qwen36-35b-a3b-int4-autoround-slot",
    ),
}
GRAPH = {
    "XPU_GRAPH": "1",
    "VLLM_XPU_ENABLE_XPU_GRAPH": "1",
    "VLLM_XPU_FORCE_GRAPH_WITH_COMM": "1",
    "VLLM_XPU_GRAPH_NOOP_COMM_CAPTURE": "1",
}
XPU = {
    "GLOO_SOCKET_IFNAME": "lo",
    "ONEAPI_DEVICE_SELECTOR": "level_zero:0,1,2,3",
    "ZE_AFFINITY_MASK": "0,1,2,3",
    "CCL_ATL_TRANSPORT": "ofi",
    "CCL_TOPO_P2P_ACCESS": "1",
    "FI_TCP_IFACE": "lo",
    "CCL_KVS_IFACE": "lo",
    "TRANSFORMERS_CACHE": "@hf_home@/transformers",
}


def test_exactly_these_profiles_are_shipped():
    assert sorted(CATALOGUE) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name):
    profile = CATALOGUE[name]
    settings, frontdoor = profile["engine"]["settings"], profile["frontdoor"]
    assert EXPECTED[name] == (
        profile["status"],
        profile["stack"],
        settings["max_model_len"],
        settings["max_num_seqs"],
        settings["max_num_batched_tokens"],
        settings["gpu_memory_utilization"],
        frontdoor["max_active_generations"],
        frontdoor["queue_timeout_s"],
        settings.get("limit_mm_per_prompt") == {"image": 4},
        profile["engine"]["cache_key"],
    )
    assert ("image" in profile["modalities"]) == EXPECTED[name][8]
    assert settings["tensor_parallel_size"] == profile["cards"] == 4
    assert settings["trust_remote_code"] is True
    assert frontdoor["backend_timeout_s"] == 7200
    assert (profile["engine"]["start_timeout_s"], profile["engine"]["stop_timeout_s"]) == (2400, 240)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_profile_that_is_not_served_says_when_and_why(name):
    profile = CATALOGUE[name]
    if profile["status"] in ("rejected", "blocked"):
        assert "2026-06-0" in profile["status_reason"]
    else:
        assert not profile["status_reason"]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_image_case_belongs_to_profiles_with_images(name):
    cases = [case["name"] for case in CATALOGUE[name]["canary"]["cases"]]
    expected = ["exact_ok", "copy_phrase", "small_arithmetic"]
    assert cases == expected + ["red_image"] * ("image" in CATALOGUE[name]["modalities"])


def test_environments():
    assert CATALOGUE[GEMMA4]["engine"]["env"] == XPU
    assert CATALOGUE[f"{GEMMA4}-c8-nolog"]["engine"]["env"] == XPU | GRAPH
    assert CATALOGUE[f"{GEMMA4}-c64"]["engine"]["env"] == XPU
    assert CATALOGUE["qwen36-27b-fp8-vrfai"]["engine"]["env"] == XPU | {"VLLM_XPU_FP8_LINEAR_BF16_FALLBACK": "1"}
    minimax = CATALOGUE["minimax-m27-c1"]["engine"]["env"]
    assert len(minimax) == len(XPU) + 3 + 18 + 2
    assert "XPU_GRAPH" not in minimax
    assert minimax["VLLM_XPU_USE_CUSTOM_OP_COLLECTIVES"] == "0"
    assert minimax["VLLM_MINIMAX_MOE_FULL_FORWARD_CUSTOM_OP_MAX_TOKENS"] == "4"


def test_variants_differ_in_what_they_are_about():
    c8, sizes = CATALOGUE[f"{GEMMA4}-c8"], CATALOGUE[f"{GEMMA4}-c8-cs1-8"]
    assert sizes["engine"]["settings"]["compilation_config"] == {
        "use_inductor_graph_partition": True,
        "compile_sizes": [1, 8],
        "cudagraph_mode": "PIECEWISE",
    }
    assert c8["engine"]["settings"]["compilation_config"]["compile_sizes"] == [1]
    assert c8["frontdoor"]["event_log"] is True
    assert CATALOGUE[f"{GEMMA4}-c8-nolog"]["frontdoor"]["event_log"] is False
    thinking = {"enable_thinking": False}
    assert CATALOGUE["qwen36-35b-a3b-int4-autoround"]["frontdoor"]["chat_template_kwargs"] == thinking
    assert "compilation_config" not in CATALOGUE[f"{GEMMA4}-c64"]["engine"]["settings"]


def test_evidence_is_the_profiles_own():
    assert CATALOGUE[f"{GEMMA4}-c8"]["evidence"]["soak"]["anomaly"]["got"] == "slh cobalt orbit"
    assert "soak" not in CATALOGUE[f"{GEMMA4}-c10"]["evidence"]
    assert all(profile["evidence"]["source"] for profile in CATALOGUE.values())


def test_nothing_of_the_labs_host_is_left():
    assert "/home/" not in json.dumps([{**profile, "source_file": ""} for profile in CATALOGUE.values()])


def test_stack_manifests_say_why_they_cannot_be_installed():
    stacks = load_stacks()
    assert {"lab-2.11", "gemma4", "cpu"} <= set(stacks)
    for name in ("lab-2.11", "gemma4"):
        assert stacks[name]["installable"] is False
        assert "not part of this release" in stacks[name]["reason"]
    assert stacks["gemma4"]["packages"]["transformers"] == "5.10.2"
    assert stacks["lab-2.11"]["packages"]["transformers"] == "5.7.0"
