# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request gets the model it names: it waits while the model is loaded, and is told why where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from admin_kit import profile, two_slots, write_keys
from kit import Answer, Bench, Call, Client, bench, on_uvloop, on_virtual_loop, until

from frontdoor.config import ConfigError, from_table

CHAT, EMBED, MODELS = "/v1/chat/completions", "/v1/embeddings", "/v1/models"
LOAD_S, SERVE_S = 60.0, 120.0
LIMITS = {"max_active_generations": 4, "queue_timeout_s": 600, "backend_timeout_s": 600}
REASON = "phase canary: a canary answer was wrong or missing"


class Host:
    """A slot and its privileged helper: a load takes a minute, and is told in the state file and in the journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: Bench
        self.asked: list[str] = []
        self.served = "tiny-a"
        #: profiles whose canary fails, and what the helper says where it begins nothing
        self.bad: set[str] = set()
        self.exit: int | None = None
        self.load_s = LOAD_S
        self.sequence = 10

    def write(self, served: str | None, **changes: Any) -> None:
        """Have another model served, or none."""
        self.served, self.sequence = served or "", self.sequence + 1
        closed = {
            "phase": "switching",
            "open": False,
            "verified": False,
            "profile": None,
            "names": ["served-" + str(served)],
        }
        about = {"name": served, "served_model_name": f"served-{served}", "fingerprint": f"sha256:{served}"}
        names = {"request": {"model_aliases": [f"alias-{served}"]}}
        state = {"profile": about, **names} if served else closed
        self.run.write_state(sequence=self.sequence, limits=LIMITS, **{**state, **changes})

    def note(self, target: str, served: str, **end: Any) -> None:
        """Write a switch into the journal."""
        number = f"{self.sequence}-{uuid.uuid4()}"
        begin = {"event": "begin", "id": number, "at": "", "kind": "switch", "from": "x", "to": target}
        lines = [begin | {"fingerprint": f"sha256:{target}"}, {"event": "end", "id": number, "profile": served, **end}]
        with (self.path / "journal.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode()
        self.asked.append(line.strip())
        answer = {"exit": self.exit or 0, "message": "done"}
        if self.exit is None:
            verb, target = line.split()[:2]
            answer["exit"] = await (self.rest() if verb == "idle" else self.switch(target))
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def rest(self) -> int:
        """Stop what is served, which nobody asked for."""
        before = self.served
        assert not self.run.engine.active, "an answer ran when the model was unloaded"
        self.write(None, names=[f"served-{before}", f"alias-{before}"])
        await asyncio.sleep(5)
        self.write(None, phase="stopped", names=[f"served-{before}", f"alias-{before}"], idle=self.idle(before))
        return 0

    def idle(self, profile: str) -> dict[str, str]:
        return {"profile": profile, "since": "2026-06-07T09:08:44Z"}

    async def switch(self, target: str) -> int:
        before = self.served
        assert not self.run.engine.active, "an answer ran when the switch was asked for"
        switch = {"id": "1", "from": before, "to": target, "started_at": "", "eta_s": None, "loading": True}
        # the slot says on what is idle until something is served
        self.write(None, switch=switch, idle=self.run.app.first.slot.state.idle)
        await asyncio.sleep(self.load_s)
        failed = target in self.bad
        failures = {"failures": [{"phase": "canary"}], "reason": REASON} if failed else {"failures": []}
        served = before if failed else target
        self.note(target, served, outcome="rolled_back" if failed else "committed", seconds=self.load_s, **failures)
        self.write(served)
        return int(failed)

    async def answer(self, call: Call) -> None:
        """An engine that says which model it is."""
        if call.request.line.startswith("GET"):
            return await call.json({"object": "list", "data": [{"id": f"served-{self.served}", "object": "model"}]})
        asked = json.loads(call.request.body)
        await asyncio.sleep(asked.get("seed") or 0)
        message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": self.served}}
        if asked.get("stream"):
            await call.begin_events()
            await call.event(self.served)
            return await call.send(b"0\r\n\r\n")
        return await call.json({"id": "1", "object": "x", "created": 1, "model": asked["model"], "choices": [message]})

    async def ask(self, model: str, path: str = CHAT, *fields: str, **more: Any) -> Answer:
        client = await self.run.client()
        return await client.ask("POST", path, json.dumps({"model": model, **more}).encode(), *fields)

    def begin(self, model: str, *fields: str, **more: Any) -> asyncio.Task[Answer]:
        return asyncio.ensure_future(self.ask(model, CHAT, *fields, **more))

    async def models(self, *fields: str) -> dict[str, str]:
        """The list of models: their states by their names."""
        client = await self.run.client()
        answer = await client.ask("GET", MODELS, None, *fields)
        assert answer.status == 200, answer.body
        return {row["id"]: row["b70"]["state"] for row in answer.json["data"]}


def written(name: str, **more: Any) -> dict[str, Any]:
    found = profile(name, fingerprint=f"sha256:{name}", **more)
    found["engine"]["served_model_name"] = f"served-{name}"
    found["frontdoor"]["model_aliases"] = [f"alias-{name}"]
    return found


@contextlib.asynccontextmanager
async def door(path: Path, host: Host | None = None, on_demand: Any = ("*",), **sections: Any) -> AsyncIterator[Host]:
    """A frontdoor of a slot that serves tiny-a, and may load tiny-b, tiny-c and not tiny-bad, which was rejected."""
    again, host = host is not None, host or Host(path)
    (path / "profiles").mkdir(exist_ok=True)
    for name in ("tiny-a", "tiny-b", "tiny-c", "tiny-bad"):
        status = {"status": "rejected"} if name == "tiny-bad" else {}
        (path / "profiles" / f"{name}.json").write_text(json.dumps(written(name, **status)))
    with contextlib.suppress(FileNotFoundError):
        (path / "admin.sock").unlink()
    server = await asyncio.start_unix_server(host.serve, str(path / "admin.sock"))
    sections["slot"] = {"profiles_dir": str(path / "profiles"), "on_demand": list(on_demand)} | sections.get("slot", {})
    sections["slot"]["journal_file"] = str(path / "journal.jsonl")
    sections["admin"] = {"socket": str(path / "admin.sock")}
    async with bench(path, state={} if again else None, **sections) as host.run:
        host.run.engine.script = host.answer
        if not again:
            host.write("tiny-a")
        yield host
    server.close()


@on_virtual_loop
async def test_clients_of_openai_get_the_models_that_they_name(tmp_path: Path) -> None:
    async with door(tmp_path) as host:
        url = f"http://127.0.0.1:{host.run.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
            for name in ("served-tiny-a", "tiny-b", "alias-tiny-a", "served-tiny-b"):
                answer = await client.chat.completions.create(model=name, messages=[{"role": "user", "content": "x"}])
                assert answer.choices[0].message.content == name[name.index("tiny") :]
        assert host.asked == [f"load tiny-{one} on-demand main" for one in "bab"]
        sent = [json.loads(one.body)["model"] for one in host.run.engine.requests]
        assert sent == [f"served-tiny-{one}" for one in "abab"]
        metrics = host.run.app.ledger.metrics.slots["main"]
        assert (metrics.loads["served"], metrics.load_wait.count) == (3, 3)
        # the first one had to wait for tiny-a to be served for a while, as had the others
        assert abs(metrics.load_wait.total / 3 - LOAD_S - SERVE_S) < 1


@on_uvloop
async def test_the_loop_of_production_does_so_too(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"min_serve_s": 0.2}) as host:
        host.load_s = 0.2
        for name in ("tiny-a", "tiny-b", "tiny-a", "tiny-b"):
            assert (await host.ask(name)).json["choices"][0]["message"]["content"] == name
        assert len(host.asked) == 3


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", EMBED])
@on_virtual_loop
async def test_every_path_of_a_model_has_it_loaded(tmp_path: Path, path: str) -> None:
    async with door(tmp_path) as host:
        answer = await host.ask("tiny-b", path)
        assert answer.json["choices"][0]["message"]["content"] == "tiny-b"
        assert len(host.asked) == 1


@on_virtual_loop
async def test_a_stream_hears_that_it_waits(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"min_serve_s": 0}) as host:
        answer = await host.ask("tiny-b", stream=True)
        assert (answer.status, answer.header("Content-Type")) == (200, "text/event-stream; charset=utf-8")
        words = answer.body.count(b"waiting")
        assert words in (5, 6)
        assert answer.body == b": waiting\n\n" * words + b"data: tiny-b\n\n"


@on_virtual_loop
async def test_who_awaits_no_stream_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"silent_wait_s": 90}) as host:
        first = await host.ask("tiny-b")
        assert (first.status, first.json["error"]["code"], first.json["error"]["model"]) == (503, "loading", "tiny-b")
        # nothing is known of its loads, and tiny-a has to be served for two minutes
        assert "in about 300 s" in first.json["error"]["message"]
        assert 48 <= int(first.header("Retry-After") or 0) <= 60
        # it is loaded all the same, once
        await until(lambda: host.served == "tiny-b", 600)
        assert (await host.ask("tiny-b")).json["choices"][0]["message"]["content"] == "tiny-b"
        assert host.asked == ["load tiny-b on-demand main"]
        # the last load says how long the next one takes
        assert f"in about {int(SERVE_S + LOAD_S)} s" in (await host.ask("tiny-a")).json["error"]["message"]
        await until(lambda: host.served == "tiny-a", 600)
        host.run.app._demand.settings = host.run.app._demand.settings._replace(min_serve_s=1)  # type: ignore[union-attr]
        assert (await host.ask("tiny-b")).status == 200, "it waits, for it will not take long"


@on_virtual_loop
async def test_a_wait_has_an_end(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"wait_s": 100, "silent_wait_s": 100, "min_serve_s": 0}) as host:
        host.exit = 4
        streams, silent = host.begin("tiny-b", stream=True), await host.ask("tiny-b")
        told = json.loads((await streams).body.rpartition(b"data: ")[2])["error"]
        assert (told["code"], silent.json["error"]["code"]) == ("loading", "loading")
        # another switch works on the slot: it is asked again, now and then
        assert 15 <= len(host.asked) <= 22


@on_virtual_loop
async def test_a_profile_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"min_serve_s": 0}) as host:
        host.bad = {"tiny-b"}
        streams, silent = host.begin("tiny-b", stream=True), host.begin("alias-tiny-b")
        refused = await silent
        assert (refused.status, refused.json["error"]["code"]) == (503, "load_failed")
        assert f"tiny-b could not be loaded: {REASON}" in refused.json["error"]["message"]
        assert REASON.encode() in (await streams).body
        assert (await host.ask("tiny-b")).json["error"]["code"] == "load_failed"
        assert (await host.ask("tiny-a")).status == 200
        assert host.asked == ["load tiny-b on-demand main"]
        states = await host.models()
        assert [states[name] for name in ("served-tiny-a", "served-tiny-b", "served-tiny-c")] == [
            "served",
            "blocked",
            "loadable",
        ]
        assert host.run.app.ledger.metrics.slots["main"].loads["failed"] == 1
        # a person switches to it, and on
        host.note("tiny-b", "tiny-b", outcome="committed", failures=[])
        assert (await host.models())["served-tiny-b"] == "loadable"
        host.note("tiny-b", "tiny-a", outcome="rolled_back", failures=[{"phase": "canary"}])
        assert (await host.models())["served-tiny-b"] == "blocked"
        # or it is rendered anew
        new = tmp_path / "profiles" / "new"
        new.write_text(json.dumps(written("tiny-b") | {"fingerprint": "sha256:new"}))
        new.rename(tmp_path / "profiles" / "tiny-b.json")
        host.bad = set()
        assert (await host.ask("tiny-b")).status == 200


@on_virtual_loop
async def test_what_the_host_does_not_begin_is_tried_again_later(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"min_serve_s": 0}) as host:
        host.exit = 1
        for _ in range(2):
            refused = await host.ask("tiny-b")
            assert (refused.status, refused.json["error"]["code"]) == (503, "load_failed")
            assert int(refused.header("Retry-After") or 0) > 40
        assert len(host.asked) == 1
        await asyncio.sleep(61)
        host.exit = None
        assert (await host.ask("tiny-b")).status == 200
        assert host.run.app.ledger.metrics.slots["main"].loads == {"served": 1, "failed": 0, "refused": 1}


@on_virtual_loop
async def test_nothing_is_loaded_while_somebody_works_on_the_host(tmp_path: Path) -> None:
    note = tmp_path / "maintenance.json"
    async with door(tmp_path, slot={"maintenance_file": str(note)}) as host:
        note.write_text('{"since": "2026-06-07T09:08:44Z"}')
        assert "somebody works on this host" in (await host.ask("tiny-b")).json["error"]["message"]
        assert not host.asked


@on_virtual_loop
async def test_only_keys_that_may_have_models_loaded(tmp_path: Path) -> None:
    keys = Path(write_keys(tmp_path / "keys.toml", alice="s-alice", bob="s-bob"))
    keys.write_text(keys.read_text() + "[limits.alice]\nmay_load = true\n")
    async with door(tmp_path, auth={"keys_file": str(keys)}, demand={"min_serve_s": 0}) as host:
        alice, bob = ("Authorization: Bearer s-alice", "Authorization: Bearer s-bob")
        refused = await host.ask("tiny-b", CHAT, bob)
        assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")
        assert refused.json["error"]["models"] == ["served-tiny-a", "alias-tiny-a", "tiny-a"]
        assert set(await host.models(bob)) == {"served-tiny-a", "alias-tiny-a", "tiny-a"}
        assert set(await host.models(alice)) > {"served-tiny-b", "tiny-b", "alias-tiny-b", "served-tiny-c"}
        assert not host.asked
        assert (await host.ask("tiny-b", CHAT, alice)).status == 200
        assert host.asked == ["load tiny-b alice main"]
        # who may have nothing loaded uses what is there
        assert (await host.ask("tiny-b", CHAT, bob)).status == 200


@on_virtual_loop
async def test_an_answer_that_runs_is_waited_for_and_others_come_in_for_a_while(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"silent_wait_s": 1000}) as host:
        await asyncio.sleep(SERVE_S)
        long = host.begin("tiny-a", seed=SERVE_S + 50)
        await until(lambda: host.run.engine.active)
        wish = host.begin("tiny-b")
        await asyncio.sleep(SERVE_S - 10)
        assert (await host.ask("tiny-a")).status == 200, "the wish is not old enough"
        await asyncio.sleep(15)
        late, unnamed = host.begin("tiny-a"), await host.ask("nobody")
        assert (unnamed.status, unnamed.json["error"]["code"]) == (503, "switching")
        assert not host.asked
        assert (await long).json["choices"][0]["message"]["content"] == "tiny-a"
        assert (await wish).json["choices"][0]["message"]["content"] == "tiny-b"
        assert not late.done()
        assert (await late).json["choices"][0]["message"]["content"] == "tiny-a"
        assert [line.split()[1] for line in host.asked] == ["tiny-b", "tiny-a"]


@on_virtual_loop
async def test_two_clients_that_alternate_change_little(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"wait_s": 3000, "silent_wait_s": 3000}) as host:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def alternate(names: list[str]) -> None:
            for name in names:
                assert (await host.ask(name)).json["choices"][0]["message"]["content"] == name

        await asyncio.gather(alternate(["tiny-a", "tiny-b"] * 3), alternate(["tiny-b", "tiny-a"] * 3))
        assert 1 <= len(host.asked) <= (loop.time() - began) / (SERVE_S + LOAD_S)


@on_virtual_loop
async def test_a_frontdoor_that_begins_anew_goes_by_the_state_and_the_journal(tmp_path: Path) -> None:
    async with door(tmp_path, demand={"min_serve_s": 0}) as host:
        first = host.begin("tiny-b")
        await until(lambda: host.asked and not host.served)
        host.run.app.drain()
        assert (await first).json["error"]["code"] == "stopping"
    async with door(tmp_path, host, demand={"min_serve_s": 0}) as host:
        # the switch goes on
        assert (await host.ask("tiny-b")).json["choices"][0]["message"]["content"] == "tiny-b"
        assert len(host.asked) == 1
        host.bad = {"tiny-c"}
        assert (await host.ask("tiny-c")).status == 503
    async with door(tmp_path, host, demand={"min_serve_s": 0}) as host:
        host.write("tiny-b")
        assert (await host.ask("tiny-c")).json["error"]["code"] == "load_failed"
        assert len(host.asked) == 2


@on_virtual_loop
async def test_the_list_is_there_while_nothing_is_served(tmp_path: Path) -> None:
    async with door(tmp_path, on_demand=("tiny-b", "tiny-bad", "unknown")) as host:
        host.write(None, phase="stopped")
        assert await host.models() == {
            **dict.fromkeys(("served-tiny-b", "tiny-b", "alias-tiny-b"), "loadable"),
            **dict.fromkeys(("served-tiny-bad", "tiny-bad", "alias-tiny-bad"), "blocked"),
        }
        client = await host.run.client()
        assert (await client.ask("GET", f"{MODELS}/alias-tiny-b")).json["parent"] == "served-tiny-b"
        assert (await client.ask("GET", f"{MODELS}/nobody")).status == 404
        # what is not to be loaded for requests is told as ever
        assert [(await host.ask(name)).status for name in ("tiny-bad", "tiny-c", "served-tiny-a")] == [503] * 3
        assert not host.asked
        assert (await host.ask("tiny-b")).status == 200


@on_virtual_loop
async def test_the_queue_has_an_end_and_who_leaves_is_not_waited_for(tmp_path: Path) -> None:
    async with door(tmp_path, admission={"max_queued": 2}) as host:
        clients: list[Client] = [await host.run.client() for _ in range(3)]
        for client in clients:
            client.request("POST", CHAT, b'{"model":"tiny-b"}')
        full = await clients[2].answer()
        assert full.json["error"]["code"] == "queue_full"
        # another client has its share
        other = await host.run.client(address="127.0.0.2")
        other.request("POST", CHAT, b'{"model":"tiny-b","stream":true}')
        assert (await clients[1].answer()).json["error"]["code"] == "queue_full"
        clients[0].leave()
        other.leave()
        await asyncio.sleep(SERVE_S + LOAD_S)
        assert not host.asked


@on_virtual_loop
async def test_a_name_that_the_running_model_does_not_have_yet_is_told(tmp_path: Path) -> None:
    async with door(tmp_path) as host:
        host.write("tiny-a", request={"model_aliases": []})
        refused = await host.ask("alias-tiny-a")
        assert (refused.status, refused.json["error"]["models"]) == (404, ["served-tiny-a", "tiny-a"])


@on_virtual_loop
async def test_each_slot_loads_its_own_models(tmp_path: Path) -> None:
    """A name of two slots is that of the first which may load it; what one slot serves is not loaded into the other."""
    async with two_slots(tmp_path, slot={"on_demand": ["large", "vec"]}) as (run, _client, helper, _other):
        host = Host(tmp_path)
        host.run = run
        answer = await host.ask("vec")
        assert (answer.status, helper.lines) == (200, [])
        helper.answer = {"exit": 1, "message": "no"}
        waits = host.begin("large", stream=True)
        await until(lambda: helper.lines, 600)
        assert b"load_failed" in (await waits).body
        assert helper.lines == ["load large on-demand main\n"]
        # tiny-b is a profile of both, and to be loaded for requests into none
        await host.ask("tiny-b")
        assert len(helper.lines) == 1


IDLE_S = 200.0
BY_IDLE = {"slot": {"idle_s": IDLE_S}}
UNLOADED, LOADED = "idle tiny-a 200 main", "load tiny-a on-demand main"


@pytest.mark.parametrize("name", ["tiny-a", "gpt-9", None])
@on_virtual_loop
async def test_a_model_that_nobody_asks_for_is_unloaded_until_the_next_request(
    tmp_path: Path, name: str | None
) -> None:
    async with door(tmp_path, **BY_IDLE) as host:
        await asyncio.sleep(IDLE_S - 10)
        assert (await host.ask("tiny-a", seed=30)).status == 200, "which takes a while"
        await asyncio.sleep(IDLE_S - 10)
        assert not host.asked
        await until(lambda: host.run.app.first.slot.state.idle, 60)
        assert host.asked == [UNLOADED]
        client = await host.run.client()
        status = (await client.ask("GET", "/status")).json
        assert (status["ok"], status["phase"], status["idle"]["profile"]) == (True, "stopped", "tiny-a")
        assert (await client.ask("GET", "/ready?model=served-tiny-a")).status == 200
        assert (await client.ask("GET", "/ready?model=other")).status == 503
        assert b'b70_frontdoor_by_slot_idle{slot="main"} 1\n' in (await client.ask("GET", "/metrics")).body
        assert (await host.models())["served-tiny-a"] == "loadable"
        asked = {"model": name} if name else {}
        waits = asyncio.ensure_future(client.ask("POST", CHAT, json.dumps(asked | {"stream": True}).encode()))
        await asyncio.sleep(LOAD_S / 2)
        told = (await (await host.run.client()).ask("GET", "/status")).json
        assert (told["ok"], told["demand"]["held"], told["demand"]["loads"]) == (True, 1, "tiny-a")
        assert 29 < told["demand"]["oldest_wait_s"] < 31
        answer = await waits
        assert answer.body.startswith(b": waiting\n\n")
        assert answer.body.endswith(b"data: tiny-a\n\n")
        assert host.asked == [UNLOADED, LOADED]
        status = (await client.ask("GET", "/status")).json
        assert (status["idle"], status["demand"]["held"], status["demand"]["brings_back"]) == (None, 0, "")


@on_virtual_loop
async def test_a_model_that_sleeps_is_expected_soon(tmp_path: Path) -> None:
    """Its loads took longer than a request that hears nothing may wait."""
    note = tmp_path / "liveness.json"
    async with door(tmp_path, **BY_IDLE) as host:
        host.note("tiny-a", "tiny-a", outcome="committed", seconds=900.0, way="plain")
        await until(lambda: host.run.app.first.slot.state.idle, 2 * IDLE_S)
        one = {"profile": "tiny-a", "since": "", "bytes": 1, "level": 1}
        told: dict[str, Any] = {"schema": 1, "engines": [], "next": None, "standby": [one]}
        told |= dict.fromkeys(("policy", "verification", "action", "counts", "cards"))
        # one that is this old was left by a controller that does not run any more
        note.write_text(json.dumps(told | {"at": "2020-06-07T09:00:00Z"}))
        assert (await host.models())["served-tiny-a"] == "loadable"
        told["at"] = datetime.fromtimestamp(time.time(), UTC).isoformat()
        # without its weights it takes as long as a load may
        note.write_text(json.dumps(told | {"standby": [one | {"level": 2}]}))
        assert (await host.models())["served-tiny-a"] == "standby"
        assert (await host.ask("tiny-a")).json["error"]["code"] == "loading"
        note.write_text(json.dumps(told))
        assert (await host.models())["served-tiny-a"] == "standby"
        assert (await host.ask("tiny-a")).status == 200
        await until(lambda: host.run.app.first.slot.state.idle, 2 * IDLE_S)
        note.unlink()
        host.note("tiny-a", "tiny-a", outcome="committed", seconds=900.0, way="plain")
        assert (await host.models())["served-tiny-a"] == "loadable"
        answer = await host.ask("tiny-a")
        assert (answer.status, answer.json["error"]["code"]) == (503, "loading")


@on_virtual_loop
async def test_a_wake_is_expected_without_the_weights_that_another_one_read(tmp_path: Path) -> None:
    async with door(tmp_path, **BY_IDLE) as host:
        await until(lambda: host.run.app.first.slot.state.idle, 2 * IDLE_S)
        for seconds in (2.0, 900.0):
            host.note("tiny-a", "tiny-a", outcome="committed", seconds=seconds, way="standby")
        at = datetime.fromtimestamp(time.time(), UTC).isoformat()
        asleep = [{"profile": "tiny-a", "since": "", "bytes": 1, "level": 1}]
        told = dict.fromkeys(("policy", "verification", "action", "counts", "cards"), None)
        known = {"schema": 1, "at": at, "engines": [], "next": None, "standby": asleep, **told}
        (tmp_path / "liveness.json").write_text(json.dumps(known))
        assert (await host.models())["served-tiny-a"] == "standby"
        assert (await host.ask("tiny-a")).status == 200


@on_virtual_loop
async def test_a_request_that_comes_while_a_model_is_unloaded_waits_for_it(tmp_path: Path) -> None:
    async with door(tmp_path, **BY_IDLE) as host:
        await until(lambda: host.asked, 2 * IDLE_S)
        assert (await host.ask("tiny-a")).json["choices"][0]["message"]["content"] == "tiny-a"
        assert host.asked == [UNLOADED, LOADED]


@on_virtual_loop
async def test_every_key_brings_the_idle_model_back_and_no_other(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", bob="s-bob")
    async with door(tmp_path, auth={"keys_file": keys}, **BY_IDLE) as host:
        bob = "Authorization: Bearer s-bob"
        await until(lambda: host.run.app.first.slot.state.idle, 2 * IDLE_S)
        assert await host.models(bob) == dict.fromkeys(("served-tiny-a", "alias-tiny-a", "tiny-a"), "loadable")
        assert (await host.ask("tiny-b", CHAT, bob)).status == 404
        assert host.asked == [UNLOADED]
        assert (await host.ask("tiny-a", CHAT, bob)).status == 200
        assert host.asked[1:] == ["load tiny-a bob main"]


@on_virtual_loop
async def test_what_is_not_unloaded(tmp_path: Path) -> None:
    """A model that no request could load again, any while a person works on the host or the host refuses, and one whose
    last switch failed."""
    note = tmp_path / "maintenance.json"
    async with door(tmp_path, on_demand=["tiny-b"], **BY_IDLE) as host:
        await asyncio.sleep(3 * IDLE_S)
        assert not host.asked
    async with door(tmp_path, slot={"idle_s": IDLE_S, "maintenance_file": str(note)}) as host:
        note.write_text('{"since": "2026-06-07T09:08:44Z"}')
        await asyncio.sleep(3 * IDLE_S)
        assert not host.asked
        note.unlink()
        host.exit = 4
        await asyncio.sleep(3 * IDLE_S)
        assert len(host.asked) in (3, 4)
        assert (await host.ask("tiny-a")).status == 200
        # it was verified anew, failed and was started anew
        host.exit, asked = None, len(host.asked)
        host.note("tiny-a", "tiny-a", outcome="rolled_back", failures=[{"phase": "canary"}])
        await asyncio.sleep(3 * IDLE_S)
        assert len(host.asked) == asked


@on_virtual_loop
async def test_after_a_boot_the_next_request_brings_it_back_and_not_what_a_person_stopped(tmp_path: Path) -> None:
    async with door(tmp_path, **BY_IDLE) as host:
        # the names of the model are in its profile alone
        host.write(None, phase="stopped", names=None, idle=host.idle("tiny-a"))
        client = await host.run.client()
        await until(lambda: host.run.app.first.slot.state.idle)
        assert (await client.ask("GET", "/ready?model=alias-tiny-a")).status == 200
        assert (await host.ask("gpt-9")).json["choices"][0]["message"]["content"] == "tiny-a"
        host.write(None, phase="stopped", names=["served-tiny-a"], reason="stopped on request")
        await until(lambda: host.run.app.first.slot.closed)
        assert (await client.ask("GET", "/ready")).status == 503
        assert (await host.ask("gpt-9")).json["error"]["code"] == "stopped"
        assert host.asked == [LOADED]


@on_virtual_loop
async def test_an_idle_model_that_cannot_be_loaded_is_told_and_not_ready(tmp_path: Path) -> None:
    async with door(tmp_path, **BY_IDLE) as host:
        host.write(None, phase="stopped", names=None, idle=host.idle("tiny-a"))
        await until(lambda: host.run.app.first.slot.state.idle)
        host.exit = 1
        assert (await host.ask("gpt-9")).json["error"]["code"] == "load_failed"
        assert (await (await host.run.client()).ask("GET", "/ready")).status == 503
        await asyncio.sleep(61)
        assert (await (await host.run.client()).ask("GET", "/ready")).status == 200


@on_virtual_loop
async def test_a_host_in_quarantine_is_not_ready_and_a_load_that_failed_is_no_quarantine(tmp_path: Path) -> None:
    record = tmp_path / "quarantine.json"
    async with door(tmp_path, slot={"idle_s": IDLE_S, "quarantine_file": str(record)}) as host:
        client = await host.run.client()
        # a load of another profile failed
        host.write(None, phase="failed", names=None, idle=host.idle("tiny-a"))
        await until(lambda: host.run.app.first.slot.state.idle)
        assert (await client.ask("GET", "/ready")).status == 200
        record.write_text('{"boot_id": ""}')
        assert (await client.ask("GET", "/ready")).status == 503
        assert "the host is in quarantine" in (await host.ask("tiny-b")).json["error"]["message"]
        assert (await host.ask("gpt-9")).json["error"]["code"] == "failed"
        assert not host.asked
        record.unlink()
        assert (await host.ask("gpt-9")).json["choices"][0]["message"]["content"] == "tiny-a"
        record.write_text('{"boot_id": ""}')
        await asyncio.sleep(2 * IDLE_S)
        assert host.asked == [LOADED], "what is unloaded now would not come back"


@on_virtual_loop
async def test_a_name_of_two_profiles_brings_back_the_idle_one(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.toml", bob="s-bob")
    async with door(tmp_path, auth={"keys_file": keys}, **BY_IDLE) as host:
        first = written("tiny-a")
        first["frontdoor"]["model_aliases"] = ["alias-tiny-b"]
        new = tmp_path / "profiles" / "new"
        new.write_text(json.dumps(first))
        new.rename(tmp_path / "profiles" / "tiny-a.json")
        host.write(None, phase="stopped", names=None, idle=host.idle("tiny-b"))
        await until(lambda: host.run.app.first.slot.state.idle)
        bob, client = "Authorization: Bearer s-bob", await host.run.client()
        row = (await client.ask("GET", f"{MODELS}/alias-tiny-b", None, bob)).json
        assert row["b70"]["profile"] == "tiny-b"
        assert (await client.ask("GET", "/ready?model=alias-tiny-b")).status == 200
        answer = await host.ask("alias-tiny-b", CHAT, bob)
        assert answer.json["choices"][0]["message"]["content"] == "tiny-b"
        assert host.asked == ["load tiny-b bob main"]


def test_idleness_needs_models_on_demand() -> None:
    with pytest.raises(ConfigError, match="slot main: idle_s needs on_demand"):
        from_table({"slot": {"idle_s": 60}})


@on_virtual_loop
async def test_off_nothing_is_held(tmp_path: Path) -> None:
    async with door(tmp_path, on_demand=()) as host:
        assert (await host.ask("tiny-b")).json["choices"][0]["message"]["content"] == "tiny-a", "as the engine likes it"
        assert await host.models() == {"served-tiny-a": "served", "alias-tiny-a": "served"}
        assert not host.asked
