# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch pulls the image of its profile, and installs nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SWITCH = yaml.safe_load((ROOT / "playbooks/switch.yml").read_text())[0]


def test_the_image_is_there_before_the_slot_is_asked():
    imported = [task for task in SWITCH["tasks"] if "ansible.builtin.import_role" in task]
    assert [task["ansible.builtin.import_role"]["name"] for task in imported] == [
        "arcpro.b70.profiles",
        "arcpro.b70.stack",
        "arcpro.b70.slot",
    ]
    stack = imported[1]
    assert stack["vars"] == {"stack_names": "{{ __profiles_images }}"}
    assert stack["when"] == "__profiles_images | length > 0"


@pytest.mark.parametrize(
    ("profile", "images"),
    [("qwen38-27b-exl3", ["exl3xpu"]), ("qwen38-27b-int4", []), ("qwen3-0.6b-cpu", [])],
)
def test_only_images_are_pulled(profile: str, images: list[str], tmp_path: Path):
    task = {"name": "Say it", "ansible.builtin.debug": {"msg": "{{ 'images ' ~ __profiles_images | to_json }}"}}
    files = [*("defaults/main.yml", "vars/main.yml")]
    paths = [str(ROOT / "roles/profiles" / file) for file in files] + [str(ROOT / "roles/paths/vars/main.yml")]
    wanted = SWITCH["vars"]["profiles_requested"]
    # The defaults are read as variables of the play here, which those of switch.yml are as well.
    task["vars"] = {"profiles_requested": wanted}
    play = [{"hosts": "localhost", "gather_facts": False, "vars_files": paths, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    ansible = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [ansible, str(tmp_path / "play.yml"), "-e", f"profile={profile}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"images {json.dumps(images)}" in done.stdout.replace('\\"', '"'), done.stdout + done.stderr
