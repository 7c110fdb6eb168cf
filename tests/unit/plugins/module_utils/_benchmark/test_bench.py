# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole benchmark against a host made of functions: what is asked in which order, and which figures are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import bench, report
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.bench import (
    BenchmarkEffects,
    BenchmarkError,
    BenchmarkOrder,
)
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.comparison import Band
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import GeneratorError, GeneratorLoad
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, summary
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import SHAPES
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import ToldToEndFault
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import faults_of
from unit.plugins.module_utils._evidence.records import HOST

from .benchmarks import requests

WANTED = BenchmarkOrder(
    shapes=(SHAPES["short-128"], SHAPES["28k-128"]),
    streams=(),
    targets=("frontdoor", "engine"),
    prefixes=("cold", "warm"),
    generator="guidellm",
    tools_python="/opt/b70/evidence/bin/python",
    user="b70",
    frontdoor_url="http://127.0.0.1:8000",
    api_key="hidden",
    limit_s=60.0,
    band=Band(0.1, 0.25),
    name="b70-01",
    slot="main",
    seed=7,
)
PROFILE = {
    "name": "tiny-a",
    "stack": {"id": "cpu-1", "dir": "/opt/b70/stacks/cpu-1"},
    "model": {"path": "/srv/tiny-a"},
    "engine": {
        "kind": "vllm",
        "task": "generate",
        "served_model_name": "tiny",
        "max_model_len": 2048,
        "backend_url": "http://127.0.0.1:18080",
        "argv": ["/opt/b70/stacks/cpu-1/venv/bin/vllm", "serve"],
        "env": {"A": "1"},
    },
    "frontdoor": {"max_active_generations": 2, "queue_timeout_s": 0},
}


class Host:
    """Serves tiny-a. canaries: whether each verification passes; broken: targets where the generator fails."""

    def __init__(self, *canaries: bool, broken: str = "", failed: int = 0) -> None:
        self.canaries, self.broken, self.failed = list(canaries) or [True, True], broken, failed
        self.clients, self.counted = 0, 0  # what the frontdoor tells
        self.speed = 100.0  # tokens per second of one request
        self.loads: list[GeneratorLoad] = []
        self.moved_after, self.told_after = -1, -1  # so many loads
        self.tools: list[Tool] = []
        self.said: list[str] = []
        self.baseline: Mapping[str, Any] | None = None
        self.times: Iterator[str] = iter(())  # of the clock, before it stands still
        self.state: dict[str, Any] = {
            "slot": "main",
            "verified": True,
            "open": True,
            "reason": "",
            "profile": "tiny-a",
            "fingerprint": "sha256:0f3c",
            "engine": {"invocation_id": "one"},
            "frontdoor": {"active": 0, "queued": 0, "max_active": 2},
        }

    def verify(self, name: str) -> dict[str, Any]:
        passed = self.canaries.pop(0)
        case = {"profile": name, "name": "exact_ok", "passed": passed, "sha256": "565339bc"}
        last = "565339bc" if self.loads else "cfaf413c"
        return {"failed": not passed, "canary": [case, {**case, "name": "burst", "sha256": last}]}

    def measure(
        self, tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]
    ) -> list[RequestRecord]:
        self.loads.append(load)
        watch()
        self.tools.append(tool)
        if self.broken and self.broken in load.target:
            raise GeneratorError("guidellm ended with 1: no room")
        say("1 answered")
        shape = load.shape
        if load.target.endswith(":8000"):
            self.counted += load.requests
        return requests(load.streams, self.speed, shape.output_tokens, self.failed, shape.prompt_tokens, shape.rounds)

    def moved(self, engine: Mapping[str, Any]) -> str:
        assert engine["invocation_id"] == "one"
        return "slot main is closed: switching to tiny-b" if len(self.loads) == self.moved_after else ""

    def heed(self) -> None:
        if len(self.loads) == self.told_after:
            raise ToldToEndFault

    def find(self, name: str, kind: str, generator: str) -> Mapping[str, Any] | None:
        return self.baseline if (name, kind, generator) == ("tiny-a", HOST["class"], "guidellm") else None

    def effects(self) -> BenchmarkEffects:
        return BenchmarkEffects(
            info=lambda: self.state,
            verify=self.verify,
            profile=lambda name: PROFILE,
            measure=self.measure,
            moved=self.moved,
            heed=self.heed,
            version=lambda tool: "0.8.1",
            engine_version=lambda stack, engine: "0.32.0",
            host=lambda: {key: value for key, value in HOST.items() if key != "name"},
            door=lambda: {"active_generations": self.clients, "total_generation_requests": self.counted},
            baseline=self.find,
            now=lambda: next(self.times, "2026-11-23T04:16:00Z"),
            say=self.said.append,
        )

    def run(self, wanted: BenchmarkOrder = WANTED) -> dict[str, Any]:
        record = bench.run(wanted, self.effects())
        assert list(faults_of(record)) == []
        return record


