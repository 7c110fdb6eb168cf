# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog as a service of a real host: an engine that stands still, under each policy. Patience takes minutes."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from scenarios.rig import Rig, wait_for

pytestmark = pytest.mark.scenario
UNIT = "b70-watch-main.service"
PROFILE = "etc/b70-vllm-slot/profiles/sim-a.json"
PATIENCE_S = 180
LIMIT_S = 4 * PATIENCE_S
# How long a prefill crawls; for endurance give more.
CRAWL_S = float(os.environ.get("B70_CRAWL_S", 3 * PATIENCE_S))


def told(rig: Rig) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(rig.read("run/b70/main/liveness.json"))
        return found
    return {"engines": [], "action": None, "verification": None}


def verdicts(rig: Rig) -> list[str]:
    return [row["verdict"] for row in told(rig)["engines"]]


def actions(rig: Rig) -> list[str]:
    return [line["action"] for line in rig.journal() if line["event"] == "liveness"]


@contextmanager
def waiting(rig: Rig) -> Iterator[None]:
    """A client that waits for an answer of the engine."""
    body = {"model": "sim-a", "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{rig.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )

    def ask() -> None:
        with suppress(OSError):
            urllib.request.urlopen(request, timeout=LIMIT_S + CRAWL_S).read()

    client = threading.Thread(target=ask, daemon=True)
    client.start()
    yield
    client.join(LIMIT_S)


@contextmanager
def liveness(rig: Rig, **settings: Any) -> Iterator[None]:
    """The profile's section, as a rendering that takes no start brings it."""
    before = rig.read(PROFILE)
    profile = json.loads(before)
    profile["liveness"] |= {"patience_s": PATIENCE_S, **settings}
    profile["frontdoor"]["backend_timeout_s"] = 7200
    rig.write(f"/{PROFILE}", json.dumps(profile))
    try:
        yield
    finally:
        rig.write(f"/{PROFILE}", before)


def test_the_watchdog_runs_on_a_host_that_serves(rig: Rig) -> None:
    rig.have("sim-a")
    assert rig.must("systemctl", "is-active", UNIT).strip() == "active"
    wait_for(lambda: verdicts(rig) == ["idle"], 60, "the engine is seen to be idle")
    with urllib.request.urlopen(f"{rig.url}/metrics", timeout=10) as answer:
        assert 'b70_frontdoor_engine_wedged{slot="main",replica="0"} 0' in answer.read().decode()
    rig.must("systemctl", "kill", "--signal=KILL", UNIT)
    wait_for(lambda: rig.run("systemctl", "is-active", UNIT).output.strip() == "active", 60, "it is started again")


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["report", "close", "restart"])
def test_an_engine_that_stands_still(rig: Rig, policy: str) -> None:
    with liveness(rig, policy=policy):
        rig.serve("sim-a")
        first = rig.facts().invocation
        rig.tell_running("sim-a", "wedge")
        with waiting(rig):
            wait_for(lambda: actions(rig) == [policy], LIMIT_S, "the watchdog acts")
            if policy == "restart":
                rig.tell_running("sim-a")
                wait_for(lambda: (told(rig)["action"] or {}).get("outcome"), LIMIT_S, "the engine is settled")
            wait_for(lambda: verdicts(rig) or policy == "close", 60, "the next look")
            state = rig.state()
            assert rig.ctl("status", "--json").data["engine"]["healthy"]
            assert state["open"] is (policy != "close")
            assert (rig.facts().invocation != first) is (policy == "restart")
            if policy == "close":
                assert "wedged" in state["reason"]
            if policy == "restart":
                assert (state["verified"], told(rig)["action"]["outcome"]) == (True, "committed")
            rig.tell_running("sim-a")


@pytest.mark.exhaustive
def test_a_prefill_that_moves_just_within_the_patience_raises_no_alarm(rig: Rig) -> None:
    with liveness(rig, policy="restart"):
        rig.serve("sim-a", chunk_s=PATIENCE_S - 30)
        first, seen = rig.facts().invocation, set()
        rig.tell_running("sim-a", "crawl")
        with waiting(rig):
            until = time.monotonic() + CRAWL_S
            while time.monotonic() < until:
                time.sleep(5)
                seen |= {*verdicts(rig)}
            rig.tell_running("sim-a")
        assert seen <= {"idle", "busy"}
        assert "busy" in seen
        assert (actions(rig), rig.facts().invocation) == ([], first)
