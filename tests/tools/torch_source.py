# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask, before anything is made, whether the lab's hosts will find the CPU build of torch.

PyTorch's CPU builds are not in the public index. The hosts of the lab use this machine's pip configuration, so what is
asked is whether that configuration offers the wheel; nothing is downloaded or installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from labkit.hosts import package_clients  # noqa: E402

MANIFEST = ROOT / "roles" / "profiles" / "files" / "stacks" / "cpu.yml"
LIMIT_S = 480
ADVICE = """\
the lab's engine needs {requirement}, and pip on this machine is not told where to find it:
{reason}
Name the index of PyTorch's CPU builds, or a folder with the wheel, in pip's configuration; the lab's hosts get it too:
    pip config --global set global.extra-index-url URL
    pip config --global set global.find-links FOLDER"""


def missing(requirement: str, uv_toml: str, uv: str = "uv") -> str:
    """Why uv with these settings can't find ``requirement`` for a host's Python 3.11; empty when it can."""
    with tempfile.TemporaryDirectory() as place:
        settings = Path(place) / "uv.toml"
        # Like the role: all sources are the operator's own, so the first that has the name need not have the version.
        settings.write_text(uv_toml + 'index-strategy = "unsafe-best-match"\n')
        options = ["--config-file", str(settings), "--dry-run", "--no-deps", "--target", f"{place}/none"]
        command = [uv, "pip", "install", *options, "--python-version", "3.11", "--only-binary", ":all:", requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ)
    return "" if done.returncode == 0 else done.stderr.strip()


def main() -> int:
    """Ask for everything that the manifest installs before its lock; return 0 when all of it can be had, else 2."""
    for step in yaml.safe_load(MANIFEST.read_text())["first"]:
        reason = missing(step["requirement"], package_clients().uv_toml())
        if reason:
            print(ADVICE.format(requirement=step["requirement"], reason=reason), file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
