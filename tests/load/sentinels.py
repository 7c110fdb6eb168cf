#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instructions of a chunk in a frontdoor that watches its streams, against the same one that does not, in one run.

Compiled and interpreted, each with and without, serve the same loads under valgrind, which counts what the processor
executes. Two runs differ by at most 0.5 %, on a busy machine as well, where CPU times differ by a tenth. The kernel's
work, to which sentinels add nothing, is not counted, so the ratio of CPU times is nearer to 1 than this one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import RESULTS, machine
from rig import CHAT, DOOR, DOOR_ENV, ENGINE_PORT, PACKAGE, ROOT, Installed, compile_generator, install, running

TARGET = 1.02
PORT = ENGINE_PORT + 1
# So few that a frontdoor that is fifty times as slow keeps up, and reads each chunk by itself.
STREAMS, EVERY_US = 8, 10_000
SIZE = 250  # bytes of a chunk
LOADS = {
    # too short for a look before their end; one in 16 is looked at then
    "40 chunks": "chunks=40",
    "200 chunks": "chunks=200",
    # looked at on the way: an ordinary text is sound at first sight
    "1200 chunks": "chunks=1200",
    # so few words that each look has to judge them, and that they are no sign
    "1200 chunks of 4 words": "chunks=1200&words=4",
    # one word is a sign: the first look is the last
    "1200 chunks of 1 word": "chunks=1200&words=1",
    "800 chunks with logprobs": "chunks=800&logprobs=1&size=400",
}
SIDES = {"off": "[sentinels]\nwatch = false\n", "on": ""}
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


def executed(version: Installed, side: str, load: str, generator: Path, seconds: float) -> tuple[int, int]:
    """(instructions of a frontdoor from its start to its end, chunks that it passed on); no load: none is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        conf, log = Path(folder) / "door.toml", Path(folder) / "valgrind.log"
        conf.write_text(DOOR.format(port=PORT, backend=ENGINE_PORT, slots=4096) + SIDES[side])
        counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        argv = [*counter, f"--log-file={log}", version.python, "-m", "frontdoor", "--config", str(conf)]
        env = {**os.environ, **DOOR_ENV, "PYTHONPATH": str(version.source), "PYTHONHASHSEED": "0"}
        chunks = 0
        with running(argv, port=PORT, limit_s=120, env=env, stdout=subprocess.DEVNULL):
            if load:
                group = f"load:{STREAMS}:0:200:{CHAT}?{load}&every={EVERY_US}&size={SIZE}"
                how = [str(generator), str(ENGINE_PORT), str(PORT), "0", "-1", "0", str(seconds), group]
                report = json.loads(subprocess.run(how, stdout=subprocess.PIPE, check=True).stdout)["load"]
                if report["broken"] or report["other"]:
                    raise SystemExit(f"{load}: answers were broken: {report}")
                chunks = report["events"]
        counted = _COUNTED.search(log.read_text())
        if counted is None:
            raise SystemExit(f"valgrind counted nothing: {log.read_text()[-500:]}")
        return int(counted[1].replace(",", "")), chunks


def measure(version: Installed, load: str, generator: Path, seconds: float, idle: int) -> dict[str, Any]:
    """The result of one load: instructions of a chunk on each side, and the ratio. idle: those of no load at all."""
    found = {}
    for side in SIDES:
        total, chunks = executed(version, side, load, generator, seconds)
        found[side] = (total - idle) / chunks
    ratio = found["on"] / found["off"]
    return {**{side: round(value) for side, value in found.items()}, "ratio": round(ratio, 4), "met": ratio <= TARGET}


def main() -> int:
    """Entry point; returns 0 when every load is within the target, 1 when one is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default: %(default)s)")
    parser.add_argument("--only", default="", help="loads whose name starts with this")
    parser.add_argument("--write", nargs="?", type=Path, const=RESULTS / "sentinels.json", help="default: %(const)s")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("no valgrind: apt-get install valgrind")
    built = ROOT / ".cache" / "load"
    generator = compile_generator(built)
    results: dict[str, dict[str, Any]] = {}
    for build in ("compiled", "interpreted"):
        version = install(ROOT / PACKAGE, built, "/usr/bin/python3", interpreted=build == "interpreted")
        idle, _none = executed(version, "on", "", generator, 0)
        for name, load in LOADS.items():
            if not name.startswith(options.only):
                continue
            told = results.setdefault(name, {})[build] = measure(version, load, generator, options.seconds, idle)
            verdict = "met" if told["met"] else "MISS"
            print(
                f"{name}, {build}: {told['off']} instructions a chunk without, {told['on']} with, "
                f"ratio {told['ratio']:.4f} ({verdict}, target {TARGET})",
                flush=True,
            )
    if options.write:
        about = {**machine("/usr/bin/python3"), "streams": STREAMS, "seconds of each load": options.seconds}
        options.write.write_text(json.dumps({"about": about, "target": TARGET, "loads": results}, indent=1) + "\n")
    return 0 if all(told["met"] for row in results.values() for told in row.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
