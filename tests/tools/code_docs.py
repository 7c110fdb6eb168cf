# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of error codes into docs/frontdoor.md, from the frontdoor's own list of them.

The tables stand between comments; everything else on the page is written by people. ``--check`` changes nothing and
ends with 1 when the page is not as it would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "roles/frontdoor/files/frontdoor/src"))

from frontdoor.codes import CODES, OPENAI_TYPES, Code  # noqa: E402

__all__ = ["CODES", "END", "PAGE", "ROOT", "TABLES", "begin", "main"]

PAGE = Path("docs/frontdoor.md")
END = "<!-- end of codes -->"


def begin(subject: str) -> str:
    """Return the comment before the table of a subject."""
    return f"<!-- codes of {subject}: written by `make docs` from frontdoor/codes.py -->"


def statuses(code: Code) -> str:
    """Return the statuses in words."""
    return ", ".join(map(str, code.statuses)) or "in a stream"


def requests() -> str:
    """Return the table of what everybody may be told."""
    rows = ["| code | status | `type` | means | what a client does |", "|---|---|---|---|---|"]
    for name, code in CODES.items():
        if not code.admin:
            kinds = dict.fromkeys(
                OPENAI_TYPES.get(status, "invalid_request_error") for status in code.statuses or (502,)
            )
            kind = ", ".join(f"`{one}`" for one in kinds)
            rows.append(f"| `{name}` | {statuses(code)} | {kind} | {code.means} | {code.then} |")
    return "\n".join(rows)


def administration() -> str:
    """Return the table of what only the administration says."""
    rows = ["| code | status | means | what a client does |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {statuses(code)} | {code.means} | {code.then} |" for name, code in CODES.items() if code.admin
    ]
    return "\n".join(rows)


TABLES = {"requests": requests, "the administration": administration}


def written(page: str) -> str:
    """Return the page with its tables as they should be. Raises ValueError when it has no place for one."""
    for subject, table in TABLES.items():
        before, start, rest = page.partition(begin(subject))
        _old, end, after = rest.partition(END)
        if not start or not end:
            raise ValueError(
                f"has no place for the codes; put these two lines where they belong:\n{begin(subject)}\n{END}"
            )
        page = f"{before}{start}\n{table()}\n{END}{after}"
    return page


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
