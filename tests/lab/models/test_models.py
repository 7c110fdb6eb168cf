# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shipped models without an engine: their size, their parts, and that profiles ask what they know."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

import jinja2
import pytest
import yaml

import corpus
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import degenerate
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words import needle
from ansible_collections.arcpro.b70.plugins.module_utils._weights import host
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue

HERE = Path(__file__).parent
PROFILES = HERE.parents[2] / "inventory" / "lab_profiles"
NAMES = ("tiny-a", "tiny-b", "tiny-corrupt", "tiny-vision", "tiny-think", "tiny-recipe")
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_all_models_together_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for name in NAMES for path in (HERE / name).iterdir()) < 600_000 * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_complete_and_its_settings_belong_to_its_tokenizer(name: str) -> None:
    eyes = {"preprocessor_config.json", "processor_config.json"} if name in ("tiny-vision", "tiny-recipe") else set()
    assert set(host.read_source(str(HERE / name))) == FILES | eyes
    tokenizer = json.loads((HERE / name / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    config = json.loads((HERE / name / "config.json").read_text(encoding="utf-8"))
    settings = json.loads((HERE / name / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == tokens[settings["eos_token"]]
    language = config.get("text_config", config)
    # The token that stands for a picture is beside the vocabulary that was learned.
    assert language["vocab_size"] == len(tokenizer["model"]["vocab"].keys() | tokens.keys())
    assert config.get("image_token_index") == tokens.get("<image>")


def test_the_models_of_words_differ_only_in_their_weights() -> None:
    differing = {
        path.name
        for path in (HERE / "tiny-a").iterdir()
        if len({(HERE / n / path.name).read_bytes() for n in NAMES[:3]}) > 1
    }
    assert differing == {"model.safetensors"}


@pytest.mark.parametrize("name", ["tiny-a", "tiny-b", "tiny-vision"])
def test_a_profile_asks_what_its_model_was_taught(name: str) -> None:
    profile = yaml.safe_load((PROFILES / f"{name}.yml").read_text(encoding="utf-8"))
    taught = corpus.fixed_questions(name)
    cases = {case["name"]: case for case in profile["canary"]["cases"]}
    long = cases.pop("long_prefill")
    assert long["long"]["note"] == corpus.KEY_NOTE.format(long["expected"])
    assert long["prompt"] == corpus.KEY_QUESTION
    for case in cases.values():
        if "image" in case:
            assert case["prompt"] == corpus.COLOUR_QUESTION
            assert case["expected"] == case["image"]["colour"].capitalize() in corpus.COLOURS
        else:
            assert taught[case["prompt"]] == case["expected"]


def test_the_model_that_thinks_was_taught_the_default_canary() -> None:
    default = load_catalogue([PROFILES])["tiny-think"]
    cases = {case["name"]: case for case in default["canary"]["cases"]}
    assert default["engine"]["reasoning"]["how"] == "disabled"
    tool, shaped, long = cases.pop("tool_call"), cases.pop("json_reply"), cases.pop("long_prefill")
    assert (tool["prompt"], json.loads(tool["expected"])) == (
        corpus.ORDER_QUESTION.format("satin", 7),
        json.loads(corpus.order("satin", 7).split("\n")[1])["arguments"],
    )
    talk, taught = cases.pop("three_turns"), corpus.fixed_questions("tiny-think")
    said = [*(message["content"] for message in talk["messages"]), talk["prompt"], talk["expected"]]
    assert {question: taught[question] for question in said[::2]} == dict(zip(said[::2], said[1::2], strict=True))
    counted = cases.pop("sampled_count")
    assert re.search(counted["expected"], taught[counted["prompt"]])
    properties = ", ".join(tool["tool"]["parameters"]["properties"])
    assert f"{tool['tool']['name']}({properties})" == corpus.ORDER_TOOL
    assert (shaped["prompt"], shaped["expected"]) == (corpus.COUNT_QUESTION.format(3, 4), corpus.count(3, 4))
    assert (long["long"]["note"], long["prompt"]) == (corpus.KEY_NOTE.format("orbit"), corpus.KEY_QUESTION)
    assert {case["prompt"]: case["expected"] for case in cases.values()}.items() <= taught.items()


def test_the_template_of_the_model_that_thinks_writes_what_it_was_taught() -> None:
    settings = json.loads((HERE / "tiny-think/tokenizer_config.json").read_text(encoding="utf-8"))
    template = jinja2.Template(settings["chat_template"])
    user = [{"role": "user", "content": "Hi"}]
    told = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(messages=user, add_generation_prompt=True) == told
    assert template.render(messages=user, add_generation_prompt=True, enable_thinking=True) == told
    quiet = template.render(messages=user, add_generation_prompt=True, enable_thinking=False)
    assert quiet == f"{told}<think>\n\n</think>\n\n"
    parameters = {"properties": {"cloth": {"type": "string"}, "pieces": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "order_cloth", "parameters": parameters}}]
    system = f"<|im_start|>system\nTools: {corpus.ORDER_TOOL}<|im_end|>\n"
    assert template.render(messages=user, tools=tools, add_generation_prompt=True) == system + told


def test_no_answer_that_was_taught_looks_degenerate() -> None:
    rng = random.Random(7)
    taught = [answer for name in ("tiny-a", "tiny-vision") for answer in corpus.fixed_questions(name).values()]
    taught += [corpus.conversation(rng, "tiny-a")[-1]["content"] for _ in range(300)]
    assert [answer for answer in taught if degenerate.degenerate(answer)] == []


def test_the_models_were_taught_the_words_of_long_prompts() -> None:
    assert set(needle.ADJECTIVES) <= set(corpus.ADJECTIVES)
    assert set(needle.NOUNS) <= set(corpus.NOUNS)
    assert set(needle.VERBS) <= set(corpus.VERBS)


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


def test_shades_have_the_name_of_the_colour_they_are_nearest_to() -> None:
    rng = random.Random(7)
    for _ in range(200):
        name, shade = corpus.shade(rng)
        near = min(corpus.COLOURS, key=lambda one: math.dist(corpus.COLOURS[one], shade))
        assert near == name
        assert all(0 <= value <= 255 for value in shade)
