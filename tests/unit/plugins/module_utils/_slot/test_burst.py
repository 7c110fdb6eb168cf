# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many questions at once, and a long one that the prefix cache holds."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.do import burst
from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host import http
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.profile import parse_profile
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Upload
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import OnFailure, Reply
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, profile_data, request
from unit.plugins.module_utils._slot.test_canary_phase import KNOWN, LEARNED, Scripted, right, run
from unit.plugins.module_utils._slot.test_recheck import verify

SUM = {**KNOWN, "name": "sum", "prompt": "3 + 4", "expected": "seven"}
LAX = {**SUM, "name": "lax", "compare": "contains"}
FAR = {**KNOWN, "name": "far", "prompt": "Which?", "long": {"note": "Remember OK."}}


def answers(texts):
    return {"profile": {"canary__burst": texts}}


@pytest.mark.parametrize(
    ("cases", "count", "names"),
    [
        ((KNOWN, SUM), 5, ["ok", "sum", "ok", "sum", "ok"]),
        ((KNOWN, SUM), 2, ["ok", "sum"]),
        ((KNOWN, LAX, FAR), 3, ["ok", "lax", "ok"]),
        ((KNOWN, SUM), 1, []),
        ((KNOWN, SUM), 0, []),
        ((FAR, LEARNED), 4, []),
    ],
)
def test_the_short_questions_are_asked_in_turn(cases, count, names):
    profile = parse_profile(json.dumps(profile_data("a", canary__cases=list(cases))), "a.json")
    assert [case.name for case, _streamed in burst.questions(profile, count)] == names


def test_each_question_of_a_burst_comes_as_a_stream_and_as_a_whole():
    cases = [{**KNOWN, "stream": True}, {**SUM, "stream": True}]
    profile = parse_profile(json.dumps(profile_data("a", canary__cases=cases)), "a.json")
    asked = [(case.name, streamed) for case, streamed in burst.questions(profile, 4)]
    assert asked == [("ok", False), ("sum", True), ("ok", True), ("sum", False)]


def test_all_are_asked_at_once_after_the_single_ones_and_counted():
    result, sent, _host = run(right, (KNOWN, SUM), **answers(5))
    assert result["verified"]
    assert len(sent) == 2 * 3 + 5
    assert len({body["cache_salt"] for body in sent[6:]}) == 5
    last = result["canary"][-1]
    assert (last["name"], last["passed"], last["attempt"], last["attempts"]) == ("burst", True, 5, 5)


def test_a_small_profile_is_asked_no_more_than_it_admits():
    _result, one, _host = run(right, (KNOWN, SUM), **answers(1))
    _result, two, _host = run(right, (KNOWN, SUM), **answers(2))
    assert (len(one), len(two)) == (6, 8)


def test_an_engine_that_is_only_wrong_in_company_is_refused():
    fake_host = FakeHost()
    fake_host.render("a", canary__cases=[KNOWN, SUM], canary__repeats=3, canary__burst=4)
    http = Scripted(fake_host, right)
    http.script = lambda body, number: "slh" if http.together and number == 8 else right(body, number)
    told = request("a", on_failure=OnFailure.STOP)
    result = api.switch(replace(fake_host.effects(), http=http), LAYOUT, told)
    fake_host.assert_invariants()
    assert not result["verified"]
    # The fourth came first, and nobody waited for the others after the wrong one.
    assert len(http.sent) == 8
    assert result["failure"]["phase"] == "canary"
    assert result["failure"]["message"] == "canary case burst of a failed at answer 3 of 4: asked at once, ok"
    assert (result["failure"]["expected"], result["failure"]["got"]) == ("'OK'", "'slh'")
    assert fake_host.state.reason == "the last switch failed: phase canary: a canary answer was wrong or missing"


def test_an_answer_that_does_not_come_is_named():
    fake_host = FakeHost()
    fake_host.render("a", canary__cases=[KNOWN], canary__repeats=1, canary__burst=3)
    http = Scripted(fake_host, right)
    http.script = lambda body, number: Reply(0, error="timeout") if http.together else right(body, number)
    told = request("a", on_failure=OnFailure.STOP)
    result = api.switch(replace(fake_host.effects(), http=http), LAYOUT, told)
    assert result["failure"]["message"].startswith("answer 3 of 3 at once of a (ok) did not come")
    assert (result["canary"][-1]["name"], result["canary"][-1]["passed"]) == ("burst", False)


