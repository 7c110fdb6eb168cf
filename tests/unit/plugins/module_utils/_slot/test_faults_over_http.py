# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of an engine that HTTP alone shows, in every situation of a switch, without a host: engines are processes
of the simulated one, asked by the client that a host has; all else of the host is in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from engine_sim import __file__ as program

from ansible_collections.arcpro.b70.plugins.module_utils._slot.daemons.daemon import Controller
from ansible_collections.arcpro.b70.plugins.module_utils._slot.decide.controller import LOOK_S
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.effects import Effects
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import Reply
from machine import free_port
from scenarios.rig import Done
from scenarios.test_faults import FAULTS, SECOND_FAULT, SITUATIONS, assert_failed
from unit.plugins.module_utils._slot.calls import b70ctl
from unit.plugins.module_utils._slot.fake_host import LAYOUT, SLEEP_PATHS, FakeHost, FakeHttp, FakeUnit
from unit.shipped import load_inline

OK = {"name": "exact_ok", "prompt": "Answer with the two letters OK.", "compare": "exact", "expected": "OK"}
SUM = {"name": "sum", "prompt": "There are 3 red and 4 blue blocks. How many?", "compare": "contains", "expected": "7"}
# The first token is the first answer, so the fourth one is a canary's.
CANARY = {"canary__cases": [{**case, "max_tokens": 8} for case in (OK, SUM)], "canary__repeats": 2, "canary__burst": 8}


class Http(HttpClient):
    """The client of a host; only the frontdoor is the one in memory."""

    def __init__(self, sim_host: SimHost) -> None:
        super().__init__()
        self.host = sim_host
        self._memory = FakeHttp(sim_host)

    def get(self, url: str, timeout_s: float) -> Reply:
        return self._memory.get(url, timeout_s) if url.endswith("/status") else super().get(url, timeout_s)

    def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Reply:
        reply, asked = super().post(url, body, timeout_s), urlsplit(url)
        if asked.path in SLEEP_PATHS and (unit := self.host.engine(asked.port or 80)):
            said = self.get(asked._replace(path="/is_sleeping", query="").geturl(), timeout_s)
            unit.asleep = json.loads(said.text)["is_sleeping"]
        return reply


class SimHost(FakeHost):
    """A host in memory whose units start processes of the simulated engine, and end them.

    A start returns when the process is ready, or never will be, so that no limit of the switch is one of this machine.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(port=free_port())
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}  # by the name of their unit
        self.fault_of: dict[str, str] = {}  # by invocation, of every process that was started
        self.shown: set[str] = set()  # invocations that the frontdoor was ever open for

    def add(self, name: str, *arguments: str, port: int = 0, **changes: Any) -> None:
        """Render a profile. port: of one that may sleep."""
        argv = [sys.executable, "-I", program, "serve", f"/models/{name}", "--served-model-name", name]
        argv += ["--sim-dir", str(self.folder), "--port", str(port or self.port), *arguments]
        changes = {"engine__argv": argv, "engine__start_timeout_s": 3, **CANARY, **changes}
        if port:
            self.render_sleeper(name, port, **changes)
        else:
            self.render(name, **changes)

    def run_process(self, unit: FakeUnit) -> None:
        super().run_process(unit)
        self.fault_of[unit.invocation] = unit.fault
        told = {"faults": [unit.fault] if unit.fault else [], "load_s": 0, "token_s": 0}
        (self.folder / f"{LAYOUT.profile_of(unit.name)}.json").write_text(json.dumps(told))
        self.processes[unit.name] = self.spawn(unit)

    def spawn(self, unit: FakeUnit) -> subprocess.Popen[str]:
        """Start the unit's process; return it when it is ready, or never will be."""
        _interpreter, *argv = unit.cmdline
        environment = {**os.environ, "INVOCATION_ID": unit.invocation}
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        ready = "Loading" if unit.fault == "never-ready" else "startup complete"
        assert any(ready in line for line in process.stderr), f"{argv} ended with {process.wait()}"
        return process

    def _down(self, unit: FakeUnit, active: str) -> None:
        super()._down(unit, active)
        if unit.name in self.processes:
            process = self.processes.pop(unit.name)
            process.terminate()
            process.communicate()

    def step(self, mutation: str | None = None) -> None:
        self.shown |= self.served().keys()
        super().step(mutation)

    def effects(self) -> Effects:
        return replace(super().effects(), http=Http(self))

    def ctl(self, *words: str) -> Done:
        code, output = b70ctl(self, *words, "--json")
        return Done(code, output, "", 0.0)

    def assert_serves(self, name: str) -> None:
        """Assert that this profile is served, verified, by the one process there is, and boots."""
        self.assert_invariants()
        state, unit = self.state, self.unit(name)
        assert (state.phase, state.open, state.verified, state.profile_name) == ("serving", True, True, name), state
        assert state.passed == {unit.invocation: True}
        assert self.enabled == [unit.name]
        assert [*self.processes] == [unit.name]
        self.assert_answers(name)

    def assert_answers(self, name: str) -> None:
        """Assert that a client is answered rightly, and by the profile's process."""
        body = {"messages": [{"role": "user", "content": "Who are you?"}]}
        answer = json.loads(self.effects().http.post(f"{self.state.backend_url}/v1/chat/completions", body, 30).text)
        assert answer["choices"][0]["message"]["content"] == f"I am {name}."
        assert answer["system_fingerprint"].split(" ")[:2] == [name, self.unit(name).invocation]

    def assert_stopped(self, *reasons: str) -> None:
        """Assert that nothing runs, nothing boots, and that clients are told why in these words."""
        self.assert_invariants()
        state = self.state
        assert (state.phase, state.open, state.verified) == ("failed", False, False), state
        assert (self.running, self.enabled, self.processes) == ([], [], {})
        assert all(reason in state.reason for reason in reasons), (reasons, state.reason)

    def assert_journal_closed(self) -> None:
        records = [json.loads(line) for line in self.texts[LAYOUT.journal_file][0].splitlines()]
        begun, ended = ([record["id"] for record in records if record["event"] == event] for event in ("begin", "end"))
        assert begun == ended


