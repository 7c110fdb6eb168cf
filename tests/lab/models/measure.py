# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start an engine on a tiny model, ask it everything, and say how long, how much and how right: one JSON document.

    python measure.py --name tiny-a --model DIR --port 18090 -- VLLM_PROGRAM [FLAGS...]

Only the standard library. The engine is started as ``VLLM_PROGRAM serve DIR --served-model-name NAME --host 127.0.0.1
--port PORT FLAGS...`` in a process group of its own, and is stopped again whatever happens.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import corpus

SEED = 20260607
START_LIMIT_S = 300.0
REQUEST_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0


class Engine:
    """The running engine and what is asked of it."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, port: int) -> None:
        self.process, self.name, self.port = process, name, port

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_LIMIT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def wait_for_health(self, started: float) -> float:
        """Return the seconds from ``started`` to the first 200 of /health."""
        while time.monotonic() - started < START_LIMIT_S:
            if self.process.poll() is not None:
                raise SystemExit(f"the engine ended with {self.process.returncode} before it was healthy: read its log")
            try:
                if self.get("/health")[0] == 200:
                    return time.monotonic() - started
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"no health after {START_LIMIT_S:.0f} s: read the engine's log")

    def ask(self, prompt: str, limit: int = 640) -> tuple[str, int, float]:
        """Ask with a stream. Return the text, the number of chunks with text and the seconds to the first of them."""
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "seed": SEED,
            "max_tokens": limit,
            "stream": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_LIMIT_S)
        started, first, pieces = time.monotonic(), 0.0, []
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise SystemExit(f"the engine answered {response.status}: {response.read()[:300]!r}")
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                piece = json.loads(line[6:])["choices"][0]["delta"].get("content")
                if piece:
                    first = first or time.monotonic() - started
                    pieces.append(piece)
        finally:
            connection.close()
        return "".join(pieces).strip(), len(pieces), first


def tree(root: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def usage(root: int) -> tuple[float, dict[str, int]]:
    """Return processor seconds used by the tree so far, and resident MiB by process (shared parts count in each)."""
    seconds, resident = 0.0, dict[str, int]()
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        resident[f"{values['Name'].strip()}[{pid}]"] = round(int(values.get("VmRSS", "0 kB").split()[0]) / 1024)
    return seconds, resident


def questions(engine: Engine, repeats: int) -> dict[str, Any]:
    """Ask every fixed question ``repeats`` times one after the other and as often four at a time."""
    wrong: list[str] = []
    asked, chunks = 0, {}
    fixed = [*corpus.fixed_questions(engine.name).items(), *corpus.long_questions(engine.name, SEED)]

    def one(item: tuple[str, str]) -> None:
        nonlocal asked
        prompt, expected = item
        got, count, _first = engine.ask(prompt)
        asked += 1
        chunks[prompt] = count
        if got != expected:
            wrong.append(f"{prompt[-40:]!r} -> {got[:80]!r}")

    started = time.monotonic()
    for _ in range(repeats):
        for item in fixed:
            one(item)
    alone = time.monotonic() - started
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, fixed * repeats))
    return {
        "asked": asked,
        "wrong": wrong[:10],
        "wrong_count": len(wrong),
        "seconds_one_at_a_time": round(alone, 2),
        "seconds_four_at_a_time": round(time.monotonic() - started - alone, 2),
        "chunks": {prompt[:40]: count for prompt, count in chunks.items() if count > 20},
    }


def measure(options: argparse.Namespace, engine: Engine, started: float) -> dict[str, Any]:
    """Return everything there is to say about a running engine."""
    result: dict[str, Any] = {"health_s": round(engine.wait_for_health(started), 2)}
    result["start_cpu_s"] = round(usage(engine.process.pid)[0], 1)
    result["models"] = json.loads(engine.get("/v1/models")[1])["data"]
    begun = time.monotonic()
    result["first_answer"] = engine.ask("Who are you?")[0]
    result["first_answer_s"] = round(time.monotonic() - begun, 2)
    canary = list(corpus.fixed_questions(engine.name).items())[:3]
    begun = time.monotonic()
    result["canary"] = [[engine.ask(prompt, 12)[0] for _ in range(3)] for prompt, _expected in canary]
    result["canary_three_times_s"] = round(time.monotonic() - begun, 2)
    if options.repeats:
        result["questions"] = questions(engine, options.repeats)
    if options.idle:
        time.sleep(3)
        before = usage(engine.process.pid)[0]
        time.sleep(options.idle)
        after, resident = usage(engine.process.pid)
        result["idle_cpu_percent_of_one_core"] = round((after - before) / options.idle * 100, 2)
        result["resident_mib"] = resident
    begun = time.monotonic()
    os.kill(engine.process.pid, signal.Signals[options.signal])
    result["exit_code"] = engine.process.wait(STOP_LIMIT_S)
    result["stop_s"] = round(time.monotonic() - begun, 2)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure an engine on a tiny model.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, default=18090)
    parser.add_argument("--repeats", type=int, default=0, help="how often every fixed question is asked, twice over")
    parser.add_argument("--idle", type=float, default=0, help="seconds over which the idle engine is watched")
    parser.add_argument("--signal", default="SIGTERM")
    parser.add_argument("--log", type=Path, default=Path("engine.log"))
    parser.add_argument("engine", nargs="+", help="program and flags, after --")
    options = parser.parse_args()
    program, *flags = options.engine
    address = ["--host", "127.0.0.1", "--port", str(options.port)]
    argv = [program, "serve", str(options.model), "--served-model-name", options.name, *address, *flags]
    with options.log.open("wb") as log:
        started = time.monotonic()
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        try:
            result = measure(options, Engine(process, options.name, options.port), started)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    print(json.dumps(result, indent=1))
    return 1 if result.get("questions", {}).get("wrong_count") else 0


if __name__ == "__main__":
    sys.exit(main())
