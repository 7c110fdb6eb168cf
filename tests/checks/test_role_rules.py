# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import role_rules

ROOT = Path(__file__).resolve().parents[2]

RULES = [
    role_rules.check_role_defaults,
    role_rules.check_role_shapes,
    role_rules.check_shared_paths,
    role_rules.check_shared_paths_in_code,
    role_rules.check_role_entry_points,
    role_rules.check_accounts,
    role_rules.check_reports,
    role_rules.check_passed_variables,
    role_rules.check_prefixes,
    role_rules.check_root_playbooks,
    role_rules.check_playbook_hosts,
]

SPECS = """
argument_specs:
  main:
    short_description: A door.
    options:
      door_port: {type: int, default: 80, description: Where it listens.}
"""

# A tree that keeps every rule; each case below breaks one thing in it.
GOOD = {
    "roles/door/defaults/main.yml": "door_port: 80\n",
    "roles/door/meta/argument_specs.yml": SPECS,
    "roles/door/tasks/main.yml": "- ansible.builtin.command: {argv: [id]}\n  register: __door_id\n"
    "- ansible.builtin.include_role: {name: a.b.door}\n  vars: {wall_gap: '{{ door_port }}'}\n",
    "roles/paths/vars/main.yml": "__paths_own: {data: /mnt/data}\n__paths_data_dir: x\n",
    "plugins/module_utils/_paths.py": 'DATA_DIR = "/mnt/data"\n',
    "plugins/modules/door.py": 'EXAMPLES = r"""\ndoor: /mnt/data/door\n"""\nDOOR = "/mnt/database"\n',
    "plugins/modules/b70_door.py": 'DOCUMENTATION = """\nextends_documentation_fragment: [arcpro.b70.door]\n"""\n',
    "plugins/doc_fragments/door.py": 'DOCUMENTATION = """\noptions: {port: {type: int, default: 81}}"""\n',
    "roles/door/vars/main.yml": "__door_dir: /mnt/database\n",
    "playbooks/site.yml": "- hosts: localhost\n  connection: local\n  roles: [{role: arcpro.b70.door}]\n",
    "site.yml": "- name: All\n  ansible.builtin.import_playbook: playbooks/site.yml\n",
}

