# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("inventory", "extra", "said"),
    [
        ("hosts.yml", {}, "[PLACE/b70-pins.yml]"),
        (".", {}, "[PLACE/b70-pins.yml]"),
        ("h1,", {}, "[]"),
        ("h1,", {"b70_pins_file": "/srv/pins.yml"}, "[/srv/pins.yml]"),
    ],
)
def test_the_pins_stand_beside_the_inventory_and_nowhere_where_there_is_none(
    inventory: str, extra: dict[str, str], said: str, tmp_path: Path
):
    place = tmp_path / "inventory"
    place.mkdir()
    (place / "hosts.yml").write_text("b70_hosts: {hosts: {h1: {}}}\n")
    task = {"name": "Say it", "ansible.builtin.debug": {"msg": "[{{ model_weights_pins_file }}]"}}
    files = [str(ROOT / "roles/model_weights/defaults/main.yml"), str(ROOT / "roles/paths/vars/main.yml")]
    play = [{"hosts": "all", "gather_facts": False, "vars_files": files, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    ansible = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [ansible, "-i", inventory, str(tmp_path / "play.yml"), "-e", json.dumps(extra)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert said.replace("PLACE", str(place)) in done.stdout
