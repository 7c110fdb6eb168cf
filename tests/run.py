# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the steps of the test suite in lanes at once, and report what each step took.

``run.py`` runs the steps of ``make test``, then those of the release that are due (something that they cover changed
since their last pass) and end within its limit as ``tests/record.json`` has it, and names the others that are due.
``run.py --release`` runs the steps of ``make test`` and all that are due. ``run.py lint unit`` runs those. With
``--record`` the record is written, as ``--release`` always does.

Steps of one lane run one after the other and never wait for another lane; a lane that is done takes over the next step
of the one that has most left; a lane ends with its first failing step. Each step has a lab of its own. A single step
writes to the screen, several write to ``.cache/test/STEP.log``. ``.cache/test/slowest.txt`` names the slowest tests.
The last line is ``N passed, N failed``: the sum of all pytest results, where a command without pytest counts as one.

It is not nox or ``make -j``: nox runs its sessions one after the other, ``make -j`` knows no lanes and no limits, and
with either one the heartbeat, the totals and the record, most of this file, would still be ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import record

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "test"
JUNIT = LOGS / "junit"
HEARTBEAT_S = 30.0
TAIL_LINES = 200
SLOWEST = 25
REASON = 200  # characters of why a test failed
LIMIT_S = 1200.0  # of `make test`, within which it also runs what is due


@dataclass(frozen=True)
class Command:
    """One process of a step: its argv, its limit in seconds, and whether pytest writes JUnit files under it."""

    argv: tuple[str, ...]
    limit_s: float
    junit: bool = False


@dataclass(frozen=True)
class Step:
    """Commands that run one after the other in a lane.

    covers: the paths whose change requires a step of the release, as git takes them.
    """

    lane: str
    commands: tuple[Command, ...]
    covers: tuple[str, ...] = ()


# Limits are for what never ends: a busy machine takes several times as long as a quiet one.
def tool(*argv: str, limit_s: float = 1200) -> Command:
    """Return a command that counts as one check."""
    return Command(argv, limit_s)


def pytest(step: str, *argv: str, env: Sequence[str] = (), limit_s: float = 2400) -> Command:
    """Return a pytest run whose results are counted under ``step``; env: NAME=VALUE of its environment.

    A test that hangs ends its process before the run's limit, with a trace of all threads: the others' results are kept
    where there are workers, and the test is named.
    """
    before = ("env", *env) if env else ()
    hang = ("-o", f"faulthandler_timeout={limit_s / 2:.0f}", "-o", "faulthandler_exit_on_timeout=true")
    workers = ("--max-worker-restart=0",) if "-n2" in argv else ()
    words = ("-q", f"--junitxml={JUNIT / step}.xml", *hang, *workers)
    return Command((*before, "pytest", *words, *argv), limit_s, junit=True)


