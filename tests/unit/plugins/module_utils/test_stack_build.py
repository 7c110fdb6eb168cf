# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is built from a manifest, with which patches, and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils import _stack_build
from ansible_collections.arcpro.b70.plugins.module_utils._build.recipe import parse
from ansible_collections.arcpro.b70.plugins.module_utils._build.spec import ARGUMENTS
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.stacks import load_stacks, locked_versions

STACKS = load_stacks()
HOST = {"python": "3.12.3", "system": {"id": "ubuntu", "version": "24.04", "machine": "x86_64"}}
DIGEST = "a" * 64


def stack(**patch: Any) -> dict[str, Any]:
    source = {"name": "k", "repo": "o/k", "commit": "1" * 40}
    return {"name": "s", "sources": [source], "patches": [{"name": "p", "applies_to": "k", **patch}]}


@pytest.mark.parametrize(
    ("patch", "site", "path", "url"),
    [
        ({"sha256": DIGEST, "url": "https://x/p"}, "", "", "https://x/p"),
        ({"sha256": DIGEST, "url": "https://x/p"}, "http://m/patches/", "", "http://m/patches/p.patch"),
        ({"sha256": DIGEST}, "http://m/patches", "", "http://m/patches/p.patch"),
        ({"sha256": DIGEST, "url": "https://x/p", "path": "/mine"}, "http://m/patches", "/mine", ""),
    ],
)
def test_where_a_patch_comes_from(patch: dict[str, str], site: str, path: str, url: str) -> None:
    (found,) = _stack_build.patches(stack(**patch), site, "/patches")
    assert (found["path"], found["url"], found["problem"]) == (path, url, "")
    assert found["file"] == f"/patches/{DIGEST}.patch"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"needed_by": ["one", "two"]}, "p of stack s, which one and two need: neither place nor digest is known. Get"),
        ({"url": "https://x/p"}, "no digest is known. It is said to be at https://x/p. Get it"),
        ({"sha256": DIGEST}, "nobody knows where it is."),
    ],
)
def test_a_patch_that_cannot_be_had_is_named_with_who_needs_it(patch: dict[str, Any], words: str) -> None:
    (found,) = _stack_build.patches(stack(**patch), "", "/patches")
    assert words in found["problem"]
    assert "b70_stack_patches" in found["problem"]


def test_every_shipped_source_is_a_recipe() -> None:
    manifest = STACKS["lab-minimax"]
    patches = [patch | {"sha256": DIGEST} for patch in _stack_build.patches(manifest, "http://m", "/patches")]
    found = _stack_build.builds(manifest, locked_versions(Path(manifest["lock_file"]).read_text()), HOST, patches)
    assert [item["name"] for item in found] == ["vllm-xpu-kernels", "llm-scaler", "vllm"]
    defaults = {key: option.get("default") for key, option in ARGUMENTS.items()}
    for item in found:
        recipe = parse({**defaults, "python": "/venv/bin/python", **item["arguments"]})
        uses = dict(recipe.uses)
        assert (uses["torch"], uses["compiler"], uses["python"]) == ("2.11.0+xpu", "2025.3", "3.12")
        assert {"cmake", "setuptools", "ninja"} <= set(uses)
        assert dict(recipe.environment)["SYCL_HOME"] == "/opt/intel/oneapi/compiler/2025.3"
    assert [patch["name"] for patch in found[1]["arguments"]["patches"]] == [
        "llm-scaler-active-promoted-minimax-89tps-20260520"
    ]


def test_a_mirror_needs_trees_too() -> None:
    found = {item["name"]: item for item in _stack_build.repositories(STACKS["lab-minimax"])}
    assert list(found) == ["vllm-project/vllm-xpu-kernels", "intel/sycl-tla", "intel/llm-scaler", "vllm-project/vllm"]
    assert (found["intel/sycl-tla"]["submodules"], found["vllm-project/vllm-xpu-kernels"]["submodules"]) == (
        False,
        True,
    )


def look(state: str = "absent", *problems: str, key: str = "k1") -> dict[str, Any]:
    return {"key": key, "state": state, "problems": list(problems)}


def test_the_first_that_can_builds_and_the_others_wait() -> None:
    hosts = {"a": look("absent", "16 GiB"), "b": look(), "c": look()}
    found = _stack_build.share(hosts, [], list(hosts))
    assert {name: (item["do"], item["holder"]) for name, item in found.items()} == {
        "a": ("copy", "b"),
        "b": ("build", "b"),
        "c": ("copy", "b"),
    }


def test_a_build_under_way_is_joined() -> None:
    hosts = {"a": look(), "b": look("running")}
    found = _stack_build.share(hosts, [], ["a", "b"])
    assert [found[name]["do"] for name in hosts] == ["copy", "build"]