@pytest.fixture
def sim_host(tmp_path: Path) -> Iterator[SimHost]:
    host = SimHost(tmp_path)
    yield host
    for unit in host.units.values():
        host._down(unit, "inactive")


OVER_HTTP = [fault for fault in FAULTS.values() if not fault.systemd]


@pytest.mark.parametrize(
    ("situation", "fault"),
    [pytest.param(*case, id=f"{case[0]}-{case[1].name}") for case in product(SITUATIONS, OVER_HTTP)],
)
def test_an_engine_that_is_broken(sim_host: SimHost, situation: str, fault: Any) -> None:
    if situation != "first":
        sim_host.add("a")
        assert sim_host.ctl("switch", "a").code == 0
        sim_host.assert_serves("a")
    # Who never answers is not waited for as long as the others.
    limits: dict[str, Any] = {"canary__timeout_s": 0.3} if fault.name == "hang" else {}
    sim_host.add("b", **limits)
    sim_host.unit("b").fault = fault.name
    if situation == "broken":
        sim_host.unit("a").fault = SECOND_FAULT
    done = sim_host.ctl("switch", "b", *(["--on-failure", "stop"] if situation == "switch" else []))
    if situation == "back":
        assert_failed(done, "rolled_back", fault.phases, fault.symptom)
        sim_host.assert_serves("a")
    else:
        second = "identity" if situation == "broken" else ""
        assert_failed(done, "stopped", fault.phases, fault.symptom, second=second)
        failures = [done.data["failure"], *done.data["failures"]]
        sim_host.assert_stopped(*(f"phase {failure['phase']}" for failure in failures))
    sim_host.assert_journal_closed()
    # What was served before, and again on a way back; never a process with a fault.
    healthy = {invocation for invocation, broken in sim_host.fault_of.items() if not broken}
    assert sim_host.shown == healthy
    assert len(healthy) == {"first": 0, "back": 2}.get(situation, 1)


def test_an_engine_that_is_sound(sim_host: SimHost) -> None:
    for name in "ab":
        sim_host.add(name)
        assert sim_host.ctl("switch", name).data["outcome"] == "committed"
        sim_host.assert_serves(name)


