# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the real engine alone shows and every run need not repeat: a kill, and models that think before they answer.

Begins with a model served and verified.
"""

from __future__ import annotations

import json
from typing import Any

from testinfra.host import Host

from system.product import (
    ROOT,
    Client,
    Frontdoor,
    Play,
    answer_of,
    play,
    served_process,
    until,
    wait_served_anew,
    words_of,
)

# The same engine as tiny-think, whose template is told nothing: it thinks before every answer. After a thought
# so small a model keeps to a schema, but miscounts in it.
ALOUD = {"engine": {"reasoning": {"how": "separate", "budget_tokens": 64}, "structured_output": False}}
# Here no parser parts the thought from the answer, and there is no room for it.
SHORT = {"engine": {"reasoning": {"how": "inline", "budget_tokens": 8}, "settings": {"reasoning_parser": None}}}
THOUGHT = "the answer was cut off inside its reasoning; engine.reasoning.budget_tokens is 8"
MORE = {
    name: {"extends": "tiny-think", "title": name, "status": "experiment", **part}
    for name, part in (("tiny-aloud", ALOUD), ("tiny-short", SHORT))
}


def switch(profile: str) -> Play:
    return play(ROOT / "switch.yml", "-e", json.dumps({"profile": profile, "b70_profiles": MORE}))


def history(host: Host) -> list[dict[str, Any]]:
    switches: list[dict[str, Any]] = json.loads(host.run("/opt/b70/bin/b70ctl history --json").stdout)["switches"]
    return switches


def test_an_engine_that_was_killed_is_served_again_verified(host: Host, frontdoor: Frontdoor) -> None:
    before = frontdoor.status()["model_slot"]["name"]
    process = served_process(host)
    answer = answer_of(frontdoor.ask())
    client = Client(frontdoor)
    client.start()
    client.wait_answered(before)
    host.check_output("systemctl kill --signal=KILL --kill-whom=main b70-slot-main-%s.service", before)
    wait_served_anew(host, process)
    assert answer_of(frontdoor.ask()) == answer
    seen = client.stop()
    assert frontdoor.status()["model_slot"]["name"] == before
    # The journal gets its entry just after the slot is open.
    last = until(lambda: (one := history(host)[-1])["who"] == "the controller" and one, "the entry of the journal")
    assert (last["kind"], last["outcome"]) == ("verify", "committed"), last
    # Meanwhile nobody got an answer that was not verified.
    assert {one.text for one in seen if one.status == 200} == {answer}
    assert all(one.status in (200, 502, 503) for one in seen), seen
    assert host.run("systemctl is-failed b70-controller-main.service").rc != 0


def test_a_model_is_verified_while_it_thinks(frontdoor: Frontdoor) -> None:
    switched = switch("tiny-aloud")
    assert switched.code == 0, switched.output
    status = frontdoor.status()
    assert (status["model_slot"]["name"], status["verified"]) == ("tiny-aloud", True)


def test_an_answer_that_is_cut_off_inside_the_thought_is_none(frontdoor: Frontdoor) -> None:
    failed = switch("tiny-short")
    assert failed.code != 0, failed.output
    said = words_of(failed.output)
    assert THOUGHT in said, failed.output
    assert "tiny-aloud is served again, verified" in said
    status = frontdoor.status()
    assert (status["model_slot"]["name"], status["verified"]) == ("tiny-aloud", True)
