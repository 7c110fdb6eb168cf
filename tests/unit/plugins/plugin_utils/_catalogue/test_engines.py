# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings against what the pinned release accepts. That the tables are its own is tested in tests/engines."""

from __future__ import annotations

import re

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import VLLM
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import engines
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.engines import variable_faults
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.reading import schema
from unit import shipped
from unit.shipped import STACKS

STACK = {"name": "mine", "engine": {"kind": "vllm", "version": "0.21.0"}}
SETTINGS = schema("vllm-settings.schema.json")["properties"]
# Not for profiles: they belong to the slot, to TLS that the frontdoor ends, or to other ways of running an engine.
LEFT_OUT = {flag.replace("-", "_") for flag in VLLM.owned_flags} | set(
    "enable_ssl_refresh grpc grpc_port headless root_path ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_ciphers "
    "ssl_keyfile device_memory_utilization".split()
)
TYPES = {"text": "string", "integer": "integer", "number": "number", "array": "array", "object": "object"}


def faults(**settings):
    return [f"{path}: {message}" for path, message in engines.setting_faults(settings, STACK)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_queued_reqs": 4}, "pins, has no --max-num-queued-reqs"),
        ({"mamba_cache_dtyp": "x"}, 'has no --mamba-cache-dtyp; did you mean "mamba_cache_dtype"?'),
        ({"runner": "pool"}, "knows no 'pool' there"),
        ({"convert": "embedd"}, 'did you mean "embed"? (it knows '),
        ({"kv_cache_dtype": "fp9"}, "knows no 'fp9' there"),
        ({"disable_log_stats": False}, "has no --no-disable-log-stats; leave the key out"),
        ({"compilation_config": "x"}, "wants a mapping there, not text"),
        ({"tool_call_parser": {"a": 1}}, "wants text there, not a mapping"),
        ({"cudagraph_capture_sizes": [1, "x"]}, "engine.settings.cudagraph_capture_sizes[1]: vLLM 0.21.0"),
    ],
)
def test_what_the_release_would_refuse_is_named(settings, message):
    (found,) = faults(**settings)
    assert message in found
    assert "vLLM 0.21.0, which the stack mine pins," in found


def test_what_it_takes_is_taken():
    assert not faults(
        max_num_seqs=8,
        gpu_memory_utilization=1,
        dtype="bfloat16",
        disable_log_stats=True,
        enable_prefix_caching=False,
        hf_overrides={"a": 1},
        allowed_origins=["*"],
        middleware=["a.b"],
        cudagraph_capture_sizes=[1, 8],
        quantization="fp8",
        tokenizer=None,
    )


def test_a_release_that_was_not_recorded_is_left_to_the_host():
    stack = {"name": "mine", "engine": {"kind": "vllm", "version": "9.9.9"}}
    assert not list(engines.setting_faults({"no_such": 1}, stack))
    assert engines.table_of({"name": "mine"}) is None


def test_releases_are_in_order():
    assert engines.versions() == ["0.20.1", "0.21.0", "0.30.0", "0.31.0", "0.32.0"]


TABLES = {version: (engines.table("vllm", version) or {})["options"] for version in engines.versions()}


def test_the_schema_has_every_flag_of_the_releases_and_no_other():
    assert set(SETTINGS) == {key for options in TABLES.values() for key in options} - LEFT_OUT


@pytest.mark.parametrize("key", SETTINGS)
def test_the_schema_says_what_the_releases_say(key):
    found = {version: options[key] for version, options in TABLES.items() if key in options}
    said = SETTINGS[key].get("x-vllm", "")
    first, last = min(found, key=engines.versions().index), max(found, key=engines.versions().index)
    words = []
    if first != engines.versions()[0]:
        words.append("from " + re.sub(r"\.0$", "", first))
    if last != engines.versions()[-1]:
        words.append("until " + re.sub(r"\.0$", "", last))
    assert said == ", ".join(words)
    kinds = SETTINGS[key].get("type", ["string", "null"])
    wanted = set()
    for option in found.values():
        if option["form"] in ("switch", "flag"):
            wanted.add("boolean")
        elif option["form"] in ("values", "repeated"):
            wanted.add("array")
        else:
            wanted |= {TYPES[kind] for kind in option["accepts"]}
    # What people write: JSON options as the mapping or list they hold, a word for a list of one.
    assert set(kinds) - {"null"} <= wanted | {"string"} | ({"integer"} if key == "optimization_level" else set())
    assert wanted & set(kinds), (wanted, kinds)


