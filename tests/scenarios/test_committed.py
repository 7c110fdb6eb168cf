# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile that is rendered anew while it is served: after a failure, a kill or a reboot it is as it was verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scenarios.matrix import matrix
from scenarios.outcome import assert_serves
from scenarios.recording import Recording
from scenarios.rig import Rig
from scenarios.test_ansible import HERE, play

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
VERIFIED, NEW = "512", "500"
PENDING = "etc/b70-vllm-slot/pending/sim-a.json"
WRONG_CANARY = """\
canary:
  cases:
    - {name: identity, prompt: "Who are you?", max_tokens: 12, compare: exact, expected: somebody else}
"""


@pytest.fixture
def edited(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """A copy of the profiles to edit, with sim-a served; in the end the host has the others again."""
    rig.have("sim-a")
    yield Path(shutil.copytree(HERE / "profiles", tmp_path / "profiles"))
    rig.wipe()
    code, said = play(rig, "sim-a", "--tags", "always,slot", playbook="site.yml")
    assert code == 0, said


def change(folder: Path, more: str = "") -> None:
    """Give sim-a another context length, and more."""
    path = folder / "sim-a.yml"
    path.write_text(f"{path.read_text()}  settings: {{max_model_len: {NEW}}}\n{more}")


def length(rig: Rig) -> str:
    """The context length on the command line of the one engine."""
    (engine,) = rig.engines()
    words = Path(f"/proc/{engine}/cmdline").read_text().split("\0")
    return words[words.index("--max-model-len") + 1]


def in_place(rig: Rig) -> dict[str, str]:
    """The texts of sim-a that systemd would start."""
    config = "etc/b70-vllm-slot/profiles/sim-a"
    unit = "etc/systemd/system/b70-slot-main-sim-a.service"
    return {"unit": rig.read(unit), "env": rig.read(f"{config}.env"), "profile": rig.read(f"{config}.json")}


def assert_committed(rig: Rig) -> None:
    """Assert that what is in place of sim-a is what was verified last."""
    copy = json.loads(rig.read("var/lib/b70/committed/main.json"))
    assert {key: copy[key] for key in ("unit", "env", "profile")} == in_place(rig)


@pytest.mark.exhaustive
def test_a_failed_switch_leads_back_to_the_command_line_that_was_verified(
    rig: Rig, recorded: Begin, edited: Path
) -> None:
    change(edited)
    recorded()
    rig.tell("sim-b", "wrong-id")
    code, said = play(rig, "sim-b", profiles=edited)
    assert (code != 0, "sim-a is served again, verified" in said) == (True, True), said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert length(rig) == VERIFIED
    assert_committed(rig)
    assert "a new rendering of sim-a waits for the switch that starts it" in rig.must("/opt/b70/bin/b70ctl", "status")
    # It boots as well as it came back.
    rig.reboot()
    rig.wait_booted()
    assert_serves(rig, "sim-a")
    assert length(rig) == VERIFIED
    # Rendered twice is rendered once, and what is predicted is what is done.
    code, said = play(rig, "sim-a", "--tags", "always,slot", profiles=edited, playbook="site.yml")
    assert (code, " changed=0 " in said) == (0, True), said
    code, said = play(rig, "sim-a", "--check", profiles=edited)
    assert (code, "put the new rendering of sim-a in place" in said) == (0, True), said
    code, said = play(rig, "sim-a", profiles=edited)
    assert code == 0, said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert (length(rig), (rig.root / PENDING).exists()) == (NEW, False)
    assert_committed(rig)
    code, said = play(rig, "sim-a", profiles=edited)
    assert (code, " changed=0 " in said) == (0, True), said


def test_a_new_rendering_that_fails_leads_back_to_the_old_one(rig: Rig, recorded: Begin, edited: Path) -> None:
    change(edited, WRONG_CANARY)
    before = in_place(rig)
    recorded()
    code, said = play(rig, "sim-a", profiles=edited)
    assert (code != 0, "sim-a is served again, verified" in said) == (True, True), said
    rig.wait_settled()
    assert_serves(rig, "sim-a")
    assert (length(rig), in_place(rig)) == (VERIFIED, before)
    assert_committed(rig)
    # The same, killed when the new engine was started, and when the old one is about to be.
    for phase, direction in (("start", "forward"), ("health", "forward"), ("start", "back")):
        rig.run("/opt/b70/bin/crash-at", phase, direction, "end", "kill", "--", "switch", "sim-a")
        done = rig.ctl("recover")
        assert done.code == 0, f"{phase} {direction}: {done.output}{done.errors}"
        rig.wait_settled()
        assert_serves(rig, "sim-a")
        assert (length(rig), in_place(rig)) == (VERIFIED, before), f"{phase} {direction}"


@pytest.mark.parametrize("way", matrix([], [("power",), ("reboot",)]))
def test_a_host_that_goes_down_with_a_new_rendering_in_place_serves_the_old_one(
    rig: Rig, recorded: Begin, edited: Path, way: str
) -> None:
    change(edited)
    code, said = play(rig, "sim-a", "--tags", "always,slot", profiles=edited, playbook="site.yml")
    assert code == 0, said
    before = in_place(rig)
    recorded()
    rig.run("/opt/b70/bin/crash-at", "start", "forward", "end", "kill", "--", "switch", "sim-a")
    assert in_place(rig) != before, "the new rendering was not put in place"
    if way == "reboot":
        rig.reboot()
    else:
        rig.lose_power()
    rig.wait_booted()
    assert_serves(rig, "sim-a")
    assert (length(rig), in_place(rig)) == (VERIFIED, before)
    assert_committed(rig)
