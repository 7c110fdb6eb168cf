# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary cases in profiles: what is refused, in which words, and that the host reads every case that is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary, pooling, transcription
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import kind_of_engine
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words import needle
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.plugin_utils._catalogue.problems import CatalogueError
from unit.plugins.module_utils._slot.fake_host import profile_data
from unit.shipped import load_inline

ROOT = Path(__file__).parents[5]
DOC = (ROOT / "docs/canary.md").read_text(encoding="utf-8")
CASE: dict[str, Any] = {"name": "a", "prompt": "p", "max_tokens": 8, "compare": "exact", "expected": "x"}
NEEDLE = {"note": "Remember.", "tokens": 200, "depth": 0.5}


def loaded(*cases, engine=None):
    profile = {
        "name": "x",
        "status": "experiment",
        "stack": "cpu",
        "cards": 0,
        "modalities": ["text", "image"],
        "model": {"directory": "x"},
        "engine": {**(engine or {}), "settings": {"max_model_len": 512, **(engine or {}).get("settings", {})}},
        "canary": {"cases": list(cases)},
    }
    return load_inline({"x": profile})["x"]["canary"]["cases"]


def pooled(task, *cases):
    """The cases of a model with this task that says so, or of one that leaves them to the defaults."""
    profile = {
        "name": "x",
        "extends": "_defaults",
        "status": "experiment",
        "stack": "cpu",
        "cards": 0,
        "modalities": ["text"],
        "model": {"directory": "x"},
        "engine": {"task": task, "settings": {"max_model_len": 512}},
        **({"canary": {"cases": list(cases)}} if cases else {}),
    }
    return load_inline({"x": profile})["x"]["canary"]["cases"]


def without(*keys):
    return {key: value for key, value in CASE.items() if key not in keys}


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ([{**CASE, "compare": "same"}], "canary.cases[0].compare: 'same' is none of exact, contains, regex, sha256"),
        ([without("expected")], "canary.cases[0].expected: is missing; compare: exact needs it"),
        ([{**CASE, "compare": "baseline"}], "canary.cases[0].expected: is not read with compare: baseline"),
        ([{**CASE, "compare": "regex", "expected": "("}], "canary.cases[0].expected: '(' is no regular expression"),
        ([CASE, CASE], 'canary.cases[1].name: there are two cases "a"'),
        ([{**CASE, "long": {"tokens": 200}}], "canary.cases[0].long.note: is missing"),
        ([{**CASE, "long": {**NEEDLE, "depth": 1.5}}], "1.5 is above the largest allowed value 1"),
        ([{**CASE, "long": {**NEEDLE, "deep": 1}}], 'unknown key "deep"'),
        ([{**CASE, "image": "red.png"}], "must be a data URL"),
        ([{**CASE, "image": {"width": 4}}], "canary.cases[0].image.colour: is missing"),
        ([{**CASE, "image": {"colour": "beige"}}], "must be red, green, blue, white, black or six hex digits"),
    ],
)
def test_a_broken_case_is_refused(cases, words):
    with pytest.raises(CatalogueError) as caught:
        loaded(*cases)
    assert words in "\n".join(str(problem) for problem in caught.value.problems)


TOOL: dict[str, Any] = {"name": "order", "parameters": {"type": "object"}}
CALL: dict[str, Any] = {**CASE, "tool": TOOL, "compare": "json", "expected": "{}"}
CLASSES: dict[str, Any] = {"name": "a", "texts": ["p", "q"], "compare": "classes"}
TONE: dict[str, Any] = {"name": "a", "audio": {"tone_hz": 440}, "compare": "transcript"}
SAID = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "x"}]
TEXTS: dict[str, Any] = {"name": "a", "texts": ["p", "q", "r"], "compare": "order"}


