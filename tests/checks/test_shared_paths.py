# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every path of a role follows what the operator sets for the host, in a play of that role alone."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from checks.role_rules import entry_points, roles, shared_paths

ROOT = Path(__file__).resolve().parents[2]
MOVED = {f"host_{key}_dir": f"/moved/{key}" for key in ("cache", "config", "data", "state", "tools")}

# What else the site says is not on the host: see test_group_vars.
SHARED = re.compile(r"__paths_(?!site)")


def followed(name: str, default: object) -> list[str]:
    """Return where a default follows the shared paths: the variable, or keys of one that is a mapping."""
    if isinstance(default, dict):
        return [f"{name}.{key}" for key, value in default.items() if SHARED.search(str(value))]
    return [name] if SHARED.search(str(default)) else []


def play(role: str, names: list[str], given: dict[str, str], folder: Path) -> dict[str, object]:
    """Return a play of one role, of which nothing is run, that writes down what its paths are."""
    paths = {name: f"{{{{ {name} }}}}" for name in names}
    written = {"content": "{{ paths | to_json }}", "dest": str(folder / f"{role}.json"), "mode": "0600"}
    return {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {**given, "paths": paths},
        "roles": [{"role": f"arcpro.b70.{role}", "tags": ["never"]}],
        "post_tasks": [{"ansible.builtin.copy": written}],
    }


@pytest.mark.parametrize("given", [{}, MOVED], ids=["nothing set", "all set"])
def test_each_path_follows_the_host(given: dict[str, str], tmp_path: Path) -> None:
    plays = []
    for role in roles(ROOT):
        options = {name: spec for specs in entry_points(role).values() for name, spec in specs.items()}
        names = [where for name, spec in options.items() for where in followed(name, spec.get("default"))]
        if names:
            plays.append(play(role.name, names, given, tmp_path))
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump(plays))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert {"host", "slot", "stack", "frontdoor", "doctor", "model_weights", "oneapi"} <= set(found)
    home = shared_paths(ROOT)
    # What the host does not move: programs, and what is gone after a start.
    beginnings = [
        *(given or home).values(),
        *(home[key] for key in ("bin", "evidence", "hub", "lib", "python", "run", "stacks")),
    ]
    every = {name: path for paths in found.values() for name, path in paths.items()}
    assert {name: path for name, path in every.items() if not path.startswith(tuple(beginnings))} == {}
