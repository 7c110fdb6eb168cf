# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixture of the lab, installed as vllm_lab_serve.py: the command `vllm` of a wheel for cards, on the processor.

The real parser reads the command line as it is given. Then the cards that it asks for are opened, as workers would,
and held; an engine that finds too few of them ends. What only a card can do is left out of the command line that the
real engine for the processor gets.
"""

from __future__ import annotations

import os
import sys

# Options, with their values, that an engine on the processor does not have or reads in another way.
LEFT_OUT = {
    "--attention-backend", "--attention-config", "--block-size", "--compilation-config", "--cudagraph-capture-sizes",
    "--data-parallel-size", "--distributed-executor-backend", "--dtype", "--enable-expert-parallel",
    "--enforce-eager", "--gpu-memory-utilization", "--kv-cache-dtype", "--kv-cache-memory-bytes",
    "--language-model-only", "--limit-mm-per-prompt", "--mamba-cache-dtype", "--mamba-cache-mode",
    "--mamba-ssm-cache-dtype", "--mm-encoder-tp-mode", "--mm-processor-kwargs", "--moe-backend", "--optimization-level",
    "--pipeline-parallel-size", "--quantization", "--speculative-config", "--tensor-parallel-size",
}  # fmt: skip
# A LLaVA, as the tiny models with eyes are, needs torchvision in vLLM's own implementation.
PUT_IN = ["--enforce-eager", "--dtype", "bfloat16", "--kv-cache-memory-bytes", str(256 * 2**20)]
PUT_IN += ["--model-impl", "transformers"]
NOT_FOR_IT = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "VLLM_ATTENTION_BACKEND", "VLLM_XPU_USE_W8A8_GEMM")
# The processor needs no compiler and no second process.
SETTINGS = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
}


def hold(count: int, nodes: list[str]) -> None:
    """Open the first `count` cards for as long as this process lives."""
    if len(nodes) < count:
        raise SystemExit(f"RuntimeError: {count} XPU devices are asked for, {len(nodes)} are available")
    for node in nodes[:count]:
        os.open(node, os.O_RDWR)


def for_the_processor(words: list[str], takes_value: dict[str, bool]) -> list[str]:
    """The command line without what is left out; `takes_value`: every spelling of those options."""
    kept, skip = [], False
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if skip:
            skip = False
        elif name in takes_value:
            skip = takes_value[name] and "=" not in word
        else:
            kept.append(word)
    return [*kept, *PUT_IN]


def main() -> None:
    from torch.xpu import lab_cards

    words = sys.argv[1:]
    if words[:1] == ["serve"]:
        nodes = lab_cards.nodes()
        os.environ[lab_cards.SERVING] = "1"
        os.environ.update(SETTINGS)
        for name in NOT_FOR_IT:
            os.environ.pop(name, None)
        import vllm.entrypoints.cli.serve
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        (command,) = vllm.entrypoints.cli.serve.cmd_init()
        top = FlexibleArgumentParser(prog="vllm")
        parser = command.subparser_init(top.add_subparsers(dest="subparser"))
        asked = top.parse_args(words)
        hold(asked.tensor_parallel_size * asked.pipeline_parallel_size, nodes)
        takes_value = {
            spelling: action.nargs != 0
            for action in parser._actions
            if LEFT_OUT & set(action.option_strings)
            for spelling in action.option_strings
        }
        sys.argv[1:] = for_the_processor(words, takes_value)
    from vllm.entrypoints.cli.main import main as real

    real()
