# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A search for a context on a real host: its result, and that the slot comes back when play or search are killed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from machine import wait_for
from scenarios.outcome import assert_serves
from scenarios.rig import SIM_DIR, Rig
from scenarios.test_ansible import Begin, play, start_play
from unit import contracts

pytestmark = [pytest.mark.scenario, pytest.mark.exhaustive]
PLAYBOOK = "playbooks/context_search.yml"
WORDS = ("-e", "sequences=64", "-e", "context_search_most=15616", "-e", "context_search_least=1024")
UNIT = "b70-context-search-main.service"
SEEN = "var/lib/b70/context_search/main/out/seen.json"
RECORDS = "var/lib/b70/records"
IN_PLACE = "etc/b70-vllm-slot/profiles/sim-b.json"
# The published search for 64 sequences.
TABLE = [[4096, 291995], [4480, 292317], [4864, 292589], [7680, 405664], [10368, 507081], [15616, 667253]]


def tell_room(rig: Rig, **more: Any) -> None:
    rig.write(f"{SIM_DIR}/sim-b.json", json.dumps({"kv_table": TABLE, **more}))


def trials(rig: Rig) -> int:
    try:
        return len(json.loads(rig.read(SEEN))["trials"])
    except FileNotFoundError:
        return 0


def runs(rig: Rig) -> bool:
    return rig.run("systemctl", "is-active", UNIT).output.strip() == "active"


def searches(rig: Rig) -> list[dict[str, Any]]:
    """The rows of searches in the index, the newest first."""
    try:
        rows = json.loads(rig.read(f"{RECORDS}/index.json"))["records"]
    except FileNotFoundError:
        return []
    return [row for row in rows if row["kind"] == "context_search"]


def record(rig: Rig) -> dict[str, Any]:
    newest = searches(rig)[0]
    text = rig.read(f"{RECORDS}/context_search/{newest['id']}.json")
    contracts.check("record", text)
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_published_table(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    tell_room(rig)
    recorded()
    code, said = play(rig, "sim-b", *WORDS, playbook=PLAYBOOK)
    assert code == 0, said
    assert "below engine.settings: max_model_len: 4480" in said, said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    found = record(rig)
    assert (found["verdict"], found["data"]["found"], found["profile"]) == ("passed", 4480, "sim-b")
    assert [trial["length"] for trial in found["data"]["trials"]][:2] == [15616, 10368]
    assert len(found["data"]["trials"]) == 6
    passed = [trial["length"] for trial in found["data"]["trials"] if trial["probes"]]
    assert sorted(passed)[-1] == 4480
    best = next(trial["probes"] for trial in found["data"]["trials"] if trial["length"] == 4480)
    assert (best["near_limit"]["requests"], best["near_limit"]["prompt_tokens"]) == (64, 64 * 4464)
    assert "measured with it: first token after" in said, said
    assert json.loads(rig.read(IN_PLACE))["engine"]["max_model_len"] == 512
    rig.tell("sim-b")
    assert rig.ctl("switch", "sim-b").code == 0


def test_a_length_that_has_room_and_fails_does_not_pass(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    tell_room(rig, most_tokens=4400)
    recorded()
    code, said = play(rig, "sim-b", *WORDS, playbook=PLAYBOOK)
    assert code == 0, said
    assert "max_model_len: 4352" in said, said
    assert "4480 tokens: the engine reports room for 65.25, but 64 of 64 requests near the limit failed: 500" in said, (
        said
    )
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert record(rig)["data"]["found"] == 4352


@pytest.mark.parametrize("before", ["sim-a", "sim-b"])
def test_a_search_that_is_killed_is_settled_by_its_host(rig: Rig, recorded: Begin, before: str) -> None:
    rig.have(before)
    tell_room(rig, load_s=2)
    recorded()
    with start_play(rig, "sim-b", *WORDS, playbook=PLAYBOOK) as process:
        wait_for(lambda: runs(rig) and trials(rig) > 0, "the first trial")
        rig.must("systemctl", "kill", "--signal=KILL", UNIT)
        output, _none = process.communicate(timeout=600)
    assert process.returncode != 0, output
    assert "its process was killed" in " ".join(output.split()), output
    rig.wait_settled()
    assert_serves(rig, before)
    assert record(rig)["verdict"] == "unfinished"
    assert json.loads(rig.read(IN_PLACE))["engine"]["max_model_len"] == 512
    assert rig.ctl("switch", "sim-b").code == 0
    assert_serves(rig, "sim-b")
    assert json.loads(rig.read(IN_PLACE))["engine"]["max_model_len"] == 512


def test_what_cannot_be_searched_is_refused_before_anything_is_touched(rig: Rig) -> None:
    rig.have("sim-a")
    before = rig.facts()
    code, said = play(rig, "sim-b", "-e", "sequences=0", playbook=PLAYBOOK)
    assert code != 0
    assert "sequences and granularity are at least 1" in said, said
    assert rig.facts() == before
