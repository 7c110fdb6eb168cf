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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._slot.words.card_memory import CARD_GIB, GIB, default_share

# Activations, the collectives' buffers, graphs and the runtime: 1.1 to 2.0 GiB in the lab's runs.
OVERHEAD_GIB = 1.5
# The same for a model that drafts with a head of its own: 2.4 GiB in the one start on record (vLLM 0.30.0).
_DRAFTING_GIB = 0.9
# GiB that captured graphs take beyond it, outside of the budget of gpu_memory_utilization, by series of releases
# (owners' records); of other releases nothing is on record.
_GRAPHS_GIB = {"0.30": 2.5}
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
    #: blocks of each group of linear layers that a request takes
    states: int = 1


@dataclass(frozen=True)
class Fit:
    """Figures per card in GiB. Tokens and contexts are those of the whole engine's pool."""

    weights_gib: float
    kv_gib: float
    context_gib: float
    tokens: int
    contexts: float
    #: what the engine holds of a card: weights, cache and what else it needs
    held_gib: float
    #: captured graphs, and what all of it is more than a card has
    graphs_gib: float = 0.0
    beyond_gib: float = 0.0
    #: the runtime's own, and the memory of one card
    overhead_gib: float = OVERHEAD_GIB
    card_gib: float = CARD_GIB

    @property
    def verdict(self) -> str:
        """fits, tight (within the margin of the estimate) or no."""
        spare = min(self.kv_gib - self.context_gib, math.inf if self.beyond_gib <= 0 else -self.beyond_gib)
        return "fits" if spare > MARGIN_GIB else "tight" if spare > -MARGIN_GIB else "no"


def layers_of(
    config: Mapping[str, Any], tensor_parallel: int, kv_bytes: int, *, drafts: int = 0, cached: bool = False
) -> Layers:
    """Return a model's layers on one card of ``tensor_parallel``. KeyError names a key that config.json lacks.

    :param drafts: tokens that a head of the model's own proposes; its layers have a cache like the others.
    :param cached: whether there is a prefix cache, for which a state of linear layers is kept twice.
    """
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
    head = int(text.get("mtp_num_hidden_layers") or text.get("num_nextn_predict_layers") or 1) if drafts else 0
    return Layers(
        full=count - linear - sliding + head,
        sliding=sliding,
        linear=linear,
        window=int(text.get("sliding_window") or 0),
        per_token=per_token,
        state=_state(text, tensor_parallel, drafts) if linear else 0,
        states=1 + cached + drafts,
    )


def _state(text: Mapping[str, Any], tensor_parallel: int, drafts: int) -> int:
    """Return the bytes of one gated delta layer on one card: the convolution's last inputs and a matrix per head."""
    heads, width = int(text["linear_num_value_heads"]), int(text["linear_value_head_dim"])
    keys, key_width = int(text["linear_num_key_heads"]), int(text["linear_key_head_dim"])
    channels = (2 * keys * key_width + heads * width) // tensor_parallel
    inputs = int(text["linear_conv_kernel_dim"]) - 1 + drafts
    return channels * inputs * 2 + heads // tensor_parallel * width * key_width * 4


def blocks(layers: Layers, length: int, batched: int, block: int) -> tuple[int, int]:
    """Return how many blocks a request of full length takes, and the bytes of one block on one card."""
    counts = [count for count in (layers.full, layers.sliding, layers.linear) if count]
    smallest, largest = min(counts), max(counts)
    size = largest if largest < 1.25 * smallest else smallest
    if layers.linear:
        block = BLOCK * math.ceil(layers.state / (BLOCK * layers.per_token))
    groups = {name: math.ceil(getattr(layers, name) / size) for name in ("full", "sliding", "linear")}
    window = min(layers.window - 1 + batched, length)
    taken = groups["full"] * math.ceil(length / block) + groups["linear"] * layers.states
    taken += groups["sliding"] * (math.ceil(window / block) + 1)
    return taken, block * layers.per_token * size


def _graphs(settings: Mapping[str, Any], version: str, env: Mapping[str, str]) -> float:
    """Return the GiB of a card that captured graphs take beyond what the engine plans with."""
    if env.get("VLLM_XPU_ENABLE_XPU_GRAPH") == "0":
        return 0.0
    mode = (settings.get("compilation_config") or {}).get("cudagraph_mode")
    captured = not settings.get("enforce_eager") and mode != "NONE"
    return _GRAPHS_GIB.get(version.rpartition(".")[0], 0.0) if captured else 0.0


