# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog on a real host and the real vLLM: its core is stopped under load while its server answers as ever.

The tests are one story, in this order. The patience is the least that a profile may have, so each takes minutes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from testinfra.host import Host

from demo import inventory_hosts
from system.product import INVENTORY, QUESTION, Frontdoor, answer_of, bare_hosts, play, reach, served_process, until

pytestmark = pytest.mark.exhaustive
PATIENCE_S = 180
LIMIT_S = 3 * PATIENCE_S
PROFILE = "tiny-watched"
ANSWER = "I am tiny-a."
ENGINE = "http://127.0.0.1:18080"
READ = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=10).read()"
PROMPT_TOKENS = 1900  # which are read in 30 chunks
TEMPLATE: dict[str, Any] = {
    "extends": "tiny-a",
    "title": "Tiny A, which is watched",
    "status": "candidate",
    "engine": {"start_timeout_s": 900, "settings": {"max_num_batched_tokens": 64}},
    "frontdoor": {"max_active_generations": 4, "backend_timeout_s": 7200},
}


class Client(threading.Thread):
    """Asks one thing after the other until it is told to stop. It gets tokens, or is told why it gets none."""

    def __init__(self, url: str, path: str, **body: Any) -> None:
        super().__init__(daemon=True)
        self.url, self.body = f"{url}{path}", {"model": "tiny-a", "stream": True, "temperature": 0, **body}
        self.events = self.whole = 0
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.wait(0.2):
            try:
                with requests.post(self.url, json=self.body, stream=True, timeout=2 * LIMIT_S) as answer:
                    for line in answer.iter_lines():
                        self.whole += line == b"data: [DONE]"
                        self.events += b'"choices":[{' in line
                        if self.enough.is_set():
                            break
            except requests.RequestException:
                continue


