# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalogue costs: a converge that changes nothing, with all shipped profiles and with three.

Needs a lab host that site.yml has converged. It runs from two copies of this checkout, one with the catalogue as
shipped and one that ships nothing but the abstract parents, so that the lab's own three profiles are all; turn by turn,
so that a busy machine is busy for both; how busy it was stands beside each figure. The last line is the ratio of the
medians; above the limit it ends with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.2


def copy(place: Path, everything: bool) -> Path:
    """Return a copy of this checkout; without ``everything`` its catalogue holds only abstract profiles."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = place / name
        shipped = target.parent.name == "catalogue" and target.suffix == ".yml"
        if (ROOT / name).is_file() and (everything or not shipped or target.name.startswith("_")):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    link = place / ".cache/collections/ansible_collections/arcpro/b70"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../..")
    return place


def converge(place: Path, tags: str) -> tuple[float, int]:
    """Run site.yml from a copy; return seconds and the number of changed tasks. Raises RuntimeError when it fails."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(place / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    environment.setdefault("B70_LAB_DIR", str(ROOT / ".lab"))
    began = time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", "-i", "inventory/lab.yml", "site.yml", *(["--tags", tags] if tags else [])],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise RuntimeError(f"site.yml ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return seconds, sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="converges of each kind (default 3)")
    parser.add_argument("--tags", default="", help="only these parts: with `slot`, only what reads the catalogue")
    arguments = parser.parse_args(argv)
    seconds: dict[str, list[float]] = {"three": [], "all": []}
    with tempfile.TemporaryDirectory(prefix="b70-bench-") as place:
        copies = {kind: copy(Path(place, kind), kind == "all") for kind in seconds}
        for number in range(arguments.rounds):
            # Turned around each time: the one that comes first pays for what the other has left to be cleared away.
            for kind in ("three", "all") if number % 2 == 0 else ("all", "three"):
                converge(copies[kind], arguments.tags)
                took, changed = converge(copies[kind], arguments.tags)
                if changed:
                    raise RuntimeError(f"{kind}: a second converge changed {changed} tasks, so it measures nothing")
                seconds[kind].append(took)
                print(f"{kind:<6} {took:6.1f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    counts = {
        kind: len(list(ROOT.glob("roles/profiles/files/catalogue/[!_]*.yml"))) if kind == "all" else 0
        for kind in seconds
    }
    for kind, values in seconds.items():
        print(f"{counts[kind] + 3} profiles: median {statistics.median(values):.1f} s of {len(values)}")
    ratio = statistics.median(seconds["all"]) / statistics.median(seconds["three"])
    print(f"ratio {ratio:.2f}, limit {LIMIT}")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
