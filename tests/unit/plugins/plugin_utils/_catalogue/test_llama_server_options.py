# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded options of llama-server, and settings against them."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue import engines
from tools import llama_server
from unit.plugins.module_utils._slot import exchanges

STACK = {"name": "mine", "engine": {"kind": "llama-server", "version": "0.5.0"}}
OPTIONS = (engines.table("llama-server", "0.5.0") or {})["options"]
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
                                        (env: LLAMA_ARG_KV_OFFLOAD)
--no-host                               bypass host buffer allowing extra buffers to be used
                                        (env: LLAMA_ARG_NO_HOST)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, q8_0
                                        (default: f16)
                                        (env: LLAMA_ARG_CACHE_TYPE_K)
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
                                        (env: LLAMA_ARG_N_GPU_LAYERS)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
--poll <0...100>                        use polling level to wait for work (0 - no polling, default: 50)
--temp, --temperature N                 temperature (default: 0.80)
"""  # lines of a real one's help


def test_what_the_help_says_is_read():
    assert llama_server.options(HELP) == {
        "help": {"form": "flag"},
        "usage": {"form": "flag", "same_as": "help"},
        "ctx_size": {"form": "value", "accepts": ["integer", "number"]},
        "flash_attn": {"form": "value", "accepts": ["text"], "choices": ["auto", "off", "on"]},
        "kv_offload": {"form": "switch"},
        "no_host": {"form": "flag"},
        "cache_type_k": {"form": "value", "accepts": ["text"], "choices": ["f16", "f32", "q8_0"]},
        "gpu_layers": {"form": "value", "accepts": ["integer", "number", "text"]},
        "n_gpu_layers": {"form": "value", "accepts": ["integer", "number", "text"], "same_as": "gpu_layers"},
        "poll": {"form": "value", "accepts": ["integer", "number"]},
        "temp": {"form": "value", "accepts": ["number"]},
        "temperature": {"form": "value", "accepts": ["number"], "same_as": "temp"},
    }
    assert llama_server.variables(HELP)[:2] == ["LLAMA_ARG_CACHE_TYPE_K", "LLAMA_ARG_CTX_SIZE"]


def test_the_release_has_every_argument_that_the_slot_gives():
    flags = [word[2:] for word in exchanges.command(18080) if word.startswith("--")]
    known = {key.replace("_", "-") for key in OPTIONS}
    assert [flag for flag in flags if flag not in known and flag.removeprefix("no-") not in known] == []


def faults(**settings):
    return [message for _path, message in engines.setting_faults(settings, STACK)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft_max": 4}, "has no --draft-max"),
        ({"ctx_sise": 4096}, 'has no --ctx-sise; did you mean "ctx_size"?'),
        ({"cache_type_k": "q9_0"}, "knows no 'q9_0' there"),
        ({"flash_attn": "yes"}, "knows no 'yes' there"),
        ({"parallel": "two"}, "wants a whole number or a number there, not text"),
        ({"swa_full": False}, "has no --no-swa-full; leave the key out"),
    ],
)
def test_what_the_release_would_refuse_is_named(settings, message):
    (found,) = faults(**settings)
    assert message in found
    assert found.startswith("llama.cpp 0.5.0, which the stack mine pins,")


def test_what_it_takes_is_taken():
    # What owners of these cards give it.
    assert not faults(
        gpu_layers=99,
        flash_attn="on",
        batch_size=1024,
        ubatch_size=256,
        cache_type_k="f16",
        cache_type_v="q8_0",
        cache_ram=0,
        ctx_checkpoints=0,
        ctx_size=8192,
        parallel=1,
        threads=8,
        poll=50,
        jinja=True,
        device="SYCL0",
        split_mode="none",
        mmproj="@model_path@/mmproj.gguf",
        spec_type="draft-mtp",
        spec_draft_n_max=3,
        spec_draft_model="@model_path@/draft.gguf",
        reasoning_format="deepseek",
        chat_template_file="@model_path@/template.jinja",
        slots=False,
        kv_unified=False,
        cache_prompt=True,
    )


def test_variables_are_read_from_the_sources_of_the_engine_and_its_backends(tmp_path):
    for name, text in {
        "ggml/src/ggml-sycl/ggml-sycl.cpp": 'g = ggml_sycl_get_env("GGML_SYCL_ENABLE_DNN", 1); h = getenv( "HOME" );',
        "ggml/src/ggml-vulkan/ggml-vulkan.cpp": 'if (getenv("GGML_VK_DISABLE_F16")) {}',
        "tools/server/server.cpp": 'std::getenv("LLAMA_SERVER_SLOTS_DEBUG")',
        "examples/other.cpp": 'getenv("GGML_OF_AN_EXAMPLE")',
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    names = ["GGML_SYCL_ENABLE_DNN", "GGML_VK_DISABLE_F16", "LLAMA_SERVER_SLOTS_DEBUG"]
    assert llama_server.read_by_sources(tmp_path) == names
