# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog as a service of a real host: an engine that stands still, under each policy. Patience takes minutes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from machine import wait_for
from scenarios.rig import CONTROLLER, Rig

pytestmark = pytest.mark.scenario
UNIT = CONTROLLER
PROFILE = "etc/b70-vllm-slot/profiles/sim-a.json"
PATIENCE_S = 180
READ = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=600).read()"
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


class Clients:
    """Clients that wait for answers of the engine: each streams a long one, or waits for a short one, until it has it.

    tokens: what the streams have brought; whole: the last lines of answers that came to their end.
    """

    def __init__(self, rig: Rig) -> None:
        self.url = f"{rig.url}/v1/chat/completions"
        self.tokens: list[bytes] = []
        self.whole: list[bytes] = []
        self._threads: list[threading.Thread] = []

    def ask(self, number: int, *, stream: bool) -> None:
        for _client in range(number):
            self._threads.append(threading.Thread(target=self._ask, args=(stream,), daemon=True))
            self._threads[-1].start()

    def _ask(self, stream: bool) -> None:
        question = [{"role": "user", "content": "Who are you?"}]
        long = {"stream": True, "ignore_eos": True, "max_tokens": 400} if stream else {"max_tokens": 8}
        body = json.dumps({"model": "sim-a", "messages": question, **long}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with suppress(OSError), urllib.request.urlopen(request, timeout=LIMIT_S + CRAWL_S) as answer:
            for line in answer:
                if not stream or line.startswith(b"data: [DONE]"):
                    self.whole.append(line)
                elif b'"content"' in line:
                    self.tokens.append(line)

    def gone(self) -> None:
        for client in self._threads:
            client.join(LIMIT_S)
            assert not client.is_alive()


@contextmanager
def under_load(rig: Rig) -> Iterator[Clients]:
    """Three clients are in the middle of their streams, and two wait for the end of their prompts."""
    clients = Clients(rig)
    clients.ask(3, stream=True)
    wait_for(lambda: len(clients.tokens) > 6, "three streams have begun")
    rig.tell_running("sim-a", "crawl")
    clients.ask(2, stream=False)
    wait_for(lambda: verdicts(rig) == ["busy"], "the engine is seen to be busy")
    yield clients
    clients.gone()


def is_green(rig: Rig) -> None:
    """What is asked of the engine's server is answered as ever."""
    for path in ("health", "v1/models", "metrics"):
        rig.must("python3", "-c", READ, f"http://127.0.0.1:18080/{path}")


@contextmanager
def watched_by(rig: Rig, *directives: str) -> Iterator[None]:
    """The watchdog's unit has further directives."""
    folder = f"/run/systemd/system/{UNIT}.d"
    rig.must("mkdir", "-p", folder)
    rig.write(f"{folder}/50-scenario.conf", "\n".join(["[Service]", *directives]))
    try:
        start_anew(rig)
        yield
    finally:
        rig.must("rm", "-r", folder)
        start_anew(rig)


def start_anew(rig: Rig) -> None:
    rig.must("systemctl", "daemon-reload")
    rig.must("systemctl", "restart", UNIT)


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
    wait_for(lambda: verdicts(rig) == ["idle"], "the engine is seen to be idle")
    with urllib.request.urlopen(f"{rig.url}/metrics", timeout=LIMIT_S) as answer:
        assert 'b70_frontdoor_engine_wedged{slot="main",replica="0"} 0' in answer.read().decode()
    rig.must("systemctl", "kill", "--signal=KILL", UNIT)
    wait_for(lambda: rig.run("systemctl", "is-active", UNIT).output.strip() == "active", "it is started again")


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["report", "close", "restart"])
def test_an_engine_that_stands_still(rig: Rig, policy: str) -> None:
    """Its core is stopped under load: the server is as ever, and the watchdog does what the policy says."""
    with liveness(rig, policy=policy):
        rig.serve("sim-a", token_s=0.2)
        first = rig.facts().invocation
        with under_load(rig) as clients:
            core = rig.core()
            os.kill(core, signal.SIGSTOP)
            rig.tell_running("sim-a")  # the prompts end, but for a core that does it
            wait_for(lambda: actions(rig) == [policy], "the watchdog acts")
            before = len(clients.tokens)
            if policy == "restart":
                wait_for(lambda: (told(rig)["action"] or {}).get("outcome"), "the engine is settled")
                wait_for(lambda: verdicts(rig) and "wedged" not in verdicts(rig), "the next look")
            else:
                is_green(rig)
                assert len(clients.tokens) == before
                wait_for(lambda: verdicts(rig) == ["wedged"], "the next look")
            state = rig.state()
            assert rig.ctl("status", "--json").data["engine"]["healthy"]
            assert state["open"] is (policy != "close")
            assert (rig.facts().invocation != first) is (policy == "restart")
            if policy == "close":
                assert "wedged" in state["reason"]
            if policy == "restart":
                assert (state["verified"], told(rig)["action"]["outcome"]) == (True, "committed")
                return
            os.kill(core, signal.SIGCONT)
            wait_for(lambda: len(clients.whole) == 5, "the clients have their answers")
        if policy == "close":
            assert rig.ctl("verify").code == 0
            assert rig.state()["open"]
        wait_for(lambda: verdicts(rig) == ["idle"], "the engine is seen to work")


@pytest.mark.exhaustive
def test_a_prefill_that_moves_just_within_the_patience_raises_no_alarm(rig: Rig) -> None:
    """Four clients, whose chunks end at the same time: in between nothing moves at all."""
    with liveness(rig, policy="restart"):
        rig.serve("sim-a", chunk_s=PATIENCE_S - 30)
        first, seen = rig.facts().invocation, set()
        rig.tell_running("sim-a", "crawl")
        clients = Clients(rig)
        clients.ask(2, stream=True)
        clients.ask(2, stream=False)
        until = time.monotonic() + CRAWL_S
        while time.monotonic() < until:
            time.sleep(5)
            seen |= {*verdicts(rig)}
        rig.tell_running("sim-a")
        clients.gone()
        assert len(clients.whole) == 4
        assert seen <= {"idle", "busy"}
        assert "busy" in seen
        assert (actions(rig), rig.facts().invocation) == ([], first)
