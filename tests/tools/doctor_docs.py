# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of all checks into docs/doctor.md, from the registry of the doctor.

The tables stand between two comments; everything else on the page is written by people. ``--check`` changes nothing and
ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".cache" / "collections")]

from tools import generated  # noqa: E402

# isort: split
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.model import Check  # noqa: E402
from ansible_collections.arcpro.b70.plugins.module_utils._doctor.registry import CHECKS, GROUPS  # noqa: E402

PAGE = Path("docs/doctor.md")
BEGIN = "<!-- checks: written by `make docs` from the registry of the doctor -->"
END = "<!-- end of checks -->"
NAMES = {
    "host": "The machine",
    "cards": "The cards",
    "runtime": "The vendor's software",
    "stack": "The stack",
    "product": "What this collection put on the host",
}


def cell(text: str) -> str:
    """Return text for one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def needs(check: Check) -> str:
    """Return what a host must have for the check to be made."""
    named = {
        "cards": check.needs_cards,
        "an installed stack": check.needs_stack,
        "an installed product": check.needs_product,
    }
    return ", ".join(name for name, wanted in named.items() if wanted)


def tables(checks: Sequence[Check]) -> str:
    """Return one table per group. A dagger marks what was judged on captured output only."""
    parts = []
    for group in GROUPS:
        rows = [
            f"| `{check.id}`{' †' if check.captured_only else ''} | {cell(check.what)} | {cell(check.fix)} "
            f"| {needs(check)} |"
            for check in checks
            if check.group == group
        ]
        head = ["| id | what is looked at | what to do when it is not PASS | needs |", "|---|---|---|---|"]
        parts.append("\n".join([f"### {NAMES[group]} (`{group}`)", "", *head, *rows]))
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, the page."""
    return generated.main(__doc__, PAGE, {BEGIN: lambda: tables(CHECKS)}, END, argv)


if __name__ == "__main__":
    sys.exit(main())
