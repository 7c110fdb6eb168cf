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

from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.catalogue import load_catalogue
from ansible_collections.arcpro.b70.plugins.module_utils._catalogue.problems import CatalogueError
from ansible_collections.arcpro.b70.plugins.module_utils._slot import canary, needle
from ansible_collections.arcpro.b70.plugins.module_utils._slot.profile import parse_profile
from unit.plugins.module_utils._slot.world import profile_data

ROOT = Path(__file__).parents[5]
DOC = (ROOT / "docs/canary.md").read_text(encoding="utf-8")
CASE: dict[str, Any] = {"name": "a", "prompt": "p", "max_tokens": 8, "compare": "exact", "expected": "x"}
NEEDLE = {"note": "Remember.", "tokens": 200, "depth": 0.5}


def loaded(*cases):
    profile = {
        "name": "x",
        "status": "experiment",
        "stack": "cpu",
        "cards": 0,
        "modalities": ["text", "image"],
        "model": {"directory": "x"},
        "engine": {"settings": {"max_model_len": 512}},
        "canary": {"cases": list(cases)},
    }
    return load_catalogue(inline={"x": profile})["x"]["canary"]["cases"]


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


def test_what_the_catalogue_accepts_the_host_can_ask():
    cases = loaded(
        CASE,
        {**without("expected"), "name": "b", "compare": "baseline"},
        {**CASE, "name": "c", "long": NEEDLE},
        {**CASE, "name": "d", "image": {"colour": "#00ff00"}, "needs_modality": "image"},
        {**CASE, "name": "e", "image": "data:image/png;base64,AAAA"},
    )
    profile = parse_profile(json.dumps(profile_data("x", canary__cases=cases)), "x.json")
    assert [case.name for case in profile.canary.cases] == list("abcde")
    for case in profile.canary.cases:
        assert canary.payload(profile, case)["messages"]
    assert profile.canary.cases[2].long == needle.Long("Remember.", 200, 0.5)


def test_every_shipped_profile_has_a_canary_that_fits_its_context():
    for profile in load_catalogue().values():
        length = profile["engine"]["settings"]["max_model_len"]
        resolved = profile_data("x", canary__cases=profile["canary"]["cases"], engine__max_model_len=length)
        host = parse_profile(json.dumps(resolved), profile["name"])
        for case in host.canary.cases:
            content = canary.payload(host, case)["messages"][0]["content"]
            words = (content if isinstance(content, str) else content[0]["text"]).split()
            # 1.3 tokens a word is more than tokenizers of models this large make of plain English.
            assert 1.3 * len(words) + case.max_tokens + needle.ASIDE < length, (profile["name"], case.name)


def test_the_default_canary_asks_far_back_and_for_two_colours():
    for name, profile in load_catalogue().items():
        cases = {case["name"]: case for case in profile["canary"]["cases"]}
        assert cases["long_prefill"]["long"]["tokens"] > 4096, name  # more than one batch in every shipped profile
        colours = {case["expected"] for case in cases.values() if case["image"] is not None}
        assert colours == ({"red", "blue"} if "image" in profile["modalities"] else set()), name


def test_the_schema_describes_what_the_docs_show():
    text = DOC.split("```yaml\n")[1].split("```")[0]
    cases = yaml.safe_load(text)["canary"]["cases"]
    assert [case["name"] for case in loaded(*cases)] == [case["name"] for case in cases]


def test_the_odds_in_the_docs_are_right():
    rows = re.findall(r"^\| (\d+) \| .* \| ([\d.]+) % \|$", DOC, re.MULTILINE)
    assert len(rows) == 5
    for answers, percent in rows:
        digits = len(percent.partition(".")[2])
        assert float(percent) == round(100 * 0.75 ** int(answers), digits)
    texts = sum(
        "image" not in case["name"] for case in load_catalogue()["gemma4-12b-it-int4-autoround-c8"]["canary"]["cases"]
    )
    assert f"| the {texts} default cases, 3 repeats |" in DOC
