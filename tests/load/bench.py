#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the frontdoor against nginx and against no proxy, in one interleaved run. See the README beside this file."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "roles" / "frontdoor" / "files" / "frontdoor" / "src"
BACKEND_PORT, NGINX_PORT, NGINX_LIMITED_PORT, DOOR_PORT, DOOR_LIMITED_PORT = range(18291, 18296)
CHAT = "/v1/chat/completions"

NGINX = """
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
worker_rlimit_nofile 65536;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  client_max_body_size 64m;
  client_body_buffer_size 2m;
  keepalive_requests 100000000;
  upstream engine {{ server 127.0.0.1:{backend}; keepalive 1024; keepalive_requests 100000000; }}
  limit_conn_zone $server_port zone=slots:1m;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $remote_addr; proxy_buffering off;
    }}
  }}
  server {{
    listen 127.0.0.1:{limited} backlog=4096;
    location / {{
      limit_conn slots 8;
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
DOOR = """
[listen]
host = "127.0.0.1"
port = {port}
backlog = 4096
[slot]
state_file = ""
[backend]
url = "http://127.0.0.1:{backend}"
[admission]
max_active_generations = {slots}
[request]
chat_template_kwargs = {{ enable_thinking = false }}
"""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One load: the generator's groups, and whether the proxies limit to 8 generations."""

    groups: tuple[str, ...]
    limited: bool = False


def streams(count: int) -> Scenario:
    return Scenario((f"load:{count}:200:{CHAT}?chunks=200&every=5000&size=250",))


SCENARIOS = {
    "stream 64 x 5 ms": streams(64),
    "stream 256 x 5 ms": streams(256),
    "stream 368 x 5 ms": streams(368),
    "plain": Scenario((f"load:8:200:{CHAT}?plain=600",)),
    "body 1 MB": Scenario((f"load:4:1000000:{CHAT}?plain=600",)),
    "reject": Scenario(
        (f"held:8:200:{CHAT}?chunks=1000000&every=5000&size=250", f"load:64:200:{CHAT}?plain=600"), limited=True
    ),
}


@dataclasses.dataclass
class Target:
    """Something to send requests to: the port, the port that limits, and the processes that count."""

    port: int
    limited_port: int
    pids: Callable[[], list[int]]


def cpu_seconds(pids: list[int]) -> float:
    """CPU time of processes with all their threads, from the scheduler (ns resolution)."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pids: list[int]) -> float:
    """Largest resident set among processes, in MB."""
    rows = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return max((int(row.split("VmRSS:")[1].split()[0]) / 1024 for row in rows), default=0.0)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(port: int, process: subprocess.Popen[bytes]) -> float:
    """Wait until a port accepts; return how long that took in seconds."""
    started = time.monotonic()
    while time.monotonic() - started < 10:
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return time.monotonic() - started
        time.sleep(0.005)
    raise SystemExit(f"nothing listens on port {port} after 10 s")


def build(folder: Path) -> dict[str, Path]:
    """Compile the backend and the load generator, unless that was done before."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("no C compiler: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name in ("backend", "client"):
        source, binary = HERE / f"{name}.c", folder / name
        newest = max(source.stat().st_mtime, (HERE / "common.h").stat().st_mtime)
        if not binary.exists() or binary.stat().st_mtime < newest:
            subprocess.run([compiler, "-O2", "-Wall", "-o", str(binary), str(source)], check=True)
        made[name] = binary
    return made


