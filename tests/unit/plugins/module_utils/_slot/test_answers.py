# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of tools, answers after a schema, classes and sounds: what is asked, and what passes."""

from __future__ import annotations

import io
import json
import math
import wave
from dataclasses import replace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import canary, pooling, transcription
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import OnFailure, Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeHttp, profile_data, request

TOOL = {"name": "order_cloth", "parameters": {"type": "object", "properties": {"pieces": {"type": "integer"}}}}
CALL = {
    "name": "tool_call",
    "prompt": "Order 7 pieces of satin.",
    "max_tokens": 99,
    "tool": TOOL,
    "compare": "json",
    "expected": '{"cloth": "satin", "pieces": 7}',
}
COUNT = {"name": "json_reply", "prompt": "How many?", "max_tokens": 99, "schema": {"type": "object"}, "compare": "json"}
COUNT |= {"expected": '{"red": 3, "more": [true, null]}'}
CLASSES = {"name": "probabilities", "texts": ["good", "bad"], "compare": "classes"}
TONE = {"name": "tone", "audio": {"tone_hz": 440, "seconds": 1}, "compare": "transcript"}


def profile(case, task="generate", **changes):
    data = profile_data("a", engine__task=task, canary__cases=[case], canary__repeats=2, **changes)
    return parse_profile(json.dumps(data), "a.json")


def message(**parts):
    return Reply(200, json.dumps({"choices": [{"message": {"content": None, **parts}, "finish_reason": "stop"}]}))


def calls(*functions):
    return message(tool_calls=[{"type": "function", "function": {"name": n, "arguments": a}} for n, a in functions])


def judged(case, said):
    one = profile(case)
    case = one.canary.cases[0]
    return canary.evaluate(one, case, canary.answer(said, one, case), 0.1, 1)


def test_what_is_asked():
    body = canary.payload(profile(CALL), profile(CALL).canary.cases[0])
    assert (body["tools"], body["tool_choice"]) == ([{"type": "function", "function": TOOL}], "auto")
    body = canary.payload(profile(COUNT), profile(COUNT).canary.cases[0])
    wanted = {"name": "json_reply", "schema": {"type": "object"}, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (calls(("order_cloth", '{"pieces": 7, "cloth": "satin"}')), ""),
        (calls(("order_cloth", '{"cloth": "satin", "pieces": "7"}')), "are JSON of other values"),
        (calls(("order_cloth", '{"cloth": "satin", "pieces": true}')), "are JSON of other values"),
        (calls(("order_cloth", '{"cloth": "satin"}')), "are JSON of other values"),
        (calls(("order_cloth", '{"cloth": "satin", "pieces": 7')), "are no JSON ("),
        (calls(("order_silk", '{"cloth": "satin", "pieces": 7}')), "the tool order_silk was called, not order_cloth"),
        (calls(*[("order_cloth", '{"cloth": "satin", "pieces": 7}')] * 2), "2 calls in place of one"),
        (message(content='<tool_call>{"name": "order_cloth"}</tool_call>'), "the tool order_cloth was not called"),
        (message(content='{"cloth": "satin", "pieces": 7}'), "the tool order_cloth was not called"),
        (message(tool_calls=[{"function": {"name": "order_cloth"}}]), "the call has no 'arguments'"),
        (message(tool_calls=["x"]), "the call has no"),
    ],
)
def test_a_call(said, problem):
    result = judged(CALL, said)
    assert result.passed == (not problem)
    assert problem in result.problem
    assert result.expected == 'order_cloth({"cloth": "satin", "pieces": 7})'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"more": [true, null], "red": 3}', ""),
        ('{\n "red": 3.0,\n "more": [true, null]}\n', ""),
        ('{"red": 3, "more": [1, null]}', "the answer is JSON of other values"),
        ('{"red": 3, "more": [true]}', "the answer is JSON of other values"),
        ('```json\n{"red": 3}\n```', "the answer is no JSON ("),
        ("There are three.", "the answer is no JSON ("),
        ("", "the answer is empty"),
    ],
)
def test_an_answer_after_a_schema(text, problem):
    result = judged(COUNT, message(content=text))
    assert result.passed == (not problem)
    assert problem in result.problem


def classed(*rows):
    items = [{"index": i, "label": label, "probs": probs, "num_classes": 2} for i, (label, probs) in enumerate(rows)]
    return Reply(200, json.dumps({"data": items[::-1]}))


