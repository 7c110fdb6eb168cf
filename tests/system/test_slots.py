# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two slots on a real host: a chat model and one that embeds, each by a real vLLM, behind one frontdoor.

The tests are one story, in this order. The host may have served something else before.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from testinfra.host import Host

from labkit.layout import open_lab
from scenarios.recording import Answer, Watch, ask
from scenarios.rig import Rig
from system.product import QUESTION, Play, play, reach, until

LIMIT_S = 180.0
ADMIN_KEY = "admin-key-of-the-lab"
MAIN, AUX = "b70-slot-main-tiny-a.service", "b70-slot-aux-vectors.service"


def embedder(name: str) -> dict[str, Any]:
    """A profile with the weights of tiny-a, asked for vectors."""
    texts = ["Who are you?", "A box holds 3 red and 4 blue blocks."]
    return {
        "extends": "tiny-a",
        "title": f"Tiny A as vectors ({name})",
        "status": "candidate",
        "engine": {"task": "embed", "served_model_name": name, "cache_key": "vectors", "start_timeout_s": 600},
        "canary": {"cases": [{"name": "vectors", "texts": texts, "compare": "vector", "dimension": 96}]},
    }


@dataclass
class Two:
    """The host, and what a play on it is told."""

    name: str
    host: Host
    url: str
    variables: Path
    rig: Rig

    def run(self, playbook: str, *more: str) -> Play:
        return play(playbook, "--limit", self.name, "-e", f"@{self.variables}", *more)

    def slots(self) -> dict[str, Any]:
        found: dict[str, Any] = requests.get(f"{self.url}/status", timeout=20).json()["slots"]
        return found

    def replicas(self) -> list[dict[str, Any]]:
        """The rows of the engines of the main slot."""
        found: list[dict[str, Any]] = self.slots()["main"]["replicas"]
        return found

    def command(self, replica: int) -> str:
        """The command line of the process of one of the profile four's engines."""
        pid = self.host.check_output(f"systemctl show --value --property=MainPID b70-slot-main-four@{replica}.service")
        return str(self.host.check_output(f"tr '\\0' ' ' < /proc/{pid}/cmdline"))

    def chat(self) -> requests.Response:
        body = {"model": "tiny-a", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12}
        return requests.post(f"{self.url}/v1/chat/completions", json={**body, "temperature": 0}, timeout=60)

    def vector(self, model: str = "vectors") -> requests.Response:
        return requests.post(f"{self.url}/v1/embeddings", json={"model": model, "input": QUESTION}, timeout=60)

    def administer(self, name: str, verb: str, **body: Any) -> dict[str, Any]:
        """Load or unload a model over HTTP; the row that is told then."""
        url, headers = f"{self.url}/v1/admin/models/{name}/{verb}", {"Authorization": f"Bearer {ADMIN_KEY}"}
        answer = requests.post(url, json=body, headers=headers, timeout=600)
        assert answer.status_code == 200, answer.text
        row: dict[str, Any] = answer.json()
        return row

    def invocation(self, unit: str) -> str:
        return str(self.host.check_output("systemctl show --value --property=InvocationID %s", unit))

    def wait_verified(self, *names: str) -> None:
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                found = self.slots()
                if all(found[name]["open"] and found[name]["verified"] for name in names):
                    return
            except (requests.RequestException, KeyError):
                found = {}
            assert time.monotonic() < end, found
            time.sleep(1)


