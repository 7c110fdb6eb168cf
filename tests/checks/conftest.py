# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shipped import installed, source, tarball

__all__ = ["installed", "source", "tarball"]
TOOLS = Path(__file__).resolve().parents[1] / "tools"


def unpacked(script: str) -> Path:
    """The folder of programs that a script of tests/tools brings, once."""
    done = subprocess.run(["sh", str(TOOLS / script)], capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the proxies' programs."""
    return unpacked("proxies.sh")


@pytest.fixture(scope="session")
def monitors() -> Path:
    """The folder of the programs of Prometheus and its exporters."""
    return unpacked("prometheus.sh")
