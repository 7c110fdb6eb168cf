#!/usr/bin/env python3
# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the frontdoor against nginx and against no proxy, in one interleaved run. See the README beside this file."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from probes import cancel_ms, health_ms, start_s
from report import GOALS, Round, Verdict, as_markdown, as_svg, as_text, judge
from rig import CHAT, PACKAGE, ROOT, SLOTS, Rig, Scenario, checked_out, compile_generator, have_nginx, install

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = ROOT / "docs" / "frontdoor.md"
# the table stands between them
_MARKS = ("<!-- measured: written by `make bench` -->", "<!-- measured -->")
_EVENT_MS = 5
# between two rounds the machine is let do what it put off
_REST_S = 1.0


def streams(count: int, events: int = 200, size: int = 250, more: str = "") -> Scenario:
    """Streams of so many events, that begin spread over their length, so that their ends do not fall together.

    size: bytes of an event. more: what else the engine is asked for.
    """
    length_ms = events * _EVENT_MS
    load = f"load:{count}:{length_ms}:200:{CHAT}?chunks={events}&every={_EVENT_MS * 1000}&size={size}{more}"
    return Scenario((load,), warmup_s=length_ms / 1000 + 0.3)


_HELD = f"held:{SLOTS}:0:200:{CHAT}?chunks=1000000&every={_EVENT_MS * 1000}&size=250"
SCENARIOS = {
    # short ones: of long ones too few begin for a percentile
    "begin 64": streams(64, 20),
    "begin 256": streams(256, 20),
    "stream 64": streams(64),
    "stream 256": streams(256),
    "stream 368": streams(368),
    "plain": Scenario((f"load:8:0:200:{CHAT}?plain=600",)),
    "body 1 MB": Scenario((f"load:4:0:1000000:{CHAT}?plain=600",)),
    "body 8 MB": Scenario((f"load:4:0:8000000:{CHAT}?plain=600",)),
    "flood": Scenario((_HELD, f"load:64:100:200:{CHAT}?plain=600"), limited=True),
}


def figures(report: dict[str, Any]) -> dict[str, float]:
    """The numbers of one load: times in microseconds, CPU in seconds, memory in MB."""
    main = report["load"]
    seconds = main["seconds"]
    done = main["ok"] + main["unavailable"]
    row: dict[str, float] = {
        "events_per_s": main["events"] / seconds,
        "requests_per_s": done / seconds,
        **{f"{name}_{point}": main[name][point] for name in ("first", "way", "whole") for point in ("p50", "p99")},
        **{name: report[name] for name in ("cpu", "rss_mb", "most_active", "stalled_ms", "watched_ms")},
        "disturbed": main["disturbed"]["count"],
        "broken": main["broken"] + main["other"],
    }
    if main["events"]:
        row["cpu_s_per_1m_events"] = report["cpu"] / row["events_per_s"] * 1e6
    elif done:
        row["cpu_s_per_1k_requests"] = report["cpu"] / row["requests_per_s"] * 1e3
    if "held" in report:
        # events are put off for as long as the generator was kept from running
        ran = seconds - report["stalled_ms"] / 1000
        row["held_pace"] = report["held"]["events"] / ran / (SLOTS * 1000 / _EVENT_MS)
        row["held_way_p99"] = report["held"]["way"]["p99"]
    return row


def details(rounds: list[Round], names: list[str]) -> str:
    """Medians of everything that was measured."""
    lines = []
    for name in names:
        lines.append(f"\n{name}")
        for target in rounds[0][name]:
            rows = [one[name][target] for one in rounds]
            middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            shown = "  ".join(f"{key} {value:,.4g}" for key, value in middle.items() if value)
            lines.append(f"  {target:<10} {shown}")
    return "\n".join(lines)


def machine(python: str) -> dict[str, Any]:
    """What a reader must know about where a run was."""
    cpu = next(
        (row.split(":")[1].strip() for row in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in row),
        "?",
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": f"{cpu}, {os.cpu_count()} cores",
        "kernel": platform.release(),
        "python": _version(python, "-V"),
        "load average at the start": f"{os.getloadavg()[0]:.1f}",
    }


def _version(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    return (done.stdout + done.stderr).strip().splitlines()[0]


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What a reader must know about the run."""
    found: dict[str, Any] = {
        **machine(options.python),
        "rounds": options.repeats,
        "seconds of each load": options.seconds,
        "frontdoor": "interpreted" if options.interpreted else "compiled",
    }
    if options.before:
        found["before"] = _version("git", "-C", str(ROOT), "rev-parse", "--short", options.before)
    if have_nginx():
        found["nginx"] = _version("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else "nginx", "-v").split("/")[
            -1
        ]
    return found


def write(folder: Path, verdicts: list[Verdict], rounds: list[Round], run: dict[str, Any]) -> None:
    """Write the results: all figures, the table and the chart; into the standard place also the page of the docs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"about": run, "rounds": rounds}, indent=1) + "\n")
    (folder / "results.md").write_text(as_markdown(verdicts, run))
    (folder / "results.svg").write_text(as_svg(verdicts))
    if folder.resolve() == RESULTS:
        before, start, rest = PAGE.read_text().partition(_MARKS[0])
        _old, end, after = rest.partition(_MARKS[1])
        if start and end:
            PAGE.write_text(f"{before}{start}\n{as_markdown(verdicts, run)}{end}{after}")


