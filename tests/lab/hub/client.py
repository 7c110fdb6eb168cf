# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's own client as the role model_weights installs it, for tests: the same lock, an environment below .cache."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "roles/model_weights/files/hub/requirements.txt"


def client() -> Path:
    """Return the Python of that environment, made when it is missing."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:10]
    folder = ROOT / ".cache" / f"hub-client-{digest}"
    folder.parent.mkdir(exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = folder / "bin/python"
        if not (folder / "complete").exists():
            uv = str(Path(sys.executable).parent / "uv")
            subprocess.run([uv, "venv", "--clear", "--quiet", "--no-project", str(folder)], check=True, timeout=480)
            argv = ["pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
            argv += ["--require-hashes", "--no-deps", "--requirement", str(LOCK)]
            subprocess.run([uv, *argv], check=True, timeout=900)
            (folder / "complete").touch()
    return python
