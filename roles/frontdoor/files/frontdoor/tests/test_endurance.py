# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The endurance trials in the size of a release; tests/load/README.md tells of the full one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

TRIALS = Path(__file__).resolve().parents[5] / "tests" / "load" / "endure.py"
# What ends a trial that hangs; each of its own waits has a limit.
LIMIT_S = 400

Ending = Future[subprocess.CompletedProcess[str]]


def begin(trial: str, count: int, seed: int) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(TRIALS), trial, "--count", str(count), "--seed", str(seed)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.fixture(scope="module")
def endings(request: pytest.FixtureRequest) -> Iterator[dict[str, Ending]]:
    """How the trials that were selected end: two are held at a time, since each of them waits for most of its time."""
    chosen = [item for item in request.session.items if item.path == Path(__file__)]
    with ThreadPoolExecutor(2) as pool:
        yield {item.nodeid: pool.submit(begin, **item.callspec.params) for item in chosen}  # type: ignore[attr-defined]
        pool.shutdown(cancel_futures=True)


@pytest.mark.endurance
@pytest.mark.skipif(not TRIALS.exists(), reason="the package stands without its repository")
# in clear text without and with API keys, and over TLS
@pytest.mark.parametrize("seed", [96, 98, 99])
@pytest.mark.parametrize(("trial", "count"), [("endings", 600), ("kills", 5), ("soak", 100), ("fuzz", 800)])
def test_a_short_trial_holds(
    endings: dict[str, Ending], request: pytest.FixtureRequest, trial: str, count: int, seed: int
) -> None:
    done = endings[request.node.nodeid].result()
    assert done.returncode == 0, done.stdout + done.stderr