FRONTDOOR = "roles/frontdoor/files/frontdoor"
# Where pytest parses the sources of a failure, Python 3.11.2 was seen to break off: "AST constructor recursion depth".
FRONTDOOR_TESTS = ("--tb=native", f"--config-file={FRONTDOOR}/pyproject.toml", f"{FRONTDOOR}/tests")
HOST, CONTROLLER = "plugins/module_utils", "plugins/plugin_utils"
SLOT = (f"{HOST}/_slot", "roles/slot", "templates", "tests/lab/engine")
MATRICES = tuple(f"tests/scenarios/test_{name}.py" for name in ("faults", "crashes", "reboots", "prediction"))
# Those of hosts mostly wait, with one process each, while those of processors have a worker per core.
PROCESSORS, REAL, SIMULATED, PHASES = "processors", "real engine", "simulated engine", "phases of a switch"
# The lanes of hosts take longest, and each step of a host waits for the one before it: the processors come second.
NICENESS = {PROCESSORS: 5}
RELEASE = "release"  # the lane of what `make test` runs only when it is due and there is time
# New examples of property tests, where `make test` has the same in each run.
FRESH = "--hypothesis-profile=fresh"
HEALING = "tests/unit/plugins/module_utils/_slot/test_controller_model.py"
PROMOTION = ("env", "B70_LAB=promotion")
STEPS: dict[str, Step] = {
    "lint": Step(
        PROCESSORS,
        (
            tool("ruff", "check", "."),
            tool("ruff", "format", "--check", "."),
            tool("yamllint", "--strict", "."),
            tool("mypy"),
            tool(sys.executable, "tests/tools/ansible_lint.py", "-q"),
            tool("antsibull-changelog", "lint"),
            tool("antsibull-changelog", "lint-changelog-yaml", "changelogs/changelog.yaml"),
        ),
    ),
    "unit": Step(
        PROCESSORS,
        (pytest("unit", "-n2", "-m", "not lab and not scenario and not exhaustive", "tests/unit", "tests/lab"),),
    ),
    # Compiled, as most hosts run it; interpreted, what differs then.
    "frontdoor": Step(
        PROCESSORS,
        (
            pytest("frontdoor", "-n2", *FRONTDOOR_TESTS, env=["FRONTDOOR_COMPILE=1"]),
            pytest("frontdoor-interpreted", "-m", "interpreted", *FRONTDOOR_TESTS),
        ),
    ),
    # The tests of a file share what it builds, such as the site.
    "checks": Step(PROCESSORS, (pytest("checks", "-n2", "--dist=loadfile", "-m", "not release", "tests/checks"),)),
    "page": Step(PROCESSORS, (pytest("page", "-n2", "tests/page"),)),
    "sanity": Step(PROCESSORS, (tool(sys.executable, "tests/tools/sanity.py", "--changed"),)),
    "molecule": Step(
        REAL,
        (Command(("tests/tools/molecule.sh", "test", "--all", "--no-command-borders"), 6000, junit=True),),
    ),
    "scenarios": Step(
        SIMULATED,
        (
            pytest(
                "scenarios",
                *("-m", "scenario and not exhaustive", "tests/scenarios", *(f"--ignore={file}" for file in MATRICES)),
                limit_s=3600,
            ),
        ),
    ),
    "matrices": Step(
        PHASES,
        (
            pytest(
                "matrices",
                *("-m", "scenario and not exhaustive", *MATRICES),
                env=["B70_SCENARIOS_LAB=matrices"],
                limit_s=3600,
            ),
        ),
    ),
    # What the steps above leave out to end in time. Each is about one subject; exhaustive has the rest of all matrices.
    # With its endurance trials in small, and on the loop and the clock that the frontdoor runs with.
    "interpreted": Step(
        RELEASE,
        (
            pytest("interpreted", "-n2", "-m", "", FRESH, *FRONTDOOR_TESTS, env=["FRONTDOOR_UVLOOP=1"]),
            pytest(
                "interpreted-compiled",
                "-n2",
                "-m",
                "",
                FRESH,
                *FRONTDOOR_TESTS,
                env=["FRONTDOOR_COMPILE=1"],
            ),
        ),
        covers=(FRONTDOOR,),
    ),
    "fresh": Step(
        RELEASE,
        (
            pytest(
                "fresh",
                *("-n2", "-m", "not lab and not scenario", "tests/unit", "tests/lab", f"--ignore={HEALING}", FRESH),
            ),
            pytest("fresh-healing", "-n2", HEALING, FRESH, env=["B70_SEQUENCES=10000"], limit_s=10800),
        ),
        covers=("plugins", "templates", "roles/profiles", "tests/unit", "tests/lab/engine"),
    ),
    "shipping": Step(
        RELEASE,
        (pytest("shipping", "-n2", "--dist=loadfile", "-m", "release", "tests/checks"),),
        covers=(
            *("plugins", "templates", "roles", "playbooks", "docs", "*.md", "meta", "galaxy.yml", "changelogs"),
            *("execution-environment.yml", "tests/tools", "tests/checks"),
        ),
    ),
    "sanity-all": Step(
        RELEASE, (tool(sys.executable, "tests/tools/sanity.py", limit_s=2700),), covers=("plugins", "galaxy.yml")
    ),
    "lab": Step(RELEASE, (pytest("lab", "-m", "lab", "tests/lab"),), covers=("tests/lab/*.py",)),
    "engines": Step(
        RELEASE,
        (pytest("engines", "tests/engines", limit_s=5400),),
        covers=(
            "roles/profiles/files",
            f"{CONTROLLER}/_catalogue",
            f"{CONTROLLER}/_render",
            f"{HOST}/_slot/do/standby.py",
            "templates",
            "tests/engines",
        ),
    ),
    "fleet": Step(
        RELEASE,
        (pytest("fleet", "-m", "fleet", "tests/scenarios", env=["B70_SCENARIOS_LAB=fleet"], limit_s=7200),),
        covers=(
            *(
                "roles/rollout",
                "roles/recycle",
                "roles/fleet",
                "roles/load_balancer",
                "templates",
                "playbooks/site.yml",
                "playbooks/rollout.yml",
            ),
            *(f"{CONTROLLER}/_rollout", f"{CONTROLLER}/_load_balancer"),
            *("tests/scenarios/test_fleet.py", "tests/scenarios/test_rollout.py", "tests/scenarios/test_balanced.py"),
        ),
    ),
    "bare": Step(
        RELEASE,
        (pytest("bare", "tests/system/test_bare.py", limit_s=7200),),
        covers=(
            "roles/host",
            "roles/stack",
            "roles/mirror",
            "templates",
            f"{CONTROLLER}/_choice",
            "tests/system/test_bare.py",
        ),
    ),
    "removal": Step(
        RELEASE,
        (pytest("removal", "tests/system/test_removal.py", limit_s=5400),),
        covers=(
            *(
                "roles/removal",
                "roles/host",
                "roles/slot",
                "roles/frontdoor/tasks",
                "roles/paths",
                "templates",
                "playbooks/site.yml",
            ),
            *(f"{HOST}/_removal.py", "plugins/modules/b70_removal.py", "tests/system/test_removal.py"),
        ),
    ),
    "vendor": Step(
        RELEASE,
        (pytest("vendor", "tests/system/test_vendor.py", limit_s=3600),),
        covers=(
            *("roles/host", "roles/gpu_driver", "roles/oneapi", "templates", "tests/lab/vendor"),
            "tests/system/test_vendor.py",
        ),
    ),
    "promotion": Step(
        RELEASE,
        (
            tool(*PROMOTION, sys.executable, "tests/lab/lab.py", "up", "--hosts", "1", "--fresh"),
            tool(*PROMOTION, "ansible-playbook", "-i", "inventory/lab.yml", "site.yml"),
            pytest(
                "promotion",
                *(f"tests/system/test_{name}.py" for name in ("evaluate", "benchmark", "promotion", "real_engine")),
                env=PROMOTION[1:],
                limit_s=3600,
            ),
            tool(*PROMOTION, sys.executable, "tests/lab/lab.py", "down"),
        ),
        covers=(
            *("roles/evidence", "roles/evaluate", f"{HOST}/_promotion", f"{HOST}/_benchmark"),
            *(f"{HOST}/_evaluate", f"{HOST}/_evidence", "tests/system/test_evaluate.py"),
            *("tests/system/test_benchmark.py", "tests/system/test_promotion.py", "tests/system/test_real_engine.py"),
        ),
    ),
    "weights": Step(
        RELEASE,
        (
            pytest("weights", "tests/system/test_weights.py"),
            pytest("weights-peers", "tests/system/test_weights_peers.py"),
        ),
        covers=(
            *("roles/model_weights", f"{HOST}/_weights", f"{CONTROLLER}/_weights", "tests/lab/hub"),
            *("roles/mirror/tasks/models.yml", "tests/lab/vendor/authority.py"),
            "tests/system/test_weights*.py",
        ),
    ),
    "slots": Step(
        RELEASE,
        (pytest("slots", "tests/system/test_remote.py", "tests/system/test_slots.py", limit_s=5400),),
        covers=(
            *SLOT,
            FRONTDOOR,
            "plugins/plugin_utils/_slots.py",
            "tests/system/test_remote.py",
            "tests/system/test_slots.py",
        ),
    ),
    "nodes": Step(
        RELEASE,
        (pytest("nodes", "tests/system/test_nodes.py", limit_s=7200),),
        covers=(
            *SLOT,
            "plugins/plugin_utils/_nodes.py",
            "plugins/module_utils/_evaluate",
            "tests/system/test_nodes.py",
        ),
    ),
    "watched": Step(
        RELEASE,
        (
            pytest("watched", "tests/system/test_watched.py", limit_s=5400),
            pytest("watched-monitoring", "tests/system/test_monitoring.py", limit_s=5400),
        ),
        covers=(
            *(*SLOT, "roles/monitoring", "roles/card_metrics", f"{CONTROLLER}/_monitoring"),
            *("tests/system/test_watched.py", "tests/system/test_monitoring.py"),
        ),
    ),
    # One host for all; builds llama.cpp where no earlier run has left it in the cache.
    "kinds": Step(
        RELEASE,
        (
            pytest(
                "kinds",
                *(f"tests/system/test_{name}.py" for name in ("llama", "images", "kinds")),
                limit_s=10800,
            ),
        ),
        covers=(
            *(
                "roles/stack",
                "plugins/module_utils/_image.py",
                "plugins/module_utils/_build",
                f"{CONTROLLER}/_render",
                "templates",
            ),
            *("tests/system/kinds.py", "tests/system/test_llama.py", "tests/system/test_images.py"),
            "tests/system/test_kinds.py",
        ),
    ),
    "exhaustive": Step(
        RELEASE,
        (
            pytest(
                "exhaustive-scenarios",
                *("-m", "scenario and not kinds", "tests/scenarios"),
                limit_s=14400,
            ),
            # Their hosts can run containers, so they have a lab of their own.
            pytest(
                "exhaustive-kinds",
                *("-m", "kinds", "tests/scenarios"),
                env=["B70_SCENARIOS_LAB=simkinds"],
                limit_s=7200,
            ),
        ),
        covers=(*SLOT, "tests/scenarios"),
    ),
    "source": Step(
        RELEASE,
        (pytest("source", "tests/system/test_source.py", limit_s=6000),),
        covers=(
            "roles/stack",
            "roles/mirror",
            "templates",
            f"{CONTROLLER}/_stacks",
            "plugins/module_utils/_build",
            "tests/system/test_source.py",
        ),
    ),
}


