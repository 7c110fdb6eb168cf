# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The slot's package on a host: the role makes every directory that a file of it needs."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._render.program import program_files

ROOT = Path(__file__).resolve().parents[5]
SETTINGS = {
    name: f"/{name}" for name in ("bin_dir", "lib_dir", "slot", "config_dir", "run_dir", "state_dir", "unit_dir")
}


def test_the_role_makes_every_directory_of_the_package() -> None:
    roles_own = yaml.safe_load((ROOT / "roles/slot/vars/main.yml").read_text())["__slot_directories"]
    made = {
        one["path"].replace("{{ slot_bin_dir }}", "/bin_dir").replace("{{ slot_lib_dir }}", "/lib_dir")
        for one in roles_own
    }
    files = program_files({**SETTINGS, "frontdoor_url": "http://127.0.0.1:8000", "command": "b70ctl"})
    assert {str(PurePosixPath(file["path"]).parent) for file in files} <= made


def test_the_command_knows_the_version_of_the_collection() -> None:
    files = program_files({**SETTINGS, "frontdoor_url": "http://127.0.0.1:8000", "command": "b70ctl"})
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    command, completion = files[-2:]
    assert f'    "version": "{version}",\n' in command["content"]
    assert completion["content"].endswith(f"source <({command['path']} completion) && complete -F _b70ctl b70ctl\n")
