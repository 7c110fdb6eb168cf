# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the steps of the test suite, cheap ones first, and say what each one took.

``run.py`` runs every step and stops at the first that fails; ``run.py lint unit`` runs those. A single step writes to
the screen, several write to ``.cache/test/STEP.log``. The last line is ``N passed, N failed``: the sum of all pytest
results, where a command without pytest counts as one.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "test"
JUNIT = LOGS / "junit"
HEARTBEAT_S = 20.0
TAIL_LINES = 200


@dataclass(frozen=True)
class Command:
    """One process of a step: its argv, its limit in seconds, and whether pytest writes JUnit files under it."""

    argv: tuple[str, ...]
    limit_s: float
    junit: bool = False


# Limits are for what never ends: a busy machine takes several times as long as a quiet one.
def tool(*argv: str, limit_s: float = 1200) -> Command:
    """Return a command that counts as one check."""
    return Command(argv, limit_s)


def pytest(step: str, *argv: str, limit_s: float = 1200) -> Command:
    """Return a pytest run whose results are counted under ``step``."""
    return Command(("pytest", "-q", f"--junitxml={JUNIT / step}.xml", *argv), limit_s, junit=True)


FRONTDOOR = "roles/frontdoor/files/frontdoor"
STEPS: dict[str, tuple[Command, ...]] = {
    "lint": (
        tool("ruff", "check", "."),
        tool("ruff", "format", "--check", "."),
        tool("yamllint", "--strict", "."),
        tool("mypy"),
        tool("ansible-lint", "-q"),
        tool("antsibull-changelog", "lint"),
        tool("antsibull-changelog", "lint-changelog-yaml", "changelogs/changelog.yaml"),
    ),
    "unit": (
        pytest("unit", "-m", "not lab and not matrix", "tests/unit", "tests/lab", limit_s=2400),
        pytest("unit-frontdoor", f"--config-file={FRONTDOOR}/pyproject.toml", f"{FRONTDOOR}/tests", limit_s=2400),
        pytest("unit-page", "tests/page"),
    ),
    "checks": (pytest("checks", "-n2", "tests/checks", limit_s=1800),),
    "sanity": (tool(sys.executable, "tests/tools/sanity.py", limit_s=2700),),
    "engines": (pytest("engines", "tests/engines", limit_s=2700),),
    "lab": (pytest("lab", "-m", "lab", "tests/lab", limit_s=2400),),
    "vendor": (
        pytest("vendor", "tests/integration/test_vendor.py", limit_s=3600),
        pytest("vendor-weights", "tests/integration/test_weights.py", limit_s=2400),
    ),
    "matrix": (pytest("matrix", "-n2", "--dist=worksteal", "-m", "matrix", "tests/lab/matrix", limit_s=4800),),
    "molecule": (
        Command(("tests/tools/molecule.sh", "test", "--all", "--no-command-borders"), limit_s=6000, junit=True),
    ),
    "source": (pytest("source", "tests/integration/test_source.py", limit_s=6000),),
}


@dataclass
class Outcome:
    """What one step came to; ``passed`` and ``failed`` count tests, ``seconds`` is wall time."""

    step: str
    passed: int
    failed: int
    seconds: float
    reason: str = ""


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


def run_command(command: Command, log: IO[bytes] | None, label: str) -> str:
    """Run one command; return an empty string when it passed, else what was wrong.

    With a log, say on the screen now and then what it is doing.
    """
    process = subprocess.Popen(
        command.argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log else None,
        start_new_session=True,
    )
    began = time.monotonic()
    try:
        while True:
            try:
                code = process.wait(timeout=min(HEARTBEAT_S, max(0.1, began + command.limit_s - time.monotonic())))
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() - began >= command.limit_s:
                    stop_group(process)
                    return f"`{' '.join(command.argv)}` did not end within {command.limit_s:.0f} s"
                if log is not None:
                    print(f"        {label}: {time.monotonic() - began:.0f} s, {last_line(Path(log.name))}", flush=True)
    except BaseException:
        stop_group(process)
        raise
    return "" if code == 0 else f"`{' '.join(command.argv)}` ended with {code}"


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children: first the polite way, ten seconds later the other."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


