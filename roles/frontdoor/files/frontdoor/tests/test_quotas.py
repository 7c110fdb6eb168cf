# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API key may use so many requests and tokens in a minute and in a day, where its owner says so."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_engine import Call
from kit import Answer, Bench, Client, Hold, bench, on_loop, until
from test_auth import digest

from frontdoor.admission.quotas import Quotas
from frontdoor.policy.keys import KeyLimits

CHAT = "/v1/chat/completions"
ONE = {"max_active_generations": 1, "queue_timeout_s": 600, "backend_timeout_s": 60}


def write(path: Path, limits: str) -> str:
    new = path / "keys.new"
    new.write_text(f'[keys]\nalice = "{digest("a")}"\nbob = "{digest("b")}"\n{limits}\n')
    os.replace(new, path / "keys.toml")
    return str(path / "keys.toml")


async def asked(client: Client, who: str = "a", path: str = CHAT, body: bytes = b"{}") -> Answer:
    return await client.ask("POST", path, body, f"Authorization: Bearer {who}")


async def using(call: Call) -> None:
    await call.json({"usage": {"prompt_tokens": 7, "completion_tokens": 5}})


async def next_minute(run: Bench) -> None:
    """Wait until the next minute of the day begins."""
    minute = time.time() // 60
    await until(lambda: time.time() // 60 > minute, 120)


def test_what_was_used_is_that_of_the_minute_and_the_day() -> None:
    quotas, day = Quotas(), 86400
    limits = KeyLimits(requests_per_minute=2, requests_per_day=3, tokens_per_day=100)
    assert quotas.exceeded("a", limits, 0.0) is None
    quotas.requested("a", 10.0)
    quotas.requested("a", 59.0)
    assert quotas.exceeded("a", limits, 59.5) == ("requests_per_minute", 2, 0.5)
    assert quotas.exceeded("b", limits, 59.5) is None
    assert quotas.exceeded("a", limits, 60.0) is None
    quotas.requested("a", 61.0)
    # of several the one that lasts longest
    assert quotas.exceeded("a", limits, 61.0) == ("requests_per_day", 3, day - 61.0)
    quotas.requested("a", 62.0, -1)
    assert quotas.exceeded("a", limits, 62.0) is None
    quotas.spent("a", 63.0, 99)
    assert quotas.exceeded("a", limits, 63.0) is None
    quotas.spent("a", 64.0, 1)
    assert quotas.exceeded("a", limits, 64.0) == ("tokens_per_day", 100, day - 64.0)
    assert quotas.exceeded("a", KeyLimits(), 64.0) is None
    assert quotas.exceeded("a", limits, day + 0.0) is None
    # what is taken back after its minute leaves nothing below 0
    quotas.requested("a", day + 60.0, -1)
    quotas.requested("a", day + 60.0, 2)
    assert quotas.exceeded("a", limits, day + 60.0) == ("requests_per_minute", 2, 60.0)


@pytest.mark.parametrize("limits", ["[limits.alice]", '[limits."*"]'])
@pytest.mark.parametrize(("limit", "number"), [("requests_per_minute", 2), ("tokens_per_minute", 13)])
@on_loop
async def test_a_key_that_has_used_its_share_waits_for_the_next_minute(
    tmp_path: Path, limits: str, limit: str, number: int
) -> None:
    keys = write(tmp_path, f"{limits}\n{limit} = {number}")
    async with bench(tmp_path, auth={"keys_file": keys}) as run:
        run.engine.script = using
        await next_minute(run)
        client = await run.client()
        for path in (CHAT, "/v1/embeddings"):
            assert (await asked(client, path=path)).status == 200
        refused = await asked(client)
        assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert refused.json["error"]["limit"] == limit
        assert 1 <= int(refused.header("Retry-After") or 0) <= 60
        assert f"may use {number} {limit.partition('_')[0]} per minute" in refused.json["error"]["message"]
        # others may ask, and what takes no permit is not counted
        assert (await asked(client, "b")).status == 200
        assert (await asked(client, path="/tokenize")).status == 200
        assert len(run.engine.requests) == 4
        line = next(event for event in run.events() if event.get("status") == 429)
        assert (line["key"], line["error"], line["slot"]) == ("alice", "rate_limit_exceeded", "main")
        await next_minute(run)
        assert (await asked(await run.client())).status == 200


@on_loop
async def test_limits_change_without_a_restart(tmp_path: Path) -> None:
    keys = write(tmp_path, "[limits.alice]\nrequests_per_day = 1")
    async with bench(tmp_path, auth={"keys_file": keys}) as run:
        client = await run.client()
        assert [(await asked(client)).status for _ in range(2)] == [200, 429]
        write(tmp_path, "[limits.alice]\nrequests_per_day = 3")
        run.app.refresh_keys()
        assert [(await asked(client)).status for _ in range(3)] == [200, 200, 429]
        write(tmp_path, "")
        run.app.refresh_keys()
        assert (await asked(client)).status == 200


@on_loop
async def test_a_request_that_begins_anew_counts_once(tmp_path: Path) -> None:
    keys = write(tmp_path, "[limits.alice]\nrequests_per_day = 2")
    async with bench(tmp_path, state={"limits": ONE}, auth={"keys_file": keys}) as run:
        run.engine.script = hold = Hold()
        running, waiting = await run.client(), await run.client()
        running.request("POST", CHAT, b"{}", "Authorization: Bearer b")
        await run.arrived(1)
        waiting.request("POST", CHAT, b"{}", "Authorization: Bearer a")
        await run.queued(1)
        # other rules: whoever waits is judged anew
        run.write_state(sequence=8, limits=ONE, request={"max_tokens_default": 9})
        hold.go.set()
        assert [(await one.answer()).status for one in (running, waiting)] == [200, 200]
        assert [(await asked(waiting)).status for _ in range(2)] == [200, 429]


@on_loop
async def test_a_stream_that_its_client_leaves_is_not_free(tmp_path: Path) -> None:
    keys = write(tmp_path, "[limits.alice]\ntokens_per_day = 3")
    async with bench(tmp_path, auth={"keys_file": keys}) as run:

        async def endless(call: Call) -> None:
            await call.begin_events()
            while not call.gone.is_set():
                await call.event("token")

        run.engine.script = endless
        client = await run.client()
        client.request("POST", CHAT, b'{"stream":true}', "Authorization: Bearer a")
        for _ in range(200):
            await client.reader.readuntil(b"token")
        client.leave()
        await run.settled()
        assert (await asked(await run.client())).status == 429
