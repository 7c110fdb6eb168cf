#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what several engines stream through one frontdoor with what they stream when each is asked directly.

Prints events per second of both, and their ratio; ends with 1 where that is below 0.95, or where a stream broke or was
refused while it was measured. The engines keep a pace, as a card does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rig import CHAT, PACKAGE, ROOT, Installed, compile_generator, install, running

sys.path.append(str(ROOT / PACKAGE / "src"))

from kit import serving_state
from several import rows

FIRST_PORT, DOOR_PORT = 18301, 18300
LEAST = 0.95
_WARMUP_S = 1.5
#: how long an engine outlives its generator's measuring: the generators do not end at once, and each asks all engines
_AFTER_S = 1.0
_DOOR = """
[listen]
host = "127.0.0.1"
port = {port}
[slot]
state_file = "{state}"
units_dir = "{folder}"
"""


class Address:
    """Where an engine listens."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"


def state_of(engines: int, streams: int, folder: Path) -> Path:
    """Write the state of a slot with so many engines, and note them as systemd does."""
    addresses = [Address(FIRST_PORT + number) for number in range(engines)]
    told = rows(addresses, streams)
    state = serving_state(told[0]["backend_url"]) | {"replicas": told, "engine": told[0]["engine"]}
    state["routing"] = {"sticky": "prefer", "prefix_affinity": True, "headers": None, "json_fields": None}
    state["limits"] = {"max_active_generations": streams * engines, "queue_timeout_s": 60, "backend_timeout_s": 60}
    for row in told:
        os.symlink(row["engine"]["invocation_id"], folder / f"invocation:{row['engine']['unit']}")
    file = folder / "state.json"
    file.write_text(json.dumps(state))
    return file


def events_per_s(generator: Path, ports: list[int], streams: int, pace_ms: int, seconds: float) -> tuple[float, int]:
    """Start the engines, each with a generator that asks a port; return the events of all, and the failed streams."""
    group = f"load:{streams}:{pace_ms * 100}:200:{CHAT}?chunks=100&every={pace_ms * 1000}&size=250"
    how_long = f"{seconds}+{_AFTER_S}"
    processes = [
        subprocess.Popen(
            [str(generator), str(FIRST_PORT + number), str(port), "0", "-1", str(_WARMUP_S), how_long, group],
            stdout=subprocess.PIPE,
        )
        for number, port in enumerate(ports)
    ]
    loads = [json.loads(process.communicate(timeout=seconds + 30)[0])["load"] for process in processes]
    failed = sum(one["broken"] + one["other"] + one["unavailable"] for one in loads)
    return sum(one["events"] for one in loads) / seconds, failed


def measure(generator: Path, version: Installed, options: argparse.Namespace) -> tuple[list[tuple[float, float]], int]:
    """Events per second directly and through the frontdoor, of each round; and the failed streams of all."""
    rounds, failed = [], 0
    ports = [FIRST_PORT + number for number in range(options.engines)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        state = state_of(options.engines, options.streams, folder)
        conf = folder / "door.toml"
        conf.write_text(_DOOR.format(port=DOOR_PORT, state=state, folder=folder))
        log = stack.enter_context(open(folder / "door.log", "wb"))
        argv = [version.python, "-m", "frontdoor", "--config", str(conf)]
        env = {**os.environ, "PYTHONPATH": str(version.source)}
        stack.enter_context(running(argv, port=DOOR_PORT, env=env, stdout=log))
        how = (options.streams, options.pace_ms, options.seconds)
        for _round in range(options.repeats):
            direct, alone = events_per_s(generator, ports, *how)
            through, behind = events_per_s(generator, [DOOR_PORT] * options.engines, *how)
            said = f"direct {direct:.0f}/s, {alone} failed; through the frontdoor {through:.0f}/s, {behind} failed"
            print(said, file=sys.stderr)
            rounds.append((direct, through))
            failed += alone + behind
    return rounds, failed


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0 when the ratio is held and no stream failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--streams", type=int, default=8, help="of each engine, which is its limit (default: 8)")
    parser.add_argument("--pace-ms", type=int, default=10, help="between two events of a stream (default: 10)")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3", help="what the frontdoor runs on")
    parser.add_argument("--build", type=Path, default=ROOT / ".cache" / "load", help="where what is needed is built")
    options = parser.parse_args(argv)
    generator = compile_generator(options.build)
    version = install(ROOT / PACKAGE, options.build, options.python)
    rounds, failed = measure(generator, version, options)
    ratio = median(through / direct for direct, through in rounds)
    total = options.engines * options.streams
    print(
        f"{options.engines} engines, {total} streams: ratio {ratio:.3f}, target >= {LEAST}; {failed} failed, target 0"
    )
    return 0 if ratio >= LEAST and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
