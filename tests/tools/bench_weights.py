# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bringing a model to four hosts costs against one: seconds, and bytes that the hub sends.

Needs a lab (B70_LAB) whose hosts have had the role host. The hub is the lab's; all its answers share one rate, as those
of a site's line to the internet do.
"""

from __future__ import annotations

import argparse
import json
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

from hub.server import COMMIT, Hub, serve  # noqa: E402
from system.product import play  # noqa: E402
from vendor.server import gateway  # noqa: E402

PIECE = 65536
CASES = {"1 host": ("b70_hosts[0]", "auto"), "4 hosts": ("b70_hosts", "auto"), "4, each alone": ("b70_hosts", "off")}
DIRECTORY = "/mnt/fast-ai/bench-weights"


def line() -> Callable[[float], None]:
    """Return a pause that one answer at a time can take."""
    lock = threading.Lock()

    def pause(seconds: float) -> None:
        with lock:
            time.sleep(seconds)

    return pause


def model(folder: Path, size: int) -> Path:
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((ROOT / "tests/lab/models/tiny-a" / name).read_bytes())
    for number in range(4):
        (folder / f"model-{number}.safetensors").write_bytes(random.Random(number).randbytes(size // 4))
    return folder


def measure(hub: Hub, folder: Path, hosts: str, peers: str) -> tuple[float, int]:
    """Return seconds and bytes of the hub for a model that no host has."""
    tasks = [{"ansible.builtin.file": {"path": DIRECTORY, "state": "absent"}, "name": "Remove the model"}]
    role = {"role": "arcpro.b70.model_weights"}
    plays: dict[str, dict[str, Any]] = {"clean": {"tasks": tasks}, "bring": {"roles": [role]}}
    variables = {
        "model_weights_hub_url": hub.url,
        "model_weights_dir": DIRECTORY,
        "model_weights_models": {"bench": {"hub": hub.repository, "revision": COMMIT}},
        "model_weights_peers": peers,
    }
    words = ["--limit", hosts, "-e", json.dumps(variables)]
    for name, content in plays.items():
        (folder / f"{name}.yml").write_text(json.dumps([{"hosts": "b70_hosts", "gather_facts": False, **content}]))
    for name in plays:
        hub.asked.clear()
        begun = time.monotonic()
        done = play(folder / f"{name}.yml", *words, limit_s=3600)
        seconds = time.monotonic() - begun
        if done.code:
            raise SystemExit(done.output)
    return seconds, sum(one.sent for one in hub.asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=400, help="of the model, in MB")
    parser.add_argument("--rate", type=float, default=20, help="of the line to the hub, in MB/s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root, folder = Path(place) / "model", Path(place) / "plays"
        root.mkdir()
        folder.mkdir()
        large = frozenset(f"model-{number}.safetensors" for number in range(4))
        files = model(root, int(options.size * 1e6))
        pace: dict[str, Any] = {"pace_s": PIECE / (options.rate * 1e6), "pause": line()}
        with serve(Hub(files, repository="lab/bench", large=large, **pace), gateway()) as hub:
            measure(hub, folder, "b70_hosts", "auto")  # installs the programs
            found = {name: measure(hub, folder, *case) for name, case in CASES.items()}
    print(f"a model of {options.size:g} MB, a line of {options.rate:g} MB/s")
    for name, (seconds, size) in found.items():
        print(f"{name:14} {seconds:6.1f} s  {size / 1e6:8.1f} MB from the hub")
    one, four = found["1 host"], found["4 hosts"]
    print(f"4 hosts against 1: {four[0] / one[0]:.2f} of the time, {four[1] / one[1]:.2f} of the hub's bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
