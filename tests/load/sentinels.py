#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of a chunk in a frontdoor that watches its streams, against the same one that does not, in one run.

Both serve the same loads in turns, there and back. The ratio that counts is the median of the ratios of all pairs: what
else happens on the machine changes more slowly than the turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench import figures, streams
from rig import PACKAGE, ROOT, Rig, compile_generator, install

# long streams, and those that are just long enough to be looked at
LOADS = {"64 streams of 200 chunks": streams(64), "64 streams of 40 chunks": streams(64, 40)}
SIDES = {"off": "[sentinels]\nwatch = false\n", "on": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each load (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of one load (default: %(default)s)")
    parser.add_argument("--interpreted", action="store_true", help="the frontdoor as it runs without a compiler")
    options = parser.parse_args()
    built = ROOT / ".cache" / "load"
    generator = compile_generator(built)
    version = install(ROOT / PACKAGE, built, "/usr/bin/python3", interpreted=options.interpreted)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, Rig(Path(folder), generator, pin=True) as rig:
        print("; ".join(f"{name}: {value}" for name, value in rig.conditions.items()), file=sys.stderr)
        for side, more in SIDES.items():
            rig.add_frontdoor(side, version, more)
        for name, load in LOADS.items():
            rows: dict[str, list[float]] = {side: [] for side in SIDES}
            for turn in range(options.rounds):
                for side in list(SIDES)[:: 1 if turn % 2 else -1]:
                    rows[side].append(
                        figures(rig.load(rig.targets[side], load, options.seconds))["cpu_s_per_1m_events"]
                    )
                print(f"{name}: {' '.join(f'{side} {row[-1]:.2f}' for side, row in rows.items())}", file=sys.stderr)
            ratio = statistics.median(on / off for off, on in zip(*rows.values(), strict=True))
            off, on = (statistics.median(row) for row in rows.values())
            print(f"{name}: {off:.2f} µs a chunk without sentinels, {on:.2f} with, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
