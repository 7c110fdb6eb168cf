# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the frontdoor answers itself: the page, its data, the list of models."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from pathlib import Path

from kit import Call, bench, on_loop, serving_state

from frontdoor.activity import Activity
from frontdoor.metrics import Metrics

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
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_unreachable")
        assert (await client.ask("GET", "/health")).status == 200


@on_loop
async def test_a_client_that_leaves_the_list_leaves_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def silent(call: Call) -> None:
            await call.gone.wait()

        run.engine.script = silent
        client = await run.client()
        client.request("GET", "/v1/models")
        while not run.engine.active:
            await asyncio.sleep(0.001)
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
        assert not re.search(r"""(?:src|href)\s*=|style\s*=\s*["']|\son[a-z]+\s*=\s*["']|url\(|@import""", html)
        assert "https://" not in html.replace("http://www.w3.org/2000/svg", "")
        assert (await client.ask("HEAD", "/")).status == 200
        assert (await client.ask("POST", "/", b"")).status == 405
        # what the script reads is what is there
        activity = (await client.ask("GET", "/frontdoor/activity")).json
        status = (await client.ask("GET", "/status")).json
        for name in set(re.findall(r"\bstatus\.(\w+)", html)):
            assert name in status, name
        for name in set(re.findall(r"\bdoor\.(\w+)", html)):
            assert name in status["frontdoor"], name
        for name in set(re.findall(r"\bmodel\.(\w+)", html)):
            assert name in status["model_slot"], name
        for name in re.findall(r'column\("(\w+)"\)', html):
            assert name in activity["columns"], name


@on_loop
async def test_activity_tells_of_requests_and_phases(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        await client.ask("POST", "/v1/completions", b'{"secret":1}')
        await client.ask("GET", "/v1/embeddings")
        run.write_state(phase="switching", open=False, profile={**serving_state("")["profile"], "name": "tiny-b"})
        run.write_state(phase="switching", open=False, profile={**serving_state("")["profile"], "name": "tiny-b"})
        run.door.ledger.settle()
        run.door.ledger.activity.sample(1000.4, 1, 2)
        report = (await client.ask("GET", "/frontdoor/activity")).json
        assert [(r["path"], r["status"], r["outcome"]) for r in report["requests"]] == [("/v1/completions", 200, "ok")]
        assert [p["phase"] for p in report["phases"]] == ["switching", "serving"]
        sample = dict(zip(report["columns"], report["samples"][-1], strict=True))
        assert (sample["at"], sample["active"], sample["queued"], sample["requests"]) == (1000, 1, 2, 1)
        assert sample["first_byte_ms"] >= 0
        assert "secret" not in str(report)


@on_loop
async def test_the_pace_is_the_engines_own_count(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        vitals, told = run.door.vitals, {"tokens": 1000.0}

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
            while vitals._fetch is not None and vitals._fetch.running:
                await asyncio.sleep(0.001)

        def questions() -> int:
            return sum(request.line.startswith("GET /metrics ") for request in run.engine.requests)

        run.engine.script = engine
        client = await run.client()
        await client.chat()
        await asked()
        assert (questions(), vitals.tokens_per_s, vitals.cache_used) == (1, None, 0.25)
        await client.chat()
        told["tokens"] += 50
        await asyncio.sleep(0.02)
        await asked()
        assert vitals.tokens_per_s is not None
        assert 5 < vitals.tokens_per_s <= 50 / 0.02
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
        run.door.note_engine(False, "gone")
        await asked()
        assert vitals.cache_used is None


def test_activity_is_bounded() -> None:
    activity = Activity(Metrics())
    for second in range(1000):
        activity.sample(second, 0, 0)
        activity.requests([(second, "/v1/completions", 200, "ok", 0.0, 0.1, 1.0)])
        activity.first_bytes(0.1, 1)
        activity.phase(second, "serving" if second % 2 else "stopped", "a", "")
    report = activity.report()
    assert len(report["samples"]) == 300
    assert len(report["requests"]) == 30
    assert len(report["phases"]) == 20
    assert report["samples"][-1][0] == 999
    assert report["requests"][0]["at"] == 999
    last = dict(zip(report["columns"], report["samples"][-1], strict=True))
    assert (last["first_byte_ms"], last["tokens"]) == (100, -1)
