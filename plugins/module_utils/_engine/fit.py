# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Estimates whether a model, its KV cache and one full context fit on each card, from its config.json. Pure.

It follows vLLM's own accounting: layers of one kind (full attention, sliding window, linear attention) are put into
groups of equal size, every group takes blocks from one pool, and a request of full length needs so many blocks of each.
What vLLM reports as the size of its KV cache is the number of such requests times their length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1024**3
# The memory of a B70, as measured by the upstream lab.
CARD_GIB = 31.89
# Activations, the collectives' buffers, graphs and the runtime: 1.1 to 2.0 GiB in the lab's runs.
OVERHEAD_GIB = 1.5
# Below this difference the estimate is not conclusive.
MARGIN_GIB = 0.6
# Tokens per block on the cards unless the profile says otherwise, and the step in which hybrid models enlarge them.
BLOCK = 64
_BYTES = {"float32": 4, "float": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}
# The remaining share of 16-bit weights that are quantised while loading. INT4 keeps scales and some layers.
_LEFT = {"fp8": 0.52, "sym_int4": 0.3}


@dataclass(frozen=True)
class Layers:
    """The number of layers of each kind of a model, and the cache size of one of them on one card, in bytes."""

    full: int
    sliding: int
    linear: int
    window: int
    per_token: int
    state: int


@dataclass(frozen=True)
class Fit:
    """Figures per card in GiB. Tokens and contexts are those of the whole engine's pool."""

    weights_gib: float
    kv_gib: float
    context_gib: float
    tokens: int
    contexts: float

    @property
    def verdict(self) -> str:
        """fits, tight (within the margin of the estimate) or no."""
        spare = self.kv_gib - self.context_gib
        return "fits" if spare > MARGIN_GIB else "tight" if spare > -MARGIN_GIB else "no"


def layers_of(config: Mapping[str, Any], tensor_parallel: int, kv_bytes: int) -> Layers:
    """Return a model's layers on one card of ``tensor_parallel``. KeyError names a key that config.json lacks."""
    text = config.get("text_config") or config
    count, heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
    kinds = list(text.get("layer_types") or [])
    if not kinds:
        period = text.get("full_attention_interval") or text.get("sliding_window_pattern") or 1
        other = "linear_attention" if text.get("full_attention_interval") else "sliding_attention"
        kinds = ["full_attention" if (index + 1) % period == 0 else other for index in range(count)]
    if text.get("kv_lora_rank"):
        per_token = (text["kv_lora_rank"] + text["qk_rope_head_dim"]) * kv_bytes
    else:
        kv_heads = max(1, int(text.get("num_key_value_heads") or heads) // tensor_parallel)
        per_token = 2 * kv_heads * int(text.get("head_dim") or text["hidden_size"] // heads) * kv_bytes
    linear = kinds.count("linear_attention")
    sliding = kinds.count("sliding_attention")
    return Layers(
        full=count - linear - sliding,
        sliding=sliding,
        linear=linear,
        window=int(text.get("sliding_window") or 0),
        per_token=per_token,
        state=_state(text, tensor_parallel) if linear else 0,
    )


def _state(text: Mapping[str, Any], tensor_parallel: int) -> int:
    """Bytes of one gated delta layer on one card: the last inputs of its convolution and its matrix per head."""
    heads, width = int(text["linear_num_value_heads"]), int(text["linear_value_head_dim"])
    keys, key_width = int(text["linear_num_key_heads"]), int(text["linear_key_head_dim"])
    channels = (2 * keys * key_width + heads * width) // tensor_parallel
    return channels * (int(text["linear_conv_kernel_dim"]) - 1) * 2 + heads // tensor_parallel * width * key_width * 4


def blocks(layers: Layers, length: int, batched: int, block: int) -> tuple[int, int]:
    """Return how many blocks a request of full length takes, and the bytes of one block on one card."""
    counts = [count for count in (layers.full, layers.sliding, layers.linear) if count]
    smallest, largest = min(counts), max(counts)
    size = largest if largest < 1.25 * smallest else smallest
    if layers.linear:
        block = BLOCK * math.ceil(layers.state / (BLOCK * layers.per_token))
    groups = {name: math.ceil(getattr(layers, name) / size) for name in ("full", "sliding", "linear")}
    window = min(layers.window - 1 + batched, length)
    taken = groups["full"] * math.ceil(length / block) + groups["linear"]
    taken += groups["sliding"] * (math.ceil(window / block) + 1)
    return taken, block * layers.per_token * size


def estimate(
    config: Mapping[str, Any], settings: Mapping[str, Any], weights_bytes: float, card_gib: float = CARD_GIB
) -> Fit:
    """Return the estimate for a model on cards of ``card_gib`` GiB.

    :param config: its config.json.
    :param settings: the engine's settings by name, as rendered.
    :param weights_bytes: size of its weight files.
    :raises KeyError: for a key that config.json lacks.
    """
    tensor = int(settings.get("tensor_parallel_size") or 1)
    stages = int(settings.get("pipeline_parallel_size") or 1)
    length = int(settings["max_model_len"])
    batched = int(settings.get("max_num_batched_tokens") or 8192)
    left = _LEFT.get(settings.get("quantization") or "", 1.0) if not config.get("quantization_config") else 1.0
    weights = weights_bytes * left / tensor / stages / GIB
    kv_bytes = _BYTES.get(settings.get("kv_cache_dtype") or "auto", 4 if settings.get("dtype") == "float32" else 2)
    layers = layers_of(config, tensor, kv_bytes)
    taken, size = blocks(layers, length, batched, int(settings.get("block_size") or BLOCK))
    size = math.ceil(size / stages)
    given = settings.get("kv_cache_memory_bytes")
    share = float(settings.get("gpu_memory_utilization") or 0.9)
    kv_gib = given / GIB if given else card_gib * share - weights - OVERHEAD_GIB
    contexts = max(0, math.floor(kv_gib * GIB / size)) / taken
    return Fit(weights, kv_gib, taken * size / GIB, int(contexts * length), contexts)


def sentence(name: str, cards: int, fit: Fit, length: int, measured: int | None) -> str:
    """Return the figures of an estimate as one paragraph."""
    words = {
        "fits": f"{name} should fit",
        "tight": f"{name} may or may not fit",
        "no": f"{name} probably does not fit: the engine will refuse to start",
    }[fit.verdict]
    text = (
        f"{words}. Estimate for each of {cards} cards: {fit.weights_gib:.1f} GiB of weights, {OVERHEAD_GIB} GiB for "
        f"the runtime, {max(0.0, fit.kv_gib):.1f} GiB left for the KV cache; one context of {length} tokens takes "
        f"{fit.context_gib:.2f} GiB. That is room for about {fit.tokens} tokens, {fit.contexts:.1f} full contexts"
    )
    if measured:
        text += f" (measured: {measured} tokens)"
    if fit.verdict != "fits":
        text += ". Lower max_model_len, use more cards, or try it: a failed switch rolls back"
    return text + "."
