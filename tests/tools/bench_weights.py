# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringing a model to four hosts costs against one: seconds, and bytes that the hub sends.

Makes four hosts in a lab of its own, and removes them. The hub is the lab's. All its answers share one rate, as those
of a site's line to the internet do; then there is no limit but the machine.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/lab"), str(ROOT / ".cache/collections")]

from demo import inventory_hosts  # noqa: E402
from hub.server import COMMIT, Hub, serve  # noqa: E402
from system.product import INVENTORY, bare_hosts, reach  # noqa: E402
from system.weights import TOKEN, Operator  # noqa: E402
from vendor.server import gateway  # noqa: E402

LAB = "bench-weights"
PIECE = 65536
SHARDS = 4
# What a busy machine's sleep may be late without a loss of rate.
SLACK_S = 0.2
CASES = {"1 host": ("b70_hosts[0]", "auto"), "4 hosts": ("b70_hosts", "auto"), "4, each alone": ("b70_hosts", "off")}
DIRECTORY = "/mnt/fast-ai/bench-weights"


def line() -> Callable[[float], None]:
    """Return a pause that answers take one after the other."""
    lock = threading.Lock()
    free = 0.0

    def pause(seconds: float) -> None:
        nonlocal free
        with lock:
            free = max(free, time.monotonic() - SLACK_S) + seconds
            until = free
        time.sleep(max(0.0, until - time.monotonic()))

    return pause


class Loaded(Hub):
    """A hub that reads and hashes its files once: its own work is not what is measured."""

    @functools.cached_property
    def _files(self) -> dict[str, bytes]:
        return super().files()

    @functools.cached_property
    def _description(self) -> dict[str, Any]:
        return super().description(self.commit)

    def files(self) -> dict[str, bytes]:
        return self._files

    def description(self, commit: str) -> dict[str, Any]:
        return self._description


def model(folder: Path, size: int) -> Path:
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((ROOT / "tests/lab/models/tiny-a" / name).read_bytes())
    for number in range(SHARDS):
        (folder / f"model-{number}.safetensors").write_bytes(random.Random(number).randbytes(size // SHARDS))
    return folder


def measure(run: Operator, hub: Hub, limit: str, peers: str) -> tuple[float, int]:
    """Return seconds and bytes of the hub for a model that no host has."""
    for variables in inventory_hosts(str(INVENTORY), "b70_hosts").values():
        reach(variables).check_output(f"rm -rf {DIRECTORY}")
    hub.asked.clear()
    begun = time.monotonic()
    done = run(limit=limit, model_weights_peers=peers)
    seconds = time.monotonic() - begun
    if done.code:
        raise SystemExit(done.output)
    return seconds, sum(one.sent for one in hub.asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=400, help="of the model, in MB")
    parser.add_argument("--rate", type=float, default=20, help="of the line to the hub, in MB/s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, bare_hosts(LAB, 4):
        root, folder, keys = (Path(place) / name for name in ("model", "operator", "tls"))
        for made_folder in (root, folder, keys):
            made_folder.mkdir()
        large = frozenset(f"model-{number}.safetensors" for number in range(SHARDS))
        files = model(root, int(options.size * 1e6))
        made = Loaded(files, repository="lab/bench", large=large, token=TOKEN, pause=line())
        with serve(made, gateway(), keys) as hub:
            run = Operator(
                hub,
                folder,
                model_weights_dir=DIRECTORY,
                model_weights_models={"bench": {"hub": hub.repository, "revision": COMMIT}},
            )
            run(tags="host")
            measure(run, hub, "b70_hosts", "off")  # installs the hub's client everywhere
            measure(run, hub, "b70_hosts", "auto")  # and nginx and aria2
            for rate in (options.rate, 0):
                hub.pace_s = PIECE / (rate * 1e6) if rate else 0
                limit = f"a line of {rate:g} MB/s" if rate else "no limit"
                print(f"a model of {options.size:g} MB, {limit}, {os.cpu_count()} cores")
                found = {}
                for name, case in CASES.items():
                    found[name] = seconds, size = measure(run, hub, *case)
                    load = f"load {os.getloadavg()[0]:.0f}"  # other work on the machine makes all times longer
                    print(f"{name:14} {seconds:6.1f} s  {size / 1e6:8.1f} MB from the hub, {load}", flush=True)
                one, four = found["1 host"], found["4 hosts"]
                print(
                    f"4 hosts against 1: {four[0] / one[0]:.2f} of the time, {four[1] / one[1]:.2f} of the hub's bytes"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
