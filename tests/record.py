# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the last pass of each step of the tests: how long it took, when it was, and of which commit.

``tests/run.py`` compares a run with it and derives which steps of a release are due. ``--record`` writes it, and no
person does.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path("tests/record.json")
PAGE = Path("docs/what-is-proven.md")
BEGIN = "<!-- runs: written by the tests with --record -->"
END = "<!-- end of runs -->"
SHORT = 12  # digits of a commit
NOTHING_S = 1.0  # a difference of less is none


@dataclass(frozen=True)
class Pass:
    """The last pass of a step. ``commit`` is empty, and ``seconds`` 0, for a run from before there was a record."""

    date: str
    commit: str
    seconds: int
    tests: int


def load(root: Path) -> dict[str, Pass]:
    """Return the record of a checkout by step; {} where it has none."""
    try:
        rows = json.loads((root / FILE).read_text())
    except FileNotFoundError:
        return {}
    return {step: Pass(**row) for step, row in rows.items()}


def save(root: Path, record: Mapping[str, Pass]) -> None:
    """Write the record, and the table of it that ``docs/what-is-proven.md`` has."""
    rows = {step: asdict(record[step]) for step in sorted(record)}
    lines = [f"  {json.dumps(step)}: {json.dumps(row)}" for step, row in rows.items()]
    (root / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    page = root / PAGE
    page.write_text(with_table(page.read_text(), record))


def with_table(page: str, record: Mapping[str, Pass]) -> str:
    """Return the text of the page with the table of this record."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the table; put these two lines where it belongs:\n{BEGIN}\n{END}")
    rows = ["| step | last passed | commit | tests | seconds |", "|---|---|---|---|---|"]
    for step, row in sorted(record.items()):
        rows.append(f"| `make {step}` | {row.date} | {row.commit or '-'} | {row.tests or '-'} | {row.seconds or '-'} |")
    return "\n".join([before + begin, *rows, end]) + after


def compared(seconds: float, before: Pass | None) -> str:
    """Return in words how a step's time compares with its record; empty where there is none."""
    if before is None or not before.seconds:
        return ""
    if abs(seconds - before.seconds) < NOTHING_S:
        return "as long as recorded"
    part = abs(seconds / before.seconds - 1)
    return f"{part:.0%} {'slower' if seconds > before.seconds else 'faster'} than recorded"


def due(root: Path, covers: Mapping[str, Sequence[str]], record: Mapping[str, Pass]) -> dict[str, str]:
    """Return the steps that must run before the next release, each with the reason.

    :param covers: the paths whose change requires a step, by step, as git takes them.
    """
    reasons = {}
    for step, paths in covers.items():
        before = record.get(step)
        if before is None or not before.commit:
            reasons[step] = "no pass is recorded"
        elif (changed := changed_since(root, before.commit, paths)) is None:
            reasons[step] = f"the commit {before.commit} of its last pass is not known here"
        elif changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            reasons[step] = f"since {before.date}: {changed[0]}{more}"
    return reasons


def changed_since(root: Path, commit: str, paths: Sequence[str] = ()) -> list[str] | None:
    """Return the files below these paths that differ from a commit; None where git does not know the commit."""
    done = _git(root, "diff", "--name-only", commit, "--", *paths)
    return done.stdout.splitlines() if done.returncode == 0 else None


def fitting(steps: Collection[str], record: Mapping[str, Pass], left_s: float) -> list[str]:
    """Return those of the steps, the shortest first, that end within the time as their record has it."""
    chosen = []
    known = [step for step in steps if step in record and record[step].seconds]
    for step in sorted(known, key=lambda name: record[name].seconds):
        left_s -= record[step].seconds
        if left_s < 0:
            break
        chosen.append(step)
    return chosen


def commit_of(root: Path) -> str:
    """Return the commit of a checkout. Raises ValueError where tracked files differ from it, but for the record."""
    changed = set(changed_since(root, "HEAD") or ()) - {str(FILE), str(PAGE)}
    if changed:
        raise ValueError(f"only a commit can be recorded, and these files differ from it: {', '.join(sorted(changed))}")
    return _git(root, "rev-parse", f"--short={SHORT}", "HEAD").stdout.strip()


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False, timeout=60)
