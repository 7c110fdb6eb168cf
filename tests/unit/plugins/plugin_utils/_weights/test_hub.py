# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a commit, and which sources profiles name."""

from __future__ import annotations

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError, is_commit
from ansible_collections.arcpro.b70.plugins.plugin_utils._weights import hub

COMMIT = "a" * 40


def test_a_branch_is_no_revision():
    assert is_commit(COMMIT)
    for revision in ("main", "", None, COMMIT[:12], COMMIT.upper()):
        assert not is_commit(revision)
    for source in ({"hub": "a/b", "revision": COMMIT}, {"hub": "a/b"}, {"hub": "a/b", "revision": ""}, {"path": "/a"}):
        hub.refuse_branch("m", source)
    with pytest.raises(WeightsError, match=r"model m comes from .* a/b, but its revision 'main' is no full commit"):
        hub.refuse_branch("m", {"hub": "a/b", "revision": "main"})


def test_the_catalogue_names_sources_and_the_operator_wins():
    profiles = {
        "one": {"model": {"hf_repo": "a/one", "directory": "one", "revision": COMMIT, "size_gb": 7}},
        "two": {"model": {"hf_repo": "a/two", "directory": "two"}},
        "absolute": {"model": {"hf_repo": "a/three", "directory": "/srv/three"}},
        "local": {"model": {"directory": "four"}},
    }
    found = hub.from_catalogue(profiles, [*profiles, "unknown"], {"a/one": "b" * 40})
    assert found == {
        "one": {"hub": "a/one", "profile": "one", "revision": "b" * 40, "size_gb": 7},
        "two": {"hub": "a/two", "profile": "two"},
    }


def test_the_files_that_a_profile_loads_are_known_for_its_projector_too():
    engine = {"settings": {"mmproj": "@model_path@/mmproj-F16.gguf"}, "extra_args": []}
    model = {"directory": "m", "file": "m-00001-of-00002.gguf", "projector": {"directory": "p", "file": "p.gguf"}}
    profiles = {"gguf": {"model": model, "engine": engine}, "all": {"model": {"directory": "a"}, "engine": engine}}
    assert hub.patterns_of(profiles, [*profiles, "unknown"]) == {
        "m": ["m-*-of-00002.gguf", "mmproj-F16.gguf"],
        "p": ["p.gguf"],
    }


def test_a_directory_has_the_files_of_all_its_profiles():
    model = {"hf_repo": "a/b", "revision": COMMIT, "directory": "m", "file": "m-Q4.gguf"}
    settings = [{}, {"mmproj": "@model_path@/mmproj.gguf"}]
    profiles = {
        f"p{number}": {"model": model, "engine": {"settings": own, "extra_args": []}}
        for number, own in enumerate(settings)
    }
    for name in profiles:
        assert hub.from_catalogue(profiles, [name], {})["m"]["include"] == ["m-Q4.gguf", "mmproj.gguf"]


def test_two_revisions_of_a_directory_are_two_models():
    model = {"hf_repo": "a/b", "directory": "m"}
    profiles = {name: {"model": {**model, "revision": name * 40}} for name in ("a", "b")}
    assert hub.from_catalogue(profiles, profiles, {}) == {
        "m": {"hub": "a/b", "profile": "a", "revision": "a" * 40},
        f"m@{'b' * 40}": {"hub": "a/b", "profile": "b", "revision": "b" * 40},
    }


@pytest.mark.parametrize(
    ("models", "revisions", "said"),
    [
        ({"a/b": {"path": "/a"}}, {}, "'a/b' cannot name a model directory"),
        ({"../m": {"path": "/a"}}, {}, "'../m' cannot name a model directory"),
        ({"/m": {"path": "/a"}}, {}, "'/m' cannot name a model directory"),
        ({".m": {"path": "/a"}}, {}, "'.m' cannot name a model directory"),
        ({"": {"path": "/a"}}, {}, "'' cannot name a model directory"),
        ({"my model": {"path": "/a"}}, {}, "'my model' cannot name a model directory"),
        ({"m@main": {"path": "/a"}}, {}, "'m@main' cannot name a model directory"),
        ({"m": "/a"}, {}, "the source of model m must be a dictionary with exactly one of"),
        ({"m": {"path": "/a", "hub": "a/b"}}, {}, "the source of model m must be a dictionary with exactly one of"),
        ({"m": {"hub": "a/b", "revison": COMMIT}}, {}, "the source of model m has revison"),
        ({"m": {"hub": "b"}}, {}, "hub of model m must be OWNER/NAME"),
        ({"m": {"hub": "https://huggingface.co/a/b"}}, {}, "hub of model m must be OWNER/NAME"),
        ({"m": {"hub": "a/b", "revision": "main"}}, {}, "its revision 'main' is no full commit"),
        ({"m": {"url": "files.example/m"}}, {}, "url of model m must begin with http:// or https://"),
        ({"m": {"host_path": "srv/m"}}, {}, "host_path of model m must be absolute"),
        ({}, {"m": COMMIT}, "m must be OWNER/NAME"),
        ({}, {"a/b": "main"}, "a/b has 'main', which must be a commit"),
        ({}, {"a/b": COMMIT[:12]}, "must be a commit"),
        ({}, {"a/b": COMMIT.upper()}, "must be a commit"),
        ({}, {"a/b": int("1" * 40)}, "in quotes"),  # YAML takes forty digits for a number
        ({}, {"a/b": None}, "must be a commit"),
    ],
)
def test_what_a_site_says_of_weights_is_judged_before_anything_is_done(models, revisions, said):
    good = {"other": {"hub": "a/other", "revision": COMMIT}}
    (told,) = hub.site_problems({**models, **good}, {**revisions, "a/other": COMMIT})
    assert said in told
