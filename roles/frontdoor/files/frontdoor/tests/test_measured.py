# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers get metrics for those who ask for them; everybody else's bytes stay as they are."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from kit import Answer, Bench, Call, bench, on_loop

from frontdoor.http.measured import metrics_of

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
FIELDS = {
    *("engine_queue_wait_ms", "backend_inference_wall_ms", "engine_total_wall_ms", "engine_outside_backend_wall_ms"),
    *("pool_total_wall_ms", "engine_tokenize_ms", "gpu_time_to_first_token_ms", "gpu_generate_total_ms"),
    *("gpu_decode_after_first_token_ms", "engine_prompt_tokens", "engine_cached_prompt_tokens", "engine_output_tokens"),
    *("engine_finish_reason", "engine_tokens_per_second"),
}
# as vLLM 0.32.0 writes them
COMPLETION = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"tiny-a","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"hi \\u00e9"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,'
    b'"total_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}'
)
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [],
    "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5, "total_tokens": 12},
}
TOKENS = {"engine_prompt_tokens": 7, "engine_cached_prompt_tokens": 4, "engine_output_tokens": 5}


def events(*rows: Any) -> list[bytes]:
    """Events as vLLM writes them: those of a response are named."""
    names = [b"event: %b\n" % row["type"].encode() if "type" in row else b"" for row in rows]
    return [name + b"data: " + json.dumps(row).encode() + b"\n\n" for name, row in zip(names, rows, strict=True)]


