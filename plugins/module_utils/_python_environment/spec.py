# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of b70_python_environment, and their conversion to its own types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.arcpro.b70.plugins.module_utils import _paths
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment import plan
from ansible_collections.arcpro.b70.plugins.module_utils._python_environment.host import EnvironmentPaths

TEXT = {"type": "str", "required": True}
ADDRESS = {"type": "str", "default": ""}
NO = {"type": "bool", "default": False}
WORDS = {"type": "list", "elements": "str", "default": []}

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "python": {"type": "str", "default": "3.12"},
    "python_dir": {"type": "path", "default": _paths.PYTHON_DIR},
    "python_mirror": ADDRESS,
    "steps": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "label": TEXT,
            "requirements": TEXT,
            "hashed": {"type": "bool", "default": True},
            "index": ADDRESS,
            "url": ADDRESS,
            "compile": NO,
            "build": NO,
            "build_requirements": {"type": "str", "default": ""},
            "build_variables": {"type": "dict", "default": {}},
            "advice": {"type": "str", "default": ""},
        },
        "mutually_exclusive": [("index", "url")],
    },
    "aliases": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": TEXT, "version": TEXT, "of": TEXT},
    },
    "imports": WORDS,
    "more_follows": NO,
    "uv": {"type": "path", "default": f"{_paths.TOOLS_DIR}/bin/uv"},
    "uv_cache_dir": {"type": "path", "default": _paths.UV_CACHE_DIR},
    "find_links": WORDS,
    "extra_index_urls": WORDS,
    "no_index": NO,
    "timeout": {"type": "int", "default": 1800},
    "part": {"type": "str", "choices": ["make", "predict", "start", "look", "acknowledge"], "default": "make"},
    "token": {"type": "str", "default": "", "no_log": False},
}


def wanted(given: Mapping[str, Any]) -> plan.WantedEnvironment:
    """Return the environment that the options describe."""
    return plan.WantedEnvironment(
        python=given["python"],
        steps=tuple(plan.InstallStep(**step) for step in given["steps"]),
        aliases=tuple(plan.Alias(**alias) for alias in given["aliases"]),
        imports=tuple(given["imports"]),
        more_follows=given["more_follows"],
    )


def place(given: Mapping[str, Any], variables: Mapping[str, str]) -> EnvironmentPaths:
    """Return the paths in the options; `variables` are those of this process."""
    return EnvironmentPaths(
        path=Path(given["path"]),
        uv=given["uv"],
        cache=Path(given["uv_cache_dir"]),
        python_dir=Path(given["python_dir"]),
        python_mirror=given["python_mirror"],
        timeout=given["timeout"],
        sources=plan.Sources(tuple(given["find_links"]), tuple(given["extra_index_urls"]), given["no_index"]),
        variables=dict(variables),
    )
