# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of b70_benchmark."""

from __future__ import annotations

from typing import Any

from .. import _arguments, _paths
from .comparison import COLD, ENGINE, FRONTDOOR, WARM
from .generators import GENERATORS

STATES = ("measured", "foreseen")
_TARGETS, _PREFIXES = [FRONTDOOR, ENGINE], [COLD, WARM]
_SHAPES = ["short-128", "2k-128", "2k-512", "random-512-1536", "15k-128", "28k-128"]

ARGUMENTS: dict[str, Any] = {
    **_arguments.JOURNAL,
    **_arguments.RECORDED_WORK,
    "shapes": {"type": "list", "elements": "raw", "default": _SHAPES},
    "streams": {"type": "list", "elements": "int", "default": []},
    "targets": {"type": "list", "elements": "str", "choices": _TARGETS, "default": _TARGETS},
    "prefixes": {"type": "list", "elements": "str", "choices": _PREFIXES, "default": _PREFIXES},
    "generator": {"type": "str", "choices": list(GENERATORS), "default": GENERATORS[0]},
    "tools_python": {"type": "path", "default": f"{_paths.EVIDENCE_DIR}/bin/python"},
    "user": {"type": "str", "default": "b70"},
    "api_key": {"type": "str", "default": "", "no_log": True},
    "band": {"type": "float", "default": 0.1},
    "ttft_band": {"type": "float", "default": 0.25},
    "limit": {"type": "int", "default": 1800},
    "timeout": {"type": "int", "default": 43200},
    "evidence": {"type": "dict", "default": {}},
    "baselines": {"type": "list", "elements": "raw", "default": []},
    "profile": {"type": "str", "default": ""},
    "fail_on_regression": {"type": "bool", "default": False},
    "fail_without_comparison": {"type": "bool", "default": False},
    "dest": {"type": "path", "default": ""},
    "state": {"type": "str", "choices": list(STATES), "default": STATES[0]},
}