@contextlib.contextmanager
def running(*argv: str, port: int, core: int | None, **options: Any) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A process, pinned to a core, that listens; yields it and the seconds until it did."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    process = subprocess.Popen([*pin, *argv], **options)
    try:
        yield process, wait_for(port, process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def load(client: Path, target: Target, scenario: Scenario, seconds: float, core: int | None) -> dict[str, Any]:
    """Run one scenario against one target; return the generator's report with CPU and memory of the target."""
    port = target.limited_port if scenario.limited else target.port
    pin = ["taskset", "-c", str(core)] if core is not None else []
    warmup = 0.7
    argv = [*pin, str(client), "127.0.0.1", str(port), str(warmup), str(seconds), *scenario.groups]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    time.sleep(warmup + 0.1)
    pids = target.pids()
    before, since = cpu_seconds(pids), time.monotonic()
    time.sleep(max(0.2, seconds - 0.3))
    used, elapsed = cpu_seconds(pids) - before, time.monotonic() - since
    memory = rss_mb(pids)
    out, _ = process.communicate(timeout=seconds + 20)
    report: dict[str, Any] = json.loads(out)
    report["cpu"] = used / elapsed if pids else 0.0
    report["rss_mb"] = memory
    return report


def figures(report: dict[str, Any]) -> dict[str, float]:
    """The numbers that are compared."""
    main = report["load"]
    seconds = main["seconds"]
    done = main["ok"] + main["unavailable"]
    row = {
        "events_per_s": main["events"] / seconds,
        "requests_per_s": done / seconds,
        "first_p50": main["first"]["p50"],
        "first_p99": main["first"]["p99"],
        "way_p50": main["way"]["p50"],
        "way_p99": main["way"]["p99"],
        "whole_p50": main["whole"]["p50"],
        "whole_p99": main["whole"]["p99"],
        "cpu": report["cpu"],
        "rss_mb": report["rss_mb"],
        "broken": main["broken"] + main["other"],
    }
    if main["events"]:
        row["cpu_s_per_1m_events"] = report["cpu"] / row["events_per_s"] * 1e6
    if done:
        row["cpu_s_per_1k_requests"] = report["cpu"] / row["requests_per_s"] * 1e3
    if "held" in report:
        row["held_events_per_s"] = report["held"]["events"] / seconds
        row["held_way_p99"] = report["held"]["way"]["p99"]
        row["admitted"] = main["ok"]
    return row


SHOWN = {
    "stream": ("cpu_s_per_1m_events", "events_per_s", "first_p50", "first_p99", "way_p50", "way_p99", "rss_mb"),
    "plain": ("requests_per_s", "whole_p50", "whole_p99", "cpu_s_per_1k_requests", "rss_mb"),
    "body": ("cpu_s_per_1k_requests", "requests_per_s", "whole_p50", "rss_mb"),
    "reject": ("requests_per_s", "whole_p50", "whole_p99", "held_events_per_s", "held_way_p99", "admitted", "rss_mb"),
}


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print medians, and in brackets the ratio to nginx."""
    for scenario, targets in results.items():
        names = SHOWN[scenario.split()[0]]
        print(f"\n{scenario}")
        print("  " + "".join(f"{name:>24}" for name in ("", *names)))
        for target, row in targets.items():
            cells = []
            for name in names:
                value = row.get(name, 0.0)
                base = targets.get("nginx", {}).get(name)
                ratio = f" ({value / base:.2f})" if base and target not in ("nginx", "direct") else ""
                cells.append(f"{value:,.1f}{ratio}" if value < 1000 else f"{value:,.0f}{ratio}")
            print(f"  {target:>24}" + "".join(f"{cell:>24}" for cell in cells))


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """The median of every figure over the rounds; one that a round lacks counts as 0 there."""
    return {key: statistics.median(row.get(key, 0.0) for row in rows) for key in rows[0]}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of one load (default: 3)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; medians are shown (default: 3)")
    parser.add_argument("--only", action="append", help="scenarios whose name starts with this")
    parser.add_argument("--targets", default="direct,nginx,frontdoor", help="default: all three")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--build", type=Path, default=ROOT / ".cache" / "load", help="where the C programs go")
    parser.add_argument("--no-pin", action="store_true", help="do not pin the proxy to core 0 and the rest to core 1")
    options = parser.parse_args(argv)
    wanted = options.targets.split(",")
    if "nginx" in wanted and not shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"):
        raise SystemExit("nginx is missing: apt-get install nginx-light, or use --targets direct,frontdoor")
    chosen = {n: s for n, s in SCENARIOS.items() if not options.only or any(n.startswith(o) for o in options.only)}
    tools = build(options.build)
    proxy_core, other_core = (None, None) if options.no_pin or (os.cpu_count() or 1) < 2 else (0, 1)
    raw: dict[str, dict[str, list[dict[str, float]]]] = {name: {t: [] for t in wanted} for name in chosen}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def run(*argv: str, **options: Any) -> tuple[subprocess.Popen[bytes], float]:
            return stack.enter_context(running(*argv, **options))

        run(str(tools["backend"]), str(BACKEND_PORT), port=BACKEND_PORT, core=other_core)
        targets = {"direct": Target(BACKEND_PORT, BACKEND_PORT, list)}
        if "nginx" in wanted:
            conf = folder / "nginx.conf"
            conf.write_text(NGINX.format(dir=folder, backend=BACKEND_PORT, port=NGINX_PORT, limited=NGINX_LIMITED_PORT))
            folder.chmod(0o777)
            nginx, _ = run(
                "nginx",
                "-e",
                str(folder / "start.log"),
                "-c",
                str(conf),
                port=NGINX_PORT,
                core=proxy_core,
                env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"},
            )
            targets["nginx"] = Target(NGINX_PORT, NGINX_LIMITED_PORT, lambda: children(nginx.pid))
        if "frontdoor" in wanted:
            doors = []
            for port, slots in ((DOOR_PORT, 4096), (DOOR_LIMITED_PORT, 8)):
                conf = folder / f"{port}.toml"
                conf.write_text(DOOR.format(port=port, backend=BACKEND_PORT, slots=slots))
                log = stack.enter_context(open(folder / f"{port}.log", "wb"))
                env = {
                    **os.environ,
                    "PYTHONPATH": str(SOURCE),
                    "MALLOC_TRIM_THRESHOLD_": "268435456",
                    "MALLOC_MMAP_THRESHOLD_": "33554432",
                    "MALLOC_ARENA_MAX": "1",
                }
                command = (sys.executable, "-m", "frontdoor", "--config", str(conf))
                door, took = run(*command, port=port, core=proxy_core, stdout=log, env=env)
                doors.append(door.pid)
                print(f"frontdoor on {port} listens after {took:.2f} s")
            targets["frontdoor"] = Target(DOOR_PORT, DOOR_LIMITED_PORT, lambda: doors)
        for repeat in range(options.repeats):
            for name, scenario in chosen.items():
                for target in wanted:
                    if target == "direct" and scenario.limited:
                        continue
                    row = figures(load(tools["client"], targets[target], scenario, options.seconds, other_core))
                    raw[name][target].append(row)
                    done = f"{repeat + 1}/{options.repeats} {name:<20} {target:<10} cpu {row['cpu']:.2f}"
                    print(done, file=sys.stderr)
    results = {name: {target: medians(rows) for target, rows in by.items() if rows} for name, by in raw.items()}
    show(results)
    if options.json:
        options.json.write_text(json.dumps({"medians": results, "runs": raw}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