@dataclass
class Outcome:
    """What one step came to; ``passed`` and ``failed`` count tests, ``seconds`` is wall time."""

    step: str
    passed: int
    failed: int
    seconds: float
    reason: str = ""
    compared: str = ""  # its seconds with those on record, in words

    def line(self) -> str:
        """Return the step's line of the summary."""
        result = "FAILED" if self.failed else "ok"
        line = f"{self.step:<12} {result:<8} {self.seconds:>8.1f} {self.passed:>7} {self.failed:>7}  {self.compared}"
        return line.rstrip()


HEAD = f"{'step':<12} {'result':<8} {'seconds':>8} {'passed':>7} {'failed':>7}"


def junit_totals(files: Sequence[Path]) -> tuple[int, int]:
    """Return (passed, failed) over JUnit files; errors count as failed, skipped as neither."""
    passed = failed = 0
    for file in files:
        for suite in ET.parse(file).getroot().iter("testsuite"):
            count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
            bad = count["failures"] + count["errors"]
            failed += bad
            passed += count["tests"] - bad - count["skipped"]
    return passed, failed


def junit_files(step: str) -> list[Path]:
    """Return the JUnit files that a step has written."""
    return sorted(JUNIT.glob(f"{step}*.xml"))


def slowest(steps: Sequence[str]) -> list[str]:
    """Return the slowest tests of the steps, each with its seconds and its share of the time of all their tests."""
    rows = [
        (float(case.get("time", 0)), step, f"{case.get('classname', '')}::{case.get('name', '')}")
        for step in steps
        for file in junit_files(step)
        for case in ET.parse(file).getroot().iter("testcase")
    ]
    total = sum(seconds for seconds, _step, _name in rows) or 1.0
    lines = [f"{'seconds':>8} {'share':>6}  {'step':<10} test"]
    for seconds, step, name in sorted(rows, reverse=True)[:SLOWEST]:
        lines.append(f"{seconds:>8.1f} {seconds / total:>6.1%}  {step:<10} {name}")
    return lines