ENV = "engine.env."


@pytest.mark.parametrize(
    ("stack", "name", "instead"),
    [
        ("llama-sycl", "GGML_SYCL_DISABLE_DNN", "GGML_SYCL_ENABLE_DNN with the opposite value"),
        ("llama-cpp-intel-b11243", "GGML_SYCL_DISABLE_OPT", "GGML_SYCL_ENABLE_OPT with the opposite value"),
        ("llama-cpp-intel-b11243", "GGML_SYCL_DISABLE_GRAPH", "GGML_SYCL_ENABLE_GRAPH with the opposite value"),
        ("llama-sycl", "GGML_SYCL_ENABLE_LEVEL_ZERO", "GGML_SYCL_USE_LEVEL_ZERO_API"),
        ("llama-sycl", "GGML_SYCL_SUPPORT_LEVEL_ZERO", "GGML_SYCL_SUPPORT_LEVEL_ZERO_API"),
        ("llama-cpp-vulkan-b11243", "GGML_SYCL_DISABLE_VMM", "GGML_SYCL_ENABLE_VMM with the opposite value"),
        ("xpu", "VLLM_ATTENTION_BACKEND", "engine.settings.attention_backend"),
        ("xpu", "VLLM_ATTN_BACKEND", "engine.settings.attention_backend"),
        ("wu1ff-qwen38-27b", "VLLM_ATTN_BACKEND", "engine.settings.attention_backend"),
        ("xpu", "TRANSFORMERS_CACHE", "HF_HOME, which the slot sets"),
        ("vllm-openai-xpu-0.31.0", "VLLM_XPU_ENABLE_XPU_GRAPH", "cudagraph_mode in engine.settings.compilation_config"),
    ],
)
def test_a_variable_that_nothing_reads_is_a_fault_with_the_new_name(stack, name, instead):
    ((where, text),) = variable_faults({name: "1"}, STACKS[stack])
    assert where == ENV + name
    assert f"is read by nothing in the stack {stack}; use {instead}" in text


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        # Before build 9897 the old names were read.
        ("llama-gemma", "GGML_SYCL_DISABLE_DNN"),
        ("llama-sycl", "GGML_SYCL_ENABLE_DNN"),
        ("llama-sycl", "GGML_SYCL_USE_LEVEL_ZERO_API"),
        ("llama-vulkan", "GGML_VK_DISABLE_COOPMAT"),
        ("llama-sycl", "LLAMA_ARG_THREADS"),
        ("vllm-openai-xpu-0.30.0", "VLLM_XPU_ENABLE_XPU_GRAPH"),
        # Images with patches, of no recorded release.
        ("wu1ff-qwen38-27b", "VLLM_XPU_ENABLE_XPU_GRAPH"),
        ("wu1ff-qwen38-27b", "VLLM_OF_ITS_PATCHES"),
        ("lab-minimax", "VLLM_MINIMAX_QK_RMS_XPU_HELPER"),
        # Whether a library reads it is not known here.
        ("xpu", "SYCL_CACHE_PERSISTENT"),
        ("xpu", "GGML_SYCL_DISABLE_DNN"),
    ],
)
def test_a_variable_that_may_be_read_is_taken(stack, name):
    assert not list(variable_faults({name: "1"}, STACKS[stack]))


def test_a_recorded_release_reads_no_other_variable_of_its_own():
    ((_where, text),) = variable_faults({"VLLM_LOGING_LEVEL": "INFO"}, STACKS["xpu"])
    assert 'vLLM 0.31.0, which the stack xpu pins, does not read it; did you mean "VLLM_LOGGING_LEVEL"?' in text
    ((_where, text),) = variable_faults({"GGML_SYCL_ENABLE_DNNL": "0"}, STACKS["llama-sycl"])
    assert 'llama.cpp 0.5.0, which the stack llama-sycl pins, does not read it; did you mean "GGML_SYCL_ENABLE_' in text


def test_no_shipped_profile_sets_a_variable_that_nothing_reads():
    for name, profile in shipped.profiles().items():
        assert not list(variable_faults(profile["engine"]["env"], STACKS[profile["stack"]])), name
    for name, manifest in STACKS.items():
        assert not list(variable_faults(manifest.get("env") or {}, manifest)), name