DELTA = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "response.completed"}
STREAM = events({"type": "response.created", "sequence_number": 0}, DELTA, DELTA) + events(
    {"type": "response.completed", "sequence_number": 3, "response": RESPONSE}
)
CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny-a"}
CHUNKS = [
    *events({**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}),
    *events({**CHUNK, "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "length"}]}),
]
USAGE = events({**CHUNK, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
DONE = b"data: [DONE]\n\n"


def script(run: Bench, parts: list[bytes], cut: bool = False, head: bytes = b"", step: int = 0) -> None:
    """Let the engine answer with a stream of these parts, or in reads of so many bytes."""

    async def answer(call: Call) -> None:
        await call.begin_events()
        wire = b"".join(parts)
        pieces = [wire[at : at + step] for at in range(0, len(wire), step)] if step else parts
        for piece in pieces:
            await call.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
        if cut:
            call.writer.transport.abort()
        else:
            await call.send(b"0\r\n\r\n")

    run.engine.script = answer


def plain(run: Bench, body: bytes, extra: str = "", framing: str = "length", pause_s: float = 0.0) -> None:
    async def answer(call: Call) -> None:
        top = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{extra}".encode()
        if framing == "length":
            await call.send(top + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        elif framing == "chunked":
            await call.send(top + b"Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 50):
                piece = body[at : at + 50]
                await call.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(pause_s)
            await call.send(b"0\r\n\r\n")
        else:
            await call.send(top + b"Connection: close\r\n\r\n" + body)
            call.writer.close()

    run.engine.script = answer


async def asked(run: Bench, path: str, *fields: str, **body: Any) -> Answer:
    client = await run.client()
    return await client.ask("POST", path, json.dumps({"metrics": True, **body}).encode(), *fields)


def complete(metrics: dict[str, Any], **known: Any) -> None:
    """All fields are there, these are so, and times make sense together."""
    assert set(metrics) == FIELDS
    assert {name: metrics[name] for name in known} == known
    total, backend = metrics["engine_total_wall_ms"], metrics["backend_inference_wall_ms"]
    assert total >= backend >= 0
    assert math.isclose(metrics["engine_outside_backend_wall_ms"], total - backend, abs_tol=0.01)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@on_loop
async def test_a_completion_gets_metrics_and_all_else_stays(tmp_path: Path, framing: str) -> None:
    async with bench(tmp_path) as run:
        plain(run, COMPLETION, 'ETag: "1"\r\n', framing)
        answer = await asked(run, CHAT, "Accept-Encoding: gzip")
        assert answer.body.startswith(COMPLETION[:-1] + b',"metrics":{')
        complete(answer.json["metrics"], **TOKENS, engine_finish_reason="stop", gpu_time_to_first_token_ms=None)
        assert answer.header("etag") is None
        (request,) = run.engine.requests
        # the engine is not asked for what nobody can add to, nor told of the wish
        assert request.header("accept-encoding") == "identity"
        assert json.loads(request.body) == {}
        await run.settled()
        assert run.outcomes()["ok"] == 1


@on_loop
async def test_nobody_else_gets_them(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        plain(run, COMPLETION)
        client = await run.client()
        for body in (b"{}", b'{"metrics":false}', b'{"metrics":null}', b'{"tools":[{"metrics":true}]}'):
            answer = await client.ask("POST", CHAT, body)
            assert answer.body == COMPLETION
            assert answer.header("content-length") == str(len(COMPLETION))
        script(run, STREAM)
        assert (await client.ask("POST", RESPONSES, b'{"stream":true}')).body == b"".join(STREAM)


@on_loop
async def test_a_site_may_want_them_always(tmp_path: Path) -> None:
    async with bench(tmp_path, request={"metrics": True}) as run:
        plain(run, COMPLETION)
        client = await run.client()
        assert "metrics" in (await client.ask("POST", CHAT, b"{}")).json
        assert (await client.ask("POST", CHAT, b'{"metrics":false}')).body == COMPLETION
        # paths that llm-pool does not have stay as they are
        assert (await client.ask("POST", "/v1/completions", b"{}")).body == COMPLETION


@pytest.mark.parametrize("step", [0, 1, 7, 100_000])
@on_loop
async def test_a_stream_of_a_response_gets_an_event(tmp_path: Path, step: int) -> None:
    async with bench(tmp_path) as run:
        script(run, STREAM, step=step)
        answer = await asked(run, RESPONSES, stream=True)
        before, after = b"".join(STREAM[:-1]), STREAM[-1]
        assert answer.body.startswith(before)
        assert answer.body.endswith(after)
        name, data = answer.body[len(before) : -len(after)].rstrip(b"\n").split(b"\n")
        assert name == b"event: response.metrics"
        event = json.loads(data.removeprefix(b"data: "))
        assert (event["type"], event["id"]) == ("response.metrics", "resp_1")
        complete(event["metrics"], **TOKENS, engine_finish_reason="completed")
        first, rest = (
            event["metrics"][f"gpu_{name}_ms"] for name in ("time_to_first_token", "decode_after_first_token")
        )
        assert math.isclose(first + rest, event["metrics"]["gpu_generate_total_ms"], abs_tol=0.01)


@pytest.mark.parametrize("step", [0, 7])
@pytest.mark.parametrize(("usage", "told"), [(True, True), (True, False), (False, False)])
@on_loop
async def test_a_stream_of_a_chat_gets_a_chunk_without_choices(
    tmp_path: Path, usage: bool, told: bool, step: int
) -> None:
    """The report of tokens is not needed for that, and passes where the client asked for it."""
    async with bench(tmp_path) as run:
        script(run, [*CHUNKS, *(USAGE if usage else []), DONE], step=step)
        answer = await asked(run, CHAT, stream=True, stream_options={"include_usage": told})
        *rest, added, done = answer.body.removesuffix(b"\n\n").split(b"\n\n")
        assert b"\n\n".join((*rest, b"")) == b"".join(CHUNKS + (USAGE if told else []))
        assert done == b"data: [DONE]"
        last = json.loads(added.removeprefix(b"data: "))
        # as clients know it of the report of tokens
        assert {**last, "metrics": None} == {**CHUNK, "choices": [], "metrics": None}
        # where no tokens are reported none are guessed
        known = {"engine_prompt_tokens": 7, "engine_output_tokens": 5} if usage else dict.fromkeys(TOKENS)
        complete(last["metrics"], **known, engine_finish_reason="length")


@on_loop
async def test_the_wait_for_a_permit_is_told(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
    async with bench(tmp_path, {"limits": limits}) as run:
        free = asyncio.Event()

        async def held(call: Call) -> None:
            await free.wait()
            await call.json({"usage": {"prompt_tokens": 1, "completion_tokens": 1}})

        run.engine.script = held
        first, second = await run.client(), await run.client()
        for client in (first, second):
            client.request("POST", CHAT, b'{"metrics":true}')
            await run.arrived(1 if client is first else 2)
        await asyncio.sleep(0.05)
        free.set()
        assert (await first.answer()).json["metrics"]["engine_queue_wait_ms"] == 0
        metrics = (await second.answer()).json["metrics"]
        assert metrics["engine_queue_wait_ms"] > 0
        assert metrics["engine_outside_backend_wall_ms"] == metrics["engine_queue_wait_ms"]


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        (b"[1]", ""),
        (b"no json", ""),
        (b"\x1f\x8b", "Content-Encoding: gzip\r\n"),
        (b'{"a":1}', "Content-Encoding: br\r\n"),
    ],
)
@on_loop
async def test_what_cannot_be_added_to_stays(tmp_path: Path, body: bytes, extra: str) -> None:
    async with bench(tmp_path) as run:
        plain(run, body, extra)
        assert (await asked(run, CHAT)).body == body


@on_loop
async def test_an_answer_too_long_to_hold_passes_as_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        body = json.dumps({"x": "y" * 9_000_000}).encode()
        plain(run, body)
        assert (await asked(run, CHAT)).body == body
        # nothing says how long it will be
        plain(run, body, framing="chunked")
        assert (await asked(run, CHAT)).json["error"]["code"] == "bad_engine_response"


@on_loop
async def test_an_answer_that_goes_on_coming_is_not_taken_for_silence(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {"backend_timeout_s": 3}}) as run:
        plain(run, json.dumps({"x": "y" * 200}).encode(), framing="chunked", pause_s=2)
        answer = await asked(run, CHAT)
        assert (answer.status, set(answer.json["metrics"])) == (200, FIELDS)


@on_loop
async def test_the_engines_own_metrics_are_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        for own in (None, {"time_to_first_token": 3}):
            plain(run, json.dumps({"id": "1", "metrics": own}).encode())
            metrics = (await asked(run, CHAT)).json["metrics"]
            assert set(metrics) == FIELDS | set(own or ())


@on_loop
async def test_an_error_of_the_engine_stays(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def refuse(call: Call) -> None:
            await call.json({"error": "no"}, "400 Bad Request")

        run.engine.script = refuse
        answer = await asked(run, CHAT)
        assert (answer.status, answer.json) == (400, {"error": "no"})


@pytest.mark.interpreted
@on_loop
async def test_a_stream_that_breaks_ends_as_any_other(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        script(run, STREAM[:2], cut=True)
        answer = await asked(run, RESPONSES, stream=True)
        assert answer.body.startswith(b"".join(STREAM[:2]) + b"event: error\ndata: ")
        assert b"response.metrics" not in answer.body


@pytest.mark.interpreted
@on_loop
async def test_a_complete_answer_that_breaks_is_none(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def broken(call: Call) -> None:
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            call.writer.close()

        run.engine.script = broken
        answer = await asked(run, CHAT)
        assert (answer.status, answer.json["error"]["code"]) == (502, "engine_closed")
        # it had begun, and is not asked for twice
        assert len(run.engine.requests) == 1


@pytest.mark.interpreted
@on_loop
async def test_old_clients_get_them_too(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        for parts, path in ((None, CHAT), (STREAM, RESPONSES)):
            if parts is None:
                plain(run, COMPLETION)
            else:
                script(run, parts)
            client = await run.client()
            body = b'{"metrics":true}'
            client.send(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
            answer = await client.answer()
            assert answer.header("transfer-encoding") is None
            assert b"engine_queue_wait_ms" in answer.body


@pytest.mark.interpreted
@on_loop
async def test_a_connection_serves_on(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        client = await run.client()
        plain(run, COMPLETION)
        await client.ask("GET", "/version")
        run.engine.requests.clear()
        before = run.engine.connections
        for _ in range(3):
            plain(run, COMPLETION)
            assert "metrics" in (await client.ask("POST", CHAT, b'{"metrics":true}')).json
            script(run, [*CHUNKS, DONE])
            assert b'"metrics"' in (await client.ask("POST", CHAT, b'{"metrics":true}')).body
        await run.settled()
        # each of them came over the engine's kept connection
        assert len(run.engine.requests) == 6
        assert run.engine.connections == before


def test_metrics_add_up() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 20, "prompt_tokens_details": None}
    found = metrics_of(1.0, 3.0, 0.5, usage, "stop")
    # the first token came before the 1.5 s
    assert found["engine_tokens_per_second"] == pytest.approx(19 / 1.5, abs=0.001)
    assert metrics_of(1.0, 3.0, None, usage, "stop")["engine_tokens_per_second"] == 10
    one = {"completion_tokens": 1}
    assert metrics_of(1.0, 3.0, 0.5, one, "stop")["engine_tokens_per_second"] is None
    assert (found["gpu_time_to_first_token_ms"], found["gpu_decode_after_first_token_ms"]) == (500, 1500)
    assert (found["engine_queue_wait_ms"], found["backend_inference_wall_ms"]) == (1000, 2000)
    for nothing in (None, 7, {}, {"completion_tokens": True}, {"completion_tokens": "5"}):
        assert metrics_of(0, 0, None, nothing, None)["engine_output_tokens"] is None


@on_loop
async def test_a_stream_of_a_known_length_stays_as_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        wire = b"".join([*CHUNKS, *USAGE, DONE])

        async def answer(call: Call) -> None:
            top = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
            await call.send(top % len(wire))
            # the head alone, or both in one read
            await asyncio.sleep(0.01)
            await call.send(wire)

        run.engine.script = answer
        for _ in range(2):
            found = await asked(run, CHAT, stream=True)
            assert (found.header("Content-Length"), found.body) == (str(len(wire)), wire)
        await run.settled()
        assert run.outcomes()["ok"] == 2