def failures(steps: Sequence[str]) -> list[str]:
    """Return a line for each test of the steps that failed, with the beginning of its reason."""
    lines = []
    for step in steps:
        for file in junit_files(step):
            for case in ET.parse(file).getroot().iter("testcase"):
                for fault in (*case.iter("failure"), *case.iter("error")):
                    why = " ".join(fault.get("message", "").split())[:REASON]
                    lines.append(f"FAILED {step}: {case.get('classname', '')}::{case.get('name', '')}: {why}")
    return lines[:SLOWEST]


def environment() -> dict[str, str]:
    """Return the environment of all steps: what Python compiles is kept, since every play starts it many times."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def run_command(command: Command, log: IO[bytes] | None, niceness: int = 0) -> str:
    """Run one command; return an empty string when it passed, else what was wrong."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", str(niceness), *command.argv),
        cwd=ROOT,
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=asyncio.subprocess.STDOUT if log else None,
        start_new_session=True,
    )
    # Where the kernel shares processors among sessions, as it does by default, only the niceness of a session counts.
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(niceness))
    try:
        code = await asyncio.wait_for(process.wait(), command.limit_s)
    except TimeoutError:
        return f"`{' '.join(command.argv)}` did not end within {command.limit_s:.0f} s"
    finally:
        await stop_group(process)
    return "" if code == 0 else f"`{' '.join(command.argv)}` ended with {code}"