@pytest.fixture(scope="session")
def two(two_hosts: list[tuple[str, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Two:
    variables = tmp_path_factory.mktemp("slots") / "variables.json"
    slots = {"main": {"cards": []}, "aux": {"cards": [], "port": 18090, "profile": "vectors"}}
    profiles = {name: embedder(name) for name in ("vectors", "vectors-2")}
    profiles["vectors-wrong"] = embedder("vectors-wrong")
    profiles["vectors-wrong"]["canary"]["cases"][0]["dimension"] = 97
    # Another model under the name that clients use; both have a queue.
    queue = {"status": "candidate", "frontdoor": {"queue_timeout_s": 60}}
    profiles["twin"] = {"extends": "tiny-b", "engine": {"served_model_name": "tiny-a"}, **queue}
    profiles["queued"] = {"extends": "tiny-a", **queue}
    # One engine per card, but for the cards.
    four = {"status": "candidate", "replicas": 4, "engine": {"start_stagger_s": 3}}
    profiles |= {"four": {"extends": "tiny-a", **four}, "four-b": {"extends": "tiny-b", **four}}
    keys = {"lab": "sha256:" + hashlib.sha256(ADMIN_KEY.encode()).hexdigest()}
    variables.write_text(json.dumps({"b70_slots": slots, "b70_profiles": profiles, "frontdoor_admin_keys": keys}))
    name, found = two_hosts[1]
    rig = Rig(open_lab(), int(name[-1]))
    return Two(name, reach(found), f"http://{found['ansible_host']}:8000", variables, rig)


@dataclass
class Chatting(threading.Thread):
    """A client of the chat model that never stops asking."""

    two: Two
    pause_s: float = 0.1
    answers: list[tuple[int, str]] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    # A thread is looked up by itself, and has no other equal.
    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self.enough.wait(self.pause_s):
            answer = self.two.chat()
            said = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.text
            self.answers.append((answer.status_code, said.strip()))

    def stop(self, *texts: str) -> None:
        """Every answer came, and was one of these."""
        self.enough.set()
        self.join(90)
        assert len(self.answers) > 5
        assert {*self.answers} == {(200, text) for text in texts or ("I am tiny-a.",)}


def test_one_play_serves_both(two: Two) -> None:
    done = two.run("site.yml", "-e", "profile=tiny-a")
    assert done.code == 0, done.output
    two.wait_verified("main", "aux")
    assert two.chat().json()["choices"][0]["message"]["content"].strip() == "I am tiny-a."
    assert len(two.vector().json()["data"][0]["embedding"]) == 96
    listed = requests.get(f"{two.url}/v1/models", timeout=20).json()["data"]
    assert [model["id"] for model in listed] == ["tiny-a", "vectors"]
    assert (two.slots()["main"]["profile"], two.slots()["aux"]["profile"]) == ("tiny-a", "vectors")


def test_a_second_run_changes_nothing(two: Two) -> None:
    done = two.run("site.yml", "-e", "profile=tiny-a")
    assert (done.code, done.changed) == (0, 0), done.output


def test_a_switch_of_one_slot_leaves_the_other_alone(two: Two) -> None:
    client, before = Chatting(two), two.invocation(MAIN)
    client.start()
    # over HTTP, by a helper that may write what is of the slot aux
    loaded = two.administer("vectors-2", "load", slot="aux")
    assert (loaded["runtime_state"], loaded["slot"], loaded["slots"]) == ("loaded", "aux", ["aux"])
    assert two.vector("vectors-2").status_code == 200
    failed = two.run("switch.yml", "-e", "slot_name=aux", "-e", "profile=vectors-wrong")
    assert failed.code != 0
    assert two.vector("vectors-2").status_code == 200
    client.stop()
    assert two.invocation(MAIN) == before
    told = json.loads(two.host.check_output("b70ctl-aux status --json"))
    assert (told["slot"], told["profile"], told["verified"]) == ("aux", "vectors-2", True)
    assert json.loads(two.host.check_output("b70ctl status --json"))["profile"] == "tiny-a"


def test_an_engine_that_dies_is_verified_while_the_other_slot_serves(two: Two) -> None:
    client, unit = Chatting(two), "b70-slot-aux-vectors-2.service"
    client.start()
    before = two.invocation(unit)
    two.host.check_output("systemctl kill --signal=KILL %s", unit)
    end = time.monotonic() + LIMIT_S
    while two.invocation(unit) == before:
        assert time.monotonic() < end
        time.sleep(0.5)
    two.wait_verified("aux")
    client.stop()
    assert two.vector("vectors-2").status_code == 200


def test_both_come_back_after_a_reboot(two: Two) -> None:
    two.rig.reboot()
    two.wait_verified("main", "aux")
    assert two.chat().status_code == 200
    assert two.vector("vectors-2").status_code == 200


def test_a_move_between_slots_turns_nobody_away(two: Two) -> None:
    """The aux slot has free cards where main serves; clients ask for one name throughout."""
    assert two.administer("vectors-2", "unload")["slot"] == "aux"
    assert two.slots()["aux"]["phase"] == "stopped"
    client = Chatting(two)
    client.start()
    there = two.run("playbooks/move.yml", "-e", "profile=twin", "-e", "to=aux")
    assert there.code == 0, there.output
    assert (two.slots()["aux"]["profile"], two.slots()["main"]["phase"]) == ("twin", "stopped")
    assert two.chat().json()["choices"][0]["message"]["content"].strip() == "I am tiny-b."
    # More than the slot has permits: somebody waits in its queue whenever it closes.
    clients = [client, *(Chatting(two, pause_s=0.0) for _client in range(5))]
    for one in clients[1:]:
        one.start()
    back = two.run("playbooks/move.yml", "-e", "profile=queued", "-e", "to=main", "-e", "from=aux")
    assert back.code == 0, back.output
    for one in clients:
        one.stop("I am tiny-a.", "I am tiny-b.")
    assert two.chat().json()["choices"][0]["message"]["content"].strip() == "I am tiny-a."


def test_a_slot_that_is_stopped_says_so_to_those_who_ask_for_its_model(two: Two) -> None:
    assert (two.slots()["aux"]["phase"], two.slots()["main"]["phase"]) == ("stopped", "serving")
    refused = two.vector("vectors-2")
    assert refused.status_code in (404, 503), refused.text
    assert two.chat().status_code == 200


@pytest.fixture
def upgraded(two: Two, tmp_path: Path) -> dict[str, Any]:
    """The variables of a site whose four engines use another stack."""
    about = {"name": "cpu-next", "title": "The next stack", "installable": True, "reason": "", "based_on": "cpu"}
    (tmp_path / "cpu-next.yml").write_text(json.dumps({**about, "env": {"TORCHDYNAMO_DISABLE": "1", "B70_NEXT": "1"}}))
    profiles = json.loads(two.variables.read_text())["b70_profiles"]
    profiles["four"]["stack"] = "cpu-next"
    return {"b70_stack_dirs": [str(tmp_path)], "b70_profiles": profiles}


def failures(two: Two) -> Counter[str]:
    """How many requests to each replica had no whole answer, as the frontdoor counts them."""
    text = requests.get(f"{two.url}/metrics", timeout=20).text
    found: Counter[str] = Counter()
    for labels, number in re.findall(r"^b70_frontdoor_replica_requests_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if told["outcome"] != "ok":
            found[told["replica"]] += int(float(number))
    return found


def lose_one(two: Two, profile: str, text: str) -> None:
    """Kill one of four engines while it generates: only what it was generating fails, and ends validly."""
    before, enough, answers = failures(two), threading.Event(), list[Answer]()
    model = str(two.slots()["main"]["served_model_name"])

    def client(number: int) -> None:
        while not enough.is_set():
            stream = number % 2 == 0
            answers.append(
                ask(two.rig.address, stream=stream, limit_s=120, model=model, max_tokens=200, ignore_eos=True)
            )

    # As many as three engines have room for: nobody is turned away while one is gone.
    with ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(client, number) for number in range(6)]
        try:
            until(lambda: two.replicas()[1]["active_generations"], "a generation of replica 1")
            since = time.time()
            two.host.check_output(f"systemctl kill --signal=KILL b70-slot-main-{profile}@1.service")
            killed = time.time()
            until(lambda: [row["open"] for row in two.replicas()] == [True, False, True, True], "it is closed")
            until(lambda: all(row["open"] and row["verified"] for row in two.replicas()), "it is open again")
        finally:
            enough.set()
        for one in clients:
            one.result()
    failed = [answer for answer in answers if not answer.whole]
    assert failed, "it was generating when it was killed"
    for answer in failed:
        assert answer.began <= killed, f"it was asked for after the engine had died: {answer}"
        assert answer.ended >= since, f"it was over before the engine died: {answer}"
        assert {502: "engine_closed", 200: "engine_cut"}.get(answer.status, "valid HTTP") in answer.error, answer
    assert len(answers) > len(failed)
    assert all(answer.text.startswith(text) for answer in answers if answer.whole)
    # The frontdoor says which engine had each of them.
    assert failures(two) - before == Counter({"1": len(failed)})


def test_four_engines_of_one_profile_lose_one_under_load(two: Two) -> None:
    done = two.run("switch.yml", "-e", "profile=four")
    assert done.code == 0, done.output
    lose_one(two, "four", "I am tiny-a.")


@pytest.mark.exhaustive
def test_four_engines_of_another_model_are_switched_to_and_lose_one_under_load(two: Two) -> None:
    # Also on a host that has served nothing.
    done = two.run("site.yml", "-e", "profile=four-b")
    assert done.code == 0, done.output
    lose_one(two, "four-b", "I am tiny-b.")
    done = two.run("switch.yml", "-e", "profile=four")
    assert done.code == 0, done.output


@pytest.mark.exhaustive
def test_an_upgrade_of_the_stack_of_four_engines_turns_nobody_away(two: Two, upgraded: dict[str, Any]) -> None:
    """Another stack is built beside the one that serves, and the engines change to it one after the other."""
    before = {row["invocation_id"] for row in two.replicas()}
    watch = Watch(two.rig)
    try:
        watch.begin()
        done = two.run("site.yml", "-e", "profile=four", "-e", json.dumps(upgraded))
        assert done.code == 0, done.output
        recording = watch.end()
    finally:
        watch.stop()
    recording.check_right("I am tiny-a.")
    assert not recording.refusals()
    assert len(recording.answers) > 50
    assert before.isdisjoint(row["invocation_id"] for row in two.replicas())
    assert all("/stacks/cpu-next-" in two.command(number) for number in range(4))
