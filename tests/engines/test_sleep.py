# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standby with the real vLLM: its API, scheduler and sampler, its weights dropped and put back, and the slot with its
canary. systemd, files and frontdoor are in memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.model.standby import Sleeper, read_sleeper
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply
from machine import LIMIT_S, free_port, wait_for
from tools import engines
from unit.plugins.module_utils._slot.fake_host import FakeUnit
from unit.plugins.module_utils._slot.test_faults_over_http import Http, SimHost

RELEASE = "0.32.0"
FILES = Path(__file__).parent / "files"
OK = {"prompt": "Answer with the two letters OK and nothing more.", "compare": "exact", "expected": "OK"}
SUM = {"prompt": "A box holds 3 red and 4 blue blocks. How many blocks is that? Give just the number."}
SUM |= {"compare": "exact", "expected": "7"}
CANARY = [{"name": "ok", "max_tokens": 8, **OK}, {"name": "sum", "max_tokens": 8, **SUM}]
SETTINGS = (
    *("--dtype=bfloat16", "--max-model-len=512", "--max-num-seqs=4", "--enforce-eager", "--shutdown-timeout=0"),
    *("--kv-cache-memory-bytes=67108864", "--enable-sleep-mode", "--worker-cls=sleep_on_cpu.Worker"),
)


class TimedHttp(Http):
    """The client of the host, which adds up what answers took."""

    host: VllmHost

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        begun = time.monotonic()
        reply = super().post(url, body, timeout_s)
        if url.endswith("/completions"):
            self.host.asked_s += time.monotonic() - begun
        return reply


class VllmHost(SimHost):
    """A host in memory whose units start the real vLLM on the processor, with the plugin that lets it sleep.

    asked_s: the seconds that its engines took for what they were asked, canaries above all.
    """

    asked_s = 0.0

    @property
    def wake_fault(self) -> Path:
        """The file that makes weights come back wrong."""
        return self.folder / "wake-fault"

    def add_model(self, name: str) -> None:
        models = engines.ROOT / "tests/lab/models"
        program = str(engines.PLACE / "base/bin/vllm")
        port = free_port()
        argv = [program, "serve", str(models / name), "--served-model-name", name, *SETTINGS, "--port", str(port)]
        # A busy machine takes long for the first answer of a process.
        self.render_sleeper(name, port, engine__argv=argv, canary__cases=CANARY, canary__timeout_s=LIMIT_S)

    def spawn(self, unit: FakeUnit) -> subprocess.Popen[str]:
        _interpreter, *argv = unit.cmdline
        paths = (FILES, self.folder, *(engines.PLACE / name for name in (RELEASE, "gguf")))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "B70_WAKE_FAULT": str(self.wake_fault),
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # Or the first log probabilities that are asked for compile what finds their ranks.
            "TORCHDYNAMO_DISABLE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        log = self.folder / f"{unit.invocation}.log"
        process = subprocess.Popen(argv, stdout=log.open("w"), stderr=subprocess.STDOUT, text=True, env=environment)

        def ready() -> bool:
            assert process.poll() is None, f"{argv} ended with {process.poll()}:\n{log.read_text()[-3000:]}"
            return "Application startup complete" in log.read_text()

        wait_for(ready, "vLLM serves", 0.2)
        return process

    def effects(self) -> Effects:
        return replace(super().effects(), http=TimedHttp(self))

    def sleeper(self, name: str) -> Sleeper | None:
        return read_sleeper(self.effects().files, self.layout, self.layout.unit(name))

    def says(self, name: str) -> str:
        """Ask the model that is served who it is."""
        self.assert_invariants()
        assert (self.state.phase, self.state.verified, self.state.profile_name) == ("serving", True, name)
        body = {"model": name, "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 16}
        reply = self.effects().http.post(f"{self.state.backend_url}/v1/chat/completions", body, 60)
        return str(json.loads(reply.text)["choices"][0]["message"]["content"])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[VllmHost]:
    engines.prepare()
    information = tmp_path / "sleep_on_cpu-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sleep_on_cpu\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[vllm.general_plugins]\nsleep_on_cpu = sleep_on_cpu:register\n")
    host = VllmHost(tmp_path)
    for name in ("tiny-a", "tiny-b"):
        host.add_model(name)
    yield host
    for unit in host.units.values():
        host._down(unit, "inactive")


def test_models_that_sleep_answer_again_after_their_canary(host: VllmHost) -> None:
    took: dict[str, list[tuple[float, float]]] = {"a load": [], "a wake": [], "a wake that reads weights": []}
    for number, name in enumerate(["tiny-a", "tiny-b"] * 11):
        if number == 11:
            host.run_short_of_memory()
        wakes = host.sleeper(name)
        begun, host.asked_s = time.monotonic(), 0.0
        done = host.ctl("switch", name)
        whole = time.monotonic() - begun
        assert done.data["outcome"] == "committed", done.data["msg"]
        assert done.data["way"] == ("standby" if wakes else "plain")
        took[[*took][wakes.level if wakes else 0]].append((whole, whole - host.asked_s))
        assert host.says(name) == f"I am {name}."
    assert [*map(len, took.values()), host.starts] == [2, 10, 10, 2]
    for what, rows in took.items():
        whole, rest = map(statistics.median, zip(*rows, strict=True))
        most = max(beyond for _whole, beyond in rows)
        print(f"{what}: {whole:.1f} s in the median, without the canary {rest:.2f} s, and at most {most:.2f} s")


def test_a_wake_with_other_weights_costs_a_load_and_no_answer(host: VllmHost) -> None:
    assert host.ctl("switch", "tiny-a").data["outcome"] == "committed"
    for level in (1, 2):
        if level == 2:
            host.run_short_of_memory()
        assert host.ctl("switch", "tiny-b").data["outcome"] == "committed"
        asleep, known = host.unit("tiny-a").invocation, host.sleeper("tiny-a")
        assert known is not None
        assert known.level == level
        host.wake_fault.touch()
        done = host.ctl("switch", "tiny-a")
        host.wake_fault.unlink()
        assert (done.data["outcome"], done.data["way"]) == ("committed", "plain"), done
        assert any("canary" in warning for warning in done.data["warnings"]), done.data["warnings"]
        assert host.says("tiny-a") == "I am tiny-a."
        assert host.unit("tiny-a").invocation != asleep
