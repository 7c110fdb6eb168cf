# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a converge that changes nothing costs: with all shipped profiles and with three, or now and at another commit.

Needs a lab host that site.yml has converged. It runs from two copies: of this checkout, with the catalogue as shipped
and one that ships nothing but the abstract parents, so that the lab's own profiles are all; or, with --against COMMIT,
of this checkout and of that commit. Turn by turn, so that a busy machine is busy for both; how busy it was stands
beside each figure. The last line is the ratio (of the medians; against a commit of the fastest runs, since what else
runs on the machine only adds); above the limit it ends with 1.

With --hosts 1 10 50 it needs no lab: it measures what `site.yml --tags preflight` costs the controller for so many
hosts whose connections are simulated, and compares its processor time with tests/converge.json, which --record writes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1.2  # all shipped profiles to three
SHOWN = 12
RECORD = ROOT / "tests/converge.json"  # seconds of processor by number of hosts
LIMIT_AGAINST = 0.5  # now to the commit before


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
    return linked(place)


def copy_of(commit: str, place: Path) -> Path:
    """Return a copy of a commit."""
    place.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], input=archive.stdout, cwd=place, check=True)
    return linked(place)


def linked(place: Path) -> Path:
    """Make a copy the collection that its own playbooks find."""
    link = place / ".cache/collections/ansible_collections/arcpro/b70"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../..")
    return place


@dataclass(frozen=True)
class Run:
    """One converge. cpu_s: processor time of the controller alone, which what else runs on the machine changes little.
    tasks: its longest tasks, as the callback arcpro.b70.timing tells them."""

    seconds: float
    cpu_s: float
    changed: int
    count: int
    tasks: str


def cpu_s() -> float:
    """Processor time of all commands so far that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def converge(place: Path, tags: str, inventory: str = "inventory/lab.yml") -> Run:
    """Run site.yml from a copy. Raises RuntimeError when it fails."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(place / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    environment |= {"ARCPRO_B70_TIMING_LONGEST": str(SHOWN), "ARCPRO_B70_TIMING_MIN_SECONDS": "0"}
    environment.setdefault("B70_LAB_DIR", str(ROOT / ".lab"))
    # Without the plugin payloads, which the installed collection does not have.
    environment["ANSIBLE_CALLBACKS_ENABLED"] = "arcpro.b70.timing"
    environment["ANSIBLE_CONNECTION_PLUGINS"] = str(ROOT / "tests/tools/connection_plugins")
    began, used = time.monotonic(), cpu_s()
    done = subprocess.run(
        ["ansible-playbook", "-i", inventory, "site.yml", *(["--tags", tags] if tags else [])],
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
    changed, count = (sum(map(int, re.findall(rf"{word}=(\d+)", done.stdout))) for word in ("changed", "ok"))
    return Run(seconds, cpu_s() - used, changed, count, done.stdout.rpartition("most of it in:\n")[2])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="converges of each kind (default 3)")
    parser.add_argument("--tags", default="", help="only these parts: with `slot`, only what reads the catalogue")
    parser.add_argument("--against", default="", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--hosts", type=int, nargs="+", default=[], help="so many simulated hosts instead of a lab")
    parser.add_argument("--record", action="store_true", help="write the record of simulated hosts")
    arguments = parser.parse_args(argv)
    if arguments.hosts:
        return simulate(arguments.hosts, record=arguments.record)
    with tempfile.TemporaryDirectory(prefix="b70-bench-") as folder:
        place = Path(folder)
        if arguments.against:
            copies = {"before": copy_of(arguments.against, place / "before"), "now": copy(place / "now", True)}
        else:
            copies = {"three": copy(place / "three", False), "all": copy(place / "all", True)}
        runs = measure(copies, arguments.rounds, arguments.tags)
    if arguments.against:
        ratio, limit = compare(runs), LIMIT_AGAINST
    else:
        counts = {"all": len(list(ROOT.glob("roles/profiles/files/catalogue/[!_]*.yml"))), "three": 0}
        middle = {kind: statistics.median(run.seconds for run in found) for kind, found in runs.items()}
        for kind, seconds in middle.items():
            print(f"{counts[kind] + 3} profiles: median {seconds:.1f} s of {len(runs[kind])}")
        ratio, limit = middle["all"] / middle["three"], LIMIT
    print(f"ratio {ratio:.2f}, limit {limit}")
    return int(ratio > limit)


def simulate(counts: Sequence[int], *, record: bool) -> int:
    """Measure the preflight of so many simulated hosts, and compare it with the record."""
    before = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    runs = {}
    with tempfile.TemporaryDirectory(prefix="b70-bench-") as folder:
        inventory = Path(folder) / "hosts.yml"
        for count in counts:
            profiles = [str(ROOT / "inventory/lab_profiles")]
            site = {"ansible_connection": "simulated", "b70_profile": "tiny-a", "b70_profile_dirs": profiles}
            hosts: dict[str, Any] = {f"host{number}": {} for number in range(1, count + 1)}
            inventory.write_text(json.dumps({"b70_hosts": {"hosts": hosts, "vars": site}}))
            run = converge(ROOT, "preflight", str(inventory))
            runs[str(count)] = round(run.cpu_s, 1)
            ratio = f"{run.cpu_s / before[str(count)]:.2f} of the record" if str(count) in before else "not on record"
            load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            print(f"{count} hosts: {run.seconds:.1f} s, {run.cpu_s:.1f} s of processor, {ratio}; {load}", flush=True)
    if record:
        RECORD.write_text(json.dumps({**before, **runs}, indent=2) + "\n")
    return 0


def measure(copies: Mapping[str, Path], rounds: int, tags: str) -> dict[str, list[Run]]:
    """Converge from both copies, turn by turn."""
    runs: dict[str, list[Run]] = {kind: [] for kind in copies}
    for number in range(rounds):
        # Turned around each time: the one that comes first pays for what the other has left to be cleared away.
        for kind in list(copies) if number % 2 == 0 else reversed(list(copies)):
            converge(copies[kind], tags)
            run = converge(copies[kind], tags)
            if run.changed:
                raise RuntimeError(f"{kind}: a second converge changed {run.changed} tasks, so it measures nothing")
            runs[kind].append(run)
            load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            print(
                f"{kind:<6} {run.seconds:6.1f} s, {run.cpu_s:.1f} s of processor here, {run.count} tasks, {load}",
                flush=True,
            )
    return runs


def compare(runs: Mapping[str, Sequence[Run]]) -> float:
    """Show the fastest run of each kind, task by task; return their ratio, the last to the first."""
    fastest = {kind: min(found, key=lambda run: run.seconds) for kind, found in runs.items()}
    for kind, run in fastest.items():
        print(f"{kind}: {run.seconds:.1f} s, {run.count} tasks, most of it in:\n{run.tasks.rstrip()}")
    return fastest["now"].seconds / fastest["before"].seconds


if __name__ == "__main__":
    sys.exit(main())
