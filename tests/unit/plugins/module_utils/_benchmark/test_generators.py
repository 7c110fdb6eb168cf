# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports that the generators really wrote, and the command lines that made them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import generators
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import GeneratorError, GeneratorLoad
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import summary
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import RequestShape

LOAD = GeneratorLoad(
    "http://127.0.0.1:18080", "tiny-a", "/srv/tiny-a", RequestShape("s", 119, 64, 2), 2, 5, 60.0, "hidden"
)


def captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "captured" / f"{name}.json").read_text())
    return found


def test_the_requests_of_guidellm_give_its_own_figures() -> None:
    report = captured("guidellm-good")
    found = {count: generators.guidellm_records(report, replace(LOAD, streams=count)) for count in (1, 2)}
    assert {streams: len(records) for streams, records in found.items()} == {1: 2, 2: 4}
    for benchmark, records in zip(report["benchmarks"], found.values(), strict=True):
        ours, theirs = summary(records), benchmark["own"]
        assert (ours["failed"], ours["lacking"], ours["completion_tokens"]) == (0, {}, 64 * len(records))
        assert ours["ttft_s"]["mean"] == pytest.approx(theirs["time_to_first_token_ms"]["mean"] / 1000, abs=1e-4)
        assert ours["itl_s"]["mean"] == pytest.approx(theirs["inter_token_latency_ms"]["mean"] / 1000, abs=1e-4)
        assert ours["request_s"]["mean"] == pytest.approx(theirs["request_latency"]["mean"], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("guidellm-refused", "ConnectError('All connection attempts failed')"),
        ("guidellm-cut", "broken off after 60 s"),
    ],
)
def test_requests_without_an_answer_are_failures(name: str, reason: str) -> None:
    figures = summary(generators.guidellm_records(captured(name), LOAD))
    assert (figures["requests"], figures["errors"], figures["wall_tok_s"]) == (2, {reason: 2}, None)


def test_the_requests_of_vllm_give_its_own_figures() -> None:
    report = captured("vllm-good")
    load = GeneratorLoad("http://127.0.0.1:18080", "tiny-a", "/srv/tiny-a", RequestShape("s", 119, 32), 2, 7, 60.0)
    figures = summary(generators.vllm_records(report, load))
    assert (figures["requests"], figures["failed"], figures["completion_tokens"]) == (6, 0, 192)
    assert figures["ttft_s"]["mean"] == pytest.approx(report["mean_ttft_ms"] / 1000, abs=1e-4)
    assert figures["itl_s"]["mean"] == pytest.approx(report["mean_itl_ms"] / 1000, abs=1e-4)
    assert figures["wall_tok_s"] == pytest.approx(report["output_throughput"], rel=0.01)


def test_a_request_that_vllm_lost_is_a_failure() -> None:
    report = captured("vllm-good")
    report["errors"][1], report["output_lens"][1], report["itls"][1] = "Traceback\nServiceUnavailable", 0, []
    figures = summary(generators.vllm_records(report, LOAD))
    assert (figures["requests"], figures["errors"]) == (6, {"ServiceUnavailable": 1})


def test_a_report_of_another_version_is_named() -> None:
    with pytest.raises(GeneratorError, match="guidellm's report has no readable 'benchmarks'"):
        generators.guidellm_records({}, LOAD)
    with pytest.raises(GeneratorError, match="nothing of 2 streams"):
        generators.guidellm_records({"benchmarks": []}, LOAD)
    with pytest.raises(GeneratorError, match=r"start_times.*use guidellm"):
        generators.vllm_records({"ttfts": []}, LOAD)


def test_the_key_is_in_no_argument_list() -> None:
    config = generators.guidellm_config(LOAD, "/tmp/report.json")
    assert config["spec"]["backend"]["api_key"] == "hidden"
    words = [
        *generators.guidellm_argv("/opt/b70/python", "/tmp/config.json"),
        *generators.vllm_argv("/opt/b70/vllm", LOAD, "/tmp/report.json"),
    ]
    assert "hidden" not in " ".join(words)
    assert {"--max-concurrency=2", "--num-prompts=4", "--seed=5", "--ignore-eos"} <= set(words)
    assert {"--result-dir=/tmp", "--result-filename=report.json"} <= set(words)


def test_each_stream_has_its_requests() -> None:
    spec = generators.guidellm_config(LOAD, "r")["spec"]
    assert (spec["profile"]["streams"], spec["constraints"][0]["count"]) == ([2], 4)
    assert spec["data"] == [{"kind": "synthetic_text", "prompt_tokens": 119, "output_tokens": 64}]


LOG = """\
26-11-23 04:29:42|INFO     |guidellm.benchmark.progress:_log_update:420 - Benchmark 1 (concurrent@2): started | \
elapsed=0.0s | successful=0 errored=0 incomplete=0 | requests/s=0.00 output_tokens/s=0.00
26-11-23 04:29:50|INFO     |guidellm.benchmark.progress:_log_update:420 - Benchmark 1 (concurrent@2): compile | \
elapsed=7.9s | successful=5 errored=1 incomplete=0 | requests/s=0.00 output_tokens/s=0.00
"""


def test_the_log_tells_how_far_it_is() -> None:
    assert generators.progress_of(LOG) == "5 answered, 1 failed"
    assert generators.progress_of("nothing yet") == ""
