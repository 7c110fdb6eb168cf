# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the processor build of vLLM sleep, for tests: its own platform refuses that.

``register`` is the plugin (entry point ``vllm.general_plugins``), and ``Worker`` is what ``--worker-cls`` names. The
weights leave the model, at level 2 with the copies that oneDNN has packed. From level 1 they come back. What is given
away for good, the KV cache and the weights of level 2, comes back with noise in it, and vLLM's own ``reload_weights``
reads the weights. API, scheduler and the rest of the engine are vLLM's own. Where the file that B70_WAKE_FAULT names is
there, the weights of level 1 come back with noise too, and those of level 2 are not read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.worker.cpu_worker import CPUWorker


def register() -> None:
    """Have the platform say that it can sleep."""
    CpuPlatform.is_sleep_mode_available = lambda self: True


def noise(layer: Any) -> Any:
    """Return what a layer computes whose packed weights are gone."""
    size = getattr(layer, "output_size_per_partition", 0) or layer.num_embeddings_per_partition
    return lambda x, _weight, _bias: x.new_empty(*x.shape[:-1], size).normal_()


class Worker(CPUWorker):
    """A worker whose model sleeps without weights."""

    def sleep(self, level: int = 1) -> None:
        self._kept: dict[str, Any] = {}
        for name, weights in self.model_runner.model.named_parameters():
            self._kept[name] = weights.data.to("meta") if level == 2 else weights.data.clone()
            weights.data = weights.data.new_empty(0)
        for layer in self.model_runner.model.modules() if level == 2 else ():
            if hasattr(layer, "cpu_linear"):
                layer.cpu_linear = noise(layer)

    def wake_up(self, tags: list[str] | None = None) -> None:
        for name, weights in self.model_runner.model.named_parameters() if "weights" in (tags or ["weights"]) else ():
            kept = self._kept.pop(name)
            weights.data = kept if not kept.is_meta else torch.empty_like(kept, device="cpu").normal_()
            if self._wrong():
                weights.data.normal_()
        for cache in self.model_runner.kv_caches if "kv_cache" in (tags or ["kv_cache"]) else ():
            cache.normal_()

    def reload_weights(self, *args: Any, **kwargs: Any) -> None:
        if self._wrong():
            return
        super().reload_weights(*args, **kwargs)
        for layer in self.model_runner.model.modules():
            # A head that shares its weights has a packed copy here, which vLLM does not make anew.
            if hasattr(layer, "cpu_linear") and layer.weight.numel():
                dispatch_cpu_unquantized_gemm(layer, remove_weight=False)

    def _wrong(self) -> bool:
        return Path(os.environ["B70_WAKE_FAULT"]).exists()
