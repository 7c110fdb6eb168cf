# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of API keys: there before the first request, after a change of the file too, and true about refusals."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit import Call, Client, Engine, bench, free_port, on_loop, until
from prometheus_client.parser import text_string_to_metric_families

from frontdoor.cli import serve
from frontdoor.config import from_table
from frontdoor.observability.events import EventLog
from frontdoor.observability.metrics import OUTCOMES, Metrics, render

CHAT = "/v1/chat/completions"
Rows = dict[tuple[str, str], float]


def rows_of(page: bytes, name: str, label: str) -> Rows:
    """Rows of one metric of keys: (key, label) to value."""
    return {
        (sample.labels["key"], sample.labels[label]): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == f"b70_frontdoor_{name}"
    }


async def asked(client: Client) -> Rows:
    return rows_of((await client.ask("GET", "/metrics")).body, "key_requests_total", "outcome")


def write_keys(folder: Path, *names: str) -> str:
    """A file of keys whose secrets are `s-NAME`, in one step."""
    lines = [f'"{name}" = "sha256:{hashlib.sha256(f"s-{name}".encode()).hexdigest()}"\n' for name in names]
    new = folder / "keys.new"
    new.write_text("[keys]\n" + "".join(lines))
    os.replace(new, folder / "keys.toml")
    return str(folder / "keys.toml")


@asynccontextmanager
async def served(keys_file: str) -> AsyncIterator[Client]:
    """A client of a frontdoor that runs as its command line runs it."""
    engine, port, stop = Engine(), free_port(), asyncio.Event()
    await engine.start()
    config = from_table(
        {
            "listen": {"host": "127.0.0.1", "port": port},
            "slot": {"state_file": ""},
            "backend": {"url": engine.url},
            "auth": {"keys_file": keys_file},
        }
    )
    with open(os.devnull, "w") as nowhere:
        life = asyncio.create_task(serve(config, EventLog(nowhere.fileno()), stop))
        try:
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    assert not life.done()
                    await asyncio.sleep(0.005)
            client = Client(reader, writer)
            yield client
            client.leave()
        finally:
            stop.set()
            assert await life == 0
            await engine.kill()


@on_loop
async def test_a_key_has_its_rows_before_its_first_request(tmp_path: Path) -> None:
    async with served(write_keys(tmp_path, "alice", "team.bob")) as client:
        page = (await client.ask("GET", "/metrics")).body
        expected = {(key, outcome): 0.0 for key in ("alice", "team.bob") for outcome in OUTCOMES}
        assert rows_of(page, "key_requests_total", "outcome") == expected
        tokens = rows_of(page, "key_tokens_total", "kind")
        assert tokens == {(key, kind): 0.0 for key in ("alice", "team.bob") for kind in ("prompt", "completion")}
        assert (await client.ask("POST", CHAT, b"{}", "Authorization: Bearer s-alice")).status == 200
        assert await asked(client) == expected | {("alice", "ok"): 1.0}


@pytest.mark.interpreted
@on_loop
async def test_rows_follow_the_file_and_lose_no_number(tmp_path: Path) -> None:
    async with served(write_keys(tmp_path, "alice", "bob")) as client:
        assert (await client.ask("POST", CHAT, b"{}", "Authorization: Bearer s-alice")).status == 200
        write_keys(tmp_path, "carol")
        while ("carol", "ok") not in (rows := await asked(client)):
            await asyncio.sleep(0.02)
        # new ones begin at 0; of those that were removed only numbers are left
        assert {key for key, _outcome in rows} == {"alice", "carol"}
        assert {outcome for key, outcome in rows if key == "carol"} == set(OUTCOMES)
        assert (rows["alice", "ok"], sum(rows.values())) == (1, 1)
        # a file that cannot be read leaves the keys that count, and their rows
        (tmp_path / "keys.toml").write_text("[keys")
        while not (await client.ask("GET", "/status")).json["frontdoor"]["keys_error"]:
            await asyncio.sleep(0.02)
        assert await asked(client) == rows


@on_loop
async def test_who_was_turned_away_is_counted_by_key(tmp_path: Path) -> None:
    limits = {"max_active_generations": 1, "queue_timeout_s": 0, "backend_timeout_s": 60}
    keys_file = write_keys(tmp_path, "alice", "bob")
    async with bench(tmp_path, state={"limits": limits}, auth={"keys_file": keys_file}) as run:
        go = asyncio.Event()

        async def hold(call: Call) -> None:
            await go.wait()
            await call.json({})

        run.engine.script = hold
        first, second = await run.client(), await run.client()
        first.request("POST", CHAT, b"{}", "Authorization: Bearer s-alice")
        await until(lambda: run.app.first.limiter.active)
        for _ in range(3):
            answer = await second.ask("POST", CHAT, b"{}", "Authorization: Bearer s-bob")
            assert (answer.status, answer.json["error"]["code"]) == (503, "busy")
        # nobody's
        assert (await second.ask("POST", CHAT, b"{}", "Authorization: Bearer nope")).status == 401
        go.set()
        assert (await first.answer()).status == 200
        rows = await asked(second)
        assert {row: value for row, value in rows.items() if value} == {("alice", "ok"): 1, ("bob", "refused"): 3}
        assert +run.app.ledger.metrics.refusals == {"busy": 3}


def test_without_keys_there_are_no_rows() -> None:
    assert b"key_requests_total{" not in render(Metrics(), {}, {}, "serving", "1")