async def stop_group(process: asyncio.subprocess.Process) -> None:
    """End a command that still runs, and its children: first as a person would, since pytest then tells what failed."""
    if process.returncode == 0:
        return  # It may leave what the next one needs, such as hosts.
    if process.returncode is not None:
        # A test that hangs ends its run without a word to what it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        # The children may outlive it: what a shell runs in the background ignores the first one.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)


def last_line(log: Path) -> str:
    """Return the last line of a log that says something, at most 60 characters."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip()[:60] for line in reversed(lines) if any(c.isalnum() for c in line)), "")


async def run_step(name: str, log: IO[bytes] | None) -> Outcome:
    """Run all commands of a step, also after one has failed: a person wants every finding of a linter at once."""
    began = time.monotonic()
    passed = failed = 0
    reasons = []
    counted: set[Path] = set()
    for old in junit_files(name):
        old.unlink()
    for command in STEPS[name].commands:
        line = f"$ {' '.join(command.argv)}\n"
        if log is None:
            print(line, end="", flush=True)
        else:
            log.write(line.encode())
            log.flush()
        reason = await run_command(command, log, NICENESS.get(STEPS[name].lane, 0))
        fresh = [file for file in junit_files(name) if file not in counted]
        counted.update(fresh)
        good, bad = junit_totals(fresh) if command.junit else (int(not reason), int(bool(reason)))
        # A run that broke before or after its tests has failed, whatever they say.
        bad = bad or int(bool(reason))
        passed, failed = passed + good, failed + bad
        if reason:
            reasons.append(reason)
        elif command.junit and good == 0:
            failed, reasons = failed + 1, [*reasons, f"`{' '.join(command.argv)}` ran no test"]
    seconds = time.monotonic() - began
    compared = record.compared(seconds, record.load(ROOT).get(name))
    return Outcome(name, passed, failed, seconds, "; ".join(reasons), compared)


async def run_lane(lane: str, waiting: dict[str, list[str]], at_work: dict[str, float]) -> list[Outcome]:
    """Run the steps of a lane up to the first that fails; print a line as each ends.

    waiting: the steps of each lane that have not begun; at_work: those that run, with the time at which each began.
    """
    outcomes: list[Outcome] = []
    while (name := next_step(lane, waiting)) is not None:
        at_work[name] = time.monotonic()
        with log_of(name).open("wb") as log:
            outcomes.append(await run_step(name, log))
        del at_work[name]
        print(outcomes[-1].line(), flush=True)
        if outcomes[-1].failed:
            show_tail(log_of(name))
            waiting[STEPS[name].lane].clear()
            break
    return outcomes


def next_step(lane: str, waiting: dict[str, list[str]]) -> str | None:
    """Take the next step of the lane from those that wait, else the next one of the lane that has most left."""
    steps = waiting[lane] or max(waiting.values(), key=len)
    return steps.pop(0) if steps else None


async def heartbeat(at_work: dict[str, float]) -> None:
    """Print now and then which steps run, since when, and what they wrote last."""
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        for name, began in at_work.items():
            print(f"    {name}: {time.monotonic() - began:.0f} s, {last_line(log_of(name))}", flush=True)


async def run_lanes(wanted: Sequence[str]) -> list[Outcome]:
    """Run the wanted steps, all lanes at once."""
    waiting: dict[str, list[str]] = {}
    for name in wanted:
        waiting.setdefault(STEPS[name].lane, []).append(name)
    at_work: dict[str, float] = {}
    pulse = asyncio.create_task(heartbeat(at_work))
    try:
        done = await asyncio.gather(*(run_lane(lane, waiting, at_work) for lane in waiting))
    finally:
        pulse.cancel()
    return [outcome for outcomes in done for outcome in outcomes]


def log_of(step: str) -> Path:
    """Return the log of a step."""
    return LOGS / f"{step}.log"


def summary(outcomes: Sequence[Outcome], wanted: Sequence[str], seconds: float) -> list[str]:
    """Return the closing lines: one per step, then the totals alone on the last line."""
    done = {outcome.step: outcome for outcome in outcomes}
    lines = [HEAD, *(done[step].line() if step in done else f"{step:<12} not run" for step in wanted)]
    lines.append(f"{seconds:.0f} s in all; logs and slowest.txt in {LOGS.relative_to(ROOT)}/")
    lines.append(f"{sum(o.passed for o in outcomes)} passed, {sum(o.failed for o in outcomes)} failed")
    return lines


def show_tail(log: Path) -> None:
    """Print the end of a failed step's log."""
    lines = log.read_text(errors="replace").splitlines()
    print(f"---- the last {min(TAIL_LINES, len(lines))} of {len(lines)} lines of {log.relative_to(ROOT)}")
    print("\n".join(lines[-TAIL_LINES:]))
    print("----", flush=True)


