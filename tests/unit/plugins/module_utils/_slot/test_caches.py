# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compile caches: each belongs to what compiled it, and comes back with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot import caches
from unit.plugins.module_utils._slot.test_load_times_driver import STATUS

OLD, NEW = STATUS.format(igc="2.34.4"), STATUS.format(igc="2.41.5")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "caches/gemma4-c8"


def start(root: Path, stack: str = "xpu-1", dpkg: str = OLD, *more: str) -> int:
    """What the unit does before a start, and what the engine then leaves in an empty cache."""
    status = root.parent.parent / "status"
    status.write_text(dpkg)
    code = caches.main(["--stack", stack, "--cards", "--root", str(root), *more, str(root / "home")], status)
    made = root / "torch_compile_cache"
    if not made.exists():
        made.write_text(f"{stack} {'new' if dpkg == NEW else 'old'}")
    return code


def compiled(root: Path) -> str:
    return (root / "torch_compile_cache").read_text()


def test_a_cache_is_kept_with_what_compiled_it(root):
    assert start(root) == 0
    assert (root / "home").is_dir()
    found = json.loads((root / caches.FILE).read_text())
    assert found["stack"] == "xpu-1"
    assert found["packages"] == ["intel-igc-core-2 2.34.4", "libze-intel-gpu1 26.18.38308.1-1"]
    before = (root / caches.FILE).stat().st_mtime_ns
    assert start(root) == 0
    assert (root / caches.FILE).stat().st_mtime_ns == before
    assert [path.name for path in root.parent.iterdir()] == [root.name]


def test_another_stack_finds_nothing_and_the_way_back_finds_everything(root, capsys):
    start(root)
    start(root, "xpu-2")
    assert compiled(root) == "xpu-2 old"
    assert "was compiled by xpu-1 with 2 driver packages; set aside as gemma4-c8@" in capsys.readouterr().err
    start(root, "xpu-1")
    assert compiled(root) == "xpu-1 old"
    assert "is used again" in capsys.readouterr().err
    start(root, "xpu-2")
    assert compiled(root) == "xpu-2 old"


def test_another_compiler_makes_a_cache_stale(root):
    start(root)
    start(root, dpkg=NEW)
    assert compiled(root) == "xpu-1 new"


def test_only_the_last_ones_are_kept(root):
    for stack in ("xpu-1", "xpu-2", "xpu-3", "xpu-4"):
        start(root, stack)
    assert len(list(root.parent.iterdir())) == 1 + caches.KEPT
    start(root, "xpu-1")
    assert compiled(root) == "xpu-1 old"
    start(root, "xpu-3")
    assert compiled(root) == "xpu-3 old"
    # xpu-1 was removed long ago and compiled anew, xpu-3 came back as it was
    assert len(list(root.parent.iterdir())) == 1 + caches.KEPT


def test_other_caches_are_left_alone(root):
    other = root.with_name("gemma4-c8-xpugraph")
    start(other)
    for stack in ("xpu-2", "xpu-3", "xpu-4", "xpu-5"):
        start(root, stack)
    assert compiled(other) == "xpu-1 old"


def test_a_cache_of_before_is_taken_over(root):
    root.mkdir(parents=True)
    (root / "torch_compile_cache").write_text("of before")
    start(root)
    assert compiled(root) == "of before"
    start(root, "xpu-2")
    assert compiled(root) == "xpu-2 old"


@pytest.mark.parametrize("torn", ["", "{", "[]"])
def test_a_torn_provenance_is_none(root, torn):
    start(root)
    (root / caches.FILE).write_text(torn)
    start(root, "xpu-2")
    assert compiled(root) == "xpu-1 old"
    assert json.loads((root / caches.FILE).read_text())["stack"] == "xpu-2"


def test_what_an_image_compiles_does_not_depend_on_the_host(root):
    image = ("--image", "docker.io/vllm/vllm-openai-xpu@sha256:" + "0" * 64)
    start(root, "image-1", OLD, *image)
    assert json.loads((root / caches.FILE).read_text())["packages"] == []
    start(root, "image-1", NEW, *image)
    assert compiled(root) == "image-1 old"


def test_a_link_in_the_place_of_a_cache_removes_nothing_elsewhere(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    start(root)
    for number in range(4):
        (root.parent / f"{root.name}{caches.ASIDE}{number:012}").symlink_to(elsewhere)
    start(root, "xpu-2")
    start(root, "xpu-3")
    assert (elsewhere / "kept").read_text() == "kept"


def test_a_cache_that_can_not_be_settled_still_has_its_folders(root, capsys, monkeypatch):
    start(root)

    def refused(_self, _target):
        raise PermissionError(13, "Permission denied", "x")

    monkeypatch.setattr(Path, "rename", refused)
    folder = root.parent / "hf"
    assert start(root, "xpu-2", OLD, str(folder)) == 1
    assert folder.is_dir()
    assert "Permission denied: x; the engine compiles without it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "have", "beside", "is_warm"),
    [
        ((), None, (), False),
        (("home", caches.FILE), "this", (), False),
        (("home", "x"), None, (), True),
        (("home", "x", caches.FILE), "this", (), True),
        (("home", "x", caches.FILE), "other", (), False),
        (("home", "x", caches.FILE), "other", ("aside",), True),
    ],
)
def test_whether_a_start_finds_anything_is_told_before_it(names, have, beside, is_warm):
    wanted = caches.provenance("xpu-1", "", OLD, cards=True)
    other = caches.provenance("xpu-2", "", OLD, cards=True)
    text = {None: None, "this": json.dumps(wanted), "other": json.dumps(other)}[have]
    names_beside = [caches.aside("c", wanted)] if beside else []
    assert caches.warm("c", names, text, names_beside, wanted) is is_warm


def test_without_cards_no_driver_takes_part():
    assert caches.provenance("cpu-1", "", OLD, cards=False) == caches.provenance("cpu-1", "", NEW, cards=False)
    assert caches.provenance("cpu-1", "", OLD, cards=True) != caches.provenance("cpu-1", "", NEW, cards=True)
