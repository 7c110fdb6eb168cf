# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams that no sound engine sends are counted, and pass byte for byte."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from kit import Bench, Call, bench, on_loop, start_unit

from frontdoor.observability.metrics import NOT_A_NUMBER, REPETITION, UNPRINTABLE
from frontdoor.observability.sentinel import CLOSER, LOOK_EVERY, SHORT_ONES, WINDOW, sign_in
from frontdoor.policy.routes import CHAT, COMPLETIONS, GENERATE, MESSAGES, RESPONSES

ROOT = Path(__file__).resolve().parents[5]
BODY = b'{"model":"tiny-a","stream":true}'


def chat(text: str, key: str = "content", logprobs: Any = None) -> dict[str, Any]:
    """A chunk as vLLM 0.32 writes it."""
    choice = {"index": 0, "delta": {key: text}, "logprobs": logprobs, "finish_reason": None, "token_ids": None}
    about = {"id": "chatcmpl-97bca254cdda69dd", "object": "chat.completion.chunk", "created": 1795451567}
    return {**about, "model": "tiny-a", "choices": [choice]}


def shaped(path: str, text: str) -> dict[str, Any]:
    """An event of each path."""
    if path == COMPLETIONS:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "stop_reason": None}
        about = {"id": "cmpl-8d2f7f4e5b1c4e21", "object": "text_completion", "created": 1795451567}
        return {**about, "model": "tiny-a", "choices": [choice], "usage": None}
    if path == RESPONSES:
        about = {"content_index": 0, "item_id": "msg_5f1c2a", "logprobs": [], "output_index": 0}
        return {**about, "delta": text, "sequence_number": 7, "type": "response.output_text.delta"}
    if path == MESSAGES:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return chat(text)


def events(chunks: Iterable[dict[str, Any]], *, spaces: bool = False) -> bytes:
    """The chunks as an engine sends them, each in a chunk of HTTP; `spaces`: as json.dumps writes by default."""
    parts = (json.dumps(one, separators=None if spaces else (",", ":"), ensure_ascii=False) for one in chunks)
    datas = [f"data: {part}\n\n".encode() for part in parts]
    return b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in datas)


def logprob(token: str, value: float | None) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": value, "bytes": [*token.encode()], "top_logprobs": []}]}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@pytest.mark.parametrize("spaces", [False, True])
@pytest.mark.parametrize("token", ["!", "\n\n", "\\", '"', " the", "你好", " the old house"])
def test_one_token_over_and_over_is_seen_on_every_path(path: str, spaces: bool, token: str) -> None:
    stream = events([shaped(path, token)] * 200, spaces=spaces)
    assert sign_in(path, stream) == (REPETITION if token.strip() else "")


def test_reasoning_is_watched_too() -> None:
    for key in ("reasoning", "reasoning_content"):
        assert sign_in(CHAT, events([chat("!", key)] * 40)) == REPETITION


def test_a_logprob_that_is_no_number_is_seen() -> None:
    # vLLM 0.32 turns NaN into null: max(nan, -9999.0) is nan, and pydantic writes that as null
    words = [f" word{number}" for number in range(40)]
    assert sign_in(CHAT, events(chat(word, "content", logprob(word, None)) for word in words)) == NOT_A_NUMBER
    assert sign_in(CHAT, events(chat(word, "content", logprob(word, float("nan"))) for word in words)) == NOT_A_NUMBER
    assert sign_in(CHAT, events(chat(word, "content", logprob(word, -0.31)) for word in words)) == ""
    assert sign_in(CHAT, events(chat(word) for word in words)) == ""


def test_replacement_characters_count_in_the_text_and_not_in_parts_of_characters() -> None:
    words = [f" word{number}" for number in range(40)]
    assert sign_in(CHAT, events(chat(word + "\ufffd") for word in words)) == UNPRINTABLE
    assert sign_in(CHAT, events(chat(word + "\x00") for word in words)) == UNPRINTABLE
    # a token that is half a character is shown so in logprobs, and well in the text
    assert sign_in(CHAT, events(chat(word, "content", logprob("\ufffd", -0.31)) for word in words)) == ""


