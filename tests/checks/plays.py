# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run playbooks on this machine. A start takes a second of a processor, so that what can share one shares it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Done = subprocess.CompletedProcess[str]


def run(*words: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Done:
    """Run ansible-playbook, by default with the settings of the checkout; stdout has all that it says."""
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), *words],
        cwd=cwd,
        env={**os.environ, **own, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )


def play(name: str, *extra: str, inventory: str = "localhost,", check: bool = False) -> Done:
    """Run a playbook of the collection as a person calls it in a checkout."""
    words = [*(word for item in extra for word in ("-e", item)), *(["--check"] if check else [])]
    return run("-i", inventory, str(ROOT / "playbooks" / f"{name}.yml"), *words)


def play_all(folder: Path, *plays: tuple[str, Mapping[str, Any]], inventory: str = "localhost,") -> Done:
    """Run playbooks of the collection one after the other, each with variables of its own."""
    steps = [
        {"ansible.builtin.import_playbook": str(ROOT / "playbooks" / f"{name}.yml"), "vars": dict(variables)}
        for name, variables in plays
    ]
    return run_plays(folder, steps, inventory=inventory)


def run_plays(
    folder: Path, plays: Sequence[Mapping[str, Any]], *words: str, inventory: Any = "localhost,", **settings: Any
) -> Done:
    """Run plays, which are written to the folder; an inventory that is no text is written there as well.

    :param settings: what else `run` takes.
    """
    if not isinstance(inventory, str):
        (folder / "hosts.json").write_text(json.dumps(inventory))
        inventory = str(folder / "hosts.json")
    (folder / "play.yml").write_text(json.dumps(plays))
    return run("-i", inventory, str(folder / "play.yml"), *words, **settings)


def hosts(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return an inventory of hosts that are this machine, each with variables of its own."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"all": {"hosts": {name: dict(own) for name, own in variables.items()}, "vars": here}}


def note(name: str, expression: str) -> dict[str, Any]:
    """Return a task that notes a value of each host under a name; no module runs for it."""
    noted = f"{{{{ noted | default({{}}) | combine({{'{name}': {expression}}}) }}}}"
    return {"ansible.builtin.set_fact": {"noted": noted}}


def write_notes(folder: Path) -> dict[str, Any]:
    """Return a play that writes what was noted of each host to HOST.json in the folder."""
    file = {"dest": f"{folder}/{{{{ inventory_hostname }}}}.json", "mode": "0600"}
    copy = {"ansible.builtin.copy": {"content": "{{ noted | to_json }}", **file}, "check_mode": False}
    return {"hosts": "all", "gather_facts": False, "tasks": [copy]}


def said(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())