def estimate(
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    weights_bytes: float,
    card_gib: float = CARD_GIB,
    version: str = "",
    env: Mapping[str, str] | None = None,
    draft_models: Sequence[Mapping[str, Any]] = (),
) -> Fit:
    """Return the estimate for a model on cards of ``card_gib`` GiB.

    :param config: its config.json.
    :param settings: the engine's settings by name, as rendered.
    :param weights_bytes: size of its weight files.
    :param version: the engine's release.
    :param env: the engine's variables.
    :param draft_models: config.json of the models beside it that draft for it.
    :raises KeyError: for a key that config.json lacks.
    """
    tensor = int(settings.get("tensor_parallel_size") or 1)
    stages = int(settings.get("pipeline_parallel_size") or 1)
    length = int(settings["max_model_len"])
    batched = int(settings.get("max_num_batched_tokens") or 8192)
    left = _LEFT.get(settings.get("quantization") or "", 1.0) if not config.get("quantization_config") else 1.0
    weights = weights_bytes * left / tensor / stages / GIB
    kv_bytes = _BYTES.get(settings.get("kv_cache_dtype") or "auto", 4 if settings.get("dtype") == "float32" else 2)
    drafts, cached = _drafts(settings), settings.get("enable_prefix_caching") is not False
    layers = layers_of(config, tensor, kv_bytes, drafts=drafts, cached=cached)
    taken, size = blocks(layers, length, batched, int(settings.get("block_size") or BLOCK))
    size = math.ceil(size / stages)
    given = settings.get("kv_cache_memory_bytes")
    share = float(settings.get("gpu_memory_utilization") or default_share(version))
    overhead = OVERHEAD_GIB + (_DRAFTING_GIB if drafts else 0.0)
    kv_gib = given / GIB if given else card_gib * share - weights - overhead
    context = taken * size + sum(_of_draft_model(one, settings, kv_bytes, batched) for one in draft_models)
    contexts = max(0, math.floor(kv_gib * GIB / size)) / taken * (taken * size / context)
    graphs = _graphs(settings, version, env or {})
    held = weights + max(0.0, kv_gib) + overhead + graphs
    beyond = held - card_gib if kv_gib > 0 else 0.0
    return Fit(
        weights, kv_gib, context / GIB, int(contexts * length), contexts, held, graphs, beyond, overhead, card_gib
    )


def _of_draft_model(config: Mapping[str, Any], settings: Mapping[str, Any], kv_bytes: int, batched: int) -> int:
    """Return the bytes that a request of full length takes on one card in the cache of a draft model.

    vLLM keeps each of its layers for every token, as it does those of the model itself. Blocks that are padded to the
    size of the model's own, as in hybrid models, take more. Nothing is counted for a config.json without these figures.
    """
    if not {"num_hidden_layers", "num_attention_heads"} <= {*(config.get("text_config") or config)}:
        return 0
    speculation, length = settings.get("speculative_config") or {}, int(settings["max_model_len"])
    spread = int(speculation.get("draft_tensor_parallel_size") or settings.get("tensor_parallel_size") or 1)
    layers = layers_of(config, spread, kv_bytes)
    return layers.per_token * (layers.full * length + layers.sliding * min(layers.window - 1 + batched, length))


def _drafts(settings: Mapping[str, Any]) -> int:
    """Return how many tokens a head of the model's own proposes."""
    speculation = settings.get("speculative_config") or {}
    mtp = str(speculation.get("method") or "").endswith("mtp")
    return int(speculation.get("num_speculative_tokens") or 0) if mtp else 0


