# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two slots behind one frontdoor: who names a model reaches it, and neither slot is in the other's way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kit import Bench, Call, Engine, Hold, bench, changed_state, in_two_events, on_loop, until

from frontdoor.config import ConfigError, from_table

CHAT, EMBED, MODELS = "/v1/chat/completions", "/v1/embeddings", "/v1/models"
AUX = {"name": "vec", "title": "Vectors", "served_model_name": "vec", "modalities": ["text"], "max_model_len": 256}
MAIN = {"name": "tiny-a", "served_model_name": "tiny-a"}


class Two:
    """A frontdoor with the slot of the kit, and one more whose engine is another."""

    def __init__(self, run: Bench, engine: Engine, path: Path) -> None:
        self.run, self.engine, self._path = run, engine, path

    def write(self, **changes: Any) -> None:
        """Write the state of the second slot, and have it applied."""
        state = changed_state(self.engine.url, {"slot": "aux", "profile": AUX, **changes})
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, self._path)
        self.run.app.poll_state()

    async def status(self) -> dict[str, Any]:
        client = await self.run.client()
        found: dict[str, Any] = (await client.ask("GET", "/status")).json
        return found


@contextlib.asynccontextmanager
async def two(tmp_path: Path, stopped: list[str] | None = None, **sections: Any) -> AsyncIterator[Two]:
    """With `stopped` the second slot was stopped before the frontdoor began, and had these names."""
    engine, path = Engine(), tmp_path / "aux.json"
    await engine.start()
    state = {"slot": "aux", "profile": AUX, "limits": {"max_active_generations": 1, "queue_timeout_s": 60}}
    state["limits"]["backend_timeout_s"] = 60
    if stopped is not None:
        state |= {"profile": None, "phase": "stopped", "open": False, "names": stopped}
    path.write_text(json.dumps(changed_state(engine.url, state)))
    slots = [{"name": "aux", "state_file": str(path), "units_dir": str(tmp_path)}]
    async with bench(tmp_path, state={"profile": MAIN}, slots=slots, **sections) as run:
        try:
            yield Two(run, engine, path)
        finally:
            await engine.kill()


def listing(name: str) -> Callable[[Call], Awaitable[None]]:
    """An engine that has one model."""

    async def script(call: Call) -> None:
        await call.json({"object": "list", "data": [{"id": name, "object": "model"}]})

    return script


def body(model: str | None) -> bytes:
    return json.dumps({"input": "x"} if model is None else {"model": model, "input": "x"}).encode()


@pytest.mark.parametrize(
    ("model", "aux"), [("vec", True), ("vector", True), ("tiny-a", False), ("nobody", False), (None, False)]
)
@pytest.mark.parametrize("path", [CHAT, EMBED, "/tokenize"])
@on_loop
async def test_the_model_decides_which_engine_is_asked(tmp_path: Path, model: str | None, aux: bool, path: str) -> None:
    async with two(tmp_path) as door:
        door.write(request={"model_aliases": ["vector"]})
        client = await door.run.client()
        assert (await client.ask("POST", path, body(model))).status == 200
        asked = [json.loads(one.body).get("model") for one in door.engine.requests if one.body]
        assert bool(asked) == aux
        others = [one for one in door.run.engine.requests if one.body]
        assert bool(others) != aux


