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
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.known import KERNEL
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.symptoms import diagnose, warnings
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.table import KINDS
from ansible_collections.arcpro.b70.plugins.module_utils._slot.kinds.vllm import VLLM

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


# Lines in the forms of their programs, whose whole log is in no file here: kind, symptom and the line itself.
LINES = [line.split(" ", 2) for line in (FOLDER.parent / "lines.txt").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "symptom", "line"), LINES)
def test_a_line_is_named_with_and_without_the_prefixes_of_its_engine(kind, symptom, line):
    prefixes = {"vllm": ["", "(Worker_TP1 pid=9) ", "(EngineCore_DP0 pid=9) ERROR 11-27 10:00:00 [core.py:1] "]}
    for prefix in prefixes.get(kind, ["", "0.10.284.233 E "]):
        match = diagnose(["INFO before", f"{prefix}{line}", "INFO after"], kind=KINDS[kind])
        assert match is not None
        assert match.symptom.id == symptom
        assert "{1}" not in match.advice


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("[drm] *ERROR* GT0: Timed out wait for G2H, fence 1, action 4601, done no", False),
        ("[drm] Tile0: GT0: Engine reset: engine_class=bcs, logical_mask: 0x1, guc_id=28", False),
        ("[drm] VM worker error: -12", False),
        ("[drm] exec queue reset detected", False),
        ("PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", False),
        ("[drm] device wedged, but recovered through reset", False),
        ("[drm] device wedged, needs recovery", True),
        ("Unable to change power state from D3cold to D0, device inaccessible", True),
        ("[drm] *ERROR* Failed to initialize uC (-EIO)", True),
    ],
)
def test_the_kernels_words_about_a_card(words, lost):
    line = f"2026-06-07T09:12:40+00:00 host1 kernel: xe 0000:03:00.0: {words}"
    fault = kernel.card_fault(line)
    assert fault is not None
    assert fault.lost is lost
    match = diagnose(["INFO"], kernel=[line])
    assert match is not None
    assert match.symptom.id == ("device_lost" if lost else "card_fault")


def test_every_row_of_the_table_is_found_in_some_log():
    found = {case.head["symptom"] for case in CASES} | {symptom for _kind, symptom, _line in LINES}
    rows = {symptom.id for kind in KINDS.values() if not kind.remote for symptom in kind.symptoms}
    assert not rows - found
    assert not {symptom.id for symptom in KERNEL} - found


def test_no_remedy_for_a_lack_of_card_memory_in_vllm_is_fewer_sequences():
    advices = [symptom.advice for symptom in VLLM.symptoms if symptom.id == "out_of_resources"]
    assert all("gpu_memory_utilization" in advice and "max_num_batched_tokens" in advice for advice in advices)
    assert not [advice for advice in advices if "max_num_seqs" in advice or "max_model_len" in advice]


def test_how_many_logs_are_named():
    named = [case.name for case in CASES if case.named()[0] == case.head["symptom"]]
    told = f"{len(named)} of {len(CASES)} logs have the right diagnosis"
    print(told)
    assert told == f"{len(CASES)} of {len(CASES)} logs have the right diagnosis"