BROKEN = [
    (role_rules.check_role_defaults, "roles/door/defaults/main.yml", "door_port: 81\n", "door_port is 80"),
    (role_rules.check_role_defaults, "roles/door/defaults/main.yml", "{}\n", "door_port is not in defaults"),
    (
        role_rules.check_role_defaults,
        "roles/door/tasks/main.yml",
        "- arcpro.b70.b70_door: {port: '{{ door_port | default(omit) }}'}\n",
        "door_port and port of b70_door differ: default",
    ),
    (
        role_rules.check_role_defaults,
        "roles/door/defaults/main.yml",
        "door_port: 80\ndoor_x: 1\n",
        "door_x is not in meta",
    ),
    (
        role_rules.check_role_defaults,
        "roles/door/meta/argument_specs.yml",
        "argument_specs: {}\n",
        "no entry point main",
    ),
    (
        role_rules.check_role_defaults,
        "roles/door/meta/argument_specs.yml",
        SPECS.replace("type: int, ", ""),
        "no type or no description",
    ),
    (
        role_rules.check_role_defaults,
        "roles/door/meta/argument_specs.yml",
        SPECS.replace("default: 80", "required: true"),
        "is required and has a default",
    ),
    (
        role_rules.check_role_shapes,
        "roles/door/meta/argument_specs.yml",
        SPECS.replace("int", "list"),
        "no task has arcpro.b70.b70_role_arguments",
    ),
    (
        role_rules.check_shared_paths_in_code,
        "plugins/modules/door.py",
        'DOOR = "/mnt/data/door"\n',
        "plugins/modules/door.py:1: /mnt/data has its home in plugins/module_utils/_paths.py",
    ),
    (
        role_rules.check_shared_paths_in_code,
        "plugins/module_utils/_paths.py",
        'DATA_DIR = "/mnt/other"\n',
        "plugins/module_utils/_paths.py: lacks /mnt/data",
    ),
    (
        role_rules.check_shared_paths,
        "roles/door/vars/main.yml",
        "__door_dir: /mnt/data/door\n",
        "roles/door/vars/main.yml:1: /mnt/data has its home in roles/paths/vars/main.yml",
    ),
    (
        role_rules.check_shared_paths,
        "roles/door/vars/main.yml",
        "__door_dir: '{{ __paths_data_dir }}'\n",
        "door: uses __paths_* and does not depend on arcpro.b70.paths",
    ),
    (
        role_rules.check_role_entry_points,
        "playbooks/site.yml",
        "- hosts: x\n  tasks: [{block: [{ansible.builtin.include_role: {name: a.b.door, tasks_from: open}}]}]\n",
        "role door has no argument spec for open",
    ),
    (
        role_rules.check_accounts,
        "roles/door/tasks/main.yml",
        "- name: Open\n  ansible.builtin.user: {name: door, groups: [hall], append: true}\n",
        "Open does not say create_home",
    ),
    (
        role_rules.check_reports,
        "roles/door/tasks/main.yml",
        "- name: Report\n  ansible.builtin.debug: {msg: \"{{ lines | join('\\\\n') }}\"}\n",
        "Report joins its lines",
    ),
    (
        role_rules.check_passed_variables,
        "roles/door/defaults/main.yml",
        "door_port: '{{ wall_gap | default(80) }}'\n",
        "wall_gap follows from itself",
    ),
    (role_rules.check_prefixes, "roles/door/defaults/main.yml", "port: 80\n", "port does not start with door_"),
    (
        role_rules.check_prefixes,
        "roles/door/tasks/main.yml",
        "- block:\n    - ansible.builtin.command: {argv: [id]}\n      register: result\n",
        "result does not start with __door_",
    ),
    (
        role_rules.check_prefixes,
        "roles/door/tasks/main.yml",
        "- ansible.builtin.set_fact: {found: 1}\n",
        "found does not start with __door_",
    ),
    (
        role_rules.check_prefixes,
        "playbooks/site.yml",
        "- hosts: x\n  vars: {target: 1}\n",
        "target starts neither with b70_ nor",
    ),
    (role_rules.check_root_playbooks, "site.yml", "- hosts: all\n  tasks: []\n", "does more than import"),
    (
        role_rules.check_root_playbooks,
        "site.yml",
        "- ansible.builtin.import_playbook: playbooks/other.yml\n",
        "imports playbooks/other.yml",
    ),
    (role_rules.check_root_playbooks, "playbooks/site.yml", None, "there is no playbooks/site.yml"),
    (role_rules.check_playbook_hosts, "playbooks/site.yml", "- hosts: all\n", "hosts is 'all'"),
    (
        role_rules.check_playbook_hosts,
        "playbooks/site.yml",
        "- hosts: \"{{ b70_target | default('b70_hosts') }}\"\n",
        "not the lookup arcpro.b70.target",
    ),
]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_collection_keeps(rule: Callable[[Path], list[str]]) -> None:
    found = rule(ROOT)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_good_tree_is_accepted_by(rule: Callable[[Path], list[str]], tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert rule(tmp_path) == []


@pytest.mark.parametrize(("rule", "name", "text", "finding"), BROKEN, ids=[case[3] for case in BROKEN])
def test_a_broken_tree_is_refused(
    rule: Callable[[Path], list[str]], name: str, text: str | None, finding: str, tmp_path: Path
) -> None:
    write(tmp_path, GOOD)
    if text is None:
        (tmp_path / name).unlink()
    else:
        write(tmp_path, {name: text})
    assert any(finding in line for line in rule(tmp_path)), rule(tmp_path)


def test_there_are_roles_and_playbooks_to_check() -> None:
    assert {role.name for role in role_rules.roles(ROOT)} >= {"profiles", "host", "stack", "slot", "frontdoor"}
    assert {file.name for file in ROOT.glob("*.yml")} >= {"site.yml", "switch.yml", "status.yml"}