@pytest.mark.parametrize(
    ("task", "case", "words"),
    [
        ("embed", CASE, "canary.cases[0].prompt: asks for text, but engine.task is embed"),
        ("generate", TEXTS, "canary.cases[0].texts: is for a model that writes no text, but engine.task is generate"),
        ("embed", {**TEXTS, "expected": "x"}, "canary.cases[0].expected: is not read with texts"),
        ("embed", {**TEXTS, "prompt": "x"}, "canary.cases[0].prompt: is not read with texts"),
        ("embed", {**TEXTS, "compare": "exact"}, "canary.cases[0].compare: with texts it is vector, order or classes"),
        ("embed", {**TEXTS, "texts": ["p", "q"]}, "canary.cases[0].texts: an order needs three texts"),
        ("embed", {**TEXTS, "dimension": 4}, "canary.cases[0].dimension: is only read with compare: vector"),
        ("embed", {"name": "a", "compare": "vector"}, "canary.cases[0].texts: is missing; compare: vector needs it"),
        ("score", {**TEXTS, "compare": "vector"}, "canary.cases[0].compare: vector needs engine.task embed"),
        ("generate", without("prompt"), "canary.cases[0].prompt: is missing"),
        ("generate", without("max_tokens"), "canary.cases[0].max_tokens: is missing"),
        ("generate", {**CASE, "unit_norm": True}, "canary.cases[0].unit_norm: is only read with compare: vector"),
        ("embed", {**TEXTS, "tasks": ["embedd"]}, "canary.cases[0].tasks"),
        ("classify", CASE, "canary.cases[0].prompt: asks for text, but engine.task is classify; ask with texts"),
        ("classify", TEXTS, "canary.cases[0].compare: order needs engine.task embed or score, and it is classify"),
        ("embed", {**TEXTS, "compare": "classes"}, "canary.cases[0].compare: classes needs engine.task classify"),
        ("classify", {**CLASSES, "labels": ["X"]}, "canary.cases[0].labels: names 1 classes for 2 texts"),
        ("embed", {**TEXTS, "labels": ["X"]}, "canary.cases[0].labels: is only read with compare: classes"),
        (
            "transcription",
            CASE,
            "canary.cases[0].prompt: asks for text, but engine.task is transcription; ask with audio",
        ),
        ("generate", TONE, "canary.cases[0].audio: is for engine.task transcription, and it is generate"),
        ("transcription", {**TONE, "prompt": "p"}, "canary.cases[0].prompt: is not read with audio"),
        (
            "transcription",
            {**TONE, "compare": "exact"},
            "canary.cases[0].expected: is missing; compare: exact needs it",
        ),
        ("transcription", {**TONE, "expected": "x"}, "canary.cases[0].expected: is not read with compare: transcript"),
        ("transcription", {**TONE, "audio": "beep.wav"}, "canary.cases[0].audio: "),
        ("transcription", {"name": "a", "compare": "transcript"}, "canary.cases[0].audio: is missing"),
        ("generate", {**CASE, "compare": "json"}, "canary.cases[0].expected: 'x' is no JSON"),
        ("generate", {**CASE, "tool": TOOL}, "canary.cases[0].compare: with a tool it is json"),
        ("generate", {**CASE, "tool": {"name": "a b", "parameters": {}}}, "canary.cases[0].tool.name"),
        ("generate", {**CALL, "schema": {}}, "canary.cases[0].schema: is not read with a tool"),
        ("generate", {**CASE, "name": "burst"}, 'canary.cases[0].name: "burst" is the name of what is asked at once'),
        ("generate", {**CASE, "needs": "tool"}, "canary.cases[0].needs"),
        ("generate", {**CASE, "messages": SAID[:1] * 2}, "canary.cases[0].messages: has the roles user, user; each"),
        ("generate", {**CASE, "messages": SAID[1:] + SAID}, "canary.cases[0].messages: has the roles assistant, user"),
        ("generate", {**CALL, "messages": SAID}, "canary.cases[0].messages: does not go with tool"),
        (
            "generate",
            {**CASE, "compare": "sha256", "sampling": {"temperature": 1}},
            "canary.cases[0].sampling: does not go with compare: sha256",
        ),
        ("generate", {**CASE, "sampling": {"top_p": 1}}, "canary.cases[0].sampling.temperature: is missing"),
        ("embed", {**TEXTS, "stream": True}, "canary.cases[0].stream: is not read with texts"),
    ],
)
def test_a_case_that_does_not_fit_its_task_is_refused(task, case, words):
    with pytest.raises(CatalogueError) as caught:
        pooled(task, case)
    assert words in "\n".join(str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("embed", ["vectors", "similar_texts"]),
        ("score", ["similar_texts"]),
        ("classify", ["probabilities"]),
        ("generate", None),
    ],
)
def test_a_model_that_writes_no_text_gets_cases_in_numbers_by_default(task, names):
    cases = pooled(task)
    if names is None:
        assert not [case["name"] for case in cases if "texts" in case]
        return
    assert [case["name"] for case in cases] == names
    host = parse_profile(json.dumps(profile_data("x", engine__task=task, canary__cases=cases)), "x.json")
    assert all(pooling.payload(host, case) for case in host.canary.cases)


def test_a_model_that_listens_gets_a_tone_by_default():
    (case,) = pooled("transcription")
    host = parse_profile(json.dumps(profile_data("x", engine__task="transcription", canary__cases=[case])), "x.json")
    audio = host.canary.cases[0].audio
    assert audio is not None
    assert transcription.sound(audio)[:4] == b"RIFF"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"reasoning": {"budget_tokens": 9}}, "engine.reasoning.how: is missing"),
        ({"reasoning": {"how": "off"}}, "engine.reasoning.how: 'off' is none of disabled, separate, inline"),
        ({"reasoning": {"how": "separate"}}, "separate needs engine.settings.reasoning_parser"),
        ({"reasoning": {"how": "inline"}, "settings": {"reasoning_parser": "qwen3"}}, "inline does not go with"),
        ({"reasoning": {"how": "disabled", "budget_tokens": 9}}, "budget_tokens: is not read with how: disabled"),
        ({"reasoning": {"how": "disabled", "tags": ["a", "b"]}}, "tags: is only read with how: inline"),
        ({"reasoning": {"how": "inline", "tags": ["a"]}}, "engine.reasoning.tags"),
        (
            {"reasoning": {"how": "inline"}},
            "2048 and max_tokens 8 of a canary case leave no room in max_model_len (512)",
        ),
        ({"reasoning": {"how": "disabled"}, "task": "embed"}, "is for models that write, but engine.task is embed"),
    ],
)
def test_a_way_to_think_that_does_not_fit_is_refused(engine, words):
    with pytest.raises(CatalogueError) as caught:
        loaded(CASE, engine=engine)
    assert words in "\n".join(str(problem) for problem in caught.value.problems)


