# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary inside a switch: what is sent, what fails it and in which words, and baselines."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask import baseline
from ansible_collections.arcpro.b70.plugins.module_utils._slot.ask.baseline import Baseline, Recorded
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.decode import document
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import OnFailure, Reply, SlotFault
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeHttp, profile_data, request
from unit.plugins.module_utils._slot.test_canary import NAN_REFUSED, chat

FILE = baseline.baseline_file(LAYOUT, "a")
KNOWN = {"name": "ok", "prompt": "say OK", "max_tokens": 8, "compare": "exact", "expected": "OK"}
LEARNED = {"name": "poem", "prompt": "3 + 4", "max_tokens": 8, "compare": "baseline"}


class Scripted(FakeHttp):
    """An engine whose answers to canary cases are scripted: a function of (prompt, number of the request)."""

    def __init__(self, fake_host, script):
        super().__init__(fake_host)
        self.script, self.sent = script, []

    def post(self, url, body, timeout_s):
        if body["max_tokens"] == 1:
            return super().post(url, body, timeout_s)
        self._host.step()
        self._host.mono += 0.02
        self.sent.append(body)
        said = self.script(body, len(self.sent))
        return said if isinstance(said, Reply) else chat(said)


def run(script, cases=(KNOWN,), repeats=3, fake_host=None, profile=None, **changes):
    """(result of a switch, what was sent, the fake_host)."""
    fake_host = fake_host or FakeHost()
    settings = {"canary__cases": list(cases), "canary__repeats": repeats, "canary__burst": 0, **(profile or {})}
    fake_host.render("a", **settings)
    http = Scripted(fake_host, script)
    changes = {"on_failure": OnFailure.STOP, "who": "ann", **changes}
    result = api.switch(replace(fake_host.effects(), http=http), LAYOUT, request("a", **changes))
    return result, http.sent, fake_host


def right(body, _number):
    return {"say OK": "OK", "3 + 4": "seven"}[body["messages"][0]["content"]]


def test_every_repeat_is_sent_and_the_first_asks_for_log_probabilities():
    result, sent, _host = run(right, repeats=4)
    assert result["verified"]
    assert [body.get("logprobs") for body in sent] == [True, None, None, None]
    assert len({body["cache_salt"] for body in sent}) == 2


def test_two_verifications_never_share_a_cache():
    fake_host = FakeHost()
    _result, first, _host = run(right, fake_host=fake_host)
    fake_host.unit("a").restarts = 0
    fake_host.crash("a")
    _result, second, _host = run(right, fake_host=fake_host)
    assert not {body["cache_salt"] for body in first} & {body["cache_salt"] for body in second}


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_one_wrong_answer_among_the_repeats_fails(bad):
    result, sent, _host = run(lambda body, number: "slh" if number == bad else "OK")
    assert not result["verified"]
    assert len(sent) == bad
    failure = result["failure"]
    assert failure["message"] == f"canary case ok of a failed at answer {bad} of 3"
    assert (failure["expected"], failure["got"]) == ("'OK'", "'slh'")
    assert result["canary"][0]["attempt"] == bad


def test_an_engine_without_log_probabilities_is_asked_without_them():
    refused = Reply(400, '{"error": {"message": "logprobs are not supported"}}')
    result, sent, _host = run(lambda body, _number: refused if "logprobs" in body else "OK")
    assert result["verified"]
    assert len(sent) == 4


def test_an_engine_that_refuses_everything_fails_with_its_words():
    result, _sent, _host = run(lambda _body, _number: Reply(400, "maximum context length is 512 tokens"))
    assert result["failure"]["message"] == (
        "canary case ok of a got no answer: the engine did not answer a generation request"
    )
    assert result["failure"]["got"] == "400 maximum context length is 512 tokens"
    assert result["canary"][0]["problem"] == "the engine did not answer a generation request"


