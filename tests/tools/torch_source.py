# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask, before anything is made, whether the lab's hosts will find the CPU build of torch.

PyTorch's CPU builds are not in the public index. The hosts of the lab use this machine's pip configuration, and where
that offers no such wheel the index that the manifest names. What is asked is whether one of them has it; nothing is
downloaded or installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from labkit.first import attempts  # noqa: E402
from labkit.hosts import package_clients  # noqa: E402
from labkit.sources import PackageClients  # noqa: E402

MANIFEST = ROOT / "roles" / "profiles" / "files" / "stacks" / "cpu.yml"
LIMIT_S = 480
ADVICE = """\
the lab's engine needs {requirement}, and it can't be had:
{reasons}
Let this machine reach the last of these addresses, or name another index or a folder with the wheel in pip's
configuration; it is asked first, and the lab's hosts get it too:
    pip config --global set global.extra-index-url URL
    pip config --global set global.find-links FOLDER"""


def missing(requirement: str, uv_toml: str, uv: str = "uv") -> str:
    """Why uv with these settings can't find ``requirement`` for a host's Python 3.11; empty when it can."""
    with tempfile.TemporaryDirectory() as place:
        settings = Path(place) / "uv.toml"
        settings.write_text(uv_toml)
        options = ["--config-file", str(settings), "--dry-run", "--no-deps", "--target", f"{place}/none"]
        command = [uv, "pip", "install", *options, "--python-version", "3.11", "--only-binary", ":all:", requirement]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ)
        except subprocess.TimeoutExpired:
            return f"nothing answered within {LIMIT_S} s"
    return "" if done.returncode == 0 else done.stderr.strip()


def look(step: Mapping[str, Any], machine: PackageClients) -> tuple[str, dict[str, str]]:
    """Where the wheel of an entry of ``first`` is (empty: nowhere), and why it is in none of the places before."""
    reasons: dict[str, str] = {}
    for attempt in attempts(step, machine):
        why = missing(attempt.line, attempt.uv_toml())
        if not why:
            return attempt.where, reasons
        reasons[attempt.where] = why
    return "", reasons


def main(argv: Sequence[str] | None = None) -> int:
    """Ask for everything that the manifest installs before its lock; return 0 when all of it can be had, else 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, default=MANIFEST)
    for step in yaml.safe_load(parser.parse_args(argv).manifest.read_text())["first"]:
        where, reasons = look(step, package_clients())
        if not where:
            said = "\n".join(
                f"  {place}\n    {why.replace(chr(10), chr(10) + '    ')}" for place, why in reasons.items()
            )
            print(ADVICE.format(requirement=step["requirement"], reasons=said), file=sys.stderr)
            return 2
        if reasons:
            print(f"{step['requirement']}: from {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