@dataclass
class Watched:
    """The host, its frontdoor, and the file that tells a play of the profile."""

    name: str
    host: Host
    door: Frontdoor
    variables: Path

    def serve(self, playbook: str = "switch.yml", **liveness: Any) -> None:
        settings = {"patience_s": PATIENCE_S, "ask_every_s": 0, **liveness}
        self.variables.write_text(json.dumps({"b70_profiles": {PROFILE: {**TEMPLATE, "liveness": settings}}}))
        words = ["--limit", self.name, "-e", f"@{self.variables}", "-e", f"profile={PROFILE}"]
        done = play(playbook, *words, limit_s=3600)
        assert done.code == 0, done.output
        until(lambda: self.told()["policy"] == settings.get("policy", "report"), "the watchdog follows the profile")

    def told(self) -> dict[str, Any]:
        done = self.host.run("cat /run/b70/main/liveness.json")
        none: dict[str, Any] = {"policy": None, "engines": [], "action": None, "verification": None}
        return json.loads(done.stdout) if done.rc == 0 else none

    def verdicts(self) -> list[str]:
        return [row["verdict"] for row in self.told()["engines"]]

    def actions(self) -> list[str]:
        lines = map(json.loads, self.host.check_output("cat /var/lib/b70/journal/main.jsonl").splitlines())
        return [line["action"] for line in lines if line["event"] == "liveness"]

    def signal(self, name: str) -> None:
        """Send it to the process that generates, by the name that vLLM gives it."""
        self.host.check_output("pkill --signal %s --full --exact 'VLLM::EngineCore.*'", name)

    @contextmanager
    def under_load(self) -> Iterator[list[Client]]:
        """Two clients stream without end, a third one has a long prompt read.

        The second client begins when the first one is half-way. Both get a token of each step, so they never end
        together, and the engine never has nothing to do.
        """
        chat = {"messages": [{"role": "user", "content": QUESTION}], "ignore_eos": True, "max_tokens": 1500}
        clients: list[Client] = []
        try:
            for _client in range(2):
                clients.append(Client(self.door.url, "/v1/chat/completions", **chat))
                clients[-1].start()
                until(lambda: clients[-1].events > 750, "the client gets tokens")
            clients.append(Client(self.door.url, "/v1/completions", prompt=[7] * PROMPT_TOKENS, max_tokens=1))
            clients[2].start()
            until(lambda: self.verdicts() == ["busy"], "the engine is seen to be busy")
            yield clients
        finally:
            for client in clients:
                client.enough.set()
        for client in clients:
            client.join(LIMIT_S)
            assert not client.is_alive()

    @contextmanager
    def stopped(self, action: str) -> Iterator[list[Client]]:
        """The core is stopped under load, and the watchdog has begun what the policy says."""
        before = len(self.actions())
        with self.under_load() as clients:
            self.signal("STOP")
            until(lambda: self.actions()[before:] == [action], "the watchdog acts")
            yield clients

    def answers_health(self) -> None:
        for path in ("health", "v1/models", "metrics"):
            self.host.check_output("python3 -c %s %s", READ, f"{ENGINE}/{path}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with bare_hosts("watched", 1):
        ((name, found),) = inventory_hosts(str(INVENTORY), "b70_hosts").items()
        variables = tmp_path_factory.mktemp("watched") / "variables.json"
        yield Watched(name, reach(found), Frontdoor(f"http://{found['ansible_host']}:8000"), variables)


def test_streams_and_a_long_chunked_prefill_are_busy(watched: Watched) -> None:
    watched.serve("site.yml", policy="restart")
    first, seen = served_process(watched.host), set[str]()
    with watched.under_load() as clients:
        ends = time.monotonic() + PATIENCE_S + 60
        while time.monotonic() < ends:
            seen |= {*watched.verdicts()}
            time.sleep(2)
        assert clients[2].whole
    assert seen == {"busy"}
    assert (watched.actions(), served_process(watched.host)) == ([], first)


def test_a_core_that_is_stopped_is_reported_and_moves_again(watched: Watched) -> None:
    watched.serve(policy="report")
    first = served_process(watched.host)
    with watched.stopped("report") as clients:
        watched.answers_health()
        until(lambda: watched.verdicts() == ["wedged"], "the next look")
        before = [client.events for client in clients[:2]]
        assert "WEDGED" in watched.host.check_output("b70ctl status")
        assert [client.events for client in clients[:2]] == before
        watched.signal("CONT")
        until(lambda: watched.verdicts() == ["busy"], "it moves again")
        until(lambda: all(one.events > old for one, old in zip(clients, before, strict=False)), "the streams go on")
    assert served_process(watched.host) == first


def test_the_frontdoor_is_closed_for_it_until_a_verification(watched: Watched) -> None:
    watched.serve(policy="close")
    first = served_process(watched.host)
    with watched.stopped("close"):
        watched.answers_health()
        until(lambda: served_process(watched.host) == "", "the frontdoor is closed")
        assert "wedged" in watched.door.status()["reason"]
        assert watched.door.ask().status_code == 503
        watched.signal("CONT")
    watched.host.check_output("b70ctl verify")
    assert served_process(watched.host) == first
    assert answer_of(watched.door.ask()) == ANSWER


def test_it_is_started_anew_and_verified(watched: Watched) -> None:
    watched.serve(policy="restart")
    first = served_process(watched.host)
    with watched.stopped("restart") as clients:
        until(lambda: served_process(watched.host) not in ("", first), "another process is served")
        before = [client.events for client in clients[:2]]
        until(lambda: all(one.events > old for one, old in zip(clients, before, strict=False)), "clients are served")
    until(lambda: (watched.told()["action"] or {}).get("outcome") == "committed", "the watchdog tells how it ended")
    assert answer_of(watched.door.ask()) == ANSWER


def test_the_canary_is_asked_while_nobody_is_served(watched: Watched) -> None:
    watched.serve(policy="restart", verify_every_s=60)
    first = served_process(watched.host)
    found = until(lambda: watched.told()["verification"], "a verification")
    assert found["passed"] is True, found
    assert served_process(watched.host) == first
