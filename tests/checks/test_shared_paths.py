# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every path of a role follows what the operator sets for the host, in a play of that role alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

from checks.plays import ROOT, hosts, note, run_plays, write_notes
from checks.role_rules import entry_points, roles, shared_paths

MOVED = {f"host_{key}_dir": f"/moved/{key}" for key in ("cache", "config", "data", "state", "tools")}

# What else the site says is not on the host: see test_group_vars.
SHARED = re.compile(r"__paths_(?!site)")


def followed(name: str, default: object) -> list[str]:
    """Return where a default follows the shared paths: the variable, or keys of one that is a mapping."""
    if isinstance(default, dict):
        return [f"{name}.{key}" for key, value in default.items() if SHARED.search(str(value))]
    return [name] if SHARED.search(str(default)) else []


def play(role: str, names: list[str]) -> dict[str, object]:
    """Return a play of one role, of which nothing is run, that notes what its paths are on each host."""
    paths = ", ".join(f"'{name}': {name}" for name in names)
    own = [{"role": f"arcpro.b70.{role}", "tags": ["never"]}]
    return {"hosts": "all", "gather_facts": False, "roles": own, "post_tasks": [note(role, f"{{{paths}}}")]}


def test_each_path_follows_the_host(tmp_path: Path) -> None:
    plays: list[dict[str, object]] = []
    for role in roles(ROOT):
        options = {name: spec for specs in entry_points(role).values() for name, spec in specs.items()}
        names = [where for name, spec in options.items() for where in followed(name, spec.get("default"))]
        if names:
            plays.append(play(role.name, names))
    done = run_plays(tmp_path, [*plays, write_notes(tmp_path)], inventory=hosts({"unset": {}, "moved": MOVED}))
    assert done.returncode == 0, done.stdout
    home = shared_paths(ROOT)
    # What the host does not move: programs, and what is gone after a start.
    fixed = [home[key] for key in ("bin", "evidence", "hub", "lib", "python", "run", "stacks")]
    for host, given in {"unset": home, "moved": MOVED}.items():
        found = json.loads((tmp_path / f"{host}.json").read_text())
        assert {"host", "slot", "stack", "frontdoor", "doctor", "model_weights", "oneapi"} <= set(found)
        every = {name: path for paths in found.values() for name, path in paths.items()}
        beginnings = (*given.values(), *fixed)
        assert {name: path for name, path in every.items() if not path.startswith(beginnings)} == {}
