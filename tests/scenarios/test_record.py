# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the slot writes for others: a state that the frontdoor can read, what systemd shows, what clients are told."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from machine import wait_for
from scenarios.matrix import matrix
from scenarios.outcome import assert_serves, loading
from scenarios.recording import Recording, ask, status
from scenarios.rig import CONTROLLER, LOADS, Rig

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
STATE = "/run/b70/main/state.json"
FRONTDOOR = "b70-openai-frontdoor.service"
# What the journal makes of a NUL, of a long line, and of a line that another process writes into.
WRITES = r"""
import os, sys
sys.path.insert(0, "/opt/b70/lib")
LOST = "(EngineCore pid=2) RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
os.write(1, f"(APIServer pid=1) nul \0{LOST}\n".encode())
os.write(1, b"(APIServer pid=1) long " + b"x" * 50000 + f"\r\n(APIServer pid=1) \r{LOST}\n".encode())
os.write(1, b"(APIServer pid=1) " + b"y" * (49152 - 18) + f"{LOST}\n".encode())
os.write(1, b"(APIServer pid=1) broken off ")
if (child := os.fork()) == 0:
    os.write(1, b"(Worker pid=3) in between\n")
    os._exit(0)
os.waitpid(child, 0)
os.write(1, f"{LOST}\n".encode())
"""
READS = r"""
import sys
sys.path.insert(0, "/opt/b70/lib")
from b70slot.host.systemd import Systemd
from b70slot.kinds.symptoms import diagnose
from b70slot.words.types import UnitState
lines = Systemd().log(UnitState("b70-test-writes.service"), 300)
found = diagnose(lines)
print(len([line for line in lines if "APIServer" in line]), None if found is None else found.line)
"""
READS_A_START = r"""
import sys
sys.path.insert(0, "/opt/b70/lib")
from b70slot.host.systemd import Systemd
from b70slot.words.types import UnitState
print(*Systemd().log(UnitState("b70-test-said.service", invocation_id=sys.argv[1]), 300), sep="\n")
"""
SURVEYS = r"""
import sys
sys.path.insert(0, "/opt/b70/lib")
from b70slot.host.systemd import Systemd
print(*(f"{unit.name} {unit.file_state}" for unit in Systemd().survey("b70-slot-main-", ())), sep="\n")
"""


HARMS = ("chmod 600", "chown 12345", "rm", "fifo", "mkdir", "chmod 700 directory")


@pytest.mark.parametrize("harm", matrix([("chmod 600",), ("fifo",)], ((harm,) for harm in HARMS)))
def test_a_state_that_the_frontdoor_cannot_read_is_repaired(rig: Rig, harm: str) -> None:
    rig.have("sim-a")
    assert_serves(rig, "sim-a")
    before = rig.facts()
    commands = {
        "chmod 600": f"chmod 600 {STATE}",
        "chown 12345": f"chown 12345 {STATE}; chmod 600 {STATE}",
        "rm": f"rm {STATE}",
        "fifo": f"rm {STATE}; mkfifo {STATE}",
        "mkdir": f"rm {STATE}; mkdir {STATE}",
        "chmod 700 directory": "chmod 700 /run/b70/main",
    }
    # The controller repairs it too, at its next look.
    rig.must("systemctl", "stop", CONTROLLER)
    rig.must("sh", "-c", commands[harm])
    rig.must("systemctl", "restart", FRONTDOOR)
    told = wait_for(lambda: status(rig), "the frontdoor answers")
    assert not told["open"], told
    assert "the state file" in told["reason"], told
    done = rig.ctl("recover")
    rig.must("systemctl", "start", CONTROLLER)
    rig.wait_settled()
    assert done.code == 0, done
    assert_serves(rig, "sim-a")
    assert rig.must("stat", "--format=%a %U %F", STATE).split()[:2] == ["644", "root"]
    rig.must("systemctl", "restart", FRONTDOOR)
    wait_for(lambda: status(rig)["open"], "a frontdoor that was restarted reads it too")
    assert rig.facts().engines == before.engines, "the engine was started anew"