def measure(rig: Rig, options: argparse.Namespace, names: list[str], targets: list[str]) -> list[Round]:
    """All rounds; each runs every scenario against every target before the next round begins."""
    rounds: list[Round] = []
    for repeat in range(options.repeats):
        one: Round = {name: {} for name in names}
        for name in names:
            # there and back: what changes slowly meets all of them alike
            for target in targets if repeat % 2 == 0 else targets[::-1]:
                if target not in ("direct", "relay") or not SCENARIOS[name].limited:
                    row = one[name][target] = figures(rig.load(rig.targets[target], SCENARIOS[name], options.seconds))
                    progress = f"{repeat + 1}/{options.repeats} {name:<10} {target:<10} cpu {row['cpu']:.2f}"
                    print(progress, file=sys.stderr)
        rounds.append(one)
        time.sleep(_REST_S)
    return rounds


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns 0 when every target is held, 1 when one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every scenario; this is what is done anyway")
    parser.add_argument("--required", action="store_true", help="only what has a target; about five minutes")
    parser.add_argument("--only", action="append", help="scenarios whose name starts with this")
    parser.add_argument("--before", metavar="GITREF", help="measure the frontdoor of that commit beside this one")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of one load (default: 2)")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--targets", default="direct,nginx,frontdoor", help="also relay (default: %(default)s)")
    parser.add_argument("--interpreted", action="store_true", help="the frontdoor as it runs without a compiler")
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="what the frontdoor runs on (default: %(default)s)"
    )
    parser.add_argument("--write", nargs="?", type=Path, const=RESULTS, help="write results there (default: %(const)s)")
    parser.add_argument("--details", action="store_true", help="print the medians of everything")
    parser.add_argument("--build", type=Path, default=ROOT / ".cache" / "load", help="where what is needed is built")
    parser.add_argument("--no-pin", action="store_true", help="do not pin the proxy to core 0 and the rest to core 1")
    options = parser.parse_args(argv)
    targets = [name for name in options.targets.split(",") if name != "direct" or not options.required]
    if "nginx" in targets and not have_nginx():
        raise SystemExit("nginx is missing: apt-get install nginx-light, or use --targets direct,frontdoor")
    wanted = {goal.scenario for goal in GOALS if goal.limit is not None or not options.required}
    starts = tuple(options.only or [""])
    names = [name for name in SCENARIOS if name in wanted and name.startswith(starts)]
    generator = compile_generator(options.build)
    versions = {}
    if "frontdoor" in targets:
        versions["frontdoor"] = install(ROOT / PACKAGE, options.build, options.python, interpreted=options.interpreted)
    # in memory: a write to a busy disk can take milliseconds, and the log of a host goes to journald's socket
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, tempfile.TemporaryDirectory() as old:
        if options.before:
            targets.append("before")
            before = checked_out(options.before, Path(old))
            versions["before"] = install(before, options.build, options.python, interpreted=options.interpreted)
        run = about(options)
        with Rig(Path(folder), generator, pin=not options.no_pin) as rig:
            run |= rig.conditions
            print("; ".join(f"{name}: {value}" for name, value in rig.conditions.items()), file=sys.stderr)
            if "nginx" in targets:
                rig.add_nginx()
            if "relay" in targets:
                rig.add_relay(versions["frontdoor"].python)
            process: dict[str, dict[str, float]] = {name: {} for name in versions}
            for name, version in versions.items():
                if not options.only and not options.required:
                    cancelled = cancel_ms(rig, version)
                    process[name] = {f"cancel_{moment}_ms": value for moment, value in cancelled.items()}
                    process[name]["start_s"] = start_s(rig, version)
                if any(one.startswith("body") for one in names):
                    for size in (8, 64):
                        waits = health_ms(rig, version, size)
                        print(f"{name}: /health in ms, bodies of {size} MB: {waits}", file=sys.stderr)
                        process[name][f"health_{size}_ms"] = max(waits.values())
                rig.add_frontdoor(name, version)
            rounds = measure(rig, options, names, targets)
    for name, figures_of in process.items():
        figures_of["rss_mb"] = max(one[scenario][name]["rss_mb"] for one in rounds for scenario in names)
    rounds[0]["process"] = process
    verdicts = judge(rounds)
    if options.details:
        print(details(rounds, names))
    print("\n" + as_text(verdicts))
    if options.write:
        write(options.write, verdicts, rounds, run)
    return 0 if all(verdict.held is not False for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
