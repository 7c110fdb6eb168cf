# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._weights import manifest as m

BIG = m.ALWAYS_HASH_BELOW


def never(_name: str) -> str:
    raise AssertionError("a file was read that need not be")


def test_a_model_needs_config_weights_and_tokenizer():
    assert m.missing_parts({"config.json", "model.safetensors", "tokenizer.json"}, None) == []
    assert [part.split()[0] for part in m.missing_parts(set(), None)] == ["config.json", "weights", "a"]


def test_every_file_of_the_index_must_be_there():
    names = {"config.json", "tokenizer.model", "model-00001-of-00002.safetensors"}
    indexed = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert m.missing_parts(names, indexed) == ["model-00002-of-00002.safetensors"]
    assert m.missing_parts(names, []) == ["weight files (the index names none)"]


def test_half_a_tokenizer_is_none():
    names = {"config.json", "model.safetensors", "vocab.json"}
    assert m.missing_parts(names, None)[0].startswith("a tokenizer")
    assert m.missing_parts({*names, "merges.txt"}, None) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 1}', '{"weight_map": {"a": "../b.safetensors"}}'])
def test_an_index_that_is_none_is_named(text):
    with pytest.raises(m.WeightsError):
        m.parse_index(text, "model.safetensors.index.json")


def test_an_index_gives_each_file_once():
    text = json.dumps({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "a.safetensors"}})
    assert m.parse_index(text, "i") == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", ".a", "a\nb", "-a"])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(m.WeightsError):
        m.check_name(name)


@pytest.mark.parametrize("name", ["../x", "a/../b", "/a", "a//b", ".cache/x", "a\x07b"])
def test_files_that_lead_elsewhere_are_refused(name):
    with pytest.raises(m.WeightsError):
        m.check_relative(name)


def test_a_manifest_reads_back_as_written():
    manifest = {"config.json": m.ManifestEntry(3, "aa", 7, 9)}
    assert m.parse_manifest(m.render_manifest(manifest, {"kind": "path"})) == manifest


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"schema": 2, "files": {}}', '{"schema": 1, "files": {"a": {}}}', '{"schema": 1, "files": 1}'],
)
def test_a_manifest_that_is_none_counts_as_absent(text):
    assert m.parse_manifest(text) is None


def test_small_files_are_always_read():
    recorded = {"config.json": m.ManifestEntry(5, "aa", 1, 1)}
    judgement = m.compare(
        {"config.json": m.SourceFile(5, 1, "aa")}, {"config.json": m.Stat(5, 1)}, recorded, lambda _: "bb", False
    )
    assert list(judgement.problems) == ["config.json"]


def test_a_large_unchanged_file_is_not_read():
    recorded = {"w": m.ManifestEntry(BIG, "aa", 1, 2)}
    judgement = m.compare({"w": m.SourceFile(BIG, 2)}, {"w": m.Stat(BIG, 1)}, recorded, never, False)
    assert (judgement.problems, judgement.unknown, judgement.stale) == ({}, [], False)
    assert judgement.digests == {"w": "aa"}


def test_a_full_check_reads_it_and_finds_silent_damage():
    recorded = {"w": m.ManifestEntry(BIG, "aa", 1, 2)}
    judgement = m.compare({"w": m.SourceFile(BIG, 2)}, {"w": m.Stat(BIG, 1)}, recorded, lambda _: "bb", True)
    assert "sha256 bb" in judgement.problems["w"]


def test_a_touched_file_is_read_again_and_only_makes_the_record_stale():
    recorded = {"w": m.ManifestEntry(BIG, "aa", 1, 2)}
    judgement = m.compare({"w": m.SourceFile(BIG, 2)}, {"w": m.Stat(BIG, 99)}, recorded, lambda _: "aa", False)
    assert (judgement.problems, judgement.stale) == ({}, True)


def test_a_source_with_another_time_has_to_be_read_first():
    recorded = {"w": m.ManifestEntry(BIG, "aa", 1, 2)}
    present = {"w": m.Stat(BIG, 1)}
    assert m.compare({"w": m.SourceFile(BIG, 3)}, present, recorded, never, False).unknown == ["w"]
    read = m.compare({"w": m.SourceFile(BIG, 3, "aa")}, present, recorded, never, False)
    assert (read.unknown, read.problems, read.stale) == ([], {}, True)


def test_missing_extra_and_short_files_are_problems():
    wanted = {"a": m.SourceFile(1, 1, "x"), "b": m.SourceFile(2, 1, "x")}
    judgement = m.compare(wanted, {"b": m.Stat(1, 1), "c": m.Stat(1, 1)}, None, never, False)
    assert judgement.problems == {
        "a": "is missing",
        "b": "has 1 bytes instead of 2",
        "c": "is not part of the model",
    }
    assert m.in_words(judgement.problems, limit=1) == "a is missing, and 2 more"


def test_right_files_without_a_record_are_stale():
    judgement = m.compare({"a": m.SourceFile(1, 1, "x")}, {"a": m.Stat(1, 5)}, None, lambda _: "x", False)
    assert (judgement.problems, judgement.stale) == ({}, True)


def test_sizes_are_short():
    assert [m.size_in_words(size) for size in (12, 1500, 2_500_000, 113_000_000_000)] == [
        "12 bytes",
        "1.5 kB",
        "2.5 MB",
        "113.0 GB",
    ]


def test_a_directory_of_gguf_alone_needs_all_parts_and_nothing_else():
    parts = [f"q-0000{number}-of-00002.gguf" for number in (1, 2)]
    assert m.missing_parts([*parts, "mmproj-F16.gguf"], None) == []
    assert m.missing_parts([parts[1]], None) == [parts[0]]
    assert m.missing_parts(parts, None, ["mmproj*.gguf", "q-*.gguf", "*.json"]) == ["mmproj*.gguf"]
    # Beside weights of another format it is no more than a file.
    assert "config.json" in m.missing_parts(["model.safetensors", "m.gguf"], None)
