# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters of b70_source_build, shared by its two halves."""

from __future__ import annotations

from typing import Any

_PATCH: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "repository": {"type": "str", "required": True},
    "commit": {"type": "str", "required": True},
    "path": {"type": "str", "required": True},
    "encoding": {"type": "str", "choices": ["plain", "gzip+base64"], "default": "plain"},
    "sha256": {"type": "str", "default": ""},
    "subdirectory": {"type": "str", "default": ""},
    "without_context": {"type": "bool", "default": False},
}
_TREE: dict[str, Any] = {
    "repository": {"type": "str", "required": True},
    "commit": {"type": "str", "required": True},
    "directory": {"type": "str", "required": True},
}
_PROBE: dict[str, Any] = {
    "file": {"type": "str", "required": True},
    "contains": {"type": "str", "required": True},
}
_CMAKE: dict[str, Any] = {
    "programs": {"type": "list", "elements": "str", "required": True},
    "options": {"type": "dict", "default": {}},
}
ARGUMENTS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "repository": {"type": "str", "required": True},
    "commit": {"type": "str", "required": True},
    "submodules": {"type": "bool", "default": False},
    "mirrors": {"type": "dict", "default": {}},
    "trees": {"type": "list", "elements": "dict", "default": [], "options": _TREE},
    "patches": {"type": "list", "elements": "dict", "default": [], "options": _PATCH},
    "probes": {"type": "list", "elements": "dict", "default": [], "options": _PROBE},
    "subdirectory": {"type": "str", "default": ""},
    "script": {"type": "str", "default": ""},
    "distribution": {"type": "str", "default": ""},
    "cmake": {"type": "dict", "options": _CMAKE},
    "python": {"type": "path", "required": True},
    "environment": {"type": "dict", "default": {}},
    "environment_file": {"type": "path"},
    "uses": {"type": "dict", "default": {}},
    "max_jobs": {"type": "int", "default": 4},
    "peak_gib": {"type": "float", "default": 2},
    "job_gib": {"type": "float", "default": 2},
    "disk_gib": {"type": "float", "default": 2},
    "swap_file": {"type": "path"},
    "swap_gib": {"type": "int", "default": 0},
    "swap_reserve_gib": {"type": "int", "default": 10},
    "network": {"type": "bool", "default": False},
    "build": {"type": "bool", "default": True},
    "work_dir": {"type": "path", "required": True},
    "wheel_dir": {"type": "path", "required": True},
    "ccache_dir": {"type": "path", "required": True},
    "uv": {"type": "path", "required": True},
    "user": {"type": "str", "required": True},
    "group": {"type": "str", "required": True},
    "source_timeout": {"type": "int", "default": 1800},
    "build_timeout": {"type": "int", "default": 43200},
    "stall_timeout": {"type": "int", "default": 900},
    "step": {"type": "str", "choices": ["look", "start", "stop"], "default": "look"},
    "token": {"type": "str", "default": "", "no_log": False},
}