@on_loop
async def test_a_request_that_names_no_slot_of_ours_is_judged_by_the_first(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.run.write_state(profile=MAIN, request={"model_policy": "reject"})
        client = await door.run.client()
        refused = await client.ask("POST", CHAT, body("nobody"))
        assert refused.status == 404
        assert refused.json["error"]["code"] == "model_not_found"
        assert (await client.ask("POST", CHAT, body("vec"))).status == 200


@on_loop
async def test_permits_of_one_slot_are_not_those_of_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.engine.script = hold = Hold()
        busy, queued, other = [await door.run.client() for _ in range(3)]
        busy.request("POST", CHAT, body("vec"))
        await until(lambda: door.engine.active == 1)
        queued.request("POST", CHAT, body("vec"))
        aux = door.run.app.followers[1]
        await until(lambda: aux.limiter.queued == 1)
        assert (await other.ask("POST", CHAT, body("tiny-a"))).status == 200
        told = (await door.status())["slots"]
        assert [told[name]["active_generations"] for name in ("main", "aux")] == [0, 1]
        assert [told[name]["queued_generations"] for name in ("main", "aux")] == [0, 1]
        hold.go.set()
        assert ((await busy.answer()).status, (await queued.answer()).status) == (200, 200)


@on_loop
async def test_closing_one_slot_leaves_the_other_open(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        move = {"from": "vec", "to": "vec-2"}
        door.write(sequence=9, phase="switching", open=False, switch=move, reason="")
        client = await door.run.client()
        refused = await client.ask("POST", EMBED, body("vec"))
        assert refused.status == 503
        assert "from vec to vec-2" in refused.json["error"]["message"]
        assert (await client.ask("POST", CHAT, body("tiny-a"))).status == 200
        told = await door.status()
        assert (told["ok"], told["slots"]["aux"]["ok"], told["slots"]["aux"]["state_sequence"]) == (True, False, 9)
        assert (told["slots"]["main"]["open"], told["slots"]["aux"]["open"]) == (True, False)
        door.write(sequence=10)
        door.run.write_state(sequence=9, profile=MAIN, phase="switching", open=False, switch=move)
        assert (await client.ask("POST", CHAT, body("tiny-a"))).status == 503
        assert (await client.ask("POST", EMBED, body("vec"))).status == 200
        assert (await client.ask("GET", "/ready")).status == 503
        assert (await client.ask("GET", "/ready?model=vec")).status == 200


@on_loop
async def test_of_two_slots_that_serve_one_name_the_first_open_one_is_asked(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        twin = {**AUX, "name": "tiny-b", "served_model_name": "tiny-a"}
        door.write(sequence=9, profile=twin)
        door.engine.script = door.run.engine.script = hold = Hold()
        running, client = await door.run.client(), await door.run.client()
        running.request("POST", CHAT, body("tiny-a"))
        await until(lambda: door.run.engine.active == 1)
        assert not door.engine.requests
        # what runs in the slot that closes goes on there
        door.run.write_state(sequence=9, profile=MAIN, phase="switching", open=False, switch={"from": "tiny-a"})
        client.request("POST", CHAT, body("tiny-a"))
        await until(lambda: door.engine.active == 1)
        hold.go.set()
        assert ((await running.answer()).status, (await client.answer()).status) == (200, 200)
        door.run.write_state(sequence=10, profile=MAIN)
        asked = len(door.engine.requests)
        assert (await client.ask("POST", CHAT, body("tiny-a"))).status == 200
        assert len(door.engine.requests) == asked


@pytest.mark.interpreted
@pytest.mark.parametrize("size", [10, 40_000])
@on_loop
async def test_who_waits_for_a_slot_that_closes_is_asked_of_another_that_serves_the_model(
    tmp_path: Path, size: int
) -> None:
    """Both know the name as an alias: the body that the second engine gets has the name of its own model."""
    async with two(tmp_path) as door:
        limits = {"max_active_generations": 1, "queue_timeout_s": 60, "backend_timeout_s": 60}
        told = {"profile": MAIN, "limits": limits, "request": {"model_aliases": ["chat"]}}
        door.run.write_state(sequence=8, **told)
        door.write(sequence=8, request={"model_aliases": ["chat"]})
        door.run.engine.script = hold = Hold()
        running, waiting, last = [await door.run.client() for _ in range(3)]
        asked = json.dumps({"model": "chat", "input": "x" * size}).encode()
        for client in (running, waiting, last):
            client.request("POST", CHAT, asked)
            await until(lambda: door.run.engine.active == 1)
        await door.run.queued(2)
        # with a request that its client has sent ahead
        last.request("POST", CHAT, asked)
        held = door.run.app.memory.held
        door.run.write_state(sequence=9, **told, phase="switching", open=False, switch={"from": "tiny-a"})
        for client in (waiting, last, last):
            assert (await client.answer()).status == 200
        assert [json.loads(one.body) for one in door.engine.requests] == [{"model": "vec", "input": "x" * size}] * 3
        hold.go.set()
        assert (await running.answer()).status == 200
        assert bool(held) is (size > 16_384)
        assert (door.run.app.memory.held, len(door.run.app.memory)) == (0, 0)
        sent = (await waiting.ask("GET", "/metrics")).body.decode()
        assert f"b70_frontdoor_request_body_bytes_total {4 * len(asked)}\n" in sent


@on_loop
async def test_who_waits_for_a_slot_that_closes_is_told_so_where_nobody_else_serves_the_model(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.engine.script = hold = Hold()
        running, waiting = await door.run.client(), await door.run.client()
        running.request("POST", CHAT, body("vec"))
        await until(lambda: door.engine.active == 1)
        waiting.request("POST", CHAT, body("vec"))
        await until(lambda: door.run.app.followers[1].limiter.queued == 1)
        door.write(sequence=9, phase="switching", open=False, switch={"from": "vec", "to": "vec-2"})
        refused = await waiting.answer()
        assert (refused.status, refused.json["error"]["code"]) == (503, "switching")
        hold.go.set()
        assert (await running.answer()).status == 200
        assert not door.run.engine.requests


@pytest.mark.parametrize("policy", ["pass", "reject", "rewrite"])
@on_loop
async def test_a_slot_that_was_stopped_keeps_its_names(tmp_path: Path, policy: str) -> None:
    """Neither another model answers in its place, nor is its model unknown."""
    async with two(tmp_path) as door:
        door.run.engine.script = listing("tiny-a")
        door.run.write_state(profile=MAIN, request={"model_policy": policy})
        door.write(request={"model_aliases": ["vector"]})
        stopped = {"open": False, "profile": None, "names": ["vec", "vector"]}
        door.write(sequence=9, phase="stopped", reason="slot aux was stopped on request", **stopped)
        client = await door.run.client()
        for method, path, sent in (
            *(("POST", path, body(name)) for path in (CHAT, EMBED, "/tokenize") for name in ("vec", "vector")),
            *(("GET", f"{MODELS}/{name}", None) for name in ("vec", "vector")),
        ):
            refused = await client.ask(method, path, sent)
            assert (refused.status, refused.header("Retry-After")) == (503, "30")
            assert refused.json["error"]["code"] == "stopped"
        assert (await client.ask("GET", f"{MODELS}/nobody")).status == 404
        assert not [one for one in door.run.engine.requests if one.body]
        assert (await client.ask("GET", "/ready?model=vec")).status == 503
        # whoever serves the name from then on has it
        door.run.write_state(profile={**MAIN, "served_model_name": "vec"})
        assert (await client.ask("POST", CHAT, body("vec"))).status == 200


@on_loop
async def test_the_names_of_a_stopped_slot_are_known_after_a_restart(tmp_path: Path) -> None:
    for names, status in ((["vec", "vector"], 503), ([], 200)):
        async with two(tmp_path, stopped=names) as door:
            client = await door.run.client()
            for name in ("vec", "vector"):
                assert (await client.ask("POST", CHAT, body(name))).status == status


@pytest.mark.interpreted
@on_loop
async def test_the_list_has_the_models_of_all_open_slots(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.run.engine.script, door.engine.script = listing("tiny-a"), listing("vec")
        client = await door.run.client()

        async def listed() -> list[str]:
            return [model["id"] for model in (await client.ask("GET", MODELS)).json["data"]]

        assert await listed() == ["tiny-a", "vec"]
        assert (await client.ask("GET", f"{MODELS}/vec")).json["b70"]["profile"] == "vec"
        door.write(sequence=9, phase="stopped", open=False, profile=None)
        assert await listed() == ["tiny-a"]
        door.write(sequence=10)
        door.run.write_state(sequence=9, profile=MAIN, phase="stopped", open=False)
        assert await listed() == ["vec"]


@on_loop
async def test_the_metrics_tell_each_slot(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.write(sequence=9, phase="failed", open=False, verified=False, reason="broken")
        client = await door.run.client()
        text = (await client.ask("GET", "/metrics")).body.decode()
        for name, value in (("main", 1), ("aux", 0)):
            assert f'by_slot_open{{slot="{name}"}} {value}' in text
        assert 'by_slot_generation_slots{slot="aux"} 2' in text


@on_loop
async def test_generations_are_counted_by_slot(tmp_path: Path) -> None:
    """And shown by slot; what has no slot's name in it is the sum."""
    step = asyncio.Event()

    async def answered(call: Call) -> None:
        await call.json({"usage": {"prompt_tokens": 7, "completion_tokens": 2}})

    async with two(tmp_path) as door:
        door.engine.script = answered
        client = await door.run.client()
        for model in ("vec", "vec", "tiny-a"):
            assert (await client.ask("POST", CHAT, body(model))).status == 200
        door.engine.script = in_two_events(step)
        client.request("POST", CHAT, body("vec"))
        await client.reader.readuntil(b"data: one\n\n\r\n")
        step.set()
        await client.reader.readuntil(b"\r\n0\r\n\r\n")
        door.write(sequence=9, phase="switching", open=False, switch={"from": "vec"}, reason="")
        assert (await client.ask("POST", CHAT, body("vec"))).status == 503
        text = (await client.ask("GET", "/metrics")).body.decode()
        for name, aux, main in (
            ('requests_total{slot="SLOT",outcome="ok"}', 3, 1),
            ('requests_total{slot="SLOT",outcome="refused"}', 1, 0),
            ('refusals_total{slot="SLOT",code="switching"}', 1, 0),
            ('tokens_total{slot="SLOT",kind="prompt"}', 14, 0),
            ('tokens_total{slot="SLOT",kind="completion"}', 4, 0),
            ('first_token_seconds_count{slot="SLOT"}', 1, 0),
            ('queue_wait_seconds_count{slot="SLOT"}', 0, 0),
            ('replicas{slot="SLOT"}', 1, 1),
            ('used_replicas{slot="SLOT"}', 0, 1),
        ):
            for slot, value in (("aux", aux), ("main", main)):
                assert f"b70_frontdoor_by_slot_{name.replace('SLOT', slot)} {value}\n" in text
        for name, value in (("prompt_tokens_total", 14), ("generation_requests_total", 5)):
            assert f"b70_frontdoor_{name} {value}\n" in text
        rows = dict(row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
        gaps = "b70_frontdoor_{}inter_chunk_seconds_count{}"
        assert rows[gaps.format("", "")] == rows[gaps.format("by_slot_", '{slot="aux"}')] != "0"
        assert rows[gaps.format("by_slot_", '{slot="main"}')] == "0"


@on_loop
async def test_what_happened_lately_is_told_of_each_slot(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        client = await door.run.client()
        await client.ask("POST", CHAT, body("vec"))
        await client.ask("POST", "/v1/completions", body("tiny-a"))
        door.write(sequence=9, phase="failed", open=False, reason="broken")
        assert (await client.ask("POST", CHAT, body("vec"))).status == 503

        async def lately(query: str = "") -> dict[str, Any]:
            found: dict[str, Any] = (await client.ask("GET", f"/frontdoor/activity{query}")).json
            return found

        for query in ("", "?slot=main"):
            assert [row["path"] for row in (await lately(query))["requests"]] == ["/v1/completions"]
        aux = await lately("?slot=aux")
        assert [(row["path"], row["status"]) for row in aux["requests"]] == [(CHAT, 503), (CHAT, 200)]
        assert [(row["phase"], row["profile"]) for row in aux["phases"]] == [("failed", "vec"), ("serving", "vec")]
        assert (await client.ask("GET", "/frontdoor/activity?slot=gpu")).status == 404
        slots = (await door.status())["slots"]
        assert [slots[name]["model_slot"]["title"] for name in slots] == ["", "Vectors"]
        assert [slots[name]["queue_timeout_s"] for name in slots] == [0, 0]


@on_loop
async def test_the_frontdoor_drains_all_slots(tmp_path: Path) -> None:
    async with two(tmp_path) as door:
        door.run.app.drain()
        for model in ("vec", "tiny-a"):
            client = await door.run.client()
            refused = await client.ask("POST", CHAT, body(model))
            assert refused.json["error"]["code"] == "stopping"


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([{"name": "main", "state_file": "/x"}], r"slots\[0\]\.name: 'main' is that of another slot"),
        ([{"name": "aux"}], r"slots\[0\]\.state_file: '.*' is that of another slot"),
        ([{"name": "aux", "state_file": ""}], r"slots\[0\]\.state_file: '' is empty"),
        ([{"name": "aux", "stat_file": "/x"}], r"slots\[0\]\.stat_file: unknown key; did you mean state_file\?"),
        ([7], r"slots\[0\]: expected a table"),
        (7, r"slots\[0\]: expected a table"),
    ],
)
def test_slots_that_cannot_be(slots: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_table({"slots": slots})


@on_loop
async def test_the_metrics_of_all_replicas_are_those_of_all_slots(tmp_path: Path) -> None:
    def counting(value: int) -> Callable[[Call], Awaitable[None]]:
        async def script(call: Call) -> None:
            text = f"vllm:num_requests_waiting {value}\n"
            await call.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

        return script

    async with two(tmp_path) as slots:
        slots.run.engine.script, slots.engine.script = counting(1), counting(2)
        client = await slots.run.client()
        assert (await client.ask("GET", "/engine/metrics?replica=all")).body.decode().splitlines() == [
            'vllm:num_requests_waiting{slot="main",replica="0"} 1',
            'vllm:num_requests_waiting{slot="aux",replica="0"} 2',
        ]


@on_loop
async def test_an_upload_goes_to_the_slot_that_serves_the_model_of_its_form(tmp_path: Path) -> None:
    async with two(tmp_path) as slots:
        slots.write(request={"model_policy": "reject", "model_aliases": ["whisper-1"]})
        client = await slots.run.client()
        for model, size in ((b"vec", 9), (b"whisper-1", 300_000), (b"tiny-a", 300_000), (b"unknown", 9)):
            form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n' % (b"x" * size)
            form += b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--b--\r\n' % model
            head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n"
            head += b"Content-Type: multipart/form-data; boundary=b\r\n"
            client.send(head + b"Content-Length: %d\r\n\r\n%b" % (len(form), form))
            assert (await client.answer()).status == 200
        assert [one.body.split(b"\r\n")[-3] for one in slots.engine.requests] == [b"vec", b"vec"]
        assert [one.body.split(b"\r\n")[-3] for one in slots.run.engine.requests] == [b"tiny-a", b"unknown"]
