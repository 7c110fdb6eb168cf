# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor answers itself: the page, its data, the list of models."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import time
from pathlib import Path

import orjson
import pytest
from kit import Call, bench, on_loop, serving_state, until

from frontdoor.observability.activity import Activity, Entry
from frontdoor.observability.events import EventLog
from frontdoor.observability.ledger import Ledger
from frontdoor.observability.metrics import OK, SlotStats
from frontdoor.policy.routes import Kind, Route, classify

LIST = {
    "object": "list",
    "data": [
        {"id": "tiny-a", "object": "model", "owned_by": "vllm", "max_model_len": 512, "permission": [{"id": "x"}]},
        {"id": "adapter", "object": "model"},
    ],
}


@on_loop
async def test_the_list_of_models_says_what_the_slot_knows(tmp_path: Path) -> None:
    async with bench(tmp_path, request={"model_aliases": ["gpt", "adapter"]}) as run:

        async def models(call: Call) -> None:
            await call.json(LIST)

        run.engine.script = models
        client = await run.client()
        answer = await client.ask("GET", "/v1/models")
        served, adapter, alias = answer.json["data"]
        about = served.pop("b70")
        assert served == LIST["data"][0]
        assert about["profile"] == "tiny-a"
        assert about["modalities"] == ["text"]
        assert about["limits"]["max_active_generations"] == 2
        assert about["limits"]["max_model_len"] == 512
        assert about["verified"] is True
        assert adapter["id"] == "adapter"
        assert (alias["id"], alias["parent"], alias["b70"]["alias_of"]) == ("gpt", "tiny-a", "tiny-a")
        assert (await client.ask("GET", "/v1/models")).status == 200


@pytest.mark.interpreted
@on_loop
async def test_a_list_that_is_none_passes_as_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def odd(call: Call) -> None:
            if len(run.engine.requests) == 1:
                await call.json({"error": "x"}, "500 Internal Server Error")
            elif len(run.engine.requests) == 2:
                await call.begin_events()
                await call.send(b"3\r\nnot\r\n5\r\n json\r\n0\r\n\r\n")
            elif len(run.engine.requests) == 3:
                await call.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
                call.writer.close()
            else:
                call.writer.close()

        run.engine.script = odd
        client = await run.client()
        answer = await client.ask("GET", "/v1/models")
        assert (answer.status, answer.json) == (500, {"error": "x"})
        assert (await client.ask("GET", "/v1/models")).body == b"not json"
        assert (await client.ask("GET", "/v1/models")).body == b"until the end"
        answer = await client.ask("GET", "/v1/models")
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_closed")
        assert (await client.ask("GET", "/health")).status == 200


@on_loop
async def test_a_client_that_leaves_the_list_leaves_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def silent(call: Call) -> None:
            await call.gone.wait()

        run.engine.script = silent
        client = await run.client()
        client.request("GET", "/v1/models")
        await until(lambda: run.engine.active)
        client.leave()
        await run.settled()
        assert run.engine.lost == 1