def test_systemd_shows_what_starts_at_boot(rig: Rig) -> None:
    rig.have("sim-a")
    for profile in ("sim-b", "sim-a"):
        assert rig.ctl("switch", profile).code == 0
        rig.wait_settled()
        for name in ("sim-a", "sim-b"):
            unit = f"b70-slot-main-{name}.service"
            said = rig.must("systemctl", "show", "--value", "--property=UnitFileState", unit).strip()
            assert said == ("enabled" if name == profile else "disabled"), (profile, unit, said)
    assert_serves(rig, "sim-a")


def test_the_slot_reads_the_same_of_the_disk_as_systemd(rig: Rig) -> None:
    rig.have("sim-a")
    # It would put right what boots.
    rig.must("systemctl", "stop", CONTROLLER)
    other = "/run/systemd/system/b70-slot-main-sim-c.service"
    rig.must("ln", "-s", "/dev/null", other)
    rig.must("systemctl", "enable", "--runtime", "--no-reload", "--quiet", "b70-slot-main-sim-b.service")
    rig.write("/run/b70-test-surveys.py", SURVEYS)
    try:
        found = rig.must("/usr/bin/python3", "/run/b70-test-surveys.py").splitlines()
        listed = rig.must("systemctl", "list-unit-files", "--no-legend", "--plain", "--full", "b70-slot-main-*.service")
    finally:
        rig.must("systemctl", "disable", "--runtime", "--no-reload", "--quiet", "b70-slot-main-sim-b.service")
        rig.must("rm", other)
        rig.must("systemctl", "start", CONTROLLER)
    assert found == sorted(" ".join(line.split()[:2]) for line in listed.splitlines())
    assert "b70-slot-main-sim-a.service enabled" in found
    assert "b70-slot-main-sim-b.service enabled-runtime" in found


def test_while_an_engine_loads_clients_are_told_so(rig: Rig, recorded: Begin) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    with rig.begin("sim-b") as process:
        wait_for(lambda: loading(rig), "the engine loads")
        answer = wait_for(
            lambda: found if "loading" in (found := ask(rig.address, stream=False)).error else None,
            "a client is told that it loads",
        )
        told = status(rig)
        rig.tell("sim-b")
        output, _errors = process.communicate(timeout=300)
    assert answer is not None
    assert answer.status == 503, answer
    assert "the model slot is loading sim-b in the place of sim-a" in answer.error, answer
    assert (told["phase"], told["switch"]["from"], told["switch"]["to"]) == ("switching", "sim-a", "sim-b"), told
    assert told["engine"]["reachable"] is not True, told
    rig.wait_settled()
    assert json.loads(output)["outcome"] == "committed", output
    assert_serves(rig, "sim-b")


def test_where_the_journal_breaks_a_line_no_engine_speaks(rig: Rig) -> None:
    rig.write("/run/b70-test-writes.py", WRITES)
    rig.must("systemd-run", "--unit=b70-test-writes", "--wait", "/usr/bin/python3", "/run/b70-test-writes.py")
    rig.must("journalctl", "--sync")
    rig.write("/run/b70-test-reads.py", READS)
    said = rig.must("/usr/bin/python3", "/run/b70-test-reads.py").split(" ", 1)
    assert int(said[0]) == 5, said
    assert said[1].strip() == "None", said


def test_what_a_user_writes_about_a_unit_is_no_line_of_its_log(rig: Rig) -> None:
    said = ("--property=Type=oneshot", "--property=RemainAfterExit=yes", "/bin/echo", "INFO of the unit")
    rig.must("systemd-run", "--unit=b70-test-said", *said)
    try:
        invocation = rig.must("systemctl", "show", "--value", "--property=InvocationID", "b70-test-said").strip()
        entry = f"MESSAGE=forged\nINVOCATION_ID={invocation}\nUNIT=b70-test-said.service\n"
        rig.write("/run/b70-test-entry", entry)
        rig.must(
            "sh",
            "-c",
            "setpriv --reuid=65534 --clear-groups logger --journald < /run/b70-test-entry; journalctl --sync",
        )
        assert "forged" in rig.must("journalctl", "--output=cat", f"INVOCATION_ID={invocation}")
        rig.write("/run/b70-test-reads.py", READS_A_START)
        lines = rig.must("/usr/bin/python3", "/run/b70-test-reads.py", invocation).splitlines()
    finally:
        rig.must("systemctl", "stop", "b70-test-said")
    assert "INFO of the unit" in lines
    assert "forged" not in lines
