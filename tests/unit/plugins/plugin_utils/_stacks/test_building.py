# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is built from a manifest, with which patches, and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import parse
from ansible_collections.arcpro.b70.plugins.module_utils._build.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks, locked_versions
from ansible_collections.arcpro.b70.plugins.plugin_utils._stacks import building

STACKS = load_stacks()
SYSTEM = {"id": "ubuntu", "version": "24.04", "machine": "x86_64"}
PACKED = "repro/minimax-m27-b70-89tps-20260520/patches/llm-scaler-active-promoted-minimax-89tps-20260520.patch.gz.b64"
LAB = "https://github.com/steveseguin/b70-optimization-lab"


def shipped(name: str) -> list[dict[str, Any]]:
    manifest = STACKS[name]
    pinned = locked_versions(Path(manifest["lock_file"]).read_text())
    return building.builds(manifest, pinned, "3.12", SYSTEM)


@pytest.mark.parametrize("name", [name for name, manifest in STACKS.items() if manifest.get("sources")])
def test_every_shipped_source_is_a_recipe(name: str) -> None:
    found = shipped(name)
    assert found
    validator = ArgumentSpecValidator(ARGUMENTS)
    for item in found:
        given = {**item["arguments"], **{key: "/x" for key, option in ARGUMENTS.items() if option.get("required")}}
        checked = validator.validate(given | item["arguments"])
        assert not checked.error_messages
        recipe = parse(checked.validated_parameters)
        uses = dict(recipe.uses)
        if recipe.cmake:
            assert uses["compiler"] == ("2025.3" if name == "llama-sycl" else "")
            assert {"cmake", "ninja", "scikit-build-core"} <= set(uses)
            assert recipe.distribution == "llama-cpp"
            continue
        assert (uses["torch"], uses["compiler"], uses["python"]) == ("2.11.0+xpu", "2025.3", "3.12")
        assert {"cmake", "setuptools", "ninja"} <= set(uses)
        assert dict(recipe.environment)["SYCL_HOME"] == "/opt/intel/oneapi/compiler/2025.3"


def test_a_patch_is_a_file_of_a_repository_at_a_commit() -> None:
    (patch,) = shipped("lab-minimax")[1]["arguments"]["patches"]
    assert patch == {
        "name": "llm-scaler-active-promoted-minimax-89tps-20260520",
        "repository": LAB,
        "commit": "510e00ed17fb15b2f7afcb2a1d17beca38a48561",
        "path": PACKED,
        "encoding": "gzip+base64",
        "subdirectory": "vllm/custom-esimd-kernels-vllm",
    }


def test_a_mirror_needs_trees_too_and_of_the_patches_repository_only_the_patches() -> None:
    found = building.repositories(STACKS["lab-minimax"])
    whole = {item["name"]: item["submodules"] for item in found if not item["files"]}
    assert whole == {
        "vllm-project/vllm-xpu-kernels": True,
        "intel/sycl-tla": False,
        "intel/llm-scaler": False,
        "vllm-project/vllm": False,
    }
    parts = [(item["url"], item["files"]) for item in found if item["files"]]
    assert (LAB, ["patches/vllm-xpu-mamba-copy-pointer-uint64-20260606.patch"]) in parts


def look(state: str = "absent", *problems: str, key: str = "k1") -> dict[str, Any]:
    return {"key": key, "state": state, "problems": list(problems)}


