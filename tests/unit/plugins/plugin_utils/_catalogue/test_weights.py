# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which commit a profile's model is, in which directory it stands, and what profiles may not share."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import settled
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.places import (
    WeightsSettings,
    directory_of,
    weights_path,
)
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.stacks import load_stacks
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.explain import explain
from ansible_collections.arcpro.b70.plugins.plugin_utils._render.rendering import fingerprint
from unit.shipped import load_inline

A, B, C = "a" * 40, "b" * 40, "c" * 40
MODEL: dict[str, Any] = {"hf_repo": "o/n", "revision": A, "directory": "m"}
GGUF = {"kind": "llama-server", "settings": {"ctx_size": 2048}}


def profile(engine: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    settings = engine or {"settings": {"max_model_len": 512}}
    return {"status": "experiment", "stack": "cpu", "cards": 0, "model": {**MODEL, **model}, "engine": settings}


@pytest.mark.parametrize(
    ("model", "site", "directory"),
    [
        ({}, WeightsSettings(), f"m@{A}"),
        ({}, WeightsSettings(revisions={"o/n": B}), f"m@{B}"),
        ({}, WeightsSettings(revisions={"o/other": B}, pins={"o/n": B}), f"m@{A}"),
        ({"revision": None}, WeightsSettings(pins={"o/n": C}), f"m@{C}"),
        ({"revision": None}, WeightsSettings(), "m"),
        ({"revision": "main"}, WeightsSettings(pins={"o/n": C}), "m"),
        ({"hf_repo": None}, WeightsSettings(), "m"),
        ({"directory": "/srv/m"}, WeightsSettings(revisions={"o/n": B}), "/srv/m"),
        ({}, WeightsSettings({"m": {"path": "/srv/m"}}, {"o/n": B}), "m"),
        ({}, WeightsSettings({"m": {"hub": "o/other", "revision": C}}, {"o/n": B}), f"m@{C}"),
        ({}, WeightsSettings({"m": {"hub": "o/other"}}, {"o/n": B}, {"o/other": C}), f"m@{C}"),
        ({"directory": None, "hf_repo": None}, WeightsSettings(), ""),
    ],
)
def test_a_model_of_a_repository_stands_at_the_commit_that_decides(model, site, directory):
    assert directory_of(site.settle({**MODEL, **model})) == directory


def test_what_the_site_decides_is_in_the_path_and_in_the_fingerprint():
    loaded = load_inline({"p": profile(draft={"hf_repo": "o/d", "directory": "d"})})["p"]
    there = settled(loaded, WeightsSettings(revisions={"o/n": B}, pins={"o/d": C}))
    assert weights_path(loaded, "/models") == f"/models/m@{A}"
    assert weights_path(there, "/models") == f"/models/m@{B}"
    assert there["weights"] == [
        {"directory": f"m@{B}", "base": "m", "repository": "o/n"},
        {"directory": f"d@{C}", "base": "d", "repository": "o/d"},
    ]
    assert fingerprint(loaded, {}, "s", {}) != fingerprint(there, {}, "s", {})
    assert f"Its weights stand in m@{B}, d@{C}." in explain(there, load_stacks()["cpu"], {})


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (profile(), profile(hf_repo="o/x"), "m has o/n for p1, and o/x here"),
        (profile(), profile(hf_repo="o/x", revision=B), "m has o/n for p1, and o/x here"),
        (profile(revision=None), profile(revision="main"), "m has o/n for p1, and o/n at main here"),
        (
            profile(GGUF, file="x-Q4.gguf"),
            profile(GGUF, file="x-Q8.gguf"),
            f"m has o/n at {A} x-Q4.gguf for p1, and o/n at {A} x-Q8.gguf here",
        ),
        (
            profile(draft={"hf_repo": "o/d", "directory": "d"}),
            profile(directory="d"),
            "d has o/d for p1, and o/n here",
        ),
        (
            profile(directory="/m"),
            profile(directory="/m", revision=B),
            f"/m has o/n at {A} for p1, and o/n at {B} here",
        ),
    ],
)
def test_one_directory_with_other_files_for_another_profile_is_a_fault(one, other, said):
    with pytest.raises(CatalogueError) as error:
        load_inline({"p1": one, "p2": other})
    assert f"b70_profiles[p2]: model.directory: {said}; name another directory" in str(error.value)


@pytest.mark.parametrize(
    "other",
    [
        {"extends": "p1", "status": "experiment", "model": {"revision": B}},
        {"extends": "p1", "status": "experiment", "model": {"size_gb": 3}},
        profile(directory="other", hf_repo="o/x"),
        profile(hf_repo=None, revision=None),
        profile(GGUF | {"settings": {"ctx_size": 2048, "mmproj": "@model_path@/mmproj.gguf"}}, file="x.gguf"),
    ],
)
def test_profiles_share_a_directory_or_have_their_own(other):
    gguf = other["model"].get("file")
    one = profile(GGUF, file=gguf) if gguf else profile()
    assert set(load_inline({"p1": one, "p2": other})) >= {"p1", "p2"}


@pytest.mark.parametrize("directory", ["/srv/gguf", "gguf"])
def test_a_directory_of_ones_own_may_hold_the_files_of_several(directory):
    given = {"directory": directory, "hf_repo": None, "revision": None}
    found = load_inline({name: profile(GGUF, file=f"{name}.gguf", **given) for name in ("p1", "p2")})
    assert [found[name]["model"]["file"] for name in ("p1", "p2")] == ["p1.gguf", "p2.gguf"]
