# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the processor build of vLLM sleep, for tests: its own platform refuses that.

``register`` is the plugin (entry point ``vllm.general_plugins``), and ``Worker`` is what ``--worker-cls`` names. The
weights leave the model and come back, and the KV cache comes back with noise in it, as memory that was given away. API,
scheduler and the rest of the engine are vLLM's own. Where the file that B70_WAKE_FAULT names is there, the weights come
back with noise too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.v1.worker.cpu_worker import CPUWorker


def register() -> None:
    """Have the platform say that it can sleep."""
    CpuPlatform.is_sleep_mode_available = lambda self: True


class Worker(CPUWorker):
    """A worker whose model sleeps without weights."""

    def sleep(self, level: int = 1) -> None:
        self._kept: dict[str, Any] = {}
        for name, weights in self.model_runner.model.named_parameters():
            self._kept[name] = weights.data.clone()
            weights.data = weights.data.new_empty(0)

    def wake_up(self, tags: list[str] | None = None) -> None:
        wrong = Path(os.environ["B70_WAKE_FAULT"]).exists()
        for name, weights in self.model_runner.model.named_parameters():
            kept = self._kept.pop(name)
            weights.data = kept.normal_() if wrong else kept
        for cache in self.model_runner.kv_caches:
            cache.normal_()
