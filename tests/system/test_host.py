# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host by itself, without a playbook: what b70ctl says, and that an engine that died is served again, verified.

Begins with a model served and verified, and ends so.
"""

from __future__ import annotations

import json
import time
from typing import Any

from testinfra.host import Host

from system.product import Client, Frontdoor

B70CTL = "/opt/b70/bin/b70ctl"
# Systemd's pause before a restart, the start of the engine, and many times as much on a busy machine.
SERVED_AGAIN_S = 600.0


def told(host: Host, words: str) -> Any:
    """What `b70ctl WORDS --json` prints, whatever its exit code."""
    return json.loads(host.run(f"{B70CTL} {words} --json").stdout)


def test_status_list_and_history_say_what_is_served(host: Host, frontdoor: Frontdoor) -> None:
    name = frontdoor.status()["model_slot"]["name"]
    told_status = host.run(f"{B70CTL} status")
    assert told_status.rc == 0, told_status.stdout
    assert told_status.stdout.startswith(f"slot main serves {name} ")
    listed = host.run(f"{B70CTL} list").stdout.splitlines()
    assert [line.split()[1] for line in listed if line.startswith("*")] == [name]
    assert len(listed) > 10
    last = told(host, "history")["switches"][-1]
    assert last["outcome"] in ("committed", "rolled_back"), last


def test_what_is_served_already_is_left_alone_or_asked_again(host: Host) -> None:
    before = told(host, "status")
    for words in ("recover", "recover --boot"):
        done = host.run(f"{B70CTL} {words}")
        assert done.rc == 0, done.stdout
    assert told(host, "status")["verified_at"] == before["verified_at"]
    asked = host.run(f"{B70CTL} verify")
    assert asked.rc == 0, asked.stdout
    after = told(host, "status")
    assert after["verified_at"] > before["verified_at"]
    assert after["engine"] == before["engine"]


def test_a_wrong_word_and_an_unknown_profile(host: Host) -> None:
    assert host.run(f"{B70CTL} serve").rc == 2
    refused = host.run(f"{B70CTL} switch no-such-profile")
    assert refused.rc == 1
    assert "is not rendered on this host" in refused.stdout
    assert host.run(f"{B70CTL} status").rc == 0


def test_an_engine_that_was_killed_is_served_again_verified(host: Host, frontdoor: Frontdoor) -> None:
    before = told(host, "status")
    client = Client(frontdoor)
    client.start()
    client.wait_answered(before["served_model"])
    host.check_output("kill -9 $(systemctl show --property=MainPID --value %s)", before["engine"]["unit"])
    deadline = time.monotonic() + SERVED_AGAIN_S
    now = before
    while not (now["verified"] and now["verified_at"] != before["verified_at"]):
        assert time.monotonic() < deadline, now
        time.sleep(1)
        now = told(host, "status")
    answered = frontdoor.ask()
    seen = client.stop()
    assert answered.status_code == 200, answered.text
    assert now["profile"] == before["profile"]
    assert now["engine"]["invocation_id"] != before["engine"]["invocation_id"]
    # the journal gets its entry just after the slot is open
    while (last := told(host, "history")["switches"][-1])["kind"] != "verify" or last["who"] != "systemd":
        assert time.monotonic() < deadline, last
        time.sleep(0.5)
    assert last["outcome"] == "committed"
    # Meanwhile nobody got an answer that was not verified, and who waited was told how long.
    assert {one.text for one in seen if one.status == 200} == {
        answered.json()["choices"][0]["message"]["content"].strip()
    }
    assert all(one.status in (200, 502, 503) for one in seen), seen
    assert host.run("systemctl is-failed b70-settle-main.service").rc != 0