@pytest.mark.parametrize("fault", ["", "forgets-reload", "fails-reload", "wrong-awake"])
def test_one_that_sleeps_without_its_weights(sim_host: SimHost, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    for name in "ab":
        sim_host.add(name, "--enable-sleep-mode", port=free_port(), engine__start_timeout_s=60)
    sim_host.run_short_of_memory()
    for name in "ab":
        assert sim_host.ctl("switch", name).data["outcome"] == "committed"
    assert json.loads(sim_host.texts[LAYOUT.standby_file(LAYOUT.unit("a"))][0])["level"] == 2
    asleep = sim_host.unit("a").invocation
    (sim_host.folder / "a.json").write_text(json.dumps({"live": [fault] if fault else []}))
    sim_host.shown.clear()
    done = sim_host.ctl("switch", "a")
    assert (done.data["outcome"], done.data["way"]) == ("committed", "plain" if fault else "standby"), done
    assert (sim_host.unit("a").invocation == asleep) is not bool(fault)
    sim_host.assert_invariants()
    sim_host.assert_answers("a")
    assert sim_host.sleeping == [LAYOUT.unit("b")]
    # Clients never reached a process that came back wrong.
    assert (asleep in sim_host.shown) is not bool(fault)


# The canary that every profile gets, of one that promises calls of tools and answers after a schema.
PROMISES = {"max_model_len": 8192, "max_num_seqs": 4, "enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
SHAPES = {
    "wrong-later": "canary case three_turns of b failed at answer 1 of 2: in turn 2 of 3",
    "wrong-stream": "canary case exact_ok of b failed at answer 2 of 2: in a stream",
    "wrong-sampled": "canary case sampled_count of b failed at answer 1 of 2: sampled at temperature 0.7",
    "wrong-reused": "canary case long_prefill of b failed at answer 2 of 2: in a stream; from the prefix cache",
    "no-usage": "canary case exact_ok of b failed at answer 2 of 2: the stream did not tell its usage",
    "no-finish": "canary case exact_ok of b failed at answer 2 of 2: the stream ended without a finish_reason",
    "no-done": "canary case exact_ok of b failed at answer 2 of 2: the stream ended without [DONE]",
    "never-streams": "canary case exact_ok of b failed at answer 2 of 2: the answer did not come as the stream",
    "broken-call-stream": "canary case tool_call of b failed at answer 2 of 2: the arguments of the call are no JSON",
    "call-as-text": "canary case tool_call of b failed at answer 2 of 2: the tool order_cloth was not called",
}


def default_canary(**engine: Any) -> dict[str, Any]:
    source = {
        "name": "b",
        "status": "experiment",
        "stack": "cpu",
        "cards": 0,
        "model": {"directory": "b"},
        "engine": {"settings": PROMISES, "structured_output": True, **engine},
    }
    profile = load_inline({"b": source})["b"]
    return {
        "canary": profile["canary"],
        "engine__reasoning": profile["engine"]["reasoning"],
        "engine__max_model_len": profile["engine"]["settings"]["max_model_len"],
    }


@pytest.mark.parametrize("fault", SHAPES)
def test_an_engine_that_is_wrong_in_one_shape_of_request_is_never_shown(sim_host: SimHost, fault: str) -> None:
    sim_host.add("a")
    assert sim_host.ctl("switch", "a").code == 0
    sim_host.add("b", "--max-model-len", "8192", **default_canary())
    sim_host.unit("b").fault = fault
    done = sim_host.ctl("switch", "b")
    assert_failed(done, "rolled_back", ("canary",), None)
    assert done.data["failure"]["message"].startswith(SHAPES[fault])
    sim_host.assert_serves("a")
    assert all(not sim_host.fault_of[invocation] for invocation in sim_host.shown)


@pytest.mark.parametrize("length", [256, 8192])
def test_an_engine_that_is_sound_passes_the_default_canary_in_every_shape(sim_host: SimHost, length: int) -> None:
    canary = default_canary(settings=PROMISES | {"max_model_len": length})
    sim_host.add("b", "--max-model-len", str(length), **canary)
    done = sim_host.ctl("switch", "b")
    assert (done.code, done.data["outcome"]) == (0, "committed"), done
    assert all(case["passed"] for case in done.data["canary"])


@pytest.mark.parametrize("fault", ["garbage", "wrong-answer", "empty"])
def test_an_engine_that_turns_wrong_while_it_is_idle_is_closed_and_served_again(sim_host: SimHost, fault: str) -> None:
    sim_host.add("a")
    assert sim_host.ctl("switch", "a").code == 0
    first, said = sim_host.unit("a").invocation, list[str]()
    (sim_host.folder / "a.json").write_text(json.dumps({"live": [fault], "load_s": 0, "token_s": 0}))
    watch = Controller(sim_host.effects(), LAYOUT, said.append)
    for _look in range(60):
        watch.look()
        sim_host.mono += LOOK_S
        if sim_host.unit("a").invocation != first and sim_host.open:
            break
    sim_host.assert_serves("a")
    assert any(line.startswith("close: the canary of what is served failed") for line in said), said
