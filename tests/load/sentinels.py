#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of a chunk in a frontdoor that watches its streams, against the same one that does not, in one run.

Compiled and interpreted, each with and without, serve the same loads in turns, there and back. The ratio that counts is
the median of the ratios of all pairs: what else happens on the machine changes more slowly than the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import RESULTS, figures, machine, streams
from rig import PACKAGE, ROOT, Rig, compile_generator, install

TARGET = 1.02
LOADS = {
    # too short for a look before their end; one in four is looked at then
    "40 chunks": streams(64, 40),
    "200 chunks": streams(64),
    # looked at twice on the way: an ordinary text is sound at first sight
    "600 chunks": streams(64, 600),
    # so few words that each look has to judge them, and that they are no sign
    "600 chunks of 4 words": streams(64, 600, more="&words=4"),
    # one word is a sign: the first look is the last
    "600 chunks of 1 word": streams(64, 600, more="&words=1"),
    "400 chunks with logprobs": streams(64, 400, 400, "&logprobs=1"),
}
SIDES = {"off": "[sentinels]\nwatch = false\n", "on": ""}


def deviation(ratios: list[float]) -> float:
    """How far the median of other such pairs could be, as a standard deviation (bootstrap)."""
    chance = random.Random(1)
    return statistics.stdev(statistics.median(chance.choices(ratios, k=len(ratios))) for _again in range(1000))


def judged(rows: dict[str, list[float]]) -> dict[str, Any]:
    """The result of one load: µs of a chunk on each side, and the ratio."""
    ratios = [on / off for off, on in zip(rows["off"], rows["on"], strict=True)]
    ratio = statistics.median(ratios)
    return {
        **{f"us_{side}": round(statistics.median(row), 3) for side, row in rows.items()},
        "pairs": len(ratios),
        "ratio": round(ratio, 4),
        "deviation": round(deviation(ratios), 4),
        "met": ratio <= TARGET,
    }


def main() -> int:
    """Entry point; returns 0 when every load is within the target, 1 when one is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each load (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of one load (default: %(default)s)")
    parser.add_argument("--no-pin", action="store_true", help="leave other work on the machine a share of both cores")
    parser.add_argument("--only", default="", help="loads whose name starts with this")
    parser.add_argument("--write", nargs="?", type=Path, const=RESULTS / "sentinels.json", help="default: %(const)s")
    options = parser.parse_args()
    built = ROOT / ".cache" / "load"
    generator = compile_generator(built)
    about = {**machine("/usr/bin/python3"), "rounds": options.rounds, "seconds of each load": options.seconds}
    builds = {
        name: install(ROOT / PACKAGE, built, "/usr/bin/python3", interpreted=name == "interpreted")
        for name in ("compiled", "interpreted")
    }
    loads = {name: load for name, load in LOADS.items() if name.startswith(options.only)}
    rows: dict[tuple[str, str], dict[str, list[float]]] = {
        (name, build): {side: [] for side in SIDES} for name in loads for build in builds
    }
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        Rig(Path(folder), generator, pin=not options.no_pin) as rig,
    ):
        about |= rig.conditions | {"cores": "shared with other work" if options.no_pin else "one for each side"}
        for build, version in builds.items():
            for side, more in SIDES.items():
                rig.add_frontdoor(f"{build} {side}", version, more)
        for turn in range(options.rounds):
            for (name, build), sides in rows.items():
                for side in list(SIDES)[:: 1 if turn % 2 else -1]:
                    report = rig.load(rig.targets[f"{build} {side}"], loads[name], options.seconds)
                    sides[side].append(figures(report)["cpu_s_per_1m_events"])
                now = " ".join(f"{side} {row[-1]:.2f}" for side, row in sides.items())
                print(f"{turn + 1}/{options.rounds} {name}, {build}: {now}", file=sys.stderr)
    results = {name: {build: judged(rows[name, build]) for build in builds} for name in loads}
    for name, row in results.items():
        for build, told in row.items():
            verdict = "met" if told["met"] else "MISS"
            print(
                f"{name}, {build}: {told['us_off']:.2f} µs a chunk without, {told['us_on']:.2f} with, "
                f"ratio {told['ratio']:.3f} ± {told['deviation']:.3f} ({verdict}, target {TARGET})"
            )
    if options.write:
        options.write.write_text(json.dumps({"about": about, "target": TARGET, "loads": results}, indent=1) + "\n")
    return 0 if all(told["met"] for row in results.values() for told in row.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
