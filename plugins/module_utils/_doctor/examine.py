# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From checks to findings: runs every probe once, in parallel, within an overall limit, then the judges."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Protocol

from .model import (
    NOT_ASKED,
    SHOWN_EVIDENCE,
    Answers,
    Check,
    Command,
    Finding,
    Level,
    Look,
    Output,
    Probe,
    Read,
    Site,
    skipped,
)

WORKERS = 8
# A check's own fix is for what was seen.
AGAIN = "The host is busy, or a program hangs: run the doctor again, with a larger doctor_limit if it says the same."
SEVERITY = {Level.FAIL: 0, Level.WARN: 1, Level.PASS: 2, Level.SKIP: 3}


class DoctorEffects(Protocol):
    """The doctor's access to a host. All three methods only read, and never raise because of what they find."""

    def run(self, command: Command) -> Output: ...

    def read(self, read: Read) -> Mapping[str, str]: ...

    def look(self, look: Look) -> Any: ...


def ask(effects: DoctorEffects, probe: Probe, deadline: float) -> Any:
    """Return the answer to one probe.

    An error of the probe itself becomes the answer's problem. No command runs past the deadline.
    """
    try:
        if isinstance(probe, Command):
            left = deadline - time.monotonic()
            if left <= 0:
                return NOT_ASKED
            return effects.run(replace(probe, limit_s=min(probe.limit_s, left)))
        if isinstance(probe, Look):
            return effects.look(probe)
        if isinstance(probe, Read):
            return effects.read(probe)
        raise TypeError(f"{probe!r} is no probe")
    except Exception as error:
        return Output(problem=f"could not be looked at: {type(error).__name__}: {error}")


def collect(effects: DoctorEffects, probes: Iterable[Probe], limit_s: float) -> Answers:
    """Run every distinct probe once, the slow ones first. Answers after `limit_s` are omitted."""
    waiting: dict[Future[Any], Probe] = {}
    answers: dict[Probe, Any] = {}
    deadline = time.monotonic() + limit_s
    pool = ThreadPoolExecutor(max_workers=WORKERS)
    try:
        slow_first = sorted(dict.fromkeys(probes), key=lambda probe: -getattr(probe, "limit_s", 0.0))
        waiting = {pool.submit(ask, effects, probe, deadline): probe for probe in slow_first}
        while waiting and (left := deadline - time.monotonic()) > 0:
            done, _rest = wait(waiting, timeout=left, return_when=FIRST_COMPLETED)
            for future in done:
                answers[waiting.pop(future)] = future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return Answers(answers)


def judged(check: Check, site: Site, answers: Answers) -> Finding:
    """Return the check's finding; a failed probe or judge is reported and never counts as passed."""
    try:
        finding = check.judge(site, answers)
    except LookupError as error:
        finding = Finding(Level.WARN, f"not judged: {error}")
    except Exception as error:
        finding = Finding(Level.WARN, f"not judged, this check failed: {type(error).__name__}: {error}")
    late = finding.level in (Level.WARN, Level.FAIL) and answers.late(check.probes(site))
    return replace(finding, fix=AGAIN) if late else finding


def chosen(checks: Sequence[Check], only: Collection[str], skip: Collection[str]) -> list[Check]:
    """Return the checks with an id or group in `only` (empty: all), without those in `skip`.

    Raise ValueError for a word that is neither an id nor a group.
    """
    words = {check.id for check in checks} | {check.group for check in checks}
    unknown = sorted((set(only) | set(skip)) - words)
    if unknown:
        raise ValueError(f"there is no check or group {', '.join(unknown)}; there are {', '.join(sorted(words))}")
    return [
        check
        for check in checks
        if (not only or {check.id, check.group} & set(only)) and not {check.id, check.group} & set(skip)
    ]


def examine(site: Site, effects: DoctorEffects, checks: Sequence[Check], limit_s: float) -> list[dict[str, Any]]:
    """Return the findings of the checks, in order, as plain data."""
    asked = [check for check in checks if not check.waived(site)]
    return verdicts(site, checks, collect(effects, (probe for check in asked for probe in check.probes(site)), limit_s))


def verdicts(site: Site, checks: Sequence[Check], answers: Answers) -> list[dict[str, Any]]:
    """Return the findings of the checks for given answers."""
    findings = []
    for check in checks:
        reason = check.waived(site)
        findings.append(as_data(check, skipped(reason) if reason else judged(check, site, answers)))
    return findings


def as_data(check: Check, finding: Finding) -> dict[str, Any]:
    """Return one finding as the module does; meaning, fix and source are empty if there is nothing to do."""
    bad = finding.level in (Level.WARN, Level.FAIL)
    evidence = list(finding.evidence[:SHOWN_EVIDENCE])
    if len(finding.evidence) > SHOWN_EVIDENCE:
        evidence.append(f"and {len(finding.evidence) - SHOWN_EVIDENCE} more")
    return {
        "id": check.id,
        "group": check.group,
        "level": str(finding.level),
        "summary": finding.summary,
        "evidence": evidence,
        "meaning": check.meaning if bad else "",
        "fix": (finding.fix or check.fix) if bad else "",
        "source": (finding.source or check.source) if bad else "",
    }


def counts(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of findings of each level."""
    return {str(level): sum(1 for item in findings if item["level"] == str(level)) for level in Level}


def worst(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return the worst level among the findings, SKIP if nothing was checked."""
    return str(min((Level(item["level"]) for item in findings), key=SEVERITY.__getitem__, default=Level.SKIP))
