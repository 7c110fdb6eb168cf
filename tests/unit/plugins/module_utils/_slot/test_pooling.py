# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary of models that write no text: what is sent, and which numbers pass."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import pooling
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import OnFailure, Reply, SlotFault
from unit.plugins.module_utils._slot.calls import switch
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeHttp, profile_data, request

VECTOR = {"name": "vectors", "texts": ["one", "two"], "compare": "vector", "dimension": 2}
ORDER = {"name": "order", "texts": ["question", "better", "worse"], "compare": "order"}
LEFT, UP, BETWEEN = [1.0, 0.0], [0.0, 1.0], [0.8, 0.6]


def profile(task, *cases):
    data = profile_data("a", engine__task=task, canary__cases=list(cases), canary__repeats=2)
    return parse_profile(json.dumps(data), "a.json")


def embedded(*vectors):
    # An engine may give them in any order.
    items = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return Reply(200, json.dumps({"data": items[::-1]}))


def scored(*scores):
    items = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return Reply(200, json.dumps({"results": items[::-1]}))


def judged(task, case, reply):
    one = profile(task, case)
    return pooling.check_answer(one, one.canary.cases[0], reply, 0.1, 1)


def test_what_is_asked():
    one = profile("embed", VECTOR)
    assert pooling.payload(one, one.canary.cases[0]) == {
        "model": "a",
        "input": ["one", "two"],
        "encoding_format": "float",
    }
    one = profile("score", ORDER)
    wanted = {"model": "a", "query": "question", "documents": ["better", "worse"]}
    assert pooling.payload(one, one.canary.cases[0]) == wanted


@pytest.mark.parametrize(
    ("changes", "vectors", "problem"),
    [
        ({}, (LEFT, UP), ""),
        ({}, (LEFT, [*UP, 0.0]), "the vectors are of different dimensions"),
        ({"dimension": 3}, (LEFT, UP), "the vectors have 2 numbers"),
        ({}, (LEFT, [0.0, 2.0]), "a vector is not of length 1 (with unit_norm: false it need not be)"),
        ({"unit_norm": False}, (LEFT, [0.0, 2.0]), ""),
        ({"unit_norm": False}, (LEFT, [0.0, 0.0]), "a vector is nothing but zeros"),
        ({}, (LEFT, LEFT), "texts 1 and 2 got the same vector"),
        ({"texts": ["same", "same"]}, (LEFT, LEFT), ""),
        ({}, (LEFT, [math.nan, 1.0]), pooling.NAN),
        ({}, (LEFT, [math.inf, 1.0]), pooling.NAN),
        ({}, (LEFT, [None, 1.0]), pooling.NAN),
    ],
)
def test_vectors(changes, vectors, problem):
    result = judged("embed", {**VECTOR, **changes}, embedded(*vectors))
    assert (result.problem, result.passed) == (problem, not problem)
    assert result.expected.startswith("vector: ")


@pytest.mark.parametrize(
    ("task", "reply", "got", "problem"),
    [
        ("embed", embedded(LEFT, BETWEEN, UP), "0.8000, 0.0000", ""),
        ("embed", embedded(LEFT, UP, BETWEEN), "0.0000, 0.8000", "text 3 fits no worse than text 2, which is to fit"),
        ("embed", embedded(LEFT, UP, UP), "0.0000, 0.0000", "text 3 fits no worse"),
        ("embed", embedded(LEFT, UP, [math.nan, 0]), "0.0000, nan", pooling.NAN),
        ("score", scored(0.9, 0.1), "0.9000, 0.1000", ""),
        ("score", scored(0.1, 0.9), "0.1000, 0.9000", "text 3 fits no worse"),
        ("score", scored(None, 0.9), "nan, 0.9000", pooling.NAN),
        ("score", Reply(400, "Out of range float values are not JSON compliant"), "400 Out of range", pooling.NAN),
    ],
)
def test_orders(task, reply, got, problem):
    result = judged(task, ORDER, reply)
    assert result.got.startswith(got)
    assert result.problem.startswith(problem)
    assert result.passed == (not problem)


