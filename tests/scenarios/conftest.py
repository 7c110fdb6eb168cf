# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the scenarios, in a lab of their own. Tests run one after the other, in the order of their files.

B70_SCENARIOS_KEEP=1 leaves the lab up afterwards and takes hosts that are up as they are, without converging them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.layout import open_lab
from scenarios.recording import Recording, Watch
from scenarios.rig import CTL, Rig

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LAB = ROOT / "tests/lab/lab.py"
NAME = os.environ.get("B70_SCENARIOS_LAB", "scenarios")
KEEP = bool(os.environ.get("B70_SCENARIOS_KEEP"))
LIMIT_S = 1200


def lab(*words: str) -> None:
    subprocess.run([sys.executable, str(LAB), "--lab", NAME, *words], check=True, timeout=LIMIT_S)


@contextmanager
def converged(count: int, up: Sequence[str] = (), playbooks: Sequence[str] = ()) -> Iterator[list[Rig]]:
    """Hosts of the lab as hosts.yml and further playbooks make them; up: further words of the lab's command."""
    lab("up", "--hosts", str(count), *up)
    rigs = [Rig(open_lab(NAME), number) for number in range(1, count + 1)]
    if not (KEEP and all((rig.root / CTL.lstrip("/")).exists() for rig in rigs)):
        names = ",".join(rig.host.name for rig in rigs)
        files = [str(HERE / name) for name in ("hosts.yml", *playbooks)]
        play = ["ansible-playbook", "-i", "inventory/lab.yml", "--limit", names, *files]
        environment = {**os.environ, "B70_LAB": NAME}
        done = subprocess.run(play, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        for rig in rigs:
            rig.door_as_shipped = True
    yield rigs
    if not KEEP:
        lab("down")


@pytest.fixture(scope="session")
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """One host; it can run containers where a test wants to."""
    kinds = any(item.get_closest_marker("kinds") for item in request.session.items)
    with converged(1, *((["--containers"], ["kinds.yml"]) if kinds else ())) as (only,):
        yield only


@pytest.fixture(scope="session")
def fleet() -> Iterator[list[Rig]]:
    """Four hosts for one test at a time."""
    with converged(4) as rigs:
        yield rigs


@pytest.fixture(scope="session")
def watch(rig: Rig) -> Iterator[Watch]:
    watch = Watch(rig)
    yield watch
    watch.stop()


@pytest.fixture
def recorded(watch: Watch) -> Iterator[Callable[[], Recording]]:
    """Begin to record what clients get; it is checked at the end of the test."""
    yield watch.begin
    watch.end().check()
