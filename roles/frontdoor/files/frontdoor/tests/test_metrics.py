# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What passed is counted, and the counts are written as Prometheus reads them."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import Call, Client, bench, on_loop, read_head
from prometheus_client.parser import text_string_to_metric_families

import frontdoor
from frontdoor.observability.ledger import usage
from frontdoor.observability.metrics import Metrics, render

CHAT = "/v1/chat/completions"


class Steps:
    """An engine that sends its next event when the client has the one before: each is a read of its own."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    async def event(self, call: Call, text: str) -> None:
        """One event, some milliseconds after the one before."""
        await asyncio.sleep(0.01)
        await call.event(text)
        await self._heard.wait()
        self._heard.clear()

    async def hear(self, client: Client, text: str) -> None:
        """The client gets it."""
        await client.reader.readuntil(f"data: {text}\n\n\r\n".encode())
        self._heard.set()


async def scrape(client: Client) -> dict[str, float]:
    answer = await client.ask("GET", "/metrics")
    assert answer.header("Content-Type") == "text/plain; version=0.0.4"
    rows = {}
    families = set()
    # the parser that Prometheus' own client ships
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        assert family.name not in families, f"{family.name} is announced twice"
        families.add(family.name)
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            name = sample.name.removeprefix("b70_frontdoor_") + (f"{{{labels}}}" if labels else "")
            assert sample.name.startswith("b70_frontdoor_"), name
            assert name not in rows, f"{name} stands there twice"
            rows[name] = sample.value
    return rows


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b'{"id":1,"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16}}', (7, 9)),
        (
            b'data: {"usage":{"prompt_tokens":7,"total_tokens":16,"completion_tokens":9}}\n\ndata: [DONE]\n\n',
            (7, 9),
        ),
        (b'{"usage": {"input_tokens": 3, "output_tokens": 4}}', (3, 4)),
        (b'{"usage":{"prompt_tokens":5,"total_tokens":5}}', (5, 0)),
        (b'data: {"usage":null}', None),
        (b"data: [DONE]", None),
        (b"", None),
        (b'"usage":{"prompt_tokens":1,"completion_tokens":1}' + b" " * 5000, None),
        (b'{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens":2}}', (7, 2)),
    ],
)
def test_what_counts_as_a_report(tail: bytes, expected: tuple[int, int] | None) -> None:
    assert usage(tail) == expected


@pytest.mark.interpreted
@on_loop
async def test_a_day_in_numbers(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        steps, loop = Steps(), asyncio.get_running_loop()
        done = b'data: {"choices":[],"usage":{"prompt_tokens":11,"total_tokens":14,"completion_tokens":3}}\n\n'

        async def engine(call: Call) -> None:
            if call.request.line.startswith("GET /metrics "):
                await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nvllm 1")
            elif b"stream" in call.request.body:
                await call.begin_events()
                for _ in range(3):
                    await steps.event(call, "token")
                await call.send(b"%x\r\n%b\r\n" % (len(done), done))
                await call.send(b"0\r\n\r\n")
            elif b"die" in call.request.body:
                call.writer.close()
            else:
                await call.json({"usage": {"prompt_tokens": 1, "completion_tokens": 2}})

        run.engine.script = engine
        client = await run.client()
        began = loop.time()
        client.request("POST", CHAT, b'{"stream":true}')
        for _ in range(3):
            await steps.hear(client, "token")
        await client.reader.readuntil(b"0\r\n\r\n")
        streamed = loop.time() - began
        assert (await client.ask("POST", CHAT, b"{}")).status == 200
        assert (await client.ask("POST", CHAT, b'"die"')).status == 502
        assert (await client.ask("GET", "/nothing")).status == 404
        assert (await client.ask("GET", "/v1/models/some/model")).status == 200
        assert (await client.ask("GET", "/engine/metrics")).body == b"vllm 1"
        run.write_state(phase="stopped", open=False, sequence=9)
        assert (await client.ask("POST", CHAT, b"{}")).status == 503
        assert (await client.ask("GET", "/engine/metrics")).body == b"vllm 1"
        rows = await scrape(client)
        assert rows[f'requests_total{{path="{CHAT}",outcome="ok"}}'] == 2
        assert rows[f'requests_total{{path="{CHAT}",outcome="upstream_error"}}'] == 1
        assert rows[f'requests_total{{path="{CHAT}",outcome="refused"}}'] == 1
        assert rows['requests_total{path="/v1/models/{id}",outcome="ok"}'] == 1
        # who is turned away, what was wrong with a request, and what the engine did wrong are three things
        assert rows['errors_total{code="unknown_path"}'] == 1
        for name, total in (("refusals", 1), ("errors", 1), ("engine_errors", 1)):
            counted = [value for row, value in rows.items() if row.startswith(f"{name}_total{{")]
            assert sum(counted) == total, name
            # what can happen is there before it happens: from nothing there is no rise to be seen
            assert len(counted) > 5, name
        assert rows['refusals_total{code="stopped"}'] == 1
        assert rows['engine_errors_total{code="engine_closed"}'] == 1
        assert rows["generation_requests_total"] == 4
        assert rows["prompt_tokens_total"] == 12
        assert rows["completion_tokens_total"] == 5
        assert rows["request_body_bytes_total"] == 15 + 2 + 5
        assert rows['phase{phase="stopped"}'] == 1
        assert rows['phase{phase="serving"}'] == 0
        assert rows["slot_open"] == 0
        assert rows["state_sequence"] == 9
        assert rows["active_generations"] == 0
        assert rows["inter_chunk_seconds_count"] >= 2
        # they came 10 ms apart
        assert 0.015 < rows["inter_chunk_seconds_sum"] <= streamed
        served = 'slot="main",profile="tiny-a",status="candidate",served_model_name="tiny-a",fingerprint="sha256:00"'
        assert rows[f"slot_info{{{served}}}"] == 1
        assert rows["verified_timestamp_seconds"] == rows["state_since_timestamp_seconds"] == 1780823324
        assert abs(rows["start_time_seconds"] - time.time()) < 60
        assert rows['inter_chunk_seconds_bucket{le="+Inf"}'] == rows["inter_chunk_seconds_count"]
        assert rows[f'first_token_seconds_count{{path="{CHAT}"}}'] == 1
        assert rows[f'first_byte_seconds_count{{path="{CHAT}"}}'] == 1
        assert rows['first_token_seconds_bucket{path="/v1/messages",le="0.5"}'] == 0
        assert rows['requests_total{path="/v1/messages",outcome="upstream_cut"}'] == 0
        assert rows[f'request_duration_seconds_count{{path="{CHAT}"}}'] == 3


@on_loop
async def test_a_head_that_comes_before_the_first_token_is_not_the_first_token(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        steps, loop, said = Steps(), asyncio.get_running_loop(), 0.0

        async def engine(call: Call) -> None:
            nonlocal said
            await call.begin_events()
            await asyncio.sleep(0.05)
            said = loop.time()
            await steps.event(call, "first")
            await steps.event(call, "second")
            await call.send(b"0\r\n\r\n")

        run.engine.script = engine
        client = await run.client()
        began = loop.time()
        client.request("POST", CHAT, b"{}")
        # the head comes alone
        await read_head(client.reader)
        await steps.hear(client, "first")
        heard = loop.time()
        await steps.hear(client, "second")
        await client.reader.readuntil(b"0\r\n\r\n")
        ended = loop.time()
        rows = await scrape(client)
        first = rows[f'first_token_seconds_sum{{path="{CHAT}"}}']
        assert 0.045 < first <= heard - began
        assert 0.005 < rows["inter_chunk_seconds_sum"] <= ended - said
        # the second event, and the end of the stream
        assert rows["inter_chunk_seconds_count"] <= 2


@on_loop
async def test_only_streams_that_went_well_have_a_first_token(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        events = b"HTTP/1.1 500 No\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: x\n\n"

        async def engine(call: Call) -> None:
            if b"whole" in call.request.body:
                await asyncio.sleep(0.02)
                await call.json({"usage": None})
            elif b"wrong" in call.request.body:
                await call.json({"error": {"message": "no"}}, status="400 Bad Request")
            elif b"bad stream" in call.request.body:
                await call.send(events)
            elif b"empty" in call.request.body:
                await call.begin_events()
                call.writer.close()
            else:
                await call.begin_events()
                await asyncio.sleep(0.05)
                await call.event("token")
                await call.send(b"0\r\n\r\n")

        run.engine.script = engine
        for body in (b"whole", b"wrong", b"bad stream", b"empty", b"stream"):
            client = await run.client()
            await client.ask("POST", CHAT, b'"%b"' % body)
        rows = await scrape(client)
        assert rows[f'first_token_seconds_count{{path="{CHAT}"}}'] == 1
        assert rows[f'first_token_seconds_bucket{{path="{CHAT}",le="0.025"}}'] == 0
        # those are not what people wait for, and nothing at all came of the empty one
        assert rows[f'first_byte_seconds_count{{path="{CHAT}"}}'] == 3


@on_loop
async def test_the_sum_of_gaps_keeps_up_with_their_number(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        release, steps, loop = asyncio.Event(), Steps(), asyncio.get_running_loop()

        async def engine(call: Call) -> None:
            await call.begin_events()
            for _ in range(6):
                await steps.event(call, "token")
            await release.wait()
            await call.send(b"0\r\n\r\n")

        run.engine.script = engine
        client, other = await run.client(), await run.client()
        began = loop.time()
        client.request("POST", CHAT, b"{}")
        for _ in range(6):
            await steps.hear(client, "token")
        rows = await scrape(other)
        assert rows["inter_chunk_seconds_count"] == 5
        assert rows["active_generations"] == 1
        assert 0.04 < rows["inter_chunk_seconds_sum"] <= loop.time() - began
        release.set()
        await client.reader.readuntil(b"0\r\n\r\n")
        after = await scrape(other)
        assert after["inter_chunk_seconds_count"] == 6
        assert rows["inter_chunk_seconds_sum"] <= after["inter_chunk_seconds_sum"] <= loop.time() - began


def errors_in_the_source() -> Iterator[tuple[int, str]]:
    """Status and code of each error that stands there as it is."""
    for file in Path(frontdoor.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Refusal", "HeadError"):
                told = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
                if len(told) == 2 and isinstance(told[0], int):
                    yield told[0], str(told[1])


def test_every_error_begins_at_zero_where_it_will_be_counted() -> None:
    found = set(errors_in_the_source())
    assert len(found) > 25
    for status, code in found:
        metrics = Metrics()
        before, row = render(metrics, {}, {}, "serving", "1"), b'_total{code="%b"} ' % code.encode()
        metrics.answered(code, status)
        after = render(metrics, {}, {}, "serving", "1")
        assert (before.count(row + b"0\n"), after.count(row + b"1\n"), after.count(row)) == (1, 1, 1), code


@on_loop
async def test_the_wait_for_a_slot_is_measured(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    async with bench(tmp_path, state={"limits": limits}) as run:
        go, loop = asyncio.Event(), asyncio.get_running_loop()

        async def slow(call: Call) -> None:
            await go.wait()
            await asyncio.sleep(0.02)
            await call.json({})

        run.engine.script = slow
        clients = [await run.client() for _ in range(3)]
        began = loop.time()
        await run.in_turn(*clients)
        go.set()
        for client in clients:
            assert (await client.answer()).status == 200
        waited = loop.time() - began
        rows = await scrape(clients[0])
        assert rows["queue_wait_seconds_count"] == 2
        # 20 ms for the one, 40 for the other
        assert 0.05 < rows["queue_wait_seconds_sum"] <= 2 * waited