# Bytes per value of the types that a cache may have: blocks of 32 values with their scales.
_GGUF_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32}
_GGUF_BYTES |= {"q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32}
_ELSEWHERE = ("cpu_moe", "n_cpu_moe")


def estimate_gguf(
    head: Mapping[str, Any], settings: Mapping[str, Any], weights_bytes: float, cards: int, card_gib: float = CARD_GIB
) -> Fit:
    """Return the estimate for a model in GGUF: llama.cpp holds the cache of all slots from the start.

    :param head: the keys of its file's head.
    :param settings: the engine's settings by name, as rendered.
    :param weights_bytes: size of all files that are loaded.
    :raises KeyError: for a key that the head lacks.
    :raises ValueError: where it is not all on the cards.
    """
    for key in _ELSEWHERE:
        if settings.get(key):
            raise ValueError(f"{key} keeps a part of the weights in the host's memory")
    if settings.get("kv_offload") is False:
        raise ValueError("kv_offload false keeps the cache in the host's memory")
    length = int(settings["ctx_size"])
    spread = 1 if settings.get("split_mode") == "none" else cards
    per_token, fixed = _gguf_cache(head, settings)
    weights = weights_bytes / spread / GIB
    room = card_gib - weights - OVERHEAD_GIB
    needed = (per_token * length + fixed) / spread / GIB
    tokens = max(0.0, room * GIB * spread - fixed) / per_token if per_token else float(length)
    held = weights + needed + OVERHEAD_GIB
    return Fit(weights, room, needed, int(tokens), tokens / length, held, card_gib=card_gib)


def _gguf_cache(head: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return the bytes of all layers' cache: for one token, and those that do not grow with the context."""
    name = head["general.architecture"]
    layers, heads = int(head[f"{name}.block_count"]), _per_layer(head, name, "head_count")
    kv_heads = _per_layer(head, name, "head_count_kv") or heads
    if not heads:
        raise KeyError(f"{name}.attention.head_count")
    width = int(head.get(f"{name}.embedding_length", 0)) // max(1, *heads)
    key = int(head.get(f"{name}.attention.key_length", width))
    value = int(head.get(f"{name}.attention.value_length", width))
    types = [_GGUF_BYTES[str(settings.get(f"cache_type_{letter}") or "f16")] for letter in "kv"]
    if latent := head.get(f"{name}.attention.kv_lora_rank"):
        # One compressed entry for all heads, which holds keys and values.
        return layers * (int(latent) + int(head.get(f"{name}.rope.dimension_count", 0))) * types[0], 0.0
    of_head = key * types[0] + value * types[1]
    every = int(head.get(f"{name}.full_attention_interval") or 1)
    window, slid = _window(head, name, settings)
    slots = int(settings.get("parallel") or 1)
    growing = fixed = 0.0
    for index in range(layers):
        if (index + 1) % every:
            continue  # the state of such a layer is small beside the rest
        size = kv_heads[index % len(kv_heads)] * of_head
        if slid[index % len(slid)]:
            fixed += size * slots * (window + int(settings.get("ubatch_size") or 512))
        else:
            growing += size
    return growing, fixed


def _per_layer(head: Mapping[str, Any], name: str, key: str) -> list[int]:
    """Return a value for every layer: one number for all, or a list."""
    found = head.get(f"{name}.attention.{key}")
    return [int(one) for one in (found if isinstance(found, list) else [found] if found else [])]


def _window(head: Mapping[str, Any], name: str, settings: Mapping[str, Any]) -> tuple[int, list[bool]]:
    """Return the width of a sliding window, and which layers have one.

    Where the head does not name the layers, none has one: the estimate is then rather too high.
    """
    window = int(head.get(f"{name}.attention.sliding_window") or 0)
    which = head.get(f"{name}.attention.sliding_window_pattern")
    if not window or settings.get("swa_full") or not isinstance(which, list) or not which:
        return 0, [False]
    return window, [bool(one) for one in which]


def sentence(name: str, cards: int, fit: Fit, length: int, measured: int | None, setting: str = "max_model_len") -> str:
    """Return the figures of an estimate as one paragraph."""
    words = {
        "fits": f"{name} should fit",
        "tight": f"{name} may or may not fit",
        "no": f"{name} probably does not fit: the engine will refuse to start",
    }[fit.verdict]
    text = (
        f"{words}. Estimate for each of {cards} cards: {fit.weights_gib:.1f} GiB of weights, {fit.overhead_gib:g} "
        f"GiB for the runtime, {max(0.0, fit.kv_gib):.1f} GiB left for the KV cache; one context of {length} tokens "
        f"takes {fit.context_gib:.2f} GiB. {_beside(fit)}That is room for about {fit.tokens} tokens, "
        f"{fit.contexts:.1f} full contexts"
    )
    if measured:
        text += f" (measured: {measured} tokens)"
    if fit.beyond_gib > 0:
        text += ". Lower gpu_memory_utilization or kv_cache_memory_bytes, or try it: a failed switch rolls back"
    elif fit.verdict != "fits":
        text += f". Lower {setting}, use more cards, or try it: a failed switch rolls back"
    if fit.card_gib < CARD_GIB:
        text += f". Its compute runtime gives {fit.card_gib:g} GiB of each card; 26.31 and newer give {CARD_GIB:g}"
    return text + "."


def _beside(fit: Fit) -> str:
    """Return what of a card is taken outside of the engine's own budget, where that is too much."""
    if fit.beyond_gib <= 0:
        return ""
    graphs = f", with {fit.graphs_gib:.1f} GiB of captured graphs" if fit.graphs_gib else ""
    return f"All of it is {fit.beyond_gib:.1f} GiB more than a card has{graphs}. "