def test_every_way_is_measured_cold_and_then_warm_with_the_same_prompts() -> None:
    host = Host()
    record = host.run()
    warm_up, *loads = host.loads
    assert (warm_up.shape.name, warm_up.shape.output_tokens, warm_up.streams) == ("short-128", 64, 2)
    cold, warm = loads[::2], loads[1::2]
    assert cold == warm
    assert [load.streams for load in cold] == [1, 1, 2, 2]
    assert len({warm_up.seed, *(load.seed for load in cold)}) == 5
    for load in cold:
        assert load.api_key == ("hidden" if load.target.endswith(":8000") else "")
        assert (load.model, load.tokenizer) == ("tiny", "/srv/tiny-a")
    assert (record["verdict"], record["reasons"]) == ("passed", [])
    assert list(record["data"]["shapes"]) == ["short-128"]
    assert list(record["data"]["shapes"]["short-128"]["scenarios"]) == ["c1", "c2"]
    assert [item["shape"] for item in record["data"]["left_out"]] == ["28k-128"]
    assert record["canary"]["before"] == record["canary"]["after"] == {"ok": True, "hashes": {"exact_ok": "565339bc"}}
    assert record["data"]["summary"].startswith("143.8 tok/s (short-128 c2 frontdoor cold)")


def test_each_way_is_first_in_every_other_scenario() -> None:
    host = Host()
    host.run(replace(WANTED, shapes=(SHAPES["short-128"], SHAPES["short-256"]), prefixes=("cold",)))
    asked = [(load.shape.name, load.streams, load.target.rpartition(":")[2]) for load in host.loads]
    assert asked == [
        ("short-128", 2, "18080"),  # a warm-up of each shape
        *[("short-128", 1, "8000"), ("short-128", 1, "18080"), ("short-128", 2, "18080"), ("short-128", 2, "8000")],
        ("short-256", 2, "18080"),
        *[("short-256", 1, "18080"), ("short-256", 1, "8000"), ("short-256", 2, "8000"), ("short-256", 2, "18080")],
    ]
    assert [load.shape.rounds for load in host.loads[::5]] == [1, 1]
    assert len({load.seed for load in host.loads}) == len(host.loads)


@pytest.mark.parametrize("loads", [0, 1, 4])
def test_a_switch_that_begins_ends_the_load(loads: int) -> None:
    host = Host(True)  # the canary is not asked again
    host.moved_after = loads
    record = host.run()
    assert (record["verdict"], record["data"]["shapes"], record["canary"]["after"]) == ("failed", {}, None)
    assert record["reasons"] == [
        "the benchmark broke off, so no figure is kept: slot main is closed: switching to tiny-b"
    ]
    assert len(host.loads) == loads


@pytest.mark.parametrize("loads", [0, 3, 9])
def test_whoever_is_told_to_end_ends(loads: int) -> None:
    host = Host()
    host.told_after = loads
    with pytest.raises(ToldToEndFault):
        host.run()
    assert len(host.loads) == loads


def test_the_key_is_not_in_the_record() -> None:
    assert "hidden" not in str(Host().run())


def test_progress_names_what_is_measured() -> None:
    host = Host()
    host.run()
    assert host.said[0] == "canary before the benchmark"
    assert "short-128 through the frontdoor, cold, 1 streams: 1 answered" in host.said
    assert "short-128 through the engine, warm, 2 streams: 143.8 tok/s, first token after 0.500 s" in host.said


@pytest.mark.parametrize("change", [{"verified": False}, {"open": False, "reason": "draining"}, {"profile": None}])
def test_what_nobody_has_verified_is_not_measured(change: dict[str, Any]) -> None:
    host = Host()
    host.state.update(change)
    with pytest.raises(BenchmarkError, match=r"nothing verified is served in slot main: .*run switch.yml"):
        host.run()
    assert host.loads == []


def test_where_no_shape_fits_the_reason_is_said() -> None:
    with pytest.raises(BenchmarkError, match="nothing is left to measure for tiny-a: 28k-128: needs 28800 tokens"):
        Host().run(replace(WANTED, shapes=(SHAPES["28k-128"],)))


def test_a_canary_that_fails_before_costs_the_benchmark() -> None:
    host = Host(False)
    record = host.run()
    assert (record["verdict"], host.loads, record["canary"]["after"]) == ("failed", [], None)
    assert record["reasons"] == ["the canary failed before the benchmark, so nothing was measured"]