def test_what_people_wrote_is_no_sign_however_it_falls_into_tokens() -> None:
    chance, signs = random.Random(11), []
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/module_utils/_slot/*/*.py")])
    for text in (file.read_text() for file in files):
        for start in range(0, len(text), 400):
            left, chunks = text[start : start + 400], []
            while left:
                size = chance.randrange(1, 9)
                chunks.append(chat(left[:size]))
                left = left[size:]
            signs.append((sign_in(CHAT, events(chunks)), text[start : start + 400]))
    assert len(signs) > 1500
    assert [text for sign, text in signs if sign] == []


def test_other_bytes_are_no_sign() -> None:
    chance = random.Random(5)
    assert sign_in(GENERATE, events([chat("!")] * 40)) == ""
    assert sign_in(CHAT, b"") == sign_in(CHAT, b"\n" * 9000) == ""
    stream = events([chat('a\\"\n!')] * 60)
    for _ in range(500):
        cut = stream[chance.randrange(4000) :][: chance.randrange(9000)]
        assert sign_in(CHAT, bytearray(cut)) in ("", REPETITION)
        assert sign_in(CHAT, chance.randbytes(chance.randrange(9000))) == ""


def whole(path: str, text: str) -> bytes:
    """A complete answer of each path, as vLLM 0.32 writes it."""
    end = b',"usage":{"prompt_tokens":9,"total_tokens":41,"completion_tokens":32}}'
    told = json.dumps(text, ensure_ascii=False).encode()
    if path == COMPLETIONS:
        return b'{"id":"cmpl-8d2f","choices":[{"index":0,"text":' + told + b',"finish_reason":"stop"}]' + end
    if path == RESPONSES:
        return b'{"output":[{"content":[{"annotations":[],"text":' + told + b',"type":"output_text"}]}]' + end
    if path == MESSAGES:
        return b'{"content":[{"type":"text","text":' + told + b'}],"stop_reason":"end_turn"' + end
    message = b'"message":{"role":"assistant","content":' + told + b',"refusal":null,"tool_calls":[],"reasoning":null}'
    return b'{"id":"chatcmpl-97bc","choices":[{"index":0,' + message + b',"logprobs":null}]' + end


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
@pytest.mark.parametrize("times", [8, 300, 9000])
def test_a_complete_answer_is_judged_on_every_path(path: str, times: int) -> None:
    assert sign_in(path, whole(path, "!" * times), True) == REPETITION
    assert sign_in(path, whole(path, 'é"' * times), True) == REPETITION
    assert sign_in(path, whole(path, "a\x00" + "word " * 2), True) == UNPRINTABLE
    sound = whole(path, " ".join(f"word{number}" for number in range(times)))
    assert sign_in(path, sound, True) == ""
    assert sign_in(path, whole(path, ""), True) == ""


def test_a_complete_answer_that_people_wrote_is_no_sign_wherever_the_window_cuts_it() -> None:
    text = (ROOT / "docs/canary.md").read_text(encoding="utf-8")
    tails = [whole(CHAT, text[:size])[-WINDOW:] for size in range(3000, 9000, 7)]
    assert [tail for tail in tails if sign_in(CHAT, tail, True)] == []


def test_a_short_stream_is_judged_by_the_events_that_there_are() -> None:
    for count in (1, 2, 3, 8):
        assert sign_in(CHAT, events([chat(""), *[chat("!" * 8)] * count])) == REPETITION
        assert sign_in(CHAT, events([chat(""), *[chat("!" * 8, "reasoning")] * count])) == REPETITION
        assert sign_in(CHAT, events([chat(""), *[chat("one two")] * min(count, 3)])) == ""


class Talker:
    """An engine that streams so many events of one text."""

    def __init__(self, run: Bench) -> None:
        self.text, self.count = "!", 60
        run.engine.script = self.answer

    async def answer(self, call: Call) -> None:
        await call.begin_events()
        words = ["one", "small", "river", "runs", "past", "an", "old", "mill", "where", "nobody", "grinds", "corn"]
        chance = random.Random(self.count)
        chunks = (chat(self.text or f" {chance.choice(words)}{number}") for number in range(self.count))
        for chunk in chunks:
            await call.event(json.dumps(chunk, separators=(",", ":")))
        await call.send(b"0\r\n\r\n")


def expected(text: str, count: int) -> bytes:
    return b"".join(f"data: {json.dumps(chat(text), separators=(',', ':'))}\n\n".encode() for _ in range(count))


@on_loop
async def test_a_degenerate_stream_is_counted_and_passes_as_it_is(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        talker = Talker(run)
        client = await run.client()
        answer = await client.ask("POST", CHAT, BODY)
        assert answer.body == expected("!", talker.count)
        talker.text = ""
        for _ in range(SHORT_ONES):
            await client.ask("POST", CHAT, BODY)
        told = (await client.ask("GET", "/status")).json["slots"]["main"]["sentinel"]
        assert (told["streams"], told["signs"]) == (1 + CLOSER + 1, {REPETITION: 1})
        assert told["verification_wanted_at"] is None
        assert (told["last"]["sign"], told["last"]["replica"]) == (REPETITION, 0)
        metrics = (await client.ask("GET", "/metrics")).body.decode()
        assert 'b70_frontdoor_watched_streams_total{model="tiny-a"} 10' in metrics
        assert 'b70_frontdoor_degenerate_streams_total{model="tiny-a",sign="repetition"} 1' in metrics
        assert 'b70_frontdoor_degenerate_streams_total{model="tiny-a",sign="nan_logprob"} 0' in metrics
        assert 'b70_frontdoor_by_slot_verification_wanted{slot="main"} 0' in metrics
        event = next(event for event in run.events() if event["event"] == "degenerate_stream")
        # never what the model wrote
        assert {key: event[key] for key in event if key != "ts_ms"} == {
            "event": "degenerate_stream",
            "slot": "main",
            "model": "tiny-a",
            "sign": REPETITION,
            "replica": 0,
        }


@on_loop
async def test_a_stream_that_turns_is_seen_while_it_runs(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        talker = Talker(run)
        talker.count = 4800
        sentinel = run.app.first.sentinel
        client = await run.client()
        client.request("POST", CHAT, BODY)
        answer = await client.answer()
        assert len(answer.body) > 3 * LOOK_EVERY
        told = sentinel.report()
        # one stream, one sign, whatever number of looks
        assert (told["streams"], told["signs"]) == (1, {REPETITION: 1})


@on_loop
async def test_short_streams_and_complete_answers_are_watched_and_more_closely_after_a_sign(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:
        talker, sentinel = Talker(run), run.app.first.sentinel
        talker.count = 9
        client = await run.client()
        for _ in range(2):
            await client.ask("POST", CHAT, BODY)
        assert (sentinel.report()["streams"], sentinel.report()["signs"]) == (2, {REPETITION: 2})
        said = "!" * 9

        async def answer(call: Call) -> None:
            await call.json({"choices": [{"message": {"content": said}}]})

        run.engine.script = answer
        await client.ask("POST", CHAT, b'{"model":"tiny-a"}')
        told = sentinel.report()
        assert told["signs"] == {REPETITION: 3}
        assert told["verification_wanted_at"] is not None
        # So many sound answers later, most are no longer looked at.
        said = "That is right."
        for _ in range(CLOSER + 4):
            await client.ask("POST", CHAT, b'{"model":"tiny-a"}')
        assert sentinel.report()["streams"] == 3 + CLOSER


@on_loop
async def test_answers_without_texts_are_not_watched(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def answer(call: Call) -> None:
            await call.json({"data": [{"index": 0, "embedding": [0.5, 0.5]}]})

        run.engine.script = answer
        await (await run.client()).ask("POST", "/v1/embeddings", b'{"model":"tiny-a","input":"x"}')
        assert run.app.first.sentinel.report()["streams"] == 0


@on_loop
async def test_nothing_is_watched_where_that_is_turned_off(tmp_path: Path) -> None:
    async with bench(tmp_path, sentinels={"watch": False}) as run:
        Talker(run)
        await (await run.client()).ask("POST", CHAT, BODY)
        assert run.app.first.sentinel.report()["streams"] == 0


@pytest.mark.interpreted
@on_loop
async def test_a_verification_is_wanted_after_so_many_until_there_was_one(tmp_path: Path) -> None:
    async with bench(tmp_path, sentinels={"verify_after": 3}) as run:
        talker = Talker(run)
        start_unit(tmp_path)
        run.write_state(sequence=2, verified_at="2026-06-07T09:08:44Z")
        client = await run.client()

        async def wanted() -> bool:
            told = (await client.ask("GET", "/status")).json["slots"]["main"]["sentinel"]
            return told["verification_wanted_at"] is not None

        async def talk(text: str) -> None:
            talker.text = text
            await client.ask("POST", CHAT, BODY)

        for text in ("!", "!", ""):
            await talk(text)
        assert not await wanted()
        await talk("!")
        assert await wanted()
        metrics = (await client.ask("GET", "/metrics")).body.decode()
        assert 'b70_frontdoor_by_slot_verification_wanted{slot="main"} 1' in metrics
        assert [event["event"] for event in run.events()].count("verification_wanted") == 1
        # another state is no verification
        run.write_state(sequence=3, verified_at="2026-06-07T09:08:44Z", reason="")
        assert await wanted()
        run.write_state(sequence=4, verified_at="2026-06-07T09:18:44Z")
        assert not await wanted()
        # what was seen before does not count again
        await talk("!")
        assert not await wanted()


@on_loop
async def test_the_streams_of_each_replica_are_counted_apart(tmp_path: Path) -> None:
    async with bench(tmp_path, sentinels={"verify_after": 2}) as run:
        sentinel = run.app.first.sentinel
        for replica in (0, 1, 2):
            sentinel.note(replica, REPETITION)
        assert sentinel.report()["verification_wanted_at"] is None
        sentinel.note(1, REPETITION)
        assert sentinel.report()["verification_wanted_at"] is not None
        assert sentinel.last is not None
        assert sentinel.last["replica"] == 1
