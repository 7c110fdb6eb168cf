# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the scenarios: each worker of pytest-xdist has one of its own, in a lab of its own.

B70_SCENARIOS_KEEP=1 leaves the lab up afterwards and takes hosts that are up as they are, without converging them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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
# Tests that take long begin first, so that no worker is left with one of them in the end.
LONG = ("/test_frontdoor", "_a_holder_that_stays_")


@pytest.hookimpl(trylast=True)  # after the choice by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(words in item.nodeid for words in LONG))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take the lab down, once, when the last worker is done."""
    if KEEP or hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    # Who only hands out the tests to workers has none itself.
    shared_out = bool(session.config.getoption("numprocesses", None))
    if shared_out or any(
        item.get_closest_marker("scenario") or item.get_closest_marker("fleet")
        for item in getattr(session, "items", ())
    ):
        lab("down")


def _workers() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))


def lab(*words: str) -> None:
    subprocess.run([sys.executable, str(LAB), "--lab", NAME, *words], check=True, timeout=LIMIT_S)


@pytest.fixture(scope="session")
def rig(worker_id: str, request: pytest.FixtureRequest) -> Rig:
    """This worker's host, converged; it can run containers where a test wants to."""
    number = int(worker_id.removeprefix("gw")) + 1 if worker_id.startswith("gw") else 1
    kinds = any(item.get_closest_marker("kinds") for item in request.session.items)
    lab("up", "--hosts", str(max(number, _workers())), *(["--containers"] if kinds else []))
    return _converged([number], *(["kinds.yml"] if kinds else []))[0]


@pytest.fixture(scope="session")
def fleet() -> list[Rig]:
    """Four hosts for one test at a time, converged."""
    lab("up", "--hosts", "4")
    return _converged([1, 2, 3, 4])


def _converged(numbers: list[int], *more: str) -> list[Rig]:
    """The hosts, as hosts.yml and further playbooks make them."""
    rigs = [Rig(open_lab(NAME), number) for number in numbers]
    if KEEP and all((rig.root / CTL.lstrip("/")).exists() for rig in rigs):
        return rigs
    names = ",".join(rig.host.name for rig in rigs)
    files = [str(HERE / name) for name in ("hosts.yml", *more)]
    play = ["ansible-playbook", "-i", "inventory/lab.yml", "--limit", names, *files]
    done = subprocess.run(
        play, cwd=ROOT, env={**os.environ, "B70_LAB": NAME}, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for rig in rigs:
        rig.door_as_shipped = True
    return rigs


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
