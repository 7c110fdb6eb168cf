# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models loaded and unloaded over HTTP on a real host. Begins with tiny-a or tiny-b served, and ends so."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from testinfra.host import Host

from system.product import ROOT, Frontdoor, Play, answer_of, play

KEY = "admin-key-of-the-lab"
FRONTDOOR = "b70-openai-frontdoor.service"
STRANGER = "gemma3-12b-it-int4-autoround"
LIMIT_S = 900.0


def apply(keys: dict[str, str]) -> Play:
    """Bring the frontdoor to these admin keys; the slot is not touched."""
    digests = {name: "sha256:" + hashlib.sha256(key.encode()).hexdigest() for name, key in keys.items()}
    words = json.dumps({"frontdoor_admin_keys": digests})
    return play(ROOT / "site.yml", "--diff", "--tags", "always,frontdoor", "-e", words)


class Admin:
    """The administration of one frontdoor as a client sees it."""

    def __init__(self, frontdoor: Frontdoor, key: str = KEY) -> None:
        self._url = f"{frontdoor.url}/v1/admin/models"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def models(self) -> requests.Response:
        return requests.get(self._url, headers=self._headers, timeout=60)

    def states(self) -> dict[str, str]:
        return {row["name"]: row["runtime_state"] for row in self.models().json()["models"]}

    def change(self, name: str, verb: str, body: Any = None) -> requests.Response:
        return requests.post(f"{self._url}/{name}/{verb}", json=body, headers=self._headers, timeout=LIMIT_S)


@pytest.fixture(scope="module")
def admin(frontdoor: Frontdoor) -> Iterator[Admin]:
    """With keys, and in the end without."""
    done = apply({"lab": KEY})
    assert done.code == 0, done.output
    # neither the key nor its digest is shown
    assert KEY not in done.output
    assert hashlib.sha256(KEY.encode()).hexdigest() not in done.output
    made = Admin(frontdoor)
    yield made
    if made.models().status_code != 404:  # the last test takes it away, where it comes that far
        done = apply({})
        assert done.code == 0, done.output


def test_there_is_none_unless_it_was_asked_for(frontdoor: Frontdoor, host: Host) -> None:
    for answer in (Admin(frontdoor).models(), Admin(frontdoor).change("tiny-b", "load")):
        assert (answer.status_code, answer.json()["detail"]["code"]) == (404, "unknown_path")
    assert host.run("systemctl cat b70-slot-admin.socket").rc != 0
    assert not host.file("/run/b70-slot-admin.sock").exists


def test_it_takes_a_key_and_shows_every_profile(admin: Admin, frontdoor: Frontdoor, host: Host) -> None:
    assert Admin(frontdoor, "").models().status_code == 401
    assert Admin(frontdoor, "wrong").change("tiny-a", "load").status_code == 401
    now = frontdoor.status()["model_slot"]["name"]
    states = admin.states()
    assert len(states) > 10
    assert {name for name, state in states.items() if state == "loaded"} == {now}
    # what lets the frontdoor ask lets nobody else
    socket = host.file("/run/b70-slot-admin.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", "b70-frontdoor", 0o660)
    assert host.check_output("getent group b70-frontdoor").endswith(":")
    assert host.file("/etc/b70-frontdoor/admin-keys.toml").mode == 0o640
    knock = "import socket; socket.socket(socket.AF_UNIX).connect('/run/b70-slot-admin.sock')"
    asked = host.run("runuser -u b70 -- python3 -c %s", knock)
    assert "PermissionError" in asked.stderr, asked


def test_wrong_requests_touch_nothing(admin: Admin, frontdoor: Frontdoor) -> None:
    before = frontdoor.status()["frontdoor"]["state_sequence"]
    unknown = admin.change("no-such-model", "load")
    assert (unknown.status_code, unknown.json()["detail"]["code"]) == (404, "unknown_model")
    assert admin.change("tiny-b", "load", ["--gate=none"]).status_code == 422
    assert admin.change("tiny-b", "load", {"gate": "none"}).status_code == 422
    override = admin.change("tiny-b", "load", {"vllm_max_model_len": 256})
    assert (override.status_code, override.json()["detail"]["code"]) == (400, "invalid_load_request")
    same = admin.change(frontdoor.status()["model_slot"]["name"], "load")
    assert (same.status_code, same.json()["runtime_state"]) == (200, "loaded")
    assert frontdoor.status()["frontdoor"]["state_sequence"] == before


