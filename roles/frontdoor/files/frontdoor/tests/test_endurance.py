# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The endurance trials in a size that fits into every run of the tests; tests/load/README.md tells of the full one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRIALS = Path(__file__).resolve().parents[5] / "tests" / "load" / "endure.py"


@pytest.mark.skipif(not TRIALS.exists(), reason="the package stands without its repository")
# in clear text without and with API keys, and over TLS
@pytest.mark.parametrize("seed", [96, 98, 99])
@pytest.mark.parametrize(("trial", "count"), [("endings", 600), ("kills", 5), ("soak", 100), ("fuzz", 800)])
def test_a_short_trial_holds(trial: str, count: int, seed: int) -> None:
    argv = [sys.executable, str(TRIALS), trial, "--count", str(count), "--seed", str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