@on_loop
async def test_the_page_is_whole_and_may_run_nothing_else(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        answer = await client.ask("GET", "/")
        html = answer.body.decode()
        assert answer.header("Content-Type") == "text/html; charset=utf-8"
        policy = answer.header("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none'; ")
        for tag in ("script", "style"):
            (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        # its own icon and a link to the status apart
        asks = r"""(?:src|href)\s*=(?!"(?:data:|status"|chat"))"""
        assert not re.search(rf"""{asks}|style\s*=\s*["']|\son[a-z]+\s*=\s*["']|url\(|@import""", html)
        assert "https://" not in html.replace("http://www.w3.org/2000/svg", "")
        assert (await client.ask("HEAD", "/")).status == 200
        assert (await client.ask("POST", "/", b"")).status == 405
        # what the script reads is what is there
        activity = (await client.ask("GET", "/frontdoor/activity")).json
        status = (await client.ask("GET", "/status")).json
        (slot,) = status["slots"].values()
        # what it makes up itself of one slot of several
        made = {"several", "command"}
        for name in set(re.findall(r"\bstatus\.(\w+)", html)) - made:
            assert name in {**status, **slot}, name
        for name in set(re.findall(r"\bown\.(\w+)", html)):
            assert name in slot, name
        for name in set(re.findall(r"\bdoor\.(\w+)", html)):
            assert name in status["frontdoor"], name
        for name in set(re.findall(r"\bmodel\.(\w+)", html)):
            assert name in status["model_slot"], name
        for name in re.findall(r'column\("(\w+)"\)', html):
            assert name in activity["columns"], name


@on_loop
async def test_activity_tells_of_requests_and_phases(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        # what is counted is taken here
        run.stop("sample")
        client, loop = await run.client(), asyncio.get_running_loop()
        await client.ask("POST", "/v1/completions", b'{"secret":1}')
        await client.ask("GET", "/v1/embeddings")

        async def stream(call: Call) -> None:
            await call.begin_events()
            await asyncio.sleep(0.03)
            await call.event("first")
            await call.send(b"0\r\n\r\n")

        run.engine.script = stream
        began = loop.time()
        await client.ask("POST", "/v1/chat/completions", b"{}")
        most = loop.time() - began + 0.001
        run.write_state(phase="switching", open=False, profile={**serving_state("")["profile"], "name": "tiny-b"})
        run.write_state(phase="switching", open=False, profile={**serving_state("")["profile"], "name": "tiny-b"})
        run.app.ledger.settle()
        run.app.ledger.activities[0].sample(1000.4, 1, 2)
        report = (await client.ask("GET", "/frontdoor/activity")).json
        assert [(r["path"], r["status"], r["outcome"]) for r in report["requests"]] == [
            ("/v1/chat/completions", 200, "ok"),
            ("/v1/completions", 200, "ok"),
        ]
        # what came whole has no first token
        assert report["requests"][1]["first_token_s"] is None
        assert 0.02 < report["requests"][0]["first_token_s"] <= most
        assert [p["phase"] for p in report["phases"]] == ["switching", "serving"]
        sample = dict(zip(report["columns"], report["samples"][-1], strict=True))
        assert (sample["at"], sample["active"], sample["queued"], sample["requests"]) == (1000, 1, 2, 2)
        assert 20 < sample["first_token_ms"] <= most * 1000
        assert "secret" not in str(report)


@on_loop
async def test_the_pace_is_the_engines_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontdoor.slot.engine._TIMEOUT_S", 60)
    # nobody asks but this test
    async with bench(tmp_path, backend={"metrics_interval_s": 3600, "probe_interval_s": 3600}) as run:
        vitals, told = run.app.first.replicas.all[0].vitals, {"tokens": 1000.0}

        async def engine(call: Call) -> None:
            if call.request.line.startswith("GET /metrics "):
                rows = f'vllm:generation_tokens_total{{engine="0"}} {told["tokens"]}\nvllm:kv_cache_usage_perc 0.25\n'
                rows = rows if told["tokens"] else "other 1\n"
                await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(rows)}\r\n\r\n{rows}".encode())
            else:
                await call.json({})

        async def asked() -> None:
            # the loop's clock counts milliseconds
            await asyncio.sleep(0.003)
            vitals.run()
            await until(lambda: vitals._task is None)

        def questions() -> int:
            return sum(request.line.startswith("GET /metrics ") for request in run.engine.requests)

        run.engine.script = engine
        client, loop = await run.client(), asyncio.get_running_loop()
        await until(
            lambda: run.app.first.replicas.all[0].health.reachable and run.app.first.replicas.all[0].probe._task is None
        )
        await client.chat()
        began = loop.time()
        await asked()
        assert (questions(), vitals.tokens_per_s, vitals.cache_used) == (1, None, 0.25)
        await client.chat()
        told["tokens"] += 50
        await asyncio.sleep(0.02)
        await asked()
        assert vitals.tokens_per_s is not None
        assert 50 / (loop.time() - began) <= vitals.tokens_per_s <= 50 / 0.02
        await asked()
        assert vitals.tokens_per_s == 0
        # an engine that has nothing to do is left alone
        before = questions()
        await asked()
        assert questions() == before
        # a count that begins anew is no negative pace, and no count is no pace
        await client.chat()
        told["tokens"] = 3
        await asked()
        assert vitals.tokens_per_s is None
        await client.chat()
        await asked()
        assert vitals.tokens_per_s == 0
        await client.chat()
        told["tokens"] = 0
        await asked()
        assert vitals.tokens_per_s is None
        run.app.first.replicas.all[0].health.note(False, "gone")
        await asked()
        assert vitals.cache_used is None


def test_activity_is_bounded() -> None:
    def entry(at: float) -> Entry:
        return Entry("::1", None, classify("/v1/completions"), True, OK, 200, None, at - 1.0, at, 0.0, 0.1, 5)

    activity = Activity(SlotStats())
    for second in range(1000):
        activity.sample(second, 0, 0)
        activity.requests([entry(second)], 0.0)
        activity.first_token(0.1)
        activity.phase(second, "serving" if second % 2 else "stopped", "a", "")
    report = activity.report()
    assert len(report["samples"]) == 300
    assert len(report["requests"]) == 30
    assert len(report["phases"]) == 20
    assert report["samples"][-1][0] == 999
    assert report["requests"][0]["at"] == 999
    last = dict(zip(report["columns"], report["samples"][-1], strict=True))
    assert (last["first_token_ms"], last["tokens"]) == (100, -1)


@pytest.mark.interpreted
@on_loop
async def test_those_that_were_turned_away_are_shown_and_push_nobody_out(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client, door = await run.client(), run.app
        await client.chat()
        release = asyncio.Event()

        async def slow(call: Call) -> None:
            await release.wait()
            await call.json({})

        run.engine.script = slow
        busy = [await run.client() for _ in range(2)]
        for one in busy:
            one.request("POST", "/v1/chat/completions", b"{}")
        await until(lambda: door.first.limiter.active == 2)
        for number in range(100):
            assert (await client.ask("POST", "/v1/chat/completions", b"{}")).status == 503
            if number % 10 == 0:
                door.ledger.sweep()
        assert (await client.ask("POST", "/v1/completions", b"{}")).status == 503
        report = (await client.ask("GET", "/frontdoor/activity")).json
        rows = [(r["path"], r["status"], r["outcome"], r["code"], r["count"]) for r in report["requests"]]
        assert rows == [
            ("/v1/completions", 503, "refused", "busy", 1),
            ("/v1/chat/completions", 503, "refused", "busy", 100),
            ("/v1/chat/completions", 200, "ok", None, 1),
        ]
        release.set()
        for one in busy:
            assert (await one.answer()).status == 200


def test_refusals_at_the_door_are_taken_together_for_a_while_and_bounded() -> None:
    activity = Activity(SlotStats())
    activity.turned_away(1000.0, "/a", 503, "busy", 3)
    activity.turned_away(1059.0, "/a", 503, "busy", 4)
    activity.turned_away(1059.5, "/a", 503, "switching", 1)
    counts = {row["code"]: row["count"] for row in activity.report()["requests"]}
    assert counts == {"busy": 7, "switching": 1}
    activity.turned_away(1120.0, "/a", 503, "busy", 1)
    assert activity.report()["requests"][0]["count"] == 1
    for number in range(100):
        activity.turned_away(1200.0 + number, f"/{number}", 503, "busy", 1)
    assert [row["path"] for row in activity.report()["requests"]][:2] == ["/99", "/98"]
    assert len(activity.report()["requests"]) < 10


def test_lines_of_requests_are_json_whatever_stands_in_them() -> None:
    reading, writing = os.pipe()
    route = Route(Kind.ENGINE, '/v1/100%d/"x"', gated=True)
    ledger = Ledger(EventLog(writing), lambda: 1.23456, lambda _s, _work: None, lambda _slot, _s: None)
    ledger.note(Entry("::1%eth0", None, route, True, OK, 200, None, 0.0, 1.23456, 0.25, 0.1, 99))
    before = int(time.time() * 1000)
    ledger.sweep()
    line = os.read(reading, 4096).decode()
    os.close(reading)
    os.close(writing)
    found = orjson.loads(line)
    assert line == orjson.dumps(found).decode() + "\n"
    assert (found["client"], found["path"]) == ("::1%eth0", '/v1/100%d/"x"')
    # the loop's clock is told as the time of day
    assert before <= found["ts_ms"] <= time.time() * 1000
    assert (found["elapsed_s"], found["queue_wait_s"], found["queued"], found["bytes"]) == (1.235, 0.25, True, 99)
