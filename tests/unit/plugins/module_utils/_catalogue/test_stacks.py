# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stack manifests and their ids."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.stacks import NOT_IN_ID, load_stacks, stack_id

MANIFEST = {"name": "x", "installable": True, "packages": {"torch": "2.11.0", "vllm": "0.21.0"}, "patches": ["p"]}


def test_the_id_is_stable():
    # A change here reinstalls every stack of every host: change it only on purpose.
    assert stack_id(MANIFEST) == "x-9c07a0add7"


def test_the_id_ignores_order_and_words():
    shuffled = {key: MANIFEST[key] for key in reversed(MANIFEST)}
    words = dict.fromkeys(NOT_IN_ID, "something else")
    assert stack_id({**shuffled, **words}) == stack_id(MANIFEST)


@pytest.mark.parametrize(
    "change",
    [
        {"packages": {"torch": "2.11.1", "vllm": "0.21.0"}},
        {"patches": []},
        {"patches": ["p", "q"]},
        {"lock": "x.lock", "lock_sha256": "0" * 64},
        {"more": None},
    ],
)
def test_the_id_changes_with_the_content(change):
    assert stack_id({**MANIFEST, **change}) != stack_id(MANIFEST)


def test_the_name_leads_the_id():
    assert stack_id({**MANIFEST, "name": "lab-2.11"}).startswith("lab-2.11-")


@pytest.mark.parametrize(
    ("manifest", "message"), [({}, "with a name"), ({"name": "x", "lock": "x.lock"}, "lock_sha256")]
)
def test_what_is_no_manifest_is_refused(manifest, message):
    with pytest.raises(ValueError, match=message):
        stack_id(manifest)


def test_the_lock_counts(tmp_path):
    (tmp_path / "mine.yml").write_text("name: mine\ninstallable: false\nreason: none\nlock: mine.lock\n")
    (tmp_path / "mine.lock").write_text("torch==1\n")
    first = load_stacks([tmp_path])["mine"]
    assert len(first["lock_sha256"]) == 64
    assert first["source_file"] == str(tmp_path / "mine.yml")
    (tmp_path / "mine.lock").write_text("torch==2\n")
    assert stack_id(load_stacks([tmp_path])["mine"]) != stack_id(first)


def test_faults_are_all_reported(tmp_path):
    (tmp_path / "a.yml").write_text("name: a\ninstallable: maybe\nlock: gone.lock\nenv: {X: 1}\n")
    (tmp_path / "b.yml").write_text("name: b\ninstallable: false\n")
    (tmp_path / "c.yml").write_text("name: other\n")
    (tmp_path / "d.yml").write_text("name: d\ninstallable: true\npyhton: {min: '3.11', below: '3.13'}\n")
    with pytest.raises(CatalogueError) as caught:
        load_stacks([tmp_path])
    assert [(problem.file.rsplit("/", 1)[1], problem.path) for problem in caught.value.problems] == [
        ("a.yml", "env.X"),
        ("a.yml", "installable"),
        ("a.yml", "lock"),
        ("b.yml", "reason"),
        ("c.yml", "name"),
        ("d.yml", "disk_mib"),
        ("d.yml", "machines"),
        ("d.yml", "pyhton"),
        ("d.yml", "python"),
    ]
    assert 'd.yml: pyhton: unknown key "pyhton"; did you mean "python"?' in str(caught.value)
