# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories without digests, judged by their contents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._files import sha256
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host
from ansible_collections.arcpro.b70.plugins.module_utils._weights.contents import faults
from ansible_collections.arcpro.b70.plugins.module_utils._weights.manifest import WeightsError
from unit.plugins.module_utils._weights.files import gguf, safetensors

MODELS = Path(__file__).parents[4] / "lab/models"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5368709120\n"
PAGE = "\n<!-- portal -->\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
MODEL = gguf({"general.architecture": "qwen3", "general.type": "model"})
PROJECTOR = gguf({"general.architecture": "clip", "general.type": "mmproj"})
HUB = {"kind": "hub", "repository": "a/b", "revision": "1" * 40, "include": [], "exclude": []}


def found_of(directory: Path) -> host.WeightsState:
    return host.inspect(str(directory), None, {"kind": "host"}, False, write=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in two shards."""
    root = tmp_path / "m"
    root.mkdir()
    (root / "config.json").write_text("{}")
    (root / "tokenizer.json").write_text("{}")
    (root / "README.md").write_text("<html>")
    (root / "__init__.py").write_text("")
    shards = {"model-00001-of-00002.safetensors": ("a", "b"), "model-00002-of-00002.safetensors": ("c",)}
    for name, tensors in shards.items():
        (root / name).write_bytes(safetensors(b"w" * 48, *tensors))
    index = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return root


@pytest.mark.parametrize("name", ["tiny-a", "tiny-a-gguf"])
def test_real_models_look_whole(name: str):
    assert found_of(MODELS / name).reason == "no digests are known for it"
    assert host.read_source(str(MODELS / name))


def test_a_model_in_shards_looks_whole_with_its_index_and_without(model: Path):
    assert found_of(model).state == "complete"
    (model / "model.safetensors.index.json").unlink()
    assert found_of(model).state == "complete"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


SHARD = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        (SHARD, cut, "bytes, and its header describes"),
        (SHARD, longer, "bytes, and its header describes"),
        (SHARD, lambda path: path.write_bytes(path.read_bytes()[:20]), "it is cut off or no safetensors"),
        (SHARD, lambda path: path.write_bytes(b"PK\x03\x04" * 30), "it is cut off or no safetensors"),
        (SHARD, lambda path: path.write_bytes(b"\x02" + b"\0" * 7 + b"[]"), "has a header that is none of safetensors"),
        (SHARD, lambda path: path.write_bytes(b""), "is empty"),
        (SHARD, text(POINTER), "is a pointer of Git LFS, not the file itself: run git lfs pull"),
        (SHARD, text(PAGE), "is a web page"),
        ("config.json", text(PAGE), "is a web page"),
        ("config.json", text(""), "is empty"),
        ("tokenizer.json", text(POINTER), "is a pointer of Git LFS"),
        ("tokenizer.json", text('{"model": {"vocab'), "cannot be read as JSON"),
        (SHARD, lambda path: path.write_bytes(safetensors(b"w" * 48, "other")), "lacks the tensor c that model.safe"),
        (SHARD, Path.unlink, f"lacks: {SHARD}"),
        ("model.safetensors.index.json", text("{"), "is not an index of weights"),
    ],
)
def test_what_is_no_whole_file_is_named_and_the_directory_is_not_complete(
    model: Path, name: str, damage: Callable[[Path], object], says: str
):
    damage(model / name)
    found = found_of(model)
    assert (found.state, name in found.reason) == ("incomplete", True)
    assert says in found.reason
    lenient = host.inspect_fetched(str(model), HUB, False, False, True)
    assert (lenient.state, lenient.reason) == ("incomplete", found.reason)
    with pytest.raises(WeightsError, match="is not a complete model"):
        host.read_source(str(model))


def test_a_gap_between_tensors_is_damage(model: Path):
    header = json.dumps({"c": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}).encode()
    (model / SHARD).write_bytes(len(header).to_bytes(8, "little") + header + b"w" * 8)
    assert f"{SHARD} has tensors with a gap or overlap at byte 0" in found_of(model).reason


def test_a_shard_that_is_missing_is_named_without_an_index_too(model: Path):
    (model / "model.safetensors.index.json").unlink()
    (model / SHARD).unlink()
    assert found_of(model).reason == f"{model} lacks: {SHARD}"


def test_damage_is_found_in_files_with_a_record_of_another_kind_of_source(model: Path):
    wanted = host.read_source(str(model))
    digests = {name: sha256(str(model / name)) for name in wanted}
    host.write_manifest(str(model), wanted, digests, {"kind": "path"})
    left = host.inspect_fetched(str(model), HUB, False, False, True)
    assert (left.state, left.reason) == ("complete", "its files were not compared with a/b at 111111111111")
    (model / "config.json").write_text('{"other": 1}')
    assert host.inspect_fetched(str(model), HUB, False, False, True).state == "differs"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"m.gguf": MODEL, "mmproj-F16.gguf": PROJECTOR}, ""),
        ({"m.gguf": MODEL[:-1]}, "m.gguf has"),
        ({"m.gguf": MODEL[:40]}, "m.gguf is no whole GGUF file: it ends within its head"),
        ({"m.gguf": b"GGML" + MODEL[4:]}, "m.gguf is no whole GGUF file: it does not begin with GGUF"),
        ({"m.gguf": POINTER.encode()}, "m.gguf is a pointer of Git LFS"),
        ({"m.gguf": b""}, "m.gguf is empty"),
        ({"m-00001-of-00002.gguf": MODEL}, "lacks: m-00002-of-00002.gguf"),
        ({"m-00001-of-00001.gguf": gguf({"split.no": 0, "split.count": 1})}, ""),
        (
            {"m-00001-of-00001.gguf": gguf({"split.no": 1, "split.count": 2})},
            "is not the part of 1 that its name says: its head says part 1 of 2",
        ),
        ({"m.gguf": gguf({"split.no": 0, "split.count": 3})}, "its head says part 0 of 3"),
        ({"m.gguf": gguf({"split.no": "x", "split.count": "y"})}, "its head says part x of y"),
        ({"m.gguf": gguf({"general.alignment": 0})}, "its tensors are aligned to 0"),
        ({"m.gguf": gguf({"general.alignment": "a"})}, "its tensors are aligned to 'a'"),
        ({"mmproj-F16.gguf": PROJECTOR}, "is a projector alone: the model that it belongs to is not there"),
        ({"lora.gguf": gguf({"general.type": "adapter"})}, "is an adapter alone"),
    ],
)
def test_a_directory_of_gguf_is_judged_by_the_heads_of_its_files(tmp_path: Path, files: dict[str, bytes], says: str):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = found_of(tmp_path)
    assert found.state == ("incomplete" if says else "complete"), found.reason
    assert says in found.reason


def test_a_projector_alone_is_right_where_a_source_wants_nothing_else(tmp_path: Path):
    (tmp_path / "mmproj-F16.gguf").write_bytes(PROJECTOR)
    wanted = {**HUB, "include": ["mmproj-F16.gguf"]}
    assert host.inspect_fetched(str(tmp_path), wanted, False, False, True).state == "complete"
    beside = {**HUB, "include": ["m-Q4-*-of-00002.gguf", "mmproj-F16.gguf"]}
    found = host.inspect_fetched(str(tmp_path), beside, False, False, True)
    assert (found.state, found.reason) == ("incomplete", f"{tmp_path} lacks: m-Q4-*-of-00002.gguf")
    assert host.read_source(str(tmp_path))


def test_a_file_that_cannot_be_read_is_named(model: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(model, model.parent / "n")
    name = model.parent / "n" / "config.json"
    name.unlink()
    name.mkdir()  # gone between the look at the names and the look into the files
    present = {**host.scan(str(model))}
    assert faults(str(model.parent / "n"), present) == {"config.json": "cannot be read (Is a directory)"}