def keep(outcomes: Sequence[Outcome], commit: str) -> None:
    """Record the steps that passed."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    passed = {o.step: record.Pass(date, commit, round(o.seconds), o.passed) for o in outcomes if not o.failed}
    record.save(ROOT, record.load(ROOT) | passed)


def run(wanted: Sequence[str], commit: str) -> list[Outcome]:
    """Run these steps; record those that passed where a commit is given."""
    if len(wanted) == 1:
        outcomes = [asyncio.run(run_step(wanted[0], None))]
    elif wanted:
        print(HEAD, flush=True)
        outcomes = asyncio.run(run_lanes(wanted))
    else:
        outcomes = []
    if commit:
        keep(outcomes, commit)
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the wanted steps and return 0 when all passed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "steps",
        nargs="*",
        metavar="STEP",
        help=f"one of {', '.join(STEPS)}; those of `make test` when none is named",
    )
    parser.add_argument("--release", action="store_true", help="also run all steps of the release that are due")
    parser.add_argument("--record", action="store_true", help="write the record of the steps that passed")
    arguments = parser.parse_args(argv)
    wanted = list(dict.fromkeys(arguments.steps)) or [name for name, step in STEPS.items() if step.lane != RELEASE]
    unknown = [step for step in wanted if step not in STEPS]
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)} (there are {', '.join(STEPS)})")
    commit = ""
    if arguments.record or arguments.release:
        try:
            commit = record.commit_of(ROOT)
        except ValueError as error:
            parser.error(str(error))
    JUNIT.mkdir(parents=True, exist_ok=True)
    # A run that is told to end takes its steps with it, as an interrupted one does: asyncio cancels what runs then,
    # where an exception that a handler raises may hit the loop between two callbacks, and it waits for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    began = time.monotonic()
    outcomes = run(wanted, commit)
    due: dict[str, str] = {}
    if not arguments.steps and not any(outcome.failed for outcome in outcomes):
        covers = {name: step.covers for name, step in STEPS.items() if step.lane == RELEASE}
        known = record.load(ROOT)
        due = record.due(ROOT, covers, known)
        left_s = LIMIT_S - (time.monotonic() - began)
        # One after the other: they are long, and each is recorded when it has passed.
        for name in list(due) if arguments.release else record.fitting(due, known, left_s):
            wanted.append(name)
            outcomes += asyncio.run(run_lanes([name]))
            del due[name]
            if commit:
                keep(outcomes[-1:], commit)
    (LOGS / "slowest.txt").write_text("\n".join(slowest(wanted)) + "\n")
    for outcome in outcomes:
        if outcome.reason:
            print(f"{outcome.step}: {outcome.reason}")
    # Last, so that they are there where only the end of the output is kept.
    for line in failures([outcome.step for outcome in outcomes if outcome.failed]):
        print(line)
    for name, reason in due.items():
        print(f"due before a release: make {name} ({reason})")
    print("\n".join(summary(outcomes, wanted, time.monotonic() - began)), flush=True)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
