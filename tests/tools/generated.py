# Copyright (c) 2026, arcpro.b70 contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the generated parts of a page, each between two comments, or check that they are fresh."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Parts = Mapping[str, Callable[[], str]]


def written(page: str, parts: Parts, end: str) -> str:
    """Return the page with its parts as they should be. Raises ValueError when it has no place for one.

    :param parts: by the comment that stands before a part, what makes its text.
    :param end: the comment after each of them.
    """
    for begin, text in parts.items():
        before, start, rest = page.partition(begin)
        _old, stop, after = rest.partition(end)
        if not start or not stop:
            raise ValueError(f"has no place for this part; put these two lines where it belongs:\n{begin}\n{end}")
        page = f"{before}{start}\n{text()}\n{end}{after}"
    return page


def main(description: str | None, page: Path, parts: Parts, end: str, argv: Sequence[str] | None = None) -> int:
    """Refresh the page, or with ``--check`` only look; return 1 when it is not, or cannot be made, as it should be."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    arguments = parser.parse_args(argv)
    file = arguments.root / page
    text = file.read_text() if file.is_file() else ""
    try:
        new = written(text, parts, end)
    except ValueError as error:
        print(f"{page}: {error}")
        return 1
    if new != text:
        print(f"{page}: {'is not up to date; run: make docs' if arguments.check else 'written'}")
        if not arguments.check:
            file.write_text(new)
    return int(arguments.check and new != text)
