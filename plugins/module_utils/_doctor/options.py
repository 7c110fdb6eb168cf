# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that the doctor's modules share: how to inspect a host, and its paths."""

from __future__ import annotations

from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _arguments, _paths
from ansible_collections.arcpro.b70.plugins.module_utils._gpu_driver import SOURCES

WORDS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}

HOST: dict[str, dict[str, Any]] = {
    "cards": {"type": "int"},
    "profiles": WORDS,
    "manifests": {"type": "dict", "default": {}},
    "default_stack": {"type": "str", "default": "xpu"},
    "limit": {"type": "int", "default": 60},
    **_arguments.SLOT,
    "stack_root": {"type": "path", "default": _paths.STACK_ROOT},
    "data_dirs": {"type": "list", "elements": "path", "default": [_paths.DATA_DIR, _paths.CACHE_DIR, _paths.STATE_DIR]},
    "cache_dirs": {
        "type": "list",
        "elements": "path",
        "default": [f"{_paths.DATA_DIR}/vllm-cache-exp", f"{_paths.DATA_DIR}/llm-cache/hf"],
    },
    "build_dir": {"type": "path", "default": f"{_paths.DATA_DIR}/src"},
    "build_swap": {
        "type": "dict",
        "options": {"file": {"type": "str"}, "total_gib": {"type": "int"}, "reserve_gib": {"type": "int"}},
    },
    "driver_source": {"type": "str", "default": "omix", "choices": list(SOURCES)},
    "driver_packages": {"type": "dict", "default": {}},
    "guc_accepted": WORDS,
    "user": {"type": "str", "default": "b70"},
}

DOCTOR: dict[str, dict[str, Any]] = {
    **HOST,
    "only": WORDS,
    "skip": WORDS,
    "deep": {"type": "bool", "default": False},
    "name": {"type": "str", "default": "host"},
    "fail_on": {"type": "str", "choices": ["FAIL", "WARN", "never"], "default": "FAIL"},
}

REPORT: dict[str, dict[str, Any]] = {
    **HOST,
    "dest": {"type": "path"},
    "folder": {"type": "path"},
    "name": {"type": "str", "default": "host"},
    "max_item_kib": {"type": "int", "default": 512},
    "people": WORDS,
}
