# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a site: group_vars/all.yml documents them, roles/paths has their defaults, roles follow them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from checks.plays import ROOT, hosts, note, run_plays, write_notes
from shipped import elsewhere
from tools.role_docs import PATHS, Places

SETTINGS = ROOT / "group_vars" / "all.yml"
# Read where they are needed; they have no default that is shared.
WITHOUT_SHARED_DEFAULT = {"b70_profile", "b70_mirror_key_fingerprint", "b70_slots", "b70_nodes"}
ROLES = ("frontdoor", "model_weights", "stack")
GIVEN: dict[str, dict[str, object]] = {
    "nothing": {},
    "a_mirror": {"b70_mirror_url": "http://mirror.example"},
    "links": {
        "b70_find_links": ["/srv/wheels"],
        "b70_extra_index_urls": ["http://index.example"],
        "b70_no_index": True,
    },
    "links_for_stacks": {"stack_find_links": ["/srv/stacks"], "b70_find_links": ["/srv/wheels"]},
}
FOLLOWED: dict[str, list[object]] = {
    "nothing": [[], [], False],
    "a_mirror": [["http://mirror.example/wheels/"], [], True],
    "links": [["/srv/wheels"], ["http://index.example"], True],
    "links_for_stacks": [["/srv/stacks"], [], False],
}


def documented() -> dict[str, object]:
    """Return the settings that the file documents, with the defaults that it names."""
    lines = re.findall(r"^# ((?!http)[a-z0-9_]+: .*)$", SETTINGS.read_text(), re.MULTILINE)
    return dict(yaml.safe_load("\n".join(lines)))


def test_the_shipped_file_sets_nothing() -> None:
    assert yaml.safe_load(SETTINGS.read_text()) is None


def test_the_settings_hold_for_every_playbook_of_the_checkout() -> None:
    assert (ROOT / "playbooks" / "group_vars").resolve() == SETTINGS.parent


def test_every_shared_setting_is_documented_with_its_default() -> None:
    places = Places(ROOT)
    home = yaml.safe_load((ROOT / PATHS).read_text())
    # The URL follows the role frontdoor's own settings.
    del home["__paths_site_frontdoor_url"]
    shared = [name for name, value in home.items() if isinstance(value, str) and "| default(" in value]
    wanted = {places.moved_by(name): places.path(name) for name in shared}
    found = {
        name: "" if value == "" else str(value)
        for name, value in documented().items()
        if name not in WITHOUT_SHARED_DEFAULT
    }
    assert found == wanted


def test_the_numbers_that_stand_twice_are_the_same() -> None:
    shared = yaml.safe_load((ROOT / PATHS).read_text())["__paths_site"]
    host = yaml.safe_load((ROOT / "roles" / "host" / "defaults" / "main.yml").read_text())
    for name in ("build_memory_gib", "build_swap_reserve_gib"):
        assert shared[name] == host[f"host_{name}"]


def test_every_role_follows_them_where_only_the_collection_is_installed(installed: Path, tmp_path: Path) -> None:
    plays: list[dict[str, object]] = []
    for role in ROLES:
        names = ", ".join(f"{role}_{name}" for name in ("find_links", "extra_index_urls", "no_index"))
        own = [{"role": f"arcpro.b70.{role}", "tags": ["never"]}]
        plays.append({"hosts": "all", "gather_facts": False, "roles": own, "post_tasks": [note(role, f"[{names}]")]})
    plays.append(write_notes(tmp_path))
    # Where an operator has the least to say: an inventory file.
    done = run_plays(tmp_path, plays, inventory=hosts(GIVEN), cwd=tmp_path, env=elsewhere(tmp_path, installed))
    assert done.returncode == 0, done.stdout
    for given, followed in FOLLOWED.items():
        found = json.loads((tmp_path / f"{given}.json").read_text())
        assert found == dict.fromkeys(ROLES, followed), given


def test_the_first_folder_of_the_site_with_a_template_wins_and_the_collection_has_the_others(
    installed: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "keys.toml.j2").write_text(folder.name)
    collection = installed / "ansible_collections/arcpro/b70"
    texts = "['keys.toml.j2', 'haproxy-hardening.conf.j2'] | map('extract', __paths_templates) | map('realpath') | list"
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"role_path": str(collection / "roles/host")},
        "roles": [{"role": "arcpro.b70.paths", "tags": ["never"]}],
        "post_tasks": [note("files", texts)],
    }
    given = hosts({"own": {"b70_template_dirs": [str(folder) for folder in folders]}, "none": {}})
    plays = [play, write_notes(tmp_path)]
    done = run_plays(tmp_path, plays, inventory=given, cwd=tmp_path, env=elsewhere(tmp_path, installed))
    assert done.returncode == 0, done.stdout
    found = {name: json.loads((tmp_path / f"{name}.json").read_text())["files"] for name in ("own", "none")}
    shipped = [
        str((collection / "templates" / name).resolve()) for name in ("keys.toml.j2", "haproxy-hardening.conf.j2")
    ]
    assert found == {"own": [str((folders[0] / "keys.toml.j2").resolve()), shipped[1]], "none": shipped}