def test_an_engine_that_was_restarted_meanwhile_is_not_asked_on():
    fake_host = FakeHost()
    fake_host.render("a", canary__cases=[KNOWN], canary__repeats=1, canary__burst=3)

    class Crashing(Scripted):
        def post_together(self, url, bodies, timeout_s):
            fake_host.crash("a")
            yield None
            raise AssertionError("it was asked on")

    told = request("a", on_failure=OnFailure.STOP)
    result = api.switch(replace(fake_host.effects(), http=Crashing(fake_host, right)), LAYOUT, told)
    assert (result["failed"], result["failure"]["phase"]) == (True, "canary")


@pytest.mark.parametrize(("busy", "asked"), [(0, 2), (1, 0), (2, 0)])
def test_an_engine_that_serves_is_asked_no_more_than_its_clients_leave_free(busy, asked):
    fake_host = FakeHost()
    fake_host.render("a")
    run_first = api.switch(fake_host.effects(), LAYOUT, request("a"))
    assert run_first["verified"]
    fake_host.generations = [fake_host.mono + 1000] * busy
    before = fake_host.unit("a").answers
    assert verify(fake_host)["verified"]
    assert fake_host.unit("a").answers - before == 8 + asked


def test_a_long_prompt_is_asked_from_the_cache_as_well_however_few_the_repeats():
    cached = {"canary__cached": True, "canary__burst": 0}
    _result, sent, _host = run(lambda _b, _n: "OK", (FAR,), repeats=1, profile=cached)
    assert [body["cache_salt"] == sent[0]["cache_salt"] for body in sent] == [True, True]
    _result, sent, _host = run(lambda _b, _n: "OK", (FAR, KNOWN), repeats=3, profile=cached)
    assert len(sent) == 6
    result, sent, _host = run(lambda _b, number: "OK" if number != 2 else "no", (FAR,), repeats=1, profile=cached)
    assert result["failure"]["message"] == (
        "canary case far of a failed at answer 2 of 2: from the prefix cache, after a right one without it"
    )


@pytest.mark.parametrize(("told", "noted"), [(0, True), (1280, False), (None, False)])
def test_an_engine_that_says_it_took_nothing_from_the_cache_is_noted(told, noted):
    usage = {} if told is None else {"usage": {"prompt_tokens_details": {"cached_tokens": told}}}
    said = Reply(200, json.dumps({"choices": [{"message": {"content": "OK"}}], **usage}))
    result, _sent, _host = run(lambda _b, _n: said, (FAR,), profile={"canary__cached": True, "canary__burst": 0})
    assert result["verified"]
    assert ("took nothing from the prefix cache" in result["canary"][0]["note"]) is noted


# -- over real connections


@pytest.fixture
def crowd():
    """A server that answers only when four ask at once, and the fourth body only when it is told to."""
    four, told = threading.Barrier(4), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Type"].startswith("multipart/form-data; boundary="):
                text = body.decode("latin-1")
            else:
                number = json.loads(body)["n"]
                four.wait(timeout=60)
                assert number != 3 or told.wait(timeout=60)
                text = json.dumps({"n": number})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{httpd.server_address[1]}/x", told=told)
    told.set()
    httpd.shutdown()
    httpd.server_close()


def test_requests_are_together_on_their_way_and_a_quiet_time_is_told(crowd, monkeypatch):
    monkeypatch.setattr(http, "QUIET_S", 0.05)
    heard = []
    for one in HttpClient().post_together(crowd.url, [{"n": n} for n in range(4)], 60.0):
        if one is not None:
            heard.append(one)
        elif len(heard) == 3:
            # it is not silent about the last one, which nothing else would set free
            crowd.told.set()
    assert [(index, json.loads(reply.text)["n"]) for index, reply, _s in sorted(heard)] == [(n, n) for n in range(4)]
    assert heard[-1][0] == 3


def test_who_stops_early_waits_for_nobody(crowd):
    replies = HttpClient().post_together(crowd.url, [{"n": n} for n in range(4)], 60.0)
    assert any(replies)
    replies.close()
    assert not crowd.told.is_set(), "the last answer had to be there"


def test_together_nobody_is_waited_for_beyond_the_limit():
    come = list(HttpClient().post_together("http://127.0.0.1:1/x", [{"n": 0}] * 3, 5.0))
    assert [one[1].error for one in come if one is not None] == ["refused"] * 3


def test_a_file_is_uploaded_as_a_form(crowd):
    reply = HttpClient().upload(crowd.url, {"model": "m"}, Upload("c.wav", b"RIFFxyz", "audio/wav"), 10.0)
    assert 'name="file"; filename="c.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFFxyz' in reply.text
    assert 'name="model"\r\n\r\nm' in reply.text
