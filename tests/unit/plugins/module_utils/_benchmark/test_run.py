# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generators that are shell scripts: how long they run, who ends them, and what they may not do to the one who asks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._benchmark import run
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.generators import GeneratorError, GeneratorLoad
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.metrics import RequestRecord, summary
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.run import Tool
from ansible_collections.arcpro.b70.plugins.module_utils._benchmark.shapes import RequestShape
from ansible_collections.arcpro.b70.plugins.module_utils._evidence import program
from unit.plugins.module_utils._benchmark.test_generators import captured

LOAD = GeneratorLoad("http://127.0.0.1:18080", "tiny-a", "/srv/tiny-a", RequestShape("s", 119, 32), 2, 7, 60.0)
Measure = Callable[..., list[RequestRecord]]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    monkeypatch.setattr(program, "LOOK_S", 0.05)

    def measured(script: str, watch: Callable[[], None] = lambda: None, key: str = "") -> list[RequestRecord]:
        program = tmp_path / "vllm"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return run.measure(Tool("vllm", str(program)), replace(LOAD, api_key=key), lambda text: None, watch)

    return measured


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.json"
    path.write_text(json.dumps(captured("vllm-good")))
    return path


def test_the_report_of_a_generator_is_read(measure: Measure, secret: Path) -> None:
    assert len(measure(f"cp {secret} report.json")) == 6


def test_what_watches_ends_the_generator(measure: Measure, tmp_path: Path) -> None:
    looks: list[int] = []

    def watch() -> None:
        looks.append(1)
        if (tmp_path / "pid").exists():
            raise RuntimeError("a switch has begun")

    with pytest.raises(RuntimeError, match="a switch has begun"):
        measure(f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 30", watch)
    assert looks
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_requests_that_the_limit_cuts_off_have_failed(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_AROUND_S", -60.0)
    figures = summary(measure("sleep 600"))
    assert (figures["requests"], figures["errors"]) == (6, {"broken off after 60 s": 6})
    assert figures["wall_tok_s"] is None


def test_a_failed_generator_says_its_last_lines(measure: Measure) -> None:
    with pytest.raises(GeneratorError, match=r"vllm ended with 3: one / no room$"):
        measure("echo one; echo no room >&2; exit 3")


def test_a_key_that_a_generator_prints_is_in_no_fault(measure: Measure) -> None:
    with pytest.raises(GeneratorError, match=r"vllm ended with 1: Bearer <secret>$"):
        measure('echo "Bearer $OPENAI_API_KEY"; exit 1', key="very secret")


def test_no_link_of_the_generator_is_followed(measure: Measure, secret: Path) -> None:
    before = secret.read_bytes()
    with pytest.raises(GeneratorError, match=r"vllm ended with 1: mine$"):
        measure(f"rm -f log; ln -s {secret} log; echo mine; exit 1")
    with pytest.raises(GeneratorError, match="no report that can be read"):
        measure(f"ln -s {secret} report.json")
    assert secret.read_bytes() == before


def test_a_report_that_is_no_file_holds_up_nobody(measure: Measure) -> None:
    with pytest.raises(GeneratorError, match="is not a regular file"):
        measure("mkfifo report.json")