def test_no_figure_outlives_a_canary_that_fails_after() -> None:
    record = Host(True, False).run()
    assert (record["verdict"], record["data"]["shapes"], record["data"]["summary"]) == ("failed", {}, "no figures")
    assert record["reasons"] == ["the canary failed after the benchmark, so no figure is kept"]


def test_no_figure_outlives_the_engine_that_gave_it() -> None:
    host = Host()
    measure = host.measure

    def replaced(
        tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]
    ) -> list[RequestRecord]:
        host.state = {**host.state, "engine": {"invocation_id": "two"}}
        return measure(tool, load, say, watch)

    host.measure = replaced  # type: ignore[method-assign]
    record = host.run()
    assert (record["verdict"], record["data"]["shapes"]) == ("failed", {})
    assert record["reasons"] == ["another engine process served at the end than at the beginning, so no figure is kept"]


def test_one_failed_request_loses_no_figure() -> None:
    record = Host(failed=1).run()
    assert record["verdict"] == "failed"
    assert record["reasons"][-1] == "short-128 c2 engine warm: 1 of 6 requests failed (1 x 503)"
    assert record["data"]["shapes"]["short-128"]["scenarios"]["c2"]["engine"]["warm"]["wall_tok_s"] == 119.8502


def test_a_generator_that_fails_for_one_way_costs_only_that() -> None:
    record = Host(broken=":8000").run()
    assert [reason.partition(":")[0] for reason in record["reasons"]] == [
        f"short-128 through the frontdoor, {prefix}, {streams} streams"
        for streams in (1, 2)
        for prefix in ("cold", "warm")
    ]
    scenario = record["data"]["shapes"]["short-128"]["scenarios"]["c1"]
    assert ("frontdoor" in scenario, sorted(scenario["engine"])) == (False, ["cold", "warm"])


def test_a_generator_that_fails_for_one_number_of_streams_costs_only_that() -> None:
    host = Host()
    measure = host.measure

    def broken(
        tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]
    ) -> list[RequestRecord]:
        if load.streams == 2 and load.shape.rounds == 3:
            raise GeneratorError("vllm ended with 1: no room")
        return measure(tool, load, say, watch)

    host.measure = broken  # type: ignore[method-assign]
    scenarios = host.run(replace(WANTED, generator="vllm"))["data"]["shapes"]["short-128"]["scenarios"]
    assert sorted(scenarios["c1"]["engine"]) == ["cold", "warm"]
    assert scenarios["c2"] == {"streams": 2}


def test_a_warm_up_that_fails_says_why() -> None:
    assert Host(broken="127").run()["reasons"] == ["short-128, warm-up with 2 streams: guidellm ended with 1: no room"]


def test_requests_of_clients_make_the_figures_doubtful() -> None:
    host = Host()
    host.clients = 2
    (reason,) = host.run()["reasons"]
    assert reason.startswith("other clients use the host (2 generations before, 0 requests meanwhile)")


@pytest.mark.parametrize("generator", ["guidellm", "vllm"])
def test_an_engine_elsewhere_is_measured_where_it_runs(generator: str) -> None:
    remote = {"kind": "openai", "remote": {"base_url": "https://gpu2.example.org/v1", "model": "m"}}
    profile = {**PROFILE, "model": {"path": ""}, "engine": {**PROFILE["engine"], **remote}}  # type: ignore[dict-item]
    with pytest.raises(BenchmarkError, match=r"tiny-a runs elsewhere, at https://gpu2\.example\.org/v1: measure"):
        bench.fitting(replace(WANTED, generator=generator), profile)


def test_the_stack_that_serves_can_measure_itself() -> None:
    host = Host()
    host.run(replace(WANTED, generator="vllm"))
    assert host.tools[0] == Tool("vllm", PROFILE["engine"]["argv"][0], "b70", {"A": "1"})  # type: ignore[index]


def test_the_baseline_is_compared_with() -> None:
    host = Host()
    host.baseline = Host().run()
    compared = host.run()["data"]["comparison"]
    assert (compared["with"]["id"], compared["regressions"], compared["missing"]) == (host.baseline["id"], [], [])
    assert {row["ratio"] for row in compared["rows"]} == {1.0}


STRICT = replace(WANTED, profile="tiny-a", fail_on_regression=True, fail_without_comparison=True)


