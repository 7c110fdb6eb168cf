# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary of models that think first: what is asked, and what of the reply is the answer."""

from __future__ import annotations

import json

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import CanaryCase, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import profile_data
from unit.plugins.module_utils._slot.test_canary_phase import KNOWN, run

CASE = CanaryCase("ok", "say OK", 8, "exact", "OK")
SEPARATE, INLINE = {"how": "separate", "budget_tokens": 100}, {"how": "inline", "budget_tokens": 100}
OWN_TAGS = {"how": "inline", "tags": ["[THINK]", "[/THINK]"]}
DISABLED = {"how": "disabled", "template_kwargs": {"enable_thinking": False}}
LONG = "the answer was cut off inside its reasoning; engine.reasoning.budget_tokens is 100"


def profile(reasoning, **changes):
    return parse_profile(json.dumps(profile_data("a", engine__reasoning=reasoning, **changes)), "a.json")


def reply(content, finish="stop", **message):
    message = {"role": "assistant", "content": content, **message}
    return Reply(200, json.dumps({"choices": [{"message": message, "finish_reason": finish}]}))


def judged(reasoning, said, case=CASE):
    one = profile(reasoning)
    return canary.evaluate(one, case, canary.answer(said, one, case), 0.1, 1)


def test_thinking_is_turned_off_by_the_template_and_the_clients_own_words_to_it_stay():
    one = profile(DISABLED, frontdoor__chat_template_kwargs={"style": "x", "enable_thinking": True})
    body = canary.payload(one, CASE)
    assert body["chat_template_kwargs"] == {"style": "x", "enable_thinking": False}
    assert body["max_tokens"] == 8
    assert one.frontdoor.chat_template_kwargs == {"style": "x", "enable_thinking": True}


@pytest.mark.parametrize("reasoning", [SEPARATE, INLINE])
def test_what_cannot_be_turned_off_gets_room(reasoning):
    one = profile(reasoning)
    assert canary.payload(one, CASE)["max_tokens"] == 108
    assert "chat_template_kwargs" not in canary.payload(one, CASE)
    assert canary.first_token_payload(one, logprobs=True)["max_tokens"] == 1


@pytest.mark.parametrize(
    ("reasoning", "said", "got", "problem"),
    [
        (SEPARATE, reply("OK", reasoning="It is OK."), "OK", ""),
        (SEPARATE, reply("\n\nOK", reasoning_content="It is OK."), "OK", ""),
        (SEPARATE, reply("No", reasoning="It is OK."), "No", None),
        (SEPARATE, reply(None, "length", reasoning="It is OK. It is"), "", LONG),
        (SEPARATE, reply("", "length", reasoning="It is OK. It is"), "", LONG),
        (SEPARATE, reply(None, reasoning="It is OK."), "", "it thought and answered nothing"),
        (SEPARATE, reply("<think>It is OK.</think>OK"), "<think>It is OK.</think>OK", "it thinks in the answer"),
        (INLINE, reply("<think>It is no.</think>\n\nOK"), "OK", ""),
        (INLINE, reply("It is no.\n</think>\n\nOK"), "OK", ""),
        (INLINE, reply("OK"), "OK", ""),
        (INLINE, reply("<think>It is OK. It is OK.", "length"), "", LONG),
        (INLINE, reply("It is OK. It is OK.", "length"), "", LONG),
        (INLINE, reply("<think>It is OK."), "", "its reasoning ends without an answer"),
        (INLINE, reply("<think>It is OK.</think>"), "", "the answer is empty"),
        (OWN_TAGS, reply("[THINK]no[/THINK]OK"), "OK", ""),
        (OWN_TAGS, reply("<think>no</think>OK"), "<think>no</think>OK", None),
        (DISABLED, reply("OK"), "OK", ""),
        (DISABLED, reply("<think>It is", "length"), "<think>It is", "it thinks in the answer; engine.reasoning"),
        (None, reply("OK", reasoning="It is no."), "OK", ""),
        (None, reply("<think>It is", "length"), "<think>It is", "it thinks in the answer; engine.reasoning"),
        (
            None,
            reply(None, "length", reasoning="It is OK"),
            "",
            "inside its reasoning; engine.reasoning of the profile",
        ),
        # What the channels of gpt-oss become in vLLM.
        (SEPARATE, reply("OK", reasoning="The user wants OK.", tool_calls=[]), "OK", ""),
    ],
)
def test_only_what_comes_after_the_reasoning_is_judged(reasoning, said, got, problem):
    result = judged(reasoning, said)
    assert result.got == got
    assert result.passed == (problem == "")
    assert (problem or "") in result.problem


def test_a_thought_that_holds_the_wanted_word_does_not_pass_a_lax_case():
    lax = CanaryCase("far", "Which?", 8, "contains", "orbit")
    cut = reply(None, "length", reasoning="The key word is orbit. The key word is orbit.")
    assert not judged(SEPARATE, cut, lax).passed
    assert not judged(INLINE, reply("<think>The key word is orbit.", "length"), lax).passed
    assert not judged(INLINE, reply("The key word is orbit.", "length"), lax).passed


def test_a_switch_to_a_model_that_never_stops_thinking_says_so():
    endless = reply(None, "length", reasoning="Wait, but what if")
    result, sent, _host = run(lambda _body, _number: endless, (KNOWN,), profile={"engine__reasoning": SEPARATE})
    assert not result["verified"]
    assert sent[0]["max_tokens"] == 108
    assert result["failure"]["message"] == f"canary case ok of a failed at answer 1 of 3: {LONG}"


@pytest.mark.parametrize(
    ("reasoning", "words"),
    [
        ({"how": "loud"}, "reasoning.how is 'loud', wanted one of disabled, separate, inline"),
        ({}, "reasoning.how is missing"),
        ({"how": "inline", "tags": ["<think>", ""]}, "reasoning.tags is"),
    ],
)
def test_a_broken_rendering_is_named(reasoning, words):
    with pytest.raises(SlotFault, match=words):
        profile(reasoning)
