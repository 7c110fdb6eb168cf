# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All work of the cards takes permits: it is limited, queued, waited for, counted and logged, whatever it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_engine import Call
from kit import Hold, bench, on_loop, until

from frontdoor.policy.routes import FORM_PATHS, GATED_PATHS, GENERATION_PATHS

CHAT, EMBED = "/v1/chat/completions", "/v1/embeddings"
OTHER_WORK = [path for path in GATED_PATHS if path not in GENERATION_PATHS]
ONE = {"max_active_generations": 1, "queue_timeout_s": 0, "backend_timeout_s": 60}


def test_what_no_card_works_for_takes_no_permit() -> None:
    assert {*FORM_PATHS, EMBED, "/v2/embed", "/rerank", "/classify", "/v1/audio/speech"} <= {*OTHER_WORK}
    assert not {"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/models"} & {*GATED_PATHS}


@pytest.mark.parametrize("path", OTHER_WORK)
@on_loop
async def test_other_work_is_limited_like_generations(tmp_path: Path, path: str) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        run.engine.script = hold = Hold()
        first, second = await run.client(), await run.client()
        first.request("POST", path, b"{}")
        await until(lambda: run.engine.active == 1)
        assert run.app.first.limiter.active == 1
        for refused in (path, CHAT):
            assert (await second.ask("POST", refused, b"{}")).json["error"]["code"] == "busy"
        # what takes none passes
        second.request("POST", "/tokenize", b"{}")
        await until(lambda: run.engine.active == 2)
        hold.go.set()
        assert [(await one.answer()).status for one in (first, second)] == [200, 200]


@on_loop
async def test_one_request_of_many_texts_takes_one_permit(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": ONE}) as run:
        client = await run.client()
        assert (await client.ask("POST", EMBED, b'{"input":["a","b","c"],"n":7}')).status == 200


@on_loop
async def test_other_work_waits_in_the_queue_and_a_switch_waits_for_it(tmp_path: Path) -> None:
    async with bench(tmp_path, state={"limits": {**ONE, "queue_timeout_s": 60}}) as run:
        run.engine.script = hold = Hold()
        running, waiting = await run.client(), await run.client()
        await run.in_turn(running, waiting, path=EMBED)
        assert run.app.first.limiter.queued == 1
        run.write_state(sequence=8, phase="switching", open=False, switch={"from": "a", "to": "b"})
        assert (await waiting.answer()).json["error"]["code"] == "switching"
        status = (await waiting.ask("GET", "/status")).json
        assert status["frontdoor"]["active_generations"] == 1
        hold.go.set()
        assert (await running.answer()).status == 200
        await run.settled()


@on_loop
async def test_other_work_is_counted_and_logged(tmp_path: Path) -> None:
    async with bench(tmp_path) as run:

        async def embed(call: Call) -> None:
            await call.json({"data": [], "usage": {"prompt_tokens": 11, "total_tokens": 11}})

        run.engine.script = embed
        client = await run.client()
        assert (await client.ask("POST", EMBED, b'{"input":"x"}')).status == 200
        logged = [event for event in run.events() if event["event"] == "request"]
        assert [(event["path"], event["status"], event["outcome"]) for event in logged] == [(EMBED, 200, "ok")]
        slot = run.app.ledger.metrics.slots["main"]
        assert (slot.outcomes["ok"], slot.prompt_tokens) == (1, 11)
        shown = (await client.ask("GET", "/frontdoor/activity")).json
        assert EMBED in str(shown)