def last_line(log: Path) -> str:
    """Return the last line of a log that says something, at most 100 characters."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip()[:100] for line in reversed(lines) if any(c.isalnum() for c in line)), "")


def run_step(step: str, log: IO[bytes] | None) -> Outcome:
    """Run all commands of a step, also after one has failed: a person wants every finding of a linter at once."""
    began = time.monotonic()
    passed = failed = 0
    reasons = []
    counted: set[Path] = set()
    for old in JUNIT.glob(f"{step}*.xml"):
        old.unlink()
    for command in STEPS[step]:
        line = f"$ {' '.join(command.argv)}\n"
        if log is None:
            print(line, end="", flush=True)
        else:
            log.write(line.encode())
            log.flush()
        reason = run_command(command, log, step)
        fresh = [file for file in sorted(JUNIT.glob(f"{step}*.xml")) if file not in counted]
        counted.update(fresh)
        good, bad = junit_totals(fresh) if command.junit else (int(not reason), int(bool(reason)))
        # A run that broke before or after its tests has failed, whatever they say.
        bad = bad or int(bool(reason))
        passed, failed = passed + good, failed + bad
        if reason:
            reasons.append(reason)
        elif command.junit and good == 0:
            failed, reasons = failed + 1, [*reasons, f"`{' '.join(command.argv)}` ran no test"]
    return Outcome(step, passed, failed, time.monotonic() - began, "; ".join(reasons))


def summary(outcomes: Sequence[Outcome], wanted: Sequence[str]) -> list[str]:
    """Return the closing lines: one per step, then the totals alone on the last line."""
    done = {outcome.step: outcome for outcome in outcomes}
    lines = [f"{'step':<10} {'result':<8} {'seconds':>8} {'passed':>7} {'failed':>7}"]
    for step in wanted:
        if step in done:
            it = done[step]
            lines.append(
                f"{step:<10} {'FAILED' if it.failed else 'ok':<8} {it.seconds:>8.1f} {it.passed:>7} {it.failed:>7}"
            )
        else:
            lines.append(f"{step:<10} not run")
    lines.append(f"{sum(o.seconds for o in outcomes):.0f} s in all; logs in {LOGS.relative_to(ROOT)}/")
    lines.append(f"{sum(o.passed for o in outcomes)} passed, {sum(o.failed for o in outcomes)} failed")
    return lines


def show_tail(log: Path) -> None:
    """Print the end of a failed step's log."""
    lines = log.read_text(errors="replace").splitlines()
    print(f"---- the last {min(TAIL_LINES, len(lines))} of {len(lines)} lines of {log.relative_to(ROOT)}")
    print("\n".join(lines[-TAIL_LINES:]))
    print("----", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the wanted steps and return 0 when all passed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help=f"one of {', '.join(STEPS)}; all of them when none is named"
    )
    arguments = parser.parse_args(argv)
    wanted = arguments.steps or list(STEPS)
    unknown = [step for step in wanted if step not in STEPS]
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)} (there are {', '.join(STEPS)})")
    JUNIT.mkdir(parents=True, exist_ok=True)
    if len(wanted) == 1:
        outcomes = [run_step(wanted[0], None)]
    else:
        outcomes = []
        for number, step in enumerate(wanted, 1):
            print(f"[{number}/{len(wanted)}] {step}", flush=True)
            path = LOGS / f"{step}.log"
            with path.open("wb") as log:
                outcomes.append(run_step(step, log))
            if outcomes[-1].failed:
                show_tail(path)
                break
    for outcome in outcomes:
        if outcome.reason:
            print(f"{outcome.step}: {outcome.reason}")
    print("\n".join(summary(outcomes, wanted)), flush=True)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
