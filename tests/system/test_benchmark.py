# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/benchmark.yml on a host that serves a model: guidellm from its own environment against the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, summary
from ansible_collections.arcpro.b70.plugins.plugin_utils._evidence.folder import read
from system.product import Play, play

SHAPES = [{"name": "tiny", "prompt_tokens": 100, "output_tokens": 32, "rounds": 2}, "28k-128"]
# What the record has of each request, in this order.
RECORDED = ("started_s", "first_text_s", "last_text_s", "ended_s", "prompt_tokens", "completion_tokens", "error")
ENGINES = "systemctl show --property=Id,InvocationID,ActiveState 'b70-slot-main-*.service'"


def arguments(folder: Path) -> list[str]:
    given = {
        "benchmark_shapes": SHAPES,
        "benchmark_streams": [2, 64],
        "benchmark_prefixes": ["cold"],
        "evidence_dir": str(folder),
        "benchmark_limit": 300,
    }
    return ["playbooks/benchmark.yml", "-e", json.dumps(given)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def installed_tools(folder: Path) -> Play:
    return play(*arguments(folder), "--tags", "install")


@pytest.fixture(scope="module")
def measured(folder: Path, installed_tools: Play) -> Play:
    assert installed_tools.code == 0, installed_tools.output
    return play(*arguments(folder))


@pytest.fixture(scope="module")
def record(measured: Play, folder: Path, host_vars: dict[str, Any]) -> dict[str, Any]:
    assert measured.code == 0, measured.output
    records, problems = read(folder)
    assert problems == []
    return max(records[host_vars["inventory_name"]], key=lambda one: one["began_at"])


def test_progress_is_shown_and_the_benchmark_passes(measured: Play, record: dict[str, Any]) -> None:
    said = " ".join(measured.output.split())
    assert "tiny through the frontdoor, cold, 2 streams:" in said
    assert (record["verdict"], record["reasons"]) == ("passed", [])


def test_both_ways_are_measured_and_each_figure_can_be_computed_again(record: dict[str, Any]) -> None:
    assert list(record["data"]["shapes"]) == ["tiny"]
    (scenario,) = record["data"]["shapes"]["tiny"]["scenarios"].values()
    for way in ("frontdoor", "engine"):
        figures = scenario[way]["cold"]
        assert (figures["requests"], figures["failed"], figures["lacking"]) == (4, 0, {})
        again = summary(
            [
                RequestRecord(**dict(zip(RECORDED, one, strict=True)), wanted_tokens=32, wanted_prompt=100)
                for one in figures["records"]
            ]
        )
        for name in ("wall_tok_s", "decode_tok_s", "request_decode_tok_s"):
            assert again[name] == pytest.approx(figures[name], rel=0.01)
    assert len(record["data"]["frontdoor_share"]) == 1


def test_what_does_not_fit_is_left_out_with_its_reason(record: dict[str, Any]) -> None:
    assert record["data"]["left_out"] == [
        {"shape": "28k-128", "reason": "needs 28800 tokens, and the profile admits 2048 (max_model_len)"},
        {"streams": 64, "reason": "the frontdoor admits 2 generations and queues none (queue_timeout_s is 0)"},
    ]


def test_the_canary_passed_before_and_after(record: dict[str, Any]) -> None:
    before, after = record["canary"]["before"], record["canary"]["after"]
    assert before == after
    assert before["ok"]
    assert "exact_ok" in before["hashes"]


def test_table_and_pictures_are_beside_the_record(
    record: dict[str, Any], folder: Path, host_vars: dict[str, Any]
) -> None:
    place = folder / host_vars["inventory_name"] / "benchmark"
    table = (place / f"{record['id']}.md").read_text()
    assert "| tiny | 2 | frontdoor | cold |" in table
    assert (place / f"{record['id']}-throughput.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (place / f"{record['id']}-ttft.svg").read_text()


def test_the_host_keeps_the_record_and_its_engine(host: Host, record: dict[str, Any]) -> None:
    assert json.loads(host.file(f"/var/lib/b70/records/benchmark/{record['id']}.json").content_string) == record
    assert "ActiveState=active" in host.check_output(ENGINES)


def test_the_tools_are_installed_once(folder: Path, installed_tools: Play) -> None:
    again = play(*arguments(folder), "--tags", "install")
    assert (again.code, again.changed) == (0, 0), again.output


def test_check_mode_says_what_would_be_measured(folder: Path, measured: Play) -> None:
    done = play(*arguments(folder), "--check", "--tags", "verify")
    assert (done.code, done.changed) == (0, 0), done.output
    assert "would measure tiny-a: tiny with 2 streams" in " ".join(done.output.split())
