# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official clients raise an error when an engine ends in the middle of a stream, and none takes it for the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from kit import Call, bench, on_loop
from openai.types.responses import ResponseErrorEvent

TOLD = "the engine ended the connection in the middle of the response"
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHAT = [json.dumps({**CHUNK, "choices": [{"index": 0, "delta": {"content": word}}]}) for word in ("one ", "two")]
DELTA = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "logprobs": []}
RESPONSES = [json.dumps({**DELTA, "delta": word, "sequence_number": at}) for at, word in ((4, "one "), (5, "two"))]
BLOCK = {"type": "content_block_delta", "index": 0}
MESSAGES = [json.dumps({**BLOCK, "delta": {"type": "text_delta", "text": word}}) for word in ("one ", "two")]


def dying(events: list[str], rest: bytes, *, named: bool = False) -> Any:
    """An engine that says so much, begins with something else, and ends."""

    async def engine(call: Call) -> None:
        await call.begin_events()
        for event in events:
            name = f"event: {json.loads(event)['type']}\n" if named else ""
            data = f"{name}data: {event}\n\n".encode()
            await call.send(b"%x\r\n%b\r\n" % (len(data), data))
        await call.send(rest)
        call.writer.transport.abort()

    return engine


async def listen(words: AsyncIterator[str], heard: list[str]) -> None:
    """Note what is said, until it ends or breaks."""
    async for word in words:
        heard.append(word)


# whole events, or the half of one behind them
@pytest.mark.parametrize("rest", [b"", b'40\r\ndata: {"sequence_number":6,"delta":"thr'])
@on_loop
async def test_openai_chat(tmp_path: Path, rest: bytes) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = dying(CHAT, rest)
        heard: list[str] = []
        async with openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{run.port}/v1", api_key="x", max_retries=0, timeout=60
        ) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], stream=True
            )
            words = (event.choices[0].delta.content or "" async for event in stream)
            with pytest.raises(openai.APIError) as caught:
                await listen(words, heard)
        assert heard == ["one ", "two"]
        assert caught.value.message == TOLD
        assert caught.value.code == "engine_cut"


@pytest.mark.parametrize("rest", [b"", b'40\r\ndata: {"sequence_number":6,"delta":"thr'])
@on_loop
async def test_openai_responses(tmp_path: Path, rest: bytes) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = dying(RESPONSES, rest, named=True)
        heard: list[str] = []
        async with openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{run.port}/v1", api_key="x", max_retries=0, timeout=60
        ) as client:
            stream = await client.responses.create(model="m", input="x", stream=True)
            words = (getattr(event, "delta", event.type) async for event in stream)
            with pytest.raises(openai.APIError) as caught:
                await listen(words, heard)
        assert heard == ["one ", "two"]
        assert caught.value.message == TOLD
        assert caught.value.code == "engine_cut"
        # and a client that reads the event itself finds what its type promises
        raw = await run.client()
        answer = await raw.ask("POST", "/v1/responses", b"{}")
        name, data = answer.body.split(b"\n\n")[-2].split(b"\n")
        assert name == b"event: error"
        error = ResponseErrorEvent.model_validate_json(data.removeprefix(b"data: "), strict=True)
        assert (error.sequence_number, error.code, error.message) == (6, "engine_cut", TOLD)


@on_loop
async def test_a_responses_stream_that_says_nothing_begins_with_the_error(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = dying([], b"")
        answer = await (await run.client()).ask("POST", "/v1/responses", b"{}")
        error = ResponseErrorEvent.model_validate_json(answer.body.split(b"data: ")[1], strict=True)
        assert error.sequence_number == 0


@on_loop
async def test_anthropic_messages(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        run.engine.script = dying(MESSAGES, b"", named=True)
        heard: list[str] = []
        url = f"http://127.0.0.1:{run.port}"
        async with anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0, timeout=60) as client:
            stream = await client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
            )
            words = (str(getattr(getattr(event, "delta", None), "text", event.type)) async for event in stream)
            with pytest.raises(anthropic.APIStatusError) as caught:
                await listen(words, heard)
        assert heard == ["one ", "two"]
        body: Any = caught.value.body
        assert body["type"] == "error"
        assert (body["error"]["message"], body["error"]["code"]) == (TOLD, "engine_cut")