def test_a_wheel_that_exists_is_never_built_again() -> None:
    hosts = {"a": look("absent", "16 GiB"), "b": look("built")}
    assert _stack_build.share(hosts, [], ["a"])["a"] == {"do": "copy", "holder": "b", "problems": []}
    assert _stack_build.share(hosts, ["k1"], ["a", "b"])["b"]["do"] == "have"
    assert _stack_build.share({"a": look()}, ["k1"], ["a"])["a"] == {"do": "copy", "holder": "", "problems": []}


def test_where_nobody_can_build_everybody_says_why() -> None:
    found = _stack_build.share({"a": look("absent", "16 GiB"), "b": look("failed", "8 GiB")}, [], ["a", "b"])
    assert [found[name] for name in "ab"] == [
        {"do": "refuse", "holder": "a", "problems": ["16 GiB"]},
        {"do": "refuse", "holder": "b", "problems": ["8 GiB"]},
    ]


def test_a_wheel_for_another_system_will_not_do() -> None:
    hosts = {"a": look("built"), "b": look(key="k2"), "c": look(key="k2")}
    found = _stack_build.share(hosts, ["k1"], list(hosts))
    assert [(found[name]["do"], found[name]["holder"]) for name in hosts] == [
        ("have", "a"),
        ("build", "b"),
        ("copy", "b"),
    ]


looks = st.builds(
    lambda state, problems, key: look(state, *problems, key=key),
    st.sampled_from(["built", "running", "failed", "absent"]),
    st.lists(st.just("16 GiB"), max_size=1),
    st.sampled_from(["k1", "k2"]),
)


@given(st.dictionaries(st.sampled_from("abcdef"), looks, min_size=1), st.sets(st.sampled_from(["k1", "k2"])))
def test_one_builder_for_each_key_and_a_holder_for_everybody(hosts: dict[str, Any], stored: set[str]) -> None:
    found = _stack_build.share(hosts, stored, list(hosts))
    assert set(found) == set(hosts)
    for key in ("k1", "k2"):
        alike = {name: item for name, item in found.items() if hosts[name]["key"] == key}
        assert len([item for item in alike.values() if item["do"] == "build"]) <= 1
        for item in alike.values():
            if item["do"] == "copy" and item["holder"]:
                assert hosts[item["holder"]]["state"] == "built" or found[item["holder"]]["do"] == "build"
            if item["do"] == "copy" and not item["holder"]:
                assert key in stored


def planned(host_lacks: bool, *names: str) -> list[dict[str, Any]]:
    builds = [
        {"name": name, "repo": "o/" + name, "commit": "1" * 40, "arguments": {"patches": [{"name": "p"}]}}
        for name in names
    ]
    return [{"id": "s-1", "installed": not host_lacks, "builds": builds}]


def test_an_installed_host_is_asked_only_where_another_lacks_the_stack() -> None:
    has, lacks = planned(False, "k", "m"), planned(True, "k", "m")
    assert _stack_build.questions(has, {"a": has}) == []
    assert _stack_build.questions(has, {"a": has, "b": lacks}) == ["s-1/k", "s-1/m"]


def test_a_host_that_has_the_stack_gives_its_wheels_and_gets_none() -> None:
    plans = {"a": planned(False, "k"), "b": planned(True, "k")}
    looks = {"a": {"s-1/k": look("built")}, "b": {"s-1/k": look()}}
    found = _stack_build.shares(plans, looks, ["other-k1"])
    assert found == {"s-1/k": {"b": {"do": "copy", "holder": "a", "problems": []}}}
    assert _stack_build.shares(plans, {"b": looks["b"]}, ["k-k1"])["s-1/k"]["b"]["holder"] == ""


def test_it_is_said_what_is_done_for_every_source() -> None:
    (item,) = planned(True, "k", "m", "v", "w")
    looks = {"s-1/k": {"estimate": "4 jobs"}, "s-1/w": {"state": "running"}}
    shares = {
        "s-1/k": {"a": {"do": "build", "holder": "a"}},
        "s-1/m": {"a": {"do": "copy", "holder": ""}},
        "s-1/v": {"a": {"do": "have", "holder": "a"}},
        "s-1/w": {"a": {"do": "build", "holder": "a"}},
    }
    assert _stack_build.said(item, shares, looks, "a") == [
        "builds k from o/k at 111111111111 with p: 4 jobs",
        "takes the wheel of m from o/m at 111111111111 with p from the controller",
        "has the wheel of v from o/v at 111111111111 with p",
        "joins the build of w from o/w at 111111111111 with p: a build is under way",
    ]
