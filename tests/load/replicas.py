# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per second of several engines through the frontdoor, against the sum of the same engines asked directly.

``replicas.py HOST [--seconds N] [--rounds N] [--write]``: HOST is a host of the lab that B70_LAB names, and serves a
profile with replicas. There are as many clients as permits: engines that are asked directly would batch more requests.
They run on that host, so both ways have the same network. Both are measured in turns, in one run; the figure is the
median of the rounds' ratios. Exit status 1: it is below the target. ``--write`` keeps it in results/replicas.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from labkit.layout import open_lab
from scenarios.rig import Rig

TARGET = 0.95
RESULTS = Path(__file__).resolve().parent / "results" / "replicas.json"
PROMPTS = ("Who are you?", "Answer with the two letters OK and nothing more.", "A box holds 3 red and 4 blue blocks.")


def ask(port: int, model: str, number: int, until: float, counted: list[float]) -> None:
    """Ask one address until the time is over, on one connection; note the tokens of each answer.

    Of an answer that ends later, the share counts that its time before that has of all its time: an engine on the CPU
    takes a good part of a round for one.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    turn = 0
    while time.monotonic() < until:
        turn, begun = turn + 1, time.monotonic()
        prompt = f"{PROMPTS[turn % len(PROMPTS)]} {number} {turn}"
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 64}
        body |= {"ignore_eos": True, "temperature": 0}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"port {port} answered {answer.status}: {text[:300]!r}")
        share = min(1.0, (until - begun) / (time.monotonic() - begun))
        counted.append(share * json.loads(text)["usage"]["completion_tokens"])


def rate(ports: list[int], model: str, clients: int, seconds: float) -> float:
    """Tokens per second of so many clients, dealt out to these ports."""
    counted: list[float] = []
    until = time.monotonic() + seconds
    jobs = [
        threading.Thread(target=ask, args=(ports[number % len(ports)], model, number, until, counted))
        for number in range(clients)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return sum(counted) / seconds


def compare(ports: list[int], door: int, model: str, clients: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return the figures of so many rounds, each of which has both ways."""
    rate(ports, model, clients, seconds / 2)
    rows = []
    for number in range(rounds):
        ways = (("direct", ports), ("frontdoor", [door]))
        found = {name: rate(to, model, clients, seconds) for name, to in (ways if number % 2 else reversed(ways))}
        rows.append((found["direct"], found["frontdoor"]))
        print(f"direct {rows[-1][0]:8.1f} tok/s  frontdoor {rows[-1][1]:8.1f} tok/s", flush=True)
    ratios = [through / direct for direct, through in rows]
    direct, through = (round(statistics.median(way), 1) for way in zip(*rows, strict=True))
    ratio, quartiles = statistics.median(ratios), statistics.quantiles(ratios, n=4)
    print(
        f"{len(ports)} engines, {clients} clients, {rounds} x {seconds:g} s: through the frontdoor {ratio:.3f}"
        f" (quartiles {quartiles[0]:.3f} and {quartiles[2]:.3f}), target {TARGET}"
    )
    figures: dict[str, Any] = {
        "model": model,
        "engines": len(ports),
        "clients": clients,
        "rounds": rounds,
        "seconds": seconds,
    }
    figures |= {"direct": direct, "frontdoor": through, "ratio": round(ratio, 3), "target": TARGET}
    return figures | {"quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)]}


def keep(found: dict[str, Any]) -> None:
    """Write the figures in the place of earlier ones of the same model."""
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    found |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count(), "load": load}
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | {found["model"]: found}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the figures in results/replicas.json")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        told = json.loads(given.inside)
        found = compare(told["ports"], 8000, told["model"], told["clients"], given.seconds, given.rounds)
        if given.write:
            keep(found)
        raise SystemExit(found["ratio"] < TARGET)
    lab = open_lab()
    rig = Rig(lab, int(given.host.removeprefix(lab.name)))
    state = rig.state()
    rows = [row for row in state.get("replicas") or [] if row["open"]]
    if len(rows) < 2:
        raise SystemExit(f"{given.host} serves no profile with several replicas")
    told = {"ports": [int(row["backend_url"].rpartition(":")[2]) for row in rows]}
    told["model"] = state["profile"]["served_model_name"]
    told["clients"] = sum(row["limits"]["max_active_generations"] for row in rows)
    enter = ["nsenter", f"--target={rig.leader}", "--net", "--", sys.executable, __file__, given.host]
    more = ["--seconds", str(given.seconds), "--rounds", str(given.rounds), "--inside", json.dumps(told)]
    more += ["--write"] if given.write else []
    raise SystemExit(subprocess.run([*enter, *more], check=False).returncode)


if __name__ == "__main__":
    main()