@pytest.mark.parametrize(
    ("task", "reply", "words"),
    [
        ("embed", Reply(404, "no such path"), "did not answer a request for numbers"),
        ("embed", Reply(200, "x"), "is not JSON"),
        ("embed", Reply(200, '{"choices": []}'), "is not a list of embeddings"),
        ("embed", Reply(200, "[]"), "is not a list of embeddings"),
        ("embed", embedded(LEFT), "another number of vectors"),
        ("embed", embedded(LEFT, [], UP), "another number of vectors"),
        ("score", Reply(0, error="timeout"), "did not answer a request for numbers"),
        ("score", Reply(200, '{"results": [1]}'), "is not a list of scores"),
        ("score", scored(0.5), "scored other texts"),
    ],
)
def test_an_answer_without_numbers_is_none(task, reply, words):
    with pytest.raises(SlotFault, match=words):
        judged(task, ORDER, reply)


@given(st.recursive(st.none() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_whatever_an_engine_gives_as_a_vector_never_ends_in_a_traceback(value):
    for key in ("embedding", "index"):
        items = [{"index": 0, "embedding": [1.0], key: value}, {"index": 1, "embedding": [1.0]}]
        try:
            result = judged("embed", VECTOR, Reply(200, json.dumps({"data": items})))
        except SlotFault:
            continue
        assert result.passed == (not result.problem)


class Numbers(FakeHttp):
    """An engine that gives these vectors in turn, and refuses to write."""

    def __init__(self, fake_host, *replies):
        super().__init__(fake_host)
        self.replies, self.asked = list(replies), []

    def post(self, url, body, timeout_s):
        self._host.step()
        self.asked.append((url, body))
        if not url.endswith("/v1/embeddings"):
            return Reply(404, "The model does not support this API")
        return self.replies[min(len(self.asked), len(self.replies)) - 1]


def switched(fake_host, *replies, **changes):
    data = {"engine__task": "embed", "canary__cases": [VECTOR], "canary__repeats": 3}
    fake_host.render("a", **data)
    http = Numbers(fake_host, *replies)
    changes = {"on_failure": OnFailure.STOP, **changes}
    return api.switch(replace(fake_host.effects(), http=http), LAYOUT, request("a", **changes)), http


def test_a_model_that_writes_no_text_is_verified_by_its_numbers():
    result, http = switched(FakeHost(), embedded(LEFT, UP))
    assert (result["failed"], result["verified"]) == (False, True)
    assert [case["got"] for case in result["canary"]] == ["2 vectors of 2 numbers, of length 1.000, 1.000"]
    # One for the first numbers, three for the case.
    assert len(http.asked) == 4


def test_one_wrong_vector_among_the_repeats_fails_and_goes_back():
    fake_host = FakeHost()
    fake_host.render("b")
    switch(fake_host, "b")
    good = embedded(LEFT, UP)
    result, _http = switched(fake_host, good, good, good, embedded(LEFT, LEFT), on_failure=OnFailure.STOP)
    assert result["failure"]["message"] == (
        "canary case vectors of a failed at answer 3 of 3: texts 1 and 2 got the same vector"
    )
    assert not fake_host.open


def test_numbers_that_are_none_fail_before_the_canary():
    result, _http = switched(FakeHost(), embedded([math.nan, 0.0], UP))
    assert (result["failure"]["phase"], result["failure"]["message"]) == ("first_token", pooling.NAN)


def test_an_engine_that_only_writes_is_not_verified():
    result, _http = switched(FakeHost(), Reply(404, "The model does not support Embeddings API"))
    assert (result["failed"], result["failure"]["phase"]) == (True, "first_token")
    assert "does not support Embeddings API" in result["failure"]["got"]
