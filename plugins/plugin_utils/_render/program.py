# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot engine as files for a host: the package b70slot and its command b70ctl."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _slot

from .._templates import render

PACKAGE = "b70slot"
_SOURCES = Path(_slot.__file__).parent
_COLLECTION = _SOURCES.parents[2]
_SETTINGS = ("slot", "config_dir", "run_dir", "state_dir", "unit_dir", "frontdoor_url")


def collection_version() -> str:
    """Return the version of the collection that these files belong to, installed or as a checkout; empty if unknown."""
    for name in ("MANIFEST.json", "galaxy.yml"):
        if (file := _COLLECTION / name).is_file():
            whole = yaml.safe_load(file.read_text(encoding="utf-8"))  # JSON is YAML
            return str(whole.get("collection_info", whole)["version"])
    return ""


def program_path(settings: Mapping[str, str]) -> str:
    """Return the path of the slot's command on the host."""
    return f"{settings['bin_dir']}/{settings['command']}"


def program_files(settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``[{path, content, mode}]``: every file of the package, then the command and its completion in bash.

    :param settings: checked slot settings.
    """
    root = f"{settings['lib_dir']}/{PACKAGE}"
    files = [
        {
            "path": f"{root}/{source.relative_to(_SOURCES).as_posix()}",
            "content": source.read_text(encoding="utf-8"),
            "mode": "0644",
        }
        for source in sorted(_SOURCES.rglob("*.py"))
    ]
    known = {**{key: settings[key] for key in _SETTINGS}, "version": collection_version()}
    dirs, path = settings.get("template_dirs", ()), program_path(settings)
    program = render("b70ctl", {"lib_dir": settings["lib_dir"], "package": PACKAGE, "settings": known}, dirs)
    completion = render("b70ctl.bash", {"path": path, "name": settings["command"]}, dirs)
    return [
        *files,
        {"path": path, "content": program, "mode": "0755"},
        {"path": f"{path}.bash", "content": completion, "mode": "0644"},
    ]
