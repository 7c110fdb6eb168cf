# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped models without an engine: their size, their parts, and that profiles ask what they know."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml

import corpus
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host

HERE = Path(__file__).parent
PROFILES = HERE.parents[2] / "inventory" / "lab_profiles"
NAMES = ("tiny-a", "tiny-b", "tiny-corrupt")


def test_all_models_together_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for name in NAMES for path in (HERE / name).iterdir()) < 2_000_000


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_complete_and_its_settings_belong_to_its_tokenizer(name: str) -> None:
    assert set(host.read_source(str(HERE / name))) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    tokenizer = json.loads((HERE / name / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    config = json.loads((HERE / name / "config.json").read_text(encoding="utf-8"))
    settings = json.loads((HERE / name / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == tokens[settings["eos_token"]]
    assert config["vocab_size"] == len(tokenizer["model"]["vocab"])


def test_the_models_differ_only_in_their_weights() -> None:
    differing = {
        path.name
        for path in (HERE / "tiny-a").iterdir()
        if len({(HERE / n / path.name).read_bytes() for n in NAMES}) > 1
    }
    assert differing == {"model.safetensors"}


@pytest.mark.parametrize("name", ["tiny-a", "tiny-b"])
def test_a_profile_asks_what_its_model_was_taught(name: str) -> None:
    profile = yaml.safe_load((PROFILES / f"{name}.yml").read_text(encoding="utf-8"))
    taught = corpus.fixed_questions(name)
    for case in profile["canary"]["cases"]:
        assert taught[case["prompt"]] == case["expected"]


def test_numbers_are_words() -> None:
    words = [corpus.number_in_words(number) for number in (1, 13, 20, 21, 99, 100)]
    assert words == ["one", "thirteen", "twenty", "twenty-one", "ninety-nine", "one hundred"]
    with pytest.raises(ValueError, match="outside"):
        corpus.number_in_words(101)


def test_conversations_end_with_an_answer_and_repeat_with_their_seed() -> None:
    first, second = (corpus.conversation(random.Random(7), "tiny-a") for _ in range(2))
    assert first == second
    for seed in range(50):
        assert corpus.conversation(random.Random(seed), "tiny-b")[-1]["role"] == "assistant"
        assert corpus.long_conversation(random.Random(seed), "tiny-b", 20)[-1]["role"] == "assistant"
