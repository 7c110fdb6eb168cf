# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/evaluate.yml on a host that serves a model: real benchmarks with the torch of its stack, `cpu`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from testinfra.host import Host

from system.product import Play, play, words_of

ENGINES = "systemctl show --property=Id,InvocationID,ActiveState 'b70-slot-main-*.service'"


def evaluate(**variables: object) -> Play:
    return play("playbooks/evaluate.yml", "-e", json.dumps(variables), limit_s=1200)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, host_vars: dict[str, Any]) -> tuple[Play, dict[str, Any]]:
    """A run that is compared with what a far faster host could do, and its measures."""
    folder = tmp_path_factory.mktemp("slow")
    reference = folder / "reference.yml"
    reference.write_text(json.dumps({"gemm.host.float32": 1000.0}))
    given = {"evaluate_only": ["gemm"], "evaluate_reference": str(reference), "evaluate_json_dir": str(folder)}
    done = evaluate(evaluate_while_served=True, **given)
    return done, json.loads((folder / f"{host_vars['inventory_name']}.json").read_text())


@pytest.fixture(scope="module")
def measured(
    slow: tuple[Play, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, host_vars: dict[str, Any]
) -> tuple[Play, dict[str, Any]]:
    """A run beside the engine that is compared with the file of a far slower host, and its measures."""
    folder = tmp_path_factory.mktemp("measures")
    _done, earlier = slow
    for row in earlier["rows"]:
        row["value"] = 0.0001 if row["value"] else None
    (folder / "earlier.json").write_text(json.dumps(earlier))
    given = {"evaluate_reference": str(folder / "earlier.json"), "evaluate_json_dir": str(folder)}
    done = evaluate(evaluate_while_served=True, evaluate_skip=["p2p"], **given)
    return done, json.loads((folder / f"{host_vars['inventory_name']}.json").read_text())


def test_a_served_model_is_not_disturbed_unless_the_operator_says_so(host: Host):
    before = host.check_output(ENGINES)
    assert "ActiveState=active" in before
    refused = evaluate(evaluate_only=["gemm"])
    assert refused.code != 0
    said = words_of(refused.output)
    assert "nothing was measured and nothing stopped. Stop the slot first (b70ctl stop" in said
    assert host.check_output(ENGINES) == before


def test_memory_products_and_collectives_are_measured_with_the_stacks_own_torch(measured):
    done, result = measured
    assert (done.code, done.changed) == (0, 0), done.output
    values = {row["id"]: row["value"] for row in result["rows"] if row["level"] in ("INFO", "PASS")}
    assert set(values) == {
        "memory.host.copy", "gemm.host.float32",
        "collectives.allreduce", "collectives.allgather", "collectives.alltoall"}  # fmt: skip
    assert all(value > 0 for value in values.values())
    assert result["device"] == {"kind": "cpu", "cards": 0}
    skipped = {row["id"]: row["note"] for row in result["rows"] if row["level"] == "SKIP"}
    assert skipped["memory.card0.memory"] == "needs a card"


def test_a_host_is_compared_with_what_another_one_could_do(slow, measured):
    failed, _measures = slow
    assert failed.code != 0
    assert "gemm.host.float32; the figures stand above" in words_of(failed.output)
    passed, result = measured
    assert passed.code == 0, passed.output
    assert "PASS gemm.host.float32" in words_of(passed.output)
    assert [row["id"] for row in result["rows"] if row["level"] == "PASS"] == ["gemm.host.float32"]


def test_a_benchmark_that_takes_too_long_is_ended_and_named(host: Host):
    ended = evaluate(evaluate_while_served=True, evaluate_only=["gemm"], evaluate_limit=1)
    assert ended.code != 0
    assert "FAIL gemm.torch did not end within 1 s (evaluate_limit)" in words_of(ended.output)
    assert host.run("pgrep -f bench_torch.py").rc == 1
