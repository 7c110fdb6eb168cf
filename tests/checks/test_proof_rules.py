# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from checks import proof_rules, tree_rules

ROOT = Path(__file__).resolve().parents[2]
HEAD = "# Page\n\n| other | table |\n|---|---|\n| nothing | proven |\n\n| claim | proven by | on |\n|---|---|---|\n"
FILES = {
    "Makefile": "lint unit: venv\n\t@true\nvenv:\n\t@true\n",
    "tests/system/test_a.py": "def test_one():\n    pass\n",
    "tests/unit/_slot/test_a.py": "class Test:\n    def test_two(self):\n        pass\n",
    "tests/unit/_slot/test_b.py": "",
    "tests/old/_slot/test_a.py": "",
}
GOOD = [
    "| it holds | `make unit` | unit |",
    "| it holds | `tests/system/test_a.py` | lab, unit |",
    "| it holds | `system/test_a.py::test_one` with `tiny-a` | lab |",
    "| it holds | `unit/_slot/test_a.py::test_two`, `unit/_slot/test_b.py` | unit |",
    "| it holds | `tests/unit/_slot`; `_slot/test_*.py --fast` | this machine |",
    "| it holds \\| or not | by hand on the real vLLM, 2026-11-20, see [a](a.md) | lab |",
    "| it holds | the record `20261123T041600Z-benchmark-tiny-a-5e1f0c` | lab |",
]
BAD = [
    ("| it holds | `make everything` | unit |", "make everything is not a target"),
    ("| it holds | `tests/system/test_b.py` | lab |", "tests/system/test_b.py does not exist"),
    ("| it holds | `make unit`, `system/test_c.py` | lab |", "system/test_c.py does not exist"),
    ("| it holds | `test_b.py` | lab |", "test_b.py: write its folder too"),
    ("| it holds | `_stack/test_*.py` | lab |", "_stack/test_*.py does not exist"),
    (
        "| it holds | `_slot/test_a.py` | lab |",
        "is one of tests/old/_slot/test_a.py, tests/unit/_slot/test_a.py: write",
    ),
    ("| it holds | `system/test_a.py::test_two` | lab |", "system/test_a.py has no function test_two"),
    ("| it holds | `make unit`, by hand | dreams | lab |", "a row has a claim, its proof and where it runs"),
    ("| it holds | by hand | lab |", "nothing proves: it holds"),
    ("| it holds | `tiny-a` on 2026-11-20 | lab |", "nothing proves: it holds"),
    ("| it holds; it lasts | `make unit` | unit |", "the row has several claims: write several rows"),
    (f"| {'it holds, ' * 21} | `make unit` | unit |", "the claim has 209 characters: write at most 200"),
    ("| it holds | `make unit` | a card |", "'a card' is none of checkout, lab, this machine, unit"),
]


def tree(root: Path, rows: list[str]) -> list[str]:
    """Return what is wrong with a small tree whose page has these rows."""
    for name, text in {**FILES, "docs/what-is-proven.md": HEAD + "\n".join(rows) + "\n\n| after | it |\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return proof_rules.check_proof(root, [root / name for name in FILES])


def test_every_claim_of_the_page_has_a_proof_that_exists() -> None:
    assert proof_rules.check_proof(ROOT, tree_rules.tracked(ROOT)) == []
    rows = list(proof_rules.claims((ROOT / proof_rules.PAGE).read_text()))
    assert len(rows) > 80


def test_a_good_page_passes(tmp_path: Path) -> None:
    assert tree(tmp_path, GOOD) == []


@pytest.mark.parametrize(("row", "problem"), BAD)
def test_a_page_that_claims_too_much_is_found(row: str, problem: str, tmp_path: Path) -> None:
    (found,) = tree(tmp_path, [*GOOD, row])
    assert found.startswith(f"docs/what-is-proven.md:{9 + len(GOOD)}: ")
    assert problem in found


def test_a_missing_page_is_found(tmp_path: Path) -> None:
    assert proof_rules.check_proof(tmp_path, []) == ["docs/what-is-proven.md: is missing"]
