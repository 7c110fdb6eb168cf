# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of all checks into docs/doctor.md, from the registry of the doctor.

The tables stand between two comments; everything else on the page is written by people. ``--check`` changes nothing and
ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".cache" / "collections"))

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
            f"| `{check.id}`{' †' if check.captured_only else ''} | {cell(check.what)} | {cell(check.meaning)} "
            f"| {cell(check.fix)} | {needs(check)} |"
            for check in checks
            if check.group == group
        ]
        head = [
            "| id | what is looked at | what it means when it is not PASS | what to do | needs |",
            "|---|---|---|---|---|",
        ]
        parts.append("\n".join([f"### {NAMES[group]} (`{group}`)", "", *head, *rows]))
    return "\n\n".join(parts)


def written(page: str) -> str:
    """Return the page with its tables as they should be. Raises ValueError when it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"has no place for the checks; put these two lines where they belong:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n{tables(CHECKS)}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args(argv)
    page = arguments.root / PAGE
    text = page.read_text() if page.is_file() else ""
    try:
        new = written(text)
    except ValueError as error:
        print(f"{PAGE}: {error}")
        return 1
    if new != text:
        print(f"{PAGE}: {'is not up to date; run: make docs' if arguments.check else 'written'}")
        if not arguments.check:
            page.write_text(new)
    return int(arguments.check and new != text)


if __name__ == "__main__":
    sys.exit(main())
