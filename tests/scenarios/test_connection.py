# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""switch.yml whose packets are dropped in the middle of a switch, for longer than the switch takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from machine import LIMIT_S, wait_for
from scenarios.outcome import assert_serves, loading
from scenarios.recording import Recording
from scenarios.rig import LOADS, SETTINGS, Rig
from scenarios.test_ansible import ROOT, wait_loading

pytestmark = pytest.mark.scenario
Begin = Callable[[], Recording]
COMMAND = ("ansible-playbook", "-i", "inventory/lab.yml", "switch.yml")
TABLE = "b70-test"
DROP = f"""table inet {TABLE} {{
  chain in {{ type filter hook input priority 0; tcp dport 22 drop; }}
  chain out {{ type filter hook output priority 0; tcp sport 22 drop; }}
}}
"""


def nft(rig: Rig, script: str) -> None:
    """Change the filter of the host's own network, by this machine's nft."""
    enter = ["nsenter", f"--net=/proc/{rig.leader}/ns/net", "nft", "-f", "-"]
    subprocess.run(enter, input=script, text=True, check=True, timeout=60)


@contextmanager
def dropped(rig: Rig) -> Iterator[None]:
    """Whatever belongs to SSH vanishes without an answer."""
    nft(rig, DROP)
    try:
        yield
    finally:
        nft(rig, f"delete table inet {TABLE}")


class Play:
    """switch.yml, with the settings of this checkout or with Ansible's own; its lines as they come."""

    def __init__(self, rig: Rig, profile: str, tmp_path: Path, *, own_settings: bool) -> None:
        given = {**SETTINGS, "profile": profile, "health_timeout": 120}
        environment = {**os.environ, "B70_LAB": rig.lab.name, "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"}
        if not own_settings:
            (tmp_path / "ansible.cfg").write_text(
                f"[defaults]\ncollections_path = {ROOT / '.cache/collections'}\n"
                f"inventory_plugins = {ROOT / 'tests/lab/inventory_plugins'}\n"
            )
            environment["ANSIBLE_CONFIG"] = str(tmp_path / "ansible.cfg")
        self.process = subprocess.Popen(
            [*COMMAND, "--limit", rig.host.name, "-e", json.dumps(given)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._coming: Queue[str] = Queue()
        self.lines: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line)

    @property
    def said(self) -> str:
        while True:
            try:
                self.lines.append(self._coming.get_nowait())
            except Empty:
                return "".join(self.lines)

    def end(self) -> int:
        """The exit status."""
        wait_for(lambda: self.process.poll() is not None, "the end of the play")
        self._reader.join(LIMIT_S)
        return self.process.returncode


@pytest.fixture
def begin(rig: Rig, tmp_path: Path) -> Iterator[Callable[..., Play]]:
    plays: list[Play] = []

    def start(profile: str, *, own_settings: bool) -> Play:
        plays.append(Play(rig, profile, tmp_path, own_settings=own_settings))
        return plays[-1]

    yield start
    for play in plays:
        play.process.kill()
        play.process.wait(60)


@pytest.mark.parametrize(
    ("own_settings", "faults", "code", "outcome", "serves"),
    [
        pytest.param(True, (), 0, "committed", "sim-b", id="committed"),
        pytest.param(
            False,
            ("wrong-answer",),
            2,
            "rolled_back",
            "sim-a",
            id="rolled_back_without_our_settings",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_play_without_its_host_has_the_result_soon_after_it_is_back(
    rig: Rig,
    recorded: Begin,
    begin: Callable[..., Play],
    own_settings: bool,
    faults: tuple[str, ...],
    code: int,
    outcome: str,
    serves: str,
) -> None:
    rig.have("sim-a")
    rig.tell("sim-b", *faults, **LOADS)
    recorded()
    play = begin("sim-b", own_settings=own_settings)
    wait_loading(rig)
    with dropped(rig):
        rig.tell("sim-b", *faults)
        rig.wait_settled()
        wait_for(lambda: rig.attempts_open() == [], "the switch has ended on its host")
        assert play.process.poll() is None, play.said
        wait_for(lambda: "connection lost" in play.said, "the play notices that its host does not answer")
    found = play.end()
    last = rig.journal()[-1]
    assert (found, last["outcome"]) == (code, outcome), play.said
    assert "connected again" in play.said
    assert ("canary" in play.said and "sim-a" in play.said) if code else "now served" in play.said, play.said
    rig.wait_settled()
    assert_serves(rig, serves)


@pytest.mark.exhaustive
def test_a_play_that_is_interrupted_leaves_the_switch_to_its_host(
    rig: Rig, recorded: Begin, begin: Callable[..., Play]
) -> None:
    """Ctrl-C, which every process of the play gets, its connections too."""
    rig.have("sim-a")
    rig.tell("sim-b", **LOADS)
    recorded()
    play = begin("sim-b", own_settings=True)
    wait_loading(rig)
    os.killpg(play.process.pid, signal.SIGINT)
    assert play.end() != 0
    assert loading(rig), "the switch ended with the play"
    rig.tell("sim-b")
    rig.wait_settled()
    assert rig.journal()[-1]["outcome"] == "committed"
    assert rig.attempts_open() == []
    assert_serves(rig, "sim-b")
