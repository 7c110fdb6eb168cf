# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak on a real host: anomalies of both kinds, a play that is killed, a second play, and a card that is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from machine import kill_tree, wait_for
from scenarios.rig import SIM_DIR, Rig
from scenarios.test_ansible import SSH_SESSION, play, start_play
from unit import contracts

pytestmark = [pytest.mark.scenario, pytest.mark.exhaustive]
PLAYBOOK = "playbooks/soak.yml"
UNIT = "b70-soak-main.service"
FOLDER = "var/lib/b70/soak/main"
RECORDS = "var/lib/b70/records"
ASK = """
import json, urllib.request
body = {"model": "sim-a", "messages": [{"role": "user", "content": "Who are you?"}]}
head = {"Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:18080/v1/chat/completions", json.dumps(body).encode(), head)
print(json.load(urllib.request.urlopen(request, timeout=60))["system_fingerprint"])
"""


def seen(rig: Rig) -> dict[str, Any]:
    """What the soak under way has seen."""
    try:
        found: dict[str, Any] = json.loads(rig.read(f"{FOLDER}/out/seen.json"))
    except FileNotFoundError:
        return {"cycles": [], "anomalies": [], "ended": None}
    return found


def asked(rig: Rig) -> int:
    """How many of the canary's questions the engine has answered."""
    return int(rig.must("python3", "-c", ASK).split()[2])


def runs(rig: Rig) -> bool:
    return rig.run("systemctl", "is-active", UNIT).output.strip() == "active"


def record(rig: Rig) -> dict[str, Any]:
    """The newest record of a soak, which is as documented and stands in the index."""
    rows = json.loads(rig.read(f"{RECORDS}/index.json"))["records"]
    newest = next(row for row in rows if row["kind"] == "soak")
    text = rig.read(f"{RECORDS}/soak/{newest['id']}.json")
    contracts.check("record", text)
    found: dict[str, Any] = json.loads(text)
    return found


def begin(rig: Rig, duration: str, *words: str) -> Any:
    return start_play(rig, "sim-a", "-e", f"duration={duration}", *words, playbook=PLAYBOOK)


def test_some_minutes_with_anomalies_whose_play_is_killed(rig: Rig) -> None:
    rig.serve("sim-a", token_s=0.001)
    before = rig.state()
    rig.write(f"{SIM_DIR}/sim-a.json", json.dumps({"wrong_at": [asked(rig) + 1]}))
    # Time for two more plays on a busy machine.
    with begin(rig, "240s", "-e", "soak_interval=5s") as process:
        wait_for(lambda: seen(rig)["anomalies"], "the first wrong answer is looked into")
        user = rig.must("systemctl", "show", "--property=User", "--value", UNIT).strip()
        kill_tree(process)
        process.communicate(timeout=120)
    rig.must("sh", "-c", SSH_SESSION)
    assert runs(rig), "the soak ended with the play"
    (work,) = rig.ctl("status").data["works"]
    assert (work["kind"], work["unit"], work["profile"]) == ("soak", UNIT, "sim-a")
    assert user == "b70"
    cycles = len(seen(rig)["cycles"])
    wait_for(lambda: len(seen(rig)["cycles"]) > cycles + 1, "the soak goes on alone")
    rig.tell_running("sim-a", "wrong-one-in-four")
    wait_for(lambda: len(seen(rig)["anomalies"]) > 1, "wrong answers that come again")
    rig.tell_running("sim-a")
    code, said = play(rig, "sim-a", "-e", "show=true", playbook=PLAYBOOK)
    assert code == 0, said
    assert " isolated" in said, said
    code, said = play(rig, "sim-a", "-e", "duration=8h", playbook=PLAYBOOK)
    assert "joins the soak" in said, said
    assert "which began before this play, failed" in said, said
    assert code != 0
    found = record(rig)
    first, second = found["data"]["anomalies"][:2]
    assert (first["case"], first["got"], first["class"]) == ("exact_ok", "slh cobalt", "isolated")
    assert (first["reruns_ok"], first["stress_ok"]) == (3, 25)
    assert second["class"] == "repeated"
    assert (found["verdict"], found["data"]["ended"]["how"]) == ("failed", "deadline")
    assert found["canary"]["before"]["ok"] is False
    assert len(found["data"]["cycles"]) > 5
    # Nothing was closed or replaced, and nothing was written to the slot.
    after = rig.state()
    assert (after["sequence"], after["engine"], after["open"]) == (before["sequence"], before["engine"], True)


def test_a_lost_card_ends_a_soak(rig: Rig) -> None:
    rig.have("sim-a")
    with begin(rig, "8h", "-e", "soak_interval=5s") as process:
        wait_for(lambda: len(seen(rig)["cycles"]) > 1 and runs(rig), "a second cycle")
        rig.tell_running("sim-a", "die")
        output, _none = process.communicate(timeout=300)
    said = " ".join(output.split())
    assert process.returncode != 0, said
    found = record(rig)
    assert (found["verdict"], found["data"]["ended"]["how"]) == ("failed", "lost"), found["data"]["ended"]


def test_a_soak_of_nothing_is_refused_and_one_that_is_killed_leaves_a_record(rig: Rig) -> None:
    rig.wipe()
    code, said = play(rig, "sim-a", "-e", "duration=8h", playbook=PLAYBOOK)
    assert code != 0
    assert "serves no verified engine" in said, said
    rig.serve("sim-a")
    with begin(rig, "8h", "-e", "soak_interval=5s") as process:
        wait_for(lambda: len(seen(rig)["cycles"]) > 1 and runs(rig), "a second cycle")
        rig.must("systemctl", "kill", "--signal=KILL", UNIT)
        output, _none = process.communicate(timeout=300)
    assert "unfinished" in output, output
    assert record(rig)["data"]["ended"]["how"] == "vanished"