def of(**hosts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Looks of hosts at a stack with one source."""
    return {host: {"k": found} for host, found in hosts.items()}


def shared(
    looks: dict[str, dict[str, Any]], stored: list[str], wanting: list[str] | None = None
) -> dict[str, tuple[str, str]]:
    found = building.share(looks, stored, wanting or list(looks))
    return {host: (answer["k"]["do"], answer["k"]["holder"]) for host, answer in found.items()}


def test_the_first_that_can_builds_and_the_others_wait() -> None:
    looks = of(a=look("absent", "16 GiB"), b=look(), c=look())
    assert shared(looks, []) == {"a": ("copy", "b"), "b": ("build", "b"), "c": ("copy", "b")}


def test_a_build_under_way_is_joined() -> None:
    assert shared(of(a=look(), b=look("running")), []) == {"a": ("copy", "b"), "b": ("build", "b")}


def test_a_wheel_that_exists_is_never_built_again() -> None:
    looks = of(a=look("absent", "16 GiB"), b=look("built"))
    assert shared(looks, [], ["a"]) == {"a": ("copy", "b")}
    assert shared(looks, ["k-k1"])["b"] == ("have", "b")
    assert shared(of(a=look()), ["k-k1"]) == {"a": ("copy", "")}
    assert shared(of(a=look()), ["other-k1"]) == {"a": ("build", "a")}


def test_where_nobody_can_build_everybody_says_why() -> None:
    found = building.share(of(a=look("absent", "16 GiB"), b=look("failed", "8 GiB")), [], ["a", "b"])
    assert [found[name]["k"] for name in "ab"] == [
        {"do": "refuse", "holder": "a", "problems": ["16 GiB"]},
        {"do": "refuse", "holder": "b", "problems": ["8 GiB"]},
    ]


def test_a_wheel_for_another_system_will_not_do() -> None:
    looks = of(a=look("built"), b=look(key="k2"), c=look(key="k2"))
    assert shared(looks, ["k-k1"]) == {"a": ("have", "a"), "b": ("build", "b"), "c": ("copy", "b")}


def test_one_host_builds_all_that_nobody_has_because_each_is_built_with_those_before() -> None:
    looks = {
        "a": {"k": look(), "v": look("absent", "16 GiB")},
        "b": {"k": look(), "v": look()},
        "c": {"k": look("built"), "v": look()},
    }
    found = building.share(looks, [], ["a", "b"])
    assert {host: {name: item["do"] for name, item in answer.items()} for host, answer in found.items()} == {
        "a": {"k": "copy", "v": "copy"},
        "b": {"k": "copy", "v": "build"},
    }
    assert (found["b"]["k"]["holder"], found["a"]["v"]["holder"]) == ("c", "b")


def test_who_waits_and_who_lends_follows_from_what_is_built_already() -> None:
    looks = of(a=look("built"), b=look())
    answers = building.share(looks, [], ["b"])
    assert building.waits_for(answers["b"], "b", looks) == ""
    assert building.lent(answers, "a", looks["a"]) == ["k"]
    looks = of(a=look(), b=look())
    answers = building.share(looks, [], ["a", "b"])
    assert [building.waits_for(answers[host], host, looks) for host in "ab"] == ["", "a"]
    assert building.lent(answers, "a", looks["a"]) == []
    from_store = building.share(of(b=look()), ["k-k1"], ["b"])
    assert building.waits_for(from_store["b"], "b", looks) == ""


looks = st.builds(
    lambda state, problems, key: look(state, *problems, key=key),
    st.sampled_from(["built", "running", "failed", "absent"]),
    st.lists(st.just("16 GiB"), max_size=1),
    st.sampled_from(["k1", "k2"]),
)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.fixed_dictionaries({"k": looks, "v": looks}), min_size=1),
    st.sets(st.sampled_from(["k-k1", "v-k2"])),
)
def test_one_builder_for_each_set_of_keys_and_a_holder_for_everybody(hosts: dict[str, Any], stored: set[str]) -> None:
    found = building.share(hosts, stored, list(hosts))
    assert set(found) == set(hosts)
    builders: dict[tuple[str, ...], set[str]] = {}
    for host, answer in found.items():
        keys = tuple(hosts[host][source]["key"] for source in sorted(answer))
        for source, item in answer.items():
            if item["do"] == "build":
                builders.setdefault(keys, set()).add(host)
            if item["do"] == "copy" and item["holder"]:
                holder = item["holder"]
                assert hosts[holder][source]["key"] == hosts[host][source]["key"]
                assert hosts[holder][source]["state"] == "built" or found[holder][source]["do"] == "build"
            if item["do"] == "copy" and not item["holder"]:
                assert f"{source}-{hosts[host][source]['key']}" in stored
            if item["do"] == "refuse":
                assert any(one["problems"] for one in answer.values())
    assert all(len(names) == 1 for names in builders.values())


def planned(host_lacks: bool, *names: str) -> list[dict[str, Any]]:
    builds = [
        {"name": name, "repo": "o/" + name, "commit": "1" * 40, "arguments": {"patches": [{"name": "p"}]}}
        for name in names
    ]
    return [{"id": "s-1", "installed": not host_lacks, "builds": builds}]


def test_an_installed_host_is_asked_only_where_another_lacks_the_stack() -> None:
    has, lacks = planned(False, "k", "m"), planned(True, "k", "m")
    assert building.questions(has, {"a": has}) == []
    assert building.questions(has, {"a": has, "b": lacks}) == ["s-1"]
    assert building.questions(planned(True), {"a": planned(True)}) == []


def test_a_host_that_has_the_stack_gives_its_wheels_and_gets_none() -> None:
    plans = {"a": planned(False, "k"), "b": planned(True, "k")}
    looks = {"a": {"s-1": {"k": look("built")}}, "b": {"s-1": {"k": look()}}}
    found = building.shares(plans, looks, ["other-k1"])
    assert found == {"s-1": {"b": {"k": {"do": "copy", "holder": "a", "problems": []}}}}
    assert building.shares(plans, {"b": looks["b"]}, ["k-k1"])["s-1"]["b"]["k"]["holder"] == ""


def test_it_is_said_what_is_done_for_every_source() -> None:
    (item,) = planned(True, "k", "m", "v", "w")
    looks = {"k": {"estimate": "4 jobs", "state": "absent"}, "m": look(), "v": look("built"), "w": look("running")}
    answers = {
        "k": {"do": "build", "holder": "a"},
        "m": {"do": "copy", "holder": ""},
        "v": {"do": "have", "holder": "a"},
        "w": {"do": "build", "holder": "a"},
    }
    assert building.said(item, answers, looks) == [
        "builds k from o/k at 111111111111 with p: 4 jobs",
        "takes the wheel of m from o/m at 111111111111 with p from the controller",
        "has the wheel of v from o/v at 111111111111 with p",
        "joins the build of w from o/w at 111111111111 with p: a build is under way",
    ]
