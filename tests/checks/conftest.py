# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shipped import installed, source, tarball

__all__ = ["installed", "source", "tarball"]
PROXIES = Path(__file__).resolve().parents[1] / "tools" / "proxies.sh"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the proxies' programs, which are installed once."""
    done = subprocess.run(["sh", str(PROXIES)], capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
