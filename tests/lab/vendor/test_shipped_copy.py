# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copy of the shipped manifests differs in digests and Python alone, and whatever else differs is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vendor import shipped_copy
from vendor.goods import ROOT
from vendor.upstream import Upstream, manifest_of, stood_in_for

STACKS = ROOT / shipped_copy.STACKS
NAMES = ["xpu", "xpu-0.32"]


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """The stacks as shipped, and a copy with digests of nothing but ones."""
    one, other = tmp_path / "one", tmp_path / "other"
    for tree in (one, other):
        shutil.copytree(STACKS, tree / shipped_copy.STACKS)
    manifests = [manifest_of(STACKS, name) for name in NAMES]
    first = {step["requirement"]: "1" * 64 for manifest in manifests for step in manifest["first"]}
    locks = [(STACKS / manifest["lock"]).read_text(encoding="utf-8") for manifest in manifests]
    lock = {requirement: "1" * 64 for text in locks for requirement in stood_in_for(text)}
    changed = shipped_copy.rewrite(other, NAMES, Upstream(tmp_path, first, lock))
    assert {path.name for path in changed} >= {"xpu.yml", "xpu.lock", "xpu-0.32.lock"}
    return one, other


def test_all_that_is_stood_in_for_has_the_fixtures_digest_alone(trees: tuple[Path, Path]) -> None:
    assert shipped_copy.differences(*trees) == []
    text = (trees[1] / shipped_copy.STACKS / "xpu.lock").read_text(encoding="utf-8")
    assert text.count(f"sha256:{'1' * 64}") == len(stood_in_for(text))
    assert text.count("sha256:") > 10 * text.count("1" * 64)
    assert "cp312" not in (trees[1] / shipped_copy.STACKS / "xpu.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "former", "other"),
    [
        ("xpu.yml", "device: xpu", "device: cpu"),
        ("xpu.yml", "torch==2.14.0+xpu", "torch==2.14.1+xpu"),
        ("xpu.yml", "download.pytorch.org", "download.example.org"),
        ("xpu.lock", "aiohttp==", "aiohttq=="),
    ],
)
def test_another_difference_is_seen(trees: tuple[Path, Path], file: str, former: str, other: str) -> None:
    path = trees[1] / shipped_copy.STACKS / file
    path.write_text(path.read_text(encoding="utf-8").replace(former, other, 1), encoding="utf-8")
    assert shipped_copy.differences(*trees) == [str(shipped_copy.STACKS / file)]


def test_a_file_that_only_one_tree_has_is_a_difference(trees: tuple[Path, Path]) -> None:
    (trees[1] / "further.yml").write_text("")
    assert shipped_copy.differences(*trees) == ["further.yml"]