def test_the_burst_is_no_larger_than_what_is_admitted():
    shipped = load_catalogue()
    for name, profile in shipped.items():
        # An engine elsewhere has other clients too, and may be paid by the request.
        most = 0 if profile["engine"]["remote"] else 16
        assert profile["canary"]["burst"] == min(most, profile["frontdoor"]["max_active_generations"]), name
    assert shipped["gemma4-12b-it-int4-autoround-c8"]["canary"]["burst"] == 8


def test_what_the_catalogue_accepts_the_host_can_ask():
    cases = loaded(
        CASE,
        {**without("expected"), "name": "b", "compare": "baseline"},
        {**CASE, "name": "c", "long": NEEDLE},
        {**CASE, "name": "d", "image": {"colour": "#00ff00"}, "needs_modality": "image"},
        {**CASE, "name": "e", "image": "data:image/png;base64,AAAA"},
        {**CASE, "name": "f", "messages": [{"role": "system", "content": "s"}, *SAID], "stream": False},
        {**CASE, "name": "g", "sampling": {"temperature": 0.5, "top_k": 8}},
    )
    profile = parse_profile(json.dumps(profile_data("x", canary__cases=cases)), "x.json")
    assert [case.name for case in profile.canary.cases] == list("abcdefg")
    assert [case.stream for case in profile.canary.cases] == [True] * 5 + [False, True]
    for case in profile.canary.cases:
        assert canary.payload(profile, case)["messages"]
    assert profile.canary.cases[2].long == needle.Long("Remember.", 200, 0.5)


def test_every_shipped_profile_has_a_canary_that_fits_its_context():
    for profile in load_catalogue().values():
        length = kind_of_engine(profile["engine"]).context_length(profile["engine"]["settings"])
        assert length is not None
        resolved = profile_data("x", canary__cases=profile["canary"]["cases"], engine__max_model_len=length)
        host = parse_profile(json.dumps(resolved), profile["name"])
        for case in host.canary.cases:
            content = canary.payload(host, case)["messages"][0]["content"]
            words = (content if isinstance(content, str) else content[0]["text"]).split()
            # 1.3 tokens a word is more than tokenizers of models this large make of plain English.
            assert 1.3 * len(words) + case.max_tokens + needle.ASIDE < length, (profile["name"], case.name)


def test_the_default_canary_has_every_shape_but_for_engines_elsewhere():
    for name, profile in load_catalogue().items():
        cases = profile["canary"]["cases"]
        shapes = {key for case in cases for key in ("messages", "sampling", "stream") if case.get(key)}
        assert shapes == (set() if profile["engine"]["remote"] else {"messages", "sampling", "stream"}), name
        assert profile["liveness"]["verify_every_s"] == (0 if profile["engine"]["remote"] else 900), name


def test_the_default_canary_asks_far_back_and_for_two_colours():
    for name, profile in load_catalogue().items():
        cases = {case["name"]: case for case in profile["canary"]["cases"]}
        assert cases["long_prefill"]["long"]["tokens"] > 4096, name  # more than one batch in every shipped profile
        colours = {case["expected"] for case in cases.values() if case["image"] is not None}
        assert colours == ({"red", "blue"} if "image" in profile["modalities"] else set()), name


def test_the_schema_describes_what_the_docs_show():
    shown = [yaml.safe_load(part.split("```")[0])["canary"]["cases"] for part in DOC.split("```yaml\n")[1:]]
    texts, claimed, numbers = shown
    assert [case["name"] for case in loaded(*claimed)] == []
    promising = {"structured_output": True, "settings": {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}}
    assert [case["name"] for case in loaded(*claimed, engine=promising)] == [case["name"] for case in claimed]
    assert [case["name"] for case in loaded(*texts)] == [case["name"] for case in texts]
    assert [case["name"] for case in pooled("embed", *numbers)] == [case["name"] for case in numbers]


def test_the_odds_in_the_docs_are_right():
    said = " ".join(DOC.partition("## How sure is it?")[2].partition("\n## ")[0].split())
    found = re.findall(r"(\d+)(?: answers miss it| \([^)]*\))? in ([\d.]+) %", said)
    assert len(found) == 4
    for answers, percent in found:
        digits = len(percent.partition(".")[2])
        assert float(percent) == round(100 * 0.75 ** int(answers), digits)
    texts = sum(
        "image" not in case["name"] for case in load_catalogue()["gemma4-12b-it-int4-autoround-c8"]["canary"]["cases"]
    )
    assert f"16 (the {texts} default cases, 2 repeats) in" in said