def test_nan_deep_in_a_case_is_named():
    result, _sent, _host = run(lambda body, _number: NAN_REFUSED if "logprobs" in body else "")
    assert result["failure"]["message"] == (
        "canary case ok of a failed at answer 1 of 3: "
        "the engine computes NaN: a log probability of its answer is no number"
    )
    assert "Out of range float values are not JSON compliant" in result["failure"]["got"]


FAR = {**KNOWN, "name": "far", "prompt": "Which?", "long": {"note": "Remember OK."}}


def test_nan_far_back_is_a_warning_where_the_text_is_right():
    result, sent, _host = run(lambda body, _number: NAN_REFUSED if "logprobs" in body else "OK", (FAR,))
    assert result["verified"]
    assert len(sent) == 4
    words = "its log probabilities hold NaN, while its text without them is right"
    assert result["canary"][0]["note"] == words
    assert f"canary case far of a: {words}" in result["warnings"]


def test_nan_far_back_fails_where_the_text_is_wrong():
    result, _sent, _host = run(lambda body, _number: NAN_REFUSED if "logprobs" in body else "!!!!!!!!", (FAR,))
    assert result["failure"]["message"] == (
        "canary case far of a failed at answer 1 of 3: "
        "the engine computes NaN: a log probability of its answer is no number"
    )
    assert result["failure"]["got"] == "'!!!!!!!!'"


def test_the_other_failed_cases_are_named():
    cases = (KNOWN, {**KNOWN, "name": "again"}, {**KNOWN, "name": "fine", "prompt": "3 + 4", "expected": "7"})
    result, _sent, _host = run(lambda body, _n: "7", cases)
    assert result["failure"]["message"] == "canary case ok of a failed at answer 1 of 3; also failed: again"


def test_answers_that_differ_but_are_right_pass_with_a_warning():
    lax = {**KNOWN, "compare": "contains", "expected": "ok"}
    result, _sent, _host = run(lambda _body, number: "OK" if number < 3 else "It is OK", (lax,))
    assert result["verified"]
    assert result["canary"][0]["note"].startswith("the repeats answered differently: 'OK' (")
    warnings = [text for text in result["warnings"] if "answered differently" in text]
    assert warnings[0].startswith("canary case ok of a: the repeats answered differently")


@pytest.mark.parametrize("seen", ["Blue", "I see no picture.", "It is red, red, red, red, red, red, red, red, red."])
def test_a_picture_that_is_not_seen_fails(seen):
    cases = [
        {**KNOWN, "name": f"{colour}_image", "compare": "contains", "expected": colour, "image": {"colour": colour}}
        for colour in ("red", "blue")
    ]
    result, sent, _host = run(lambda _body, _number: seen, cases)
    assert not result["verified"]
    assert [part["type"] for part in sent[0]["messages"][0]["content"]] == ["text", "image_url"]
    assert result["failure"]["message"].startswith("canary case red_image of a failed at answer 1 of 3")
    assert (result["failure"]["expected"], result["failure"]["got"]) == ("'contains: red'", repr(seen))


# -- baselines


def recorded(fake_host):
    text = fake_host.texts.get(FILE)
    return None if text is None else json.loads(text[0])


def test_a_baseline_is_recorded_when_asked_for_and_then_judges():
    result, _sent, fake_host = run(right, (KNOWN, LEARNED), record_baseline=True)
    assert result["verified"]
    data = recorded(fake_host)
    assert (data["schema"], data["profile"], data["fingerprint"], data["who"]) == (1, "a", "sha256:a-1", "ann")
    assert list(data["cases"]) == ["poem"]
    assert data["cases"]["poem"]["text"] == "seven"
    fake_host.crash("a")
    assert run(right, (KNOWN, LEARNED), fake_host=fake_host)[0]["verified"]
    fake_host.crash("a")
    result, _sent, fake_host = run(
        lambda b, n: right(b, n).replace("seven", "eight"), (KNOWN, LEARNED), fake_host=fake_host
    )
    assert not result["verified"]
    assert re.fullmatch(
        r"canary case poem of a failed at answer 1 of 3: "
        r"the answer's sha256 begins with [0-9a-f]{12}, the wanted one with " + data["cases"]["poem"]["sha256"][:12],
        result["failure"]["message"],
    )
    assert (result["failure"]["expected"], result["failure"]["got"]) == ("'baseline: seven'", "'eight'")
    assert recorded(fake_host) == data