def test_figures_that_are_worse_than_the_baseline_fail_where_that_is_asked() -> None:
    host = Host()
    host.baseline = baseline = Host().run()
    assert host.run(STRICT)["verdict"] == "passed"
    baseline["data"]["shapes"]["short-128"]["scenarios"]["c2"]["frontdoor"]["cold"]["wall_tok_s"] *= 2
    for wanted, verdict in ((STRICT, "failed"), (WANTED, "passed")):
        host = Host()
        host.baseline = baseline
        record = host.run(wanted)
        assert record["verdict"] == verdict
        assert record["data"]["comparison"]["regressions"] == [
            "short-128 c2 frontdoor cold: wall_tok_s is 143.82, 0.50 of 287.64 (limit 0.90)"
        ]
        assert record["reasons"] == (record["data"]["comparison"]["regressions"] if wanted is STRICT else [])


def test_without_a_baseline_nothing_passes_where_a_comparison_is_asked() -> None:
    row = {"value": 70.0, "streams": 1, "prompt_tokens": 119, "output_tokens": 128}
    known = replace(STRICT, evidence={"tiny-a": {"host_class": HOST["class"], "tok_s": [row]}})
    for wanted in (STRICT, known):
        record = Host().run(wanted)
        assert (record["verdict"], list(record["data"]["shapes"])) == ("failed", ["short-128"])
        assert record["reasons"] == [bench.no_baseline("tiny-a", HOST["class"])]
    assert "playbooks/benchmark.yml" in record["reasons"][0]


def test_a_baseline_that_shares_one_scenario_is_none() -> None:
    host = Host()
    host.baseline = Host().run(replace(WANTED, streams=(1,), targets=("frontdoor",), prefixes=("cold",)))
    (reason,) = host.run(STRICT)["reasons"]
    assert reason.startswith(f"the baseline {host.baseline['id']} has no figure of short-128 c1 frontdoor warm, short-")


def test_another_profile_than_the_wanted_is_not_measured() -> None:
    with pytest.raises(BenchmarkError, match="tiny-a is served in slot main by now, and not tiny-b"):
        Host().run(replace(WANTED, profile="tiny-b"))


def test_a_clock_that_is_set_back_costs_no_figure() -> None:
    host = Host()
    host.times = iter(["2026-11-23T05:00:00Z"])
    record = host.run()
    assert (record["verdict"], record["ended_at"]) == ("passed", "2026-11-23T05:00:00Z")


def test_what_the_generator_leaves_out_of_its_report_is_asked_once_more_with_other_prompts() -> None:
    host = Host()
    measure, left_out = host.measure, {6}

    def careless(
        tool: Tool, load: GeneratorLoad, say: Callable[[str], None], watch: Callable[[], None]
    ) -> list[RequestRecord]:
        records = measure(tool, load, say, watch)
        careful = len(records) not in left_out
        left_out.discard(len(records))
        return records if careful else records[1:]

    host.measure = careless  # type: ignore[method-assign]
    assert (host.run()["verdict"], len(host.loads)) == ("passed", 10)
    first, again, warm = host.loads[5:8]
    assert (first.shape, again) == (warm.shape, warm)
    assert first.seed != again.seed


def test_figures_of_an_answer_of_a_millisecond_can_be_computed_again() -> None:
    host = Host()
    host.speed = 77_777.0
    entry = host.run()["data"]["shapes"]["short-128"]["scenarios"]["c2"]["engine"]["cold"]
    again = summary(
        [
            RequestRecord(begun, first, last, ended, prompt, tokens, 128, 119, error)
            for begun, first, last, ended, prompt, tokens, error in entry["records"]
        ]
    )
    assert again["request_decode_tok_s"] == pytest.approx(entry["request_decode_tok_s"], rel=0.001)


def test_the_table_has_every_figure() -> None:
    record = Host().run()
    text = report.markdown(record, ["throughput.png"])
    row = "| short-128 | 2 | engine | warm | 143.8 | 158.7 | 99.2 | 0.500 | 0.500 | 0.500 | 0.500 | 0.0101 | 0/6 |"
    assert row in text
    assert "- left out: 28k-128: needs 28800 tokens" in text
    assert "- comparison: benchmark_baselines names no record of this profile on this class of host" in text
    assert "![throughput.png](throughput.png)" in text
    lines = report.lines(record)
    assert lines[0] == "tiny-a on b70-01: passed"
    assert any(line.startswith("frontdoor: short-128 c2 cold gives 1.000 of the engine's throughput") for line in lines)


def test_the_pictures_show_every_way() -> None:
    plots = report.plots(Host().run())
    assert sorted(plots) == ["throughput", "ttft"]
    assert len(plots["throughput"]["series"]) == 4
    assert plots["throughput"]["series"][0] == {
        "name": "short-128 frontdoor cold",
        "points": [[1, 71.9101], [2, 143.8202]],
    }
    assert report.plots(Host(False).run()) == {}
