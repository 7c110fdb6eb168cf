# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a card as its compute runtime gives it, and the mirror of it in the host's memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GIB = 1024**3
# The part of a B70's memory that a runtime gives: all of it since 26.31, as 26.18 did in the upstream lab; 26.27 gives
# less. Of other releases nothing is on record, so they are taken to give no more.
CARD_GIB, LESS_GIB = 31.89, 30.3
WHOLE_SINCE, _WHOLE_BEFORE = "26.31", (26, 18)
# The share of a card that vLLM takes unless told otherwise.
_SHARE, _SHARE_BEFORE, _SHARE_SINCE = 0.92, 0.9, (0, 30)
# The memory that an engine needs of a card beside weights and cache, to size a mirror where both are given.
_BESIDE_GIB = 1.5
# Variables that end the mirror, and the share of it that was left in the one report of each (compute-runtime 980 and
# 986, llama.cpp 22116), by the word of engine.host_mirror.
WITHOUT_MIRROR: Mapping[str, tuple[Mapping[str, str], float]] = {
    "no_deferred_backing": ({"NEOReadDebugKeys": "1", "EnableDeferBacking": "0"}, 0.0),
    "resident": ({"SYCL_UR_USE_LEVEL_ZERO_V2": "0", "UR_L0_USM_RESIDENT": "0x1"}, 4.1 / 12.6),
}


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``26.31.39395.13-1146~24.04`` is (26, 31, 39395, 13)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def card_gib(runtime: str) -> float:
    """Return the GiB of a B70 that a release of the compute runtime gives; runtime: empty if it is not known."""
    release = numbers(runtime)[:2]
    return CARD_GIB if release >= numbers(WHOLE_SINCE) or release == _WHOLE_BEFORE else LESS_GIB


def default_share(version: str) -> float:
    """Return the share of a card that a release of vLLM takes unless the profile says otherwise."""
    return _SHARE if numbers(version) >= _SHARE_SINCE else _SHARE_BEFORE


def mirror_bytes(
    cards: int,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    version: str = "",
    size_gb: float | None = None,
    shown: int = 0,
) -> int:
    """Return the bytes of the host's memory in which the driver mirrors what one engine holds of its cards.

    A process that sees two or more cards has such a mirror, one to one, unless variables turn it off. The cards are
    taken to be whole: no estimate of a mirror may be too low.

    :param cards: how many the engine uses.
    :param settings: the engine's, by name.
    :param env: the engine's variables.
    :param version: the engine's release.
    :param size_gb: the weights, in GB.
    :param shown: how many cards the host has, all of which an engine without a mask sees.
    """
    mask = env.get("ZE_AFFINITY_MASK")
    seen = len(mask.split(",")) if mask else max(cards, shown)
    # Through Vulkan the driver is another one.
    if seen < 2 or not cards or "GGML_VK_VISIBLE_DEVICES" in env:
        return 0
    left = [share for names, share in WITHOUT_MIRROR.values() if names.items() <= env.items()]
    held, weights = settings.get("kv_cache_memory_bytes"), (size_gb or 0.0) * 1e9
    if held:
        whole = cards * (int(held) + _BESIDE_GIB * GIB) + weights
    elif "ctx_size" in settings:
        # llama.cpp takes what the model needs, of which the weights are known here.
        whole = weights + cards * _BESIDE_GIB * GIB
    else:
        whole = cards * float(settings.get("gpu_memory_utilization") or default_share(version)) * CARD_GIB * GIB
    return int(whole * min(left, default=1.0))
