# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host by itself, without a playbook: what b70ctl says.

Begins with a model served and verified, and ends so.
"""

from __future__ import annotations

import json
from typing import Any

from testinfra.host import Host

from system.product import Frontdoor

B70CTL = "/opt/b70/bin/b70ctl"


def told(host: Host, words: str) -> Any:
    """What `b70ctl WORDS --json` prints, whatever its exit code."""
    return json.loads(host.run(f"{B70CTL} {words} --json").stdout)


def test_status_list_and_history_say_what_is_served(host: Host, frontdoor: Frontdoor) -> None:
    name = frontdoor.status()["model_slot"]["name"]
    told_status = host.run(f"{B70CTL} status")
    assert told_status.rc == 0, told_status.stdout
    assert told_status.stdout.splitlines()[1].startswith(f"seen: slot main serves {name} ")
    listed = host.run(f"{B70CTL} list").stdout.splitlines()
    assert [line.split()[1] for line in listed if line.startswith("*")] == [name]
    assert len(listed) > 10
    last = told(host, "history")["switches"][-1]
    assert last["outcome"] in ("committed", "rolled_back"), last


def test_what_is_served_already_is_left_alone_or_asked_again(host: Host) -> None:
    before = told(host, "status")
    done = host.run(f"{B70CTL} recover")
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