def test_nothing_is_recorded_by_itself():
    result, _sent, fake_host = run(right, (KNOWN, LEARNED))
    assert not result["verified"]
    assert recorded(fake_host) is None
    assert "canary case poem of a failed at answer 1 of 3: no baseline is recorded; " in result["failure"]["message"]
    assert baseline.how_to_record("a") in result["failure"]["message"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (lambda b, n: "no" if b["messages"][0]["content"] == "say OK" else "seven", "canary case ok"),
        (lambda b, n: right(b, n) if n < 6 else "eight", "the repeats answered differently"),
        (lambda b, n: "OK" if b["messages"][0]["content"] == "say OK" else "!" * 40, "nothing but '!'"),
    ],
)
def test_what_is_not_sound_is_not_recorded(script, words):
    result, _sent, fake_host = run(script, (KNOWN, LEARNED), record_baseline=True)
    assert not result["verified"]
    assert words in result["failure"]["message"]
    assert recorded(fake_host) is None


def test_recording_without_such_a_case_says_so():
    result, _sent, fake_host = run(right, record_baseline=True)
    assert result["verified"]
    assert recorded(fake_host) is None
    assert "nothing to record: no canary case of a has compare: baseline" in result["warnings"]


def kept(**changes):
    values = {"profile": "a", "fingerprint": "sha256:f", "recorded_at": "2026-06-07T09:00:00Z", "who": "ann"}
    return Baseline(**(values | {"cases": {"poem": Recorded("ab", "seven", "asked")}} | changes))


@pytest.mark.parametrize(
    ("known", "case", "asked", "words"),
    [
        (None, "poem", "asked", "no baseline is recorded"),
        (kept(fingerprint="sha256:0123456789abcdef"), "poem", "asked", "another fingerprint (sha256:0123456789ab"),
        (kept(), "song", "asked", "does not hold this case"),
        (kept(), "poem", "else", "holds another question under this name"),
    ],
)
def test_a_baseline_that_does_not_fit_says_how_to_record_one(known, case, asked, words):
    found, problem = baseline.expected_of(known, "a", "sha256:f", case, asked)
    assert found is None
    assert words in problem
    assert problem.endswith("; record one with `b70ctl record a` on this host, when its answers are known to be sound")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
        st.builds(Recorded, st.text(max_size=64), st.text(max_size=64), st.text(max_size=64)),
    )
)
def test_a_baseline_reads_back_what_was_written(cases):
    written = kept(cases=cases)
    assert baseline.parse_baseline(document(written, baseline.SCHEMA), "f", "a") == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", " is not JSON"),
        ("[]", ": the document is list"),
        ('{"schema": 9}', ": schema is 9"),
        ('{"schema": 1}', ": profile is missing"),
    ],
)
def test_a_broken_baseline_is_named(text, words):
    with pytest.raises(SlotFault, match=rf"x/a\.json{words}.*; record one with"):
        baseline.parse_baseline(text, "x/a.json", "a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compare": "guess"}, "compare is 'guess'"),
        ({"expected": None}, "expected is missing"),
        ({"long": {"tokens": 5}}, "long.note is missing"),
        ({"long": {"note": "n", "depth": 2}}, "depth is 2"),
    ],
)
def test_a_broken_case_is_named(changes, words):
    with pytest.raises(SlotFault, match=words):
        parse_profile(json.dumps(profile_data("a", canary__cases=[{**KNOWN, **changes}])), "a.json")