@pytest.mark.parametrize(
    ("changes", "said", "problem"),
    [
        ({}, classed(("GOOD", [0.9, 0.1]), ("BAD", [0.2, 0.8])), ""),
        ({"labels": ["GOOD", "BAD"]}, classed(("GOOD", [0.9, 0.1]), ("BAD", [0.2, 0.8])), ""),
        ({"labels": ["GOOD", "BAD"]}, classed(("GOOD", [0.9, 0.1]), ("GOOD", [0.8, 0.2])), "text 2 is GOOD, not BAD"),
        ({}, classed(("GOOD", [0.9, 0.3]), ("BAD", [0.2, 0.8])), "the probabilities of text 1 sum to 1.200"),
        ({"one_label": False}, classed(("GOOD", [0.9, 0.3]), ("BAD", [0.2, 0.8])), ""),
        ({}, classed(("GOOD", [1.9, -0.9]), ("BAD", [0.2, 0.8])), "of text 1 is not between 0 and 1"),
        ({}, classed(("GOOD", [math.nan, 0.1]), ("BAD", [0.2, 0.8])), pooling.NAN),
        ({}, classed(("GOOD", [None, 0.1]), ("BAD", [0.2, 0.8])), pooling.NAN),
        ({}, classed(("GOOD", [0.9, 0.1]), ("BAD", [0.2, 0.3, 0.5])), "different numbers of classes"),
    ],
)
def test_classes(changes, said, problem):
    one = profile({**CLASSES, **changes}, "classify")
    assert pooling.payload(one, one.canary.cases[0]) == {"model": "a", "input": ["good", "bad"]}
    result = pooling.check_answer(one, one.canary.cases[0], said, 0.1, 1)
    assert result.passed == (not problem)
    assert problem in result.problem


@pytest.mark.parametrize(
    "said", [Reply(404, "no"), Reply(200, "[]"), classed(("GOOD", [1.0])), Reply(200, '{"data":[1]}')]
)
def test_an_answer_without_classes_is_none(said):
    one = profile(CLASSES, "classify")
    with pytest.raises(SlotFault):
        pooling.check_answer(one, one.canary.cases[0], said, 0.1, 1)


def test_the_tone_is_a_sound():
    with wave.open(io.BytesIO(transcription.wav(440, 0.5))) as made:
        assert (made.getframerate(), made.getnchannels(), made.getsampwidth()) == (16000, 1, 2)
        assert made.getnframes() == 8000
        assert len(set(made.readframes(8000))) > 100
    assert transcription.sound("data:audio/wav;base64,UklGRg==") == b"RIFF"


@pytest.mark.parametrize(
    ("changes", "text", "passed"),
    [
        ({}, "", True),
        ({}, "[beep]", True),
        ({}, "\ufffd\ufffd", False),
        ({"compare": "contains", "expected": "beep"}, " A Beep.", True),
        ({"compare": "contains", "expected": "beep"}, "", False),
        ({"compare": "contains", "expected": "beep"}, "beep " * 40, False),
    ],
)
def test_a_transcript(changes, text, passed):
    one = profile({**TONE, **changes}, "transcription")
    result = transcription.check_answer(one, one.canary.cases[0], Reply(200, json.dumps({"text": text})), 0.1, 1)
    assert result.passed is passed


@pytest.mark.parametrize("said", [Reply(400, "no"), Reply(200, "x"), Reply(200, '{"text": null}'), Reply(200, "[]")])
def test_no_transcript(said):
    with pytest.raises(SlotFault):
        transcription.text_of(said)


class Ears(FakeHttp):
    """An engine that writes these texts down in turn, and answers nothing else."""

    def __init__(self, fake_host, *texts):
        super().__init__(fake_host)
        self.texts, self.heard = texts, []

    def upload(self, url, fields, file, timeout_s):
        self._host.step()
        self.heard.append((url, fields, file))
        return Reply(200, json.dumps({"text": self.texts[min(len(self.heard), len(self.texts)) - 1]}))


def switched(*texts):
    fake_host = FakeHost()
    fake_host.render("a", engine__task="transcription", canary__cases=[TONE], canary__repeats=2)
    http = Ears(fake_host, *texts)
    return api.switch(replace(fake_host.effects(), http=http), LAYOUT, request("a", on_failure=OnFailure.STOP)), http


def test_a_model_that_hears_is_verified_by_what_it_writes_down():
    result, http = switched("you", "Thank you.")
    assert (result["verified"], [case["name"] for case in result["canary"]]) == (True, ["tone"])
    url, fields, file = http.heard[-1]
    assert url.endswith("/v1/audio/transcriptions")
    assert fields == {"model": "a", "response_format": "json", "temperature": "0", "seed": "20260607"}
    assert (file.kind, file.data[:4]) == ("audio/wav", b"RIFF")


def test_two_transcripts_of_one_tone_that_differ_fail():
    result, _http = switched("you", "you", "Thank you.")
    assert not result["verified"]
    assert "the repeats answered differently" in result["failure"]["message"]
