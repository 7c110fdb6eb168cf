# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of ways to a good record for nothing, each with the sentence that refuses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import run
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import GeneratorError, GeneratorLoad
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, summary
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import SHAPES
from ansible_collections.arcpro.b70.plugins.module_utils._evidence.program import Program
from ansible_collections.arcpro.b70.plugins.module_utils._promotion import items
from unit.plugins.module_utils._promotion.doors import profile

from .benchmarks import requests
from .test_bench import Host

Records = list[RequestRecord]
Cheat = Callable[[GeneratorLoad, Records], Records]


def each(**given: object) -> Cheat:
    return lambda load, records: [replace(one, **given) for one in records]  # type: ignore[arg-type]


def cut(load: GeneratorLoad, records: Records) -> Records:
    return [replace(one, completion_tokens=8) for one in records]


ANSWERS: list[tuple[str, Cheat, str]] = [
    ("every request lost", lambda load, records: [], "0 of 3 requests are in the report"),
    ("one request lost", lambda load, records: records[1:], "2 of 3 requests are in the report"),
    ("a level without a request", lambda load, records: records if load.streams == 1 else [], "0 of 6 requests are in"),
    ("more requests than asked for", lambda load, records: [*records, records[0]], "4 of 3 requests are in the report"),
    ("short answers", each(completion_tokens=8), "answers have 8 tokens in the answer, not 128"),
    ("one short answer", lambda load, records: [*records[1:], *cut(load, records[:1])], "1 of 3 answers have 8 tokens"),
    ("tokens counted four times", each(completion_tokens=512), "answers have 512 tokens in the answer, not 128"),
    ("empty answers", each(completion_tokens=0), "answers have 0 tokens in the answer, not 128"),
    ("short prompts", each(prompt_tokens=3), "answers have 3 tokens in the prompt, not 119"),
    ("long prompts", each(prompt_tokens=4096), "answers have 4096 tokens in the prompt, not 119"),
    ("no first text", each(first_text_s=None, last_text_s=None), "answers have no first text"),
    ("no last text", each(last_text_s=None), "answers have no first text"),
    ("a clock that steps back", each(ended_s=-3600.0), "answers have times that do not follow each other"),
    ("a text before the request", each(started_s=9.0, ended_s=9.5), "answers have times that do not follow each other"),
    ("no time at all", each(started_s=1, first_text_s=1, last_text_s=1, ended_s=1), "times that do not follow"),
    ("one failed request", lambda load, records: [replace(records[0], error="503"), *records[1:]], "1 of 3 requests"),
]


@pytest.mark.parametrize(("name", "cheat", "words"), ANSWERS, ids=[name for name, _cheat, _words in ANSWERS])
def test_a_benchmark_that_lacks_something_has_failed_and_names_it(name: str, cheat: Cheat, words: str) -> None:
    host = Host()
    measure = host.measure
    host.measure = lambda tool, load, say, watch: cheat(load, measure(tool, load, say, watch))  # type: ignore[method-assign]
    record = host.run()
    assert record["verdict"] == "failed", name
    assert any(words in reason for reason in record["reasons"]), record["reasons"]


@pytest.mark.parametrize(("name", "cheat", "words"), ANSWERS, ids=[name for name, _cheat, _words in ANSWERS])
def test_the_ladder_of_the_production_gate_goes_by_the_same_rule(name: str, cheat: Cheat, words: str) -> None:
    load = SimpleNamespace(streams=1)
    steps = [
        {"streams": streams, **summary(cheat(load, requests(streams, 100.0, rounds=3)))}  # type: ignore[arg-type]
        for streams in (1, 2)
    ]
    if name == "a level without a request":
        steps[1] = {"streams": 2, **summary([])}
    observed = {"steps": steps, "rounds": 3, "others": {"active": 0, "requests": 0}}
    passed, why = items._ladder(profile(), items.PromotionPlan(), observed)
    assert (passed, words in why) == (False, True), why


@pytest.mark.parametrize(
    ("arrive", "words"),
    [
        (1, "(0 generations before, 1 requests meanwhile)"),
        (-1000, "(0 generations before, -1000 requests meanwhile)"),
        (None, "did not tell whether other clients use the host"),
    ],
)
def test_clients_that_arrive_after_the_start_spoil_a_benchmark(arrive: int | None, words: str) -> None:
    host = Host()
    measure = host.measure

    def visited(tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]) -> Records:
        if len(host.loads) == 4:
            host.counted = math.nan if arrive is None else host.counted + arrive  # type: ignore[assignment]
        return measure(tool, load, say, watch)

    host.measure = visited  # type: ignore[method-assign]
    record = host.run()
    assert record["verdict"] == "failed"
    assert any(words in reason for reason in record["reasons"]), record["reasons"]


def test_a_clock_that_is_set_meanwhile_spoils_what_is_measured_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall = iter([1000.0, 400.0])
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: next(wall), monotonic=lambda: 5.0))
    monkeypatch.setattr(Program, "run", lambda self, *given: None)
    load = GeneratorLoad("http://127.0.0.1:18080", "tiny-a", "/srv/tiny-a", SHAPES["short-128"], 2, 7, 60.0)
    with pytest.raises(GeneratorError, match=r"clock was set by -600\.0 s meanwhile"):
        run.measure(Tool("vllm", "/bin/true"), load, lambda text: None, lambda: None)
