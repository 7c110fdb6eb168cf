# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of failed engines in `logs/`, each with its right diagnosis in its head.

Lines that begin with "kernel: " are those of the kernel's log beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds import kernel
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.first_error import first_error
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose, warnings
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS

FOLDER = Path(__file__).parent / "logs"


@dataclass(frozen=True)
class Case:
    name: str
    head: dict[str, str]
    log: tuple[str, ...]
    kernel: tuple[str, ...]

    @property
    def kind(self):
        return KINDS[self.head["kind"]]

    def named(self):
        """The id of the symptom that is named for it, and the advice."""
        match = diagnose(self.log, kind=self.kind, kernel=self.kernel)
        return ("none", "") if match is None else (match.symptom.id, match.advice)


def read(path: Path) -> Case:
    lines = path.read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rest = [line for line in lines if not line.startswith("# ")]
    said = tuple(line for line in rest if line.startswith("kernel: "))
    return Case(path.stem, head, tuple(line for line in rest if line not in said), kernel.about(said, [""]))


CASES = [read(path) for path in sorted(FOLDER.glob("*.txt"))]
EVERY = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@EVERY
def test_the_symptom_of_each_log_is_named_with_its_remedy(case):
    symptom, advice = case.named()
    assert symptom == case.head["symptom"]
    assert case.head.get("advice", "") in advice


@EVERY
def test_the_first_error_of_each_log_is_found_without_a_table(case):
    cause = first_error(case.log, case.kind)
    if "cause" in case.head:
        assert cause is not None
        assert cause.lines[0].startswith(case.head["cause"])
    elif case.head["symptom"] == "none":
        assert cause is None


@EVERY
def test_an_engine_that_serves_is_warned_about_what_its_log_says_against_it(case):
    assert [match.symptom.id for match in warnings(case.log, case.kind)] == case.head.get("warns", "").split()


def test_how_many_logs_are_named():
    named = [case.name for case in CASES if case.named()[0] == case.head["symptom"]]
    print(f"{len(named)} of {len(CASES)} logs have the right diagnosis")
    assert len(named) == len(CASES)
