# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe like that of the XPU kernels, to be varied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import Recipe


@pytest.fixture
def recipe() -> Callable[..., Recipe]:
    def make(**changes: Any) -> Recipe:
        given: dict[str, Any] = {
            "name": "vllm-xpu-kernels",
            "repository": "https://github.com/vllm-project/vllm-xpu-kernels",
            "commit": "28e1f5e74c15744b69cf3b760f6160ceabd15de0",
            "python": "/opt/b70/stacks/lab/venv/bin/python",
        }
        return Recipe(**(given | changes))

    return make
