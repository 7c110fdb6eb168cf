# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches to the simulated engine over real connections, with the default canary: what it finds, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_engine_sim import Sim

from ansible_collections.arcpro.b70.plugins.module_utils._slot.face import api
from ansible_collections.arcpro.b70.plugins.module_utils._slot.host.http import HttpClient
from ansible_collections.arcpro.b70.plugins.module_utils._slot.words.types import OnFailure
from unit.plugins.module_utils._slot.fake_host import LAYOUT, FakeHost, FakeHttp, request
from unit.shipped import load_inline

PLAIN = ["exact_ok", "copy_phrase", "small_arithmetic", "three_turns", "sampled_count", "long_prefill"]
TOOLS = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
SEPARATE = {"reasoning": {"how": "separate", "budget_tokens": 64}}
Verify = Callable[..., dict[str, Any]]


class Http(HttpClient):
    """The frontdoor is the one in memory, the engine is real."""

    def __init__(self, fake_host: FakeHost) -> None:
        super().__init__()
        self.memory, self.asked = FakeHttp(fake_host), 0

    def get(self, url: str, timeout_s: float) -> Any:
        return self.memory.get(url, timeout_s) if url.endswith("/status") else super().get(url, timeout_s)

    def _ask(self, method: str, url: str, timeout_s: float, *sent: Any) -> Any:
        self.asked += method == "POST"
        return super()._ask(method, url, timeout_s, *sent)


def profile_of(admitted: int, settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    """A profile that leaves its canary to the defaults."""
    source = {
        "name": "x",
        "status": "experiment",
        "stack": "cpu",
        "cards": 0,
        "model": {"directory": "x"},
        "engine": {"settings": {"max_model_len": 4096, "max_num_seqs": admitted, **settings}, **engine},
    }
    return load_inline({"x": source})["x"]


@pytest.fixture
def verify(tmp_path: Path) -> Iterator[Verify]:
    sims: list[Sim] = []

    def run(
        *faults: str,
        admitted: int = 8,
        settings: dict[str, Any] | None = None,
        engine: dict[str, Any] | None = None,
        **told: Any,
    ) -> dict[str, Any]:
        profile = profile_of(admitted, settings or {}, engine or {})
        parser = profile["engine"]["settings"].get("reasoning_parser")
        arguments = ["--max-model-len", "4096", *(["--reasoning-parser", parser] if parser else [])]
        sims.append(Sim(tmp_path, *faults, arguments=arguments, **told).wait())
        fake_host = FakeHost()
        changes = {
            "engine__backend_url": f"http://127.0.0.1:{sims[-1].port}",
            "engine__served_model_name": "sim-a",
            "engine__max_model_len": 4096,
            "engine__reasoning": profile["engine"]["reasoning"],
            "frontdoor__max_active_generations": admitted,
            "canary": profile["canary"],
        }
        fake_host.render("a", **changes)
        http = Http(fake_host)
        told_of = request("a", on_failure=OnFailure.STOP)
        result = api.switch(replace(fake_host.effects(), http=http), LAYOUT, told_of)
        return {**result, "asked": http.asked}

    yield run
    for sim in sims:
        sim.end()


@pytest.mark.parametrize(("admitted", "asked"), [(1, 17), (2, 19), (8, 25), (48, 33)])
def test_a_plain_profile_costs_no_more_than_it_admits(verify: Verify, admitted: int, asked: int) -> None:
    # One for the first token, two for each of five cases and for each of three turns, and the burst.
    result = verify(admitted=admitted)
    assert result["verified"], result
    assert result["asked"] == asked


def test_what_a_profile_claims_is_asked_for(verify: Verify) -> None:
    result = verify(settings=TOOLS, engine={"structured_output": True})
    assert result["verified"], result
    assert [case["name"] for case in result["canary"]] == [*PLAIN, "tool_call", "json_reply", "burst"]


def test_thinking_that_is_turned_off_leaves_the_limits_as_they_are(verify: Verify) -> None:
    off = {"engine": {"reasoning": {"how": "disabled"}}, "thinks": True}
    result = verify(**off)
    assert result["verified"], result
    assert not verify(thinks=True)["verified"]


@pytest.mark.parametrize("how", ["separate", "inline"])
def test_what_comes_after_a_thought_is_judged(verify: Verify, how: str) -> None:
    parser = {"reasoning_parser": "qwen3"} if how == "separate" else {}
    thinking = {"reasoning": {"how": how, "budget_tokens": 64}, "structured_output": True}
    result = verify(settings={**TOOLS, **parser}, engine=thinking, thinks=True)
    assert result["verified"], result
    assert {case["got"] for case in result["canary"]} >= {"OK", "7", "orbit"}


@pytest.mark.parametrize("how", ["separate", "inline"])
def test_reasoning_that_never_ends_is_said_to_be_that(verify: Verify, how: str) -> None:
    parser = {"reasoning_parser": "qwen3"} if how == "separate" else {}
    thinking = {"reasoning": {"how": how, "budget_tokens": 64}}
    result = verify("endless-thought", settings=parser, engine=thinking, thinks=True)
    assert not result["verified"]
    assert result["failure"]["message"] == (
        "canary case exact_ok of a failed at answer 1 of 2: the answer was cut off inside its reasoning; "
        f"engine.reasoning.budget_tokens is 64; also failed: {', '.join(PLAIN[1:])}"
    )


def test_arguments_that_are_cut_off_are_no_call(verify: Verify) -> None:
    result = verify("broken-call", settings=TOOLS)
    assert not result["verified"]
    assert (
        "canary case tool_call of a failed at answer 1 of 2: the arguments of the call are no JSON"
        in (result["failure"]["message"])
    )


def test_an_engine_that_is_wrong_in_company_only_is_found_by_the_burst_alone(verify: Verify) -> None:
    result = verify("wrong-together", admitted=4)
    assert not result["verified"]
    assert [case["passed"] for case in result["canary"]] == [True] * len(PLAIN) + [False]
    assert result["failure"]["message"].startswith("canary case burst of a failed at answer ")
    assert "of 4: asked at once, " in result["failure"]["message"]
    assert verify("wrong-together", admitted=1)["verified"]  # nobody else is ever there
