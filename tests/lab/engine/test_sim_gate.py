# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The production gate's own client against the real frontdoor before the simulated engine: places, streams, faults."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_engine_sim import Sim

from ansible_collections.arcpro.b70.plugins.module_utils._promotion.client import Client, Stream
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.gate import PromotionGate
from ansible_collections.arcpro.b70.plugins.module_utils._promotion.items import PromotionPlan
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply
from clients.line import SOURCE, process
from machine import LIMIT_S, free_port
from unit.plugins.module_utils._promotion.doors import Door, profile

FRONTDOOR = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import frontdoor.cli as c; c.main()"
Judge = Callable[..., dict[str, Any]]


class Real(Door):
    """What is asked over HTTP is asked of real programs; canary and restart stay in memory.

    The simulated engine counts words, so a prompt is as many words as the gate wants tokens.
    """

    def __init__(self, door: str, engine: str, limit_s: float, **changes: Any) -> None:
        super().__init__(profile(engine__served_model_name="sim-a", engine__max_model_len=4096, **changes))
        self.ways = {"frontdoor": Client(door, limit_s=limit_s), "engine": Client(engine, limit_s=limit_s)}

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def get(self, way: str, path: str) -> Reply:
        return self.ways[way].get(path)

    def post(self, way: str, path: str, body: Mapping[str, Any]) -> Reply:
        return super().post(way, path, body) if path == "/tokenize" else self.ways[way].post(path, _in_words(body))

    def streams(self, bodies: Sequence[Mapping[str, Any]], look: Callable[[bool], bool]) -> list[Stream]:
        return self.ways["frontdoor"].together("/v1/completions", [_in_words(body) for body in bodies], look)


def _in_words(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "prompt": " ".join(map(str, body["prompt"]))} if "prompt" in body else dict(body)


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    with contextlib.ExitStack() as stack:

        def run(
            item: str, *faults: str, permits: int = 2, queue_s: float = 0, token_s: float = 0.005, **changes: Any
        ) -> dict[str, Any]:
            sim = Sim(tmp_path, *faults, arguments=["--max-model-len", "4096"], token_s=token_s).wait()
            stack.callback(sim.close)
            port, config = free_port(), tmp_path / "frontdoor.toml"
            parts = [
                f'[listen]\nhost = "127.0.0.1"\nport = {port}',
                '[slot]\nstate_file = ""',
                f'[backend]\nurl = "http://127.0.0.1:{sim.port}"',
                f"[admission]\nmax_active_generations = {permits}\nqueue_timeout_s = {queue_s}",
            ]
            config.write_text("\n".join(parts) + "\n")
            stack.enter_context(process([sys.executable, "-c", FRONTDOOR, "--config", str(config)], port, "frontdoor"))
            limit_s = 2.0 if "hang-stream" in faults else LIMIT_S
            host = Real(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{sim.port}", limit_s, **changes)
            plan = PromotionPlan(
                items=(item,),
                quiet_s=LIMIT_S,
                request_timeout_s=LIMIT_S,
                refusal_limit_s=LIMIT_S,
                cancel_limit_s=LIMIT_S,
            )
            gate = PromotionGate(host, host.profile, plan)
            gate.run()
            (row,) = gate.seen["rows"]
            json.dumps(row, allow_nan=False)
            return dict(row)

        yield run


def test_the_real_frontdoor_refuses_one_too_many_at_once(judge: Judge) -> None:
    row = judge("overload")
    assert row["verdict"] == "passed", row
    assert sorted(one["status"] for one in row["observed"]["requests"]) == [200, 200, 503]
    assert row["observed"]["others"] == {"active": 0, "requests": 0}


def test_one_that_admits_too_many_is_found_out(judge: Judge) -> None:
    row = judge("overload", permits=3)
    assert (row["verdict"], row["reason"]) == ("failed", "3 were admitted and 0 refused; expected 2 and 1")


def test_one_that_queues_answers_all_of_them(judge: Judge) -> None:
    row = judge("overload", queue_s=30, frontdoor__queue_timeout_s=30)
    assert (row["verdict"], row["observed"]["queued_most"]) == ("passed", 1), row


@pytest.mark.real_time
def test_streams_that_hang_end_the_wait_at_its_limit(judge: Judge) -> None:
    row = judge("overload", "hang-stream")
    assert row["verdict"] == "failed"


def test_streams_that_are_left_free_their_permits(judge: Judge) -> None:
    row = judge("cancel", "slow-stream")
    assert row["verdict"] == "passed", row
    assert (row["observed"]["interrupted"], row["observed"]["active_before"]) == (2, 2)


@pytest.mark.parametrize(
    ("item", "fault", "words"),
    [
        ("models", "wrong-id", "the id is 'another-model', expected 'sim-a'"),
        ("models", "wrong-length", "the context length is 99, expected 4096"),
        ("logprobs", "nan", "the engine computes NaN"),
        ("text", "empty", "the answer is empty"),
        ("text", "garbage", "nothing but"),
    ],
)
def test_faults_of_an_engine(judge: Judge, item: str, fault: str, words: str) -> None:
    row = judge(item, fault, token_s=0.001)
    assert (row["verdict"], words in row["reason"]) == ("failed", True), row


def test_a_sound_engine_tells_who_it_is_and_where_its_limit_is(judge: Judge) -> None:
    for item in ("models", "text", "logprobs", "limit"):
        row = judge(item, token_s=0.001)
        assert row["verdict"] == "passed", row