def test_a_load_serves_another_model_and_survives_the_frontdoor(admin: Admin, frontdoor: Frontdoor, host: Host) -> None:
    before = frontdoor.status()["model_slot"]["name"]
    wanted = "tiny-b" if before == "tiny-a" else "tiny-a"
    answers: list[requests.Response | Exception] = []

    def load() -> None:
        try:
            answers.append(admin.change(wanted, "load", {}))
        except requests.RequestException as error:
            answers.append(error)

    waiting = threading.Thread(target=load)
    waiting.start()
    deadline = time.monotonic() + LIMIT_S
    while frontdoor.status()["phase"] == "serving":
        assert time.monotonic() < deadline, "the slot does not begin to switch"
        time.sleep(0.2)
    assert admin.states()[wanted] == "loading"
    again = admin.change(wanted, "load")
    assert (again.status_code, again.json()["runtime_state"]) == (200, "loading")
    for name, verb in ((before, "load"), (wanted, "unload")):
        busy = admin.change(name, verb)
        assert busy.status_code == 409, busy.text
        assert busy.json()["detail"]["code"] == "model_loading", busy.text
    # who waits is told that it goes on, and it does
    host.check_output("systemctl restart %s", FRONTDOOR)
    waiting.join(LIMIT_S)
    (answer,) = answers
    assert isinstance(answer, requests.Response), answer
    assert (answer.status_code, answer.json()["detail"]["code"]) == (503, "stopping")
    while (state := admin.states()[wanted]) == "loading":
        assert time.monotonic() < deadline, "the load does not end"
        time.sleep(1)
    assert state == "loaded"
    # the journal gets its entry just after the slot is open
    while (status := frontdoor.status())["last_switch"]["to"] != wanted:
        assert time.monotonic() < deadline, status["last_switch"]
        time.sleep(0.2)
    assert status["last_switch"]["outcome"] == "committed"
    assert (status["model_slot"]["name"], status["verified"]) == (wanted, True)
    assert answer_of(frontdoor.ask()) == f"I am {wanted}."
    # the helper's own line is the last that it does
    journal = "journalctl --sync; journalctl -u 'b70-slot-admin@*' -o cat --no-pager"
    while f"load {wanted} lab" not in (said := host.check_output(journal)):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    last = json.loads(host.check_output("tail -n 200 /var/lib/b70/journal/main.jsonl | grep '\"begin\"' | tail -n 1"))
    assert last["why"] == f"load {wanted}, asked over HTTP with the key lab"


def test_a_load_that_fails_says_why_and_what_is_served(admin: Admin, frontdoor: Frontdoor) -> None:
    before = frontdoor.status()["model_slot"]["name"]
    # one of the shipped profiles, whose stack is not on this host
    failed = admin.change(STRANGER, "load")
    about = failed.json()["detail"]
    assert (failed.status_code, about["code"], about["model"]) == (500, "model_load_failed", STRANGER)
    assert f"Nothing was touched: {before} is still served, verified." in about["message"]
    rows = {row["name"]: row for row in admin.models().json()["models"]}
    assert rows[STRANGER]["runtime_state"] == "failed"
    assert rows[STRANGER]["last_error"] == about["message"]
    assert rows[before]["is_loaded"]


def test_an_unload_stops_and_a_load_starts_again(admin: Admin, frontdoor: Frontdoor, host: Host) -> None:
    name = frontdoor.status()["model_slot"]["name"]
    stopped = admin.change(name, "unload")
    assert (stopped.status_code, stopped.json()["runtime_state"]) == (200, "unloaded"), stopped.text
    assert frontdoor.ask().status_code == 503
    assert frontdoor.status()["phase"] == "stopped"
    assert host.run("systemctl is-active b70-slot-main-%s.service", name).stdout.strip() != "active"
    again = admin.change(name, "unload")
    assert (again.status_code, again.json()["runtime_state"]) == (200, "unloaded")
    loaded = admin.change(name, "load")
    assert (loaded.status_code, loaded.json()["runtime_state"]) == (200, "loaded"), loaded.text
    assert answer_of(frontdoor.ask()) == f"I am {name}."


def test_without_keys_it_is_gone_again(host: Host, frontdoor: Frontdoor, admin: Admin) -> None:
    done = apply({})
    assert done.code == 0, done.output
    assert Admin(frontdoor).models().status_code == 404
    assert not host.file("/run/b70-slot-admin.sock").exists
    assert not host.file("/etc/systemd/system/b70-slot-admin.socket").exists
    assert not host.file("/etc/b70-frontdoor/admin-keys.toml").exists
