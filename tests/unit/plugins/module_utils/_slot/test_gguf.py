# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a split GGUF file, and its head; the lab's own model is the file that is read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import gguf

TINY = Path(__file__).parents[4] / "lab/models/tiny-a-gguf/tiny-a-BF16.gguf"


def test_a_split_file_stands_for_all_of_its_parts():
    assert gguf.parts("q/m-00001-of-00003.gguf") == [f"q/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert gguf.parts("m.gguf") == ["m.gguf"]
    assert (gguf.pattern("m-00002-of-00003.gguf"), gguf.pattern("m.gguf")) == ("m-*-of-00003.gguf", "m.gguf")


def test_the_head_of_a_real_file_is_read():
    with TINY.open("rb") as file:
        head = gguf.head(file)
    assert head["general.architecture"] == "qwen3"
    assert (head["qwen3.block_count"], head["qwen3.attention.head_count_kv"]) == (2, 2)
    assert len(head["tokenizer.ggml.tokens"]) == 640


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: b"GGML" + data[4:], "does not begin with GGUF"),
        (lambda data: data[:4] + b"\x09" + data[5:], "version 9"),
        (lambda data: data[:100], "ends within its head"),
        (lambda data: data[:16] + b"\xff" * 8 + data[24:], "claims 18446744073709551615 keys"),
        (lambda data: data[:24] + b"\xff" * 8 + data[32:], "bytes of one text"),
    ],
)
def test_a_damaged_head_is_named_and_takes_no_memory(damage, words):
    with pytest.raises(gguf.GgufError, match=words):
        gguf.head(io.BytesIO(damage(TINY.read_bytes())))


def test_the_size_that_the_head_of_a_real_file_describes_is_its_own():
    with TINY.open("rb") as file:
        head, least = gguf.head_and_size(file)
    assert (head["general.architecture"], least) == ("qwen3", TINY.stat().st_size)


def test_shards_of_safetensors_are_numbered_in_the_same_way():
    assert gguf.parts("m-00002-of-00002.safetensors") == [f"m-0000{number}-of-00002.safetensors" for number in (1, 2)]
