# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot engine as files for a host: the package b70slot and its command b70ctl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _slot

PACKAGE = "b70slot"
_SOURCES = Path(_slot.__file__).parent
_COLLECTION = _SOURCES.parents[2]
_PROGRAM = '''\
#!/usr/bin/python3 -I
# Managed by Ansible, collection arcpro.b70, role slot.
"""The command of this host's model slot: b70ctl --help."""

import sys

sys.path.insert(0, {lib_dir})

from {package}.command import main

SETTINGS = {{
{settings}
}}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SETTINGS))
'''
_COMPLETION = """\
# Managed by Ansible, collection arcpro.b70, role slot.
source <({path} completion) && complete -F _b70ctl {name}
"""
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


def program_files(settings: Mapping[str, str]) -> list[dict[str, str]]:
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
    rows = "\n".join(f"    {json.dumps(key)}: {json.dumps(value)}," for key, value in known.items())
    text = _PROGRAM.format(lib_dir=json.dumps(settings["lib_dir"]), package=PACKAGE, settings=rows)
    path = program_path(settings)
    return [
        *files,
        {"path": path, "content": text, "mode": "0755"},
        {"path": f"{path}.bash", "content": _COMPLETION.format(path=path, name=settings["command"]), "mode": "0644"},
    ]
