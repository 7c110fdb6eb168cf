# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stack manifests and their ids."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.places import unmade_paths
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import NOT_IN_ID, load_stacks, stack_id

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


CMAKE = """
name: mine
installable: true
reason: ""
based_on: llama-cpu
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("build: {requires: [cmake]}\n", "ninja is missing; llama-cpp is built by it"),
        ("sources: [{name: llama-cpp, cmake: {programs: []}}]\n", "needs at least 1 entry"),
        ("sources: [{name: llama-cpp, script: setup.py}]\n", "cannot be combined with cmake"),
        ("sources: [{name: llama-cpp, cmake: {options: {A B: x}}}]\n", "the name of an entry of CMake's cache"),
    ],
)
def test_a_project_of_cmake_needs_programs_and_what_builds_them(tmp_path, change, message):
    (tmp_path / "mine.yml").write_text(CMAKE + change)
    with pytest.raises(CatalogueError, match=message):
        load_stacks([tmp_path])


def test_a_stack_on_another_changes_single_options(tmp_path):
    (tmp_path / "mine.yml").write_text(CMAKE + "sources: [{name: llama-cpp, cmake: {options: {GGML_FMA: 'OFF'}}}]\n")
    options = load_stacks([tmp_path])["mine"]["sources"][0]["cmake"]["options"]
    assert (options["GGML_FMA"], options["GGML_AVX2"]) == ("OFF", "ON")


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


SOURCE = "sources: [{name: k, repo: o/k, commit: %s, max_jobs: 2}]\n" % ("a" * 40)
GIT = "repo: o/r, commit: %s, path: a.patch.gz.b64, encoding: gzip+base64"
PATCHES = f"patches: [{{name: p, applies_to: k, {GIT % ('a' * 40)}}}]\n"
FIRST = "{requirement: %s, index: https://x, hashes: {any: [sha256:%s]}}"


def write(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yml").write_text(f"name: {name}\ninstallable: false\nreason: none\n{text}")


def test_a_stack_takes_over_what_it_is_based_on(tmp_path):
    base = "python: {min: '3.12', below: '3.13'}\nlock: base.lock\nenv: {A: '1'}\ntitle: Base\n" + SOURCE + PATCHES
    write(tmp_path, "base", base + f"first: [{FIRST % ('torch==1', 'c' * 64)}, {FIRST % ('vision==1', 'd' * 64)}]\n")
    (tmp_path / "base.lock").write_text("x==1\n")
    more = "sources: [{name: k, max_jobs: 4}, {name: m, repo: o/m, commit: %s}]\n" % ("b" * 40)
    more += PATCHES.replace("name: p", "name: q") + "first: [{requirement: torch==2, index: https://new}]\n"
    write(tmp_path, "more", f"based_on: base\nenv: {{B: '2'}}\n{more}")
    stack = load_stacks([tmp_path])["more"]
    assert [(item["name"], item["commit"][0], item.get("max_jobs")) for item in stack["sources"]] == [
        ("k", "a", 4),
        ("m", "b", None),
    ]
    assert [patch["name"] for patch in stack["patches"]] == ["p", "q"]
    # Another version takes nothing of the old one, least of all its digests.
    assert stack["first"][0] == {"requirement": "torch==2", "index": "https://new"}
    assert stack["first"][1]["hashes"] == {"any": ["sha256:" + "d" * 64]}
    assert stack["env"] == {"A": "1", "B": "2"}
    assert stack["lock_file"] == str(tmp_path / "base.lock")
    assert (stack["name"], stack.get("title")) == ("more", None)


def test_a_folder_of_ones_own_changes_a_stack_of_the_same_name_and_those_based_on_it(tmp_path):
    write(tmp_path / "a", "base", SOURCE)
    write(tmp_path / "a", "child", "based_on: base\n")
    write(tmp_path / "b", "base", "based_on: base\nsources: [{name: k, max_jobs: 9}]\n")
    stacks = load_stacks([tmp_path / "a", tmp_path / "b"])
    assert stacks["base"]["sources"] == stacks["child"]["sources"]
    assert stacks["child"]["sources"][0]["max_jobs"] == 9


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("based_on: bsae\n", "based_on", 'there is no stack "bsae" to be based on; did you mean "base"'),
        ("based_on: other\n", "based_on", "stacks are based on each other"),
        ("sources: [{name: k, repo: o/k}]\n", "sources[0].commit", "is missing"),
        (SOURCE + PATCHES.replace("applies_to: k", "applies_to: j"), "patches[0].applies_to", 'there is no source "j"'),
        (SOURCE.replace("]", ", {name: k, repo: o/k, commit: %s}]" % ("b" * 40)), "sources", "k stands there twice"),
        ("lock: x.lock\nbuild: {requires: [x, cmake]}\n", "build.requires[1]", "x.lock has no cmake"),
        ("first: [{requirement: torch==1}]\n", "first[0]", "needs either index"),
        ("first: [{requirement: t==1, index: https://x, url: https://x/t.whl}]\n", "first[0]", "needs either index"),
        ("first: [{requirement: t==1, url: https://x/}]\n", "first[0].url", "ends with .whl"),
        (
            "first: [{requirement: t==1, index: https://x, hashes: {cp312: [sha256:%s]}}]\n" % ("e" * 64),
            "first[0].hashes.cp312",
            "or any",
        ),
        (SOURCE + "patches: [{name: p, applies_to: k, repo: o/r, path: a}]\n", "patches[0].commit", "is missing"),
        (
            "env: {PYTHONPATH: '@stack_dir@/src/k'}\n",
            "env.PYTHONPATH",
            "@stack_dir@/src/k is nothing that a role makes",
        ),
        (
            "python: {min: '3.12', below: '3.13'}\nenv: {X: '@venv@/lib/python3.11/site-packages/t/lib'}\n",
            "env.X",
            "@venv@/lib/python3.11/site-packages/t/lib is nothing that a role makes",
        ),
    ],
)
def test_what_is_wrong_with_a_whole_manifest_is_named(tmp_path, text, path, message):
    (tmp_path / "x.lock").write_text("x==1 \\\n    --hash=sha256:0\n")
    write(tmp_path, "base", "")
    write(tmp_path, "other", "based_on: x\n")
    write(tmp_path, "x", text)
    with pytest.raises(CatalogueError) as caught:
        load_stacks([tmp_path])
    (found,) = [problem for problem in caught.value.problems if problem.file.endswith("x.yml")]
    assert found.path == path
    assert message in found.message


def test_a_patch_counts_by_its_digest_or_else_by_its_place_in_git(tmp_path):
    def of(place):
        write(tmp_path, "x", SOURCE + f"patches: [{{name: p, applies_to: k, {place}}}]\n")
        return stack_id(load_stacks([tmp_path])["x"])

    git = GIT % ("a" * 40)
    assert of(git) == of(f"{git}, needed_by: [a], upstream: gone")
    assert of(git) != of(GIT % ("b" * 40))
    assert of(git) != of(git.replace("gzip+base64", "plain"))
    digest = f"sha256: {'c' * 64}"
    assert of(git) != of(f"{git}, {digest}") == of(f"{GIT % ('b' * 40)}, {digest}")


def test_where_a_wheel_comes_from_is_not_part_of_the_id(tmp_path):
    def of(first):
        write(tmp_path, "x", f"first: [{{requirement: t==1, {first}}}]\n")
        return stack_id(load_stacks([tmp_path])["x"])

    digest = "hashes: {any: [sha256:%s]}"
    assert of("index: https://x") == of("index: https://y") == of("url: https://y/t.whl")
    assert of("index: https://x") != of(f"index: https://x, {digest % ('0' * 64)}")


@pytest.mark.parametrize(
    ("value", "unmade"),
    [
        ("@venv@/lib:/opt/intel/lib", []),
        ("@venv@", []),
        ("@stack_dir@/venv/bin/python", []),
        ("@venv@/lib/python3.12/site-packages/torch/lib", []),
        ("@venv@/lib/python3.13/site-packages/x", ["@venv@/lib/python3.13/site-packages/x"]),
        ("@venv@/src:@venv@/lib", ["@venv@/src"]),
        ("/a:@stack_dir@/src/vllm:@stack_dir@/src/k", ["@stack_dir@/src/vllm", "@stack_dir@/src/k"]),
        ("@venv@/lib/../../src/x", ["@venv@/lib/../../src/x"]),
        ("@stack_dir@/venv/../src", ["@stack_dir@/venv/../src"]),
    ],
)
def test_a_path_below_a_stack_that_nothing_makes_is_found(value, unmade):
    assert list(unmade_paths(value, {"min": "3.12", "below": "3.13"})) == unmade


def test_without_a_series_of_python_any_folder_of_one_will_do():
    assert list(unmade_paths("@venv@/lib/python3.9/x")) == []
