# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of error codes into docs/frontdoor.md, from the frontdoor's own list of them.

The tables stand between comments; everything else on the page is written by people. ``--check`` changes nothing and
ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "roles/frontdoor/files/frontdoor/src")]

from tools import generated  # noqa: E402

# isort: split
from frontdoor.errors import CODES, Code, types_of  # noqa: E402

__all__ = ["CODES", "END", "PAGE", "ROOT", "TABLES", "begin", "main"]

PAGE = Path("docs/frontdoor.md")
END = "<!-- end of codes -->"


def begin(subject: str) -> str:
    """Return the comment before the table of a subject."""
    return f"<!-- codes of {subject}: written by `make docs` from frontdoor/codes.toml -->"


def statuses(code: Code) -> str:
    """Return the statuses in words."""
    return ", ".join(map(str, code.statuses)) or "in a stream"


def requests() -> str:
    """Return the table of what everybody may be told."""
    kinds: dict[str, list[int]] = {}
    for status in sorted({status for code in CODES.values() if not code.admin for status in code.statuses}):
        kinds.setdefault(types_of(status)[0], []).append(status)
    said = "; ".join(f"`{kind}` of {', '.join(map(str, found))}" for kind, found in kinds.items())
    return f"{_table(admin=False)}\n\nThe `type` of an error belongs to its status: {said}."


def administration() -> str:
    """Return the table of what only the administration says."""
    return _table(admin=True)


def _table(admin: bool) -> str:
    rows = ["| code | status | means | what a client does |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {statuses(code)} | {code.means} | {code.then} |"
        for name, code in CODES.items()
        if code.admin is admin
    ]
    return "\n".join(rows)


TABLES = {"requests": requests, "the administration": administration}


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh, or check, the page."""
    return generated.main(__doc__, PAGE, {begin(subject): table for subject, table in TABLES.items()}, END, argv)


if __name__ == "__main__":
    sys.exit(main())
