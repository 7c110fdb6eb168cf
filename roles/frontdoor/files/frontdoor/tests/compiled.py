# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package as it is compiled on hosts, built once for each version of its sources.

With FRONTDOOR_COMPILE=1, the variable of setup.py, all tests and trials run against it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# In a checkout: beside what other tests keep.
CACHE = (PACKAGE.parents[3] if (PACKAGE.parents[3] / "galaxy.yml").exists() else PACKAGE) / ".cache" / "frontdoor"
LIMIT_S = 1200


def build(package: Path = PACKAGE, python: str = sys.executable, tools: str = "", cache: Path = CACHE) -> Path:
    """Compile a package, unless that was done before; return the folder to import it from.

    `tools` is a folder with what builds it, where the Python does not have that.
    """
    asked = [python, "-c", "import sys, sysconfig; print(sys.version, sysconfig.get_config_var('EXT_SUFFIX'))"]
    state = hashlib.sha256(subprocess.run(asked, capture_output=True, timeout=60, check=True).stdout)
    files = [package / name for name in ("setup.py", "pyproject.toml", "compile-requirements.txt", "README.md")]
    files += [path for path in sorted((package / "src").rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    for path in files:
        state.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    wanted = cache / state.hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as lock, tempfile.TemporaryDirectory(dir=cache) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            # The build writes beside its sources.
            for path in files:
                copy = Path(folder) / "package" / path.relative_to(package)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            argv = [python, "setup.py", "--quiet", "build", "--build-lib", f"{folder}/built"]
            env = {**os.environ, "FRONTDOOR_COMPILE": "1", **({"PYTHONPATH": tools} if tools else {})}
            done = subprocess.run(
                argv, cwd=f"{folder}/package", env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            if done.returncode:
                raise SystemExit(f"{package} cannot be compiled:\n{(done.stdout + done.stderr)[-4000:]}")
            os.rename(f"{folder}/built", wanted)
    return wanted


def source() -> Path:
    """Where the frontdoor is imported from: compiled if the environment says so."""
    return build() if os.environ.get("FRONTDOOR_COMPILE") == "1" else PACKAGE / "src"
